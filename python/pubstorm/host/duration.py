"""The least duration of a run, from its plan."""

from __future__ import annotations

from math import inf

from pubstorm.contract.plan import (
    ConnectAction,
    DisconnectAction,
    HoldAction,
    Plan,
    PublishAction,
)
from pubstorm.host.explain import offered_load
from pubstorm.quantities import SECOND_NS


def least_seconds(plan: Plan, connects_per_s: float = inf) -> float:
    """Seconds that the stages take at least, without the start of brokers and the drains; engines
    connect `connects_per_s` clients a second at most."""
    found, before = 0.0, 0
    for stage, load in zip(plan.stages, offered_load(plan).stages, strict=True):
        clients = sum(load.phases[0].clients)
        match stage.action:
            case ConnectAction(rate_per_s=rate_per_s):
                found += (clients - before) / min(connects_per_s, rate_per_s or inf)
            case DisconnectAction(rate_per_s=rate_per_s):
                found += (before - clients) / (rate_per_s or inf)
            case PublishAction(duration_ns=duration_ns) | HoldAction(duration_ns=duration_ns):
                found += duration_ns / SECOND_NS
        before = sum(load.phases[-1].clients)
    return found
