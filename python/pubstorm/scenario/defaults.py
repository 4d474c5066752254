"""Default thresholds: every client connects, nothing is lost, every scheduled message is sent. Each
stands for the figures that a scenario has no threshold about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from pubstorm.metrics.expressions import Expression
from pubstorm.metrics.metric import Zero
from pubstorm.metrics.populations import POPULATIONS
from pubstorm.metrics.thresholds import Threshold
from pubstorm.scenario.flows import MqttPublication
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import Connecting, MqttClients, Population, Simulated
from pubstorm.scenario.shares import shares_of


def conditions_of(scenario: Scenario) -> tuple[Threshold, ...]:
    """All thresholds of a run: the scenario's own, then the defaults."""
    return (*scenario.thresholds, *default_thresholds(scenario))


def default_thresholds(scenario: Scenario) -> tuple[Threshold, ...]:
    """The defaults that no threshold of the scenario replaces."""
    if scenario.defaults == "off":
        return ()
    return tuple(
        Threshold(Expression(name, metric), "==", 0.0, f"{subject}{metric} == 0", is_default=True)
        for metric, zero in _DEFAULTS
        for name in _subjects(scenario, metric, zero)
        for subject in ("" if name is None else f"{name}.",)
    )


def _subjects(scenario: Scenario, metric: str, zero: Zero) -> Iterator[str | None]:
    """The populations or shares that a default is still needed for; None stands for all of them
    together."""
    if zero.is_of_messages and not _takes_part(scenario, "publish"):
        return
    shares = shares_of(scenario)
    concerned = {n: d for n, d in shares.items() if _HAVE[zero.of](d.population)}
    exempt = {name for name, each in concerned.items() if _EXEMPT[zero.but](each.population)}
    subjects = {None, *shares, *scenario.populations}
    own = subjects & {
        threshold.expression.subject
        for threshold in scenario.thresholds
        if metric in {threshold.expression.figure.name, threshold.expression.figure.replaces}
    }
    if None in own or not concerned:
        return
    if not own and not exempt:
        yield None
        return
    connected = _takes_part(scenario, "connect")
    wanted = [
        name
        for name, each in concerned.items()
        if name in connected and name not in exempt and not own & {name, each.whole}
    ]
    for whole in dict.fromkeys(shares[name].whole for name in wanted):
        parts = [name for name, each in shares.items() if each.whole == whole]
        yield from [whole] if {*parts} <= {*wanted} else (n for n in parts if n in wanted)


def _takes_part(scenario: Scenario, verb: Literal["connect", "publish"]) -> frozenset[str]:
    """The shares whose clients some stage connects, or lets publish."""
    shares = shares_of(scenario)
    found = set[str]()
    for stage in scenario.stages:
        changes = () if stage.publish is None else stage.publish.changes
        added = [change.population for change in changes if change.add is not None]
        for name, each in shares.items():
            names, chosen = {name, each.whole}, stage.populations
            is_chosen = stage.verb == verb and (chosen is None or bool(names & {*chosen}))
            publishes = verb == "connect" or bool(each.population.flows)
            if publishes and (is_chosen or names & {*added}):
                found.add(name)
    return frozenset(found)


def _may_lose(population: Population) -> bool:
    """Slow readers lose messages by design; the loss of clients with a lifetime, or with flapping
    subscriptions, is not known."""
    slow = isinstance(population, Simulated) and population.read_rate is not None
    return slow or population.stay is not None or population.flaps is not None


def _receives(population: Population) -> bool:
    return isinstance(population, Connecting) and bool(population.subscriptions)


def _has_schedule(population: Population) -> bool:
    return any(each.rate_per_s is not None for each in population.flows)


def _can_be_rejected(population: Population) -> bool:
    """Only acknowledgements of MQTT 5 can refuse a message."""
    return (
        isinstance(population, MqttClients)
        and population.version == "5"
        and any(publication.qos for publication in population.publications)
    )


def _requests(population: Population) -> bool:
    flows = population.flows
    return any(isinstance(each, MqttPublication) and each.request for each in flows)


def _responds(population: Population) -> bool:
    return isinstance(population, MqttClients) and population.responds is not None


def _skips_late(population: Population) -> bool:
    return any(each.late == "skip" for each in population.flows)


_HAVE: Mapping[str, Callable[[Population], bool]] = {
    "clients": lambda _: True,
    "receivers": _receives,
    "requesters": _requests,
    "responders": _responds,
    "rejectable": _can_be_rejected,
    "scheduled": _has_schedule,
}
_EXEMPT: Mapping[str, Callable[[Population], bool]] = {
    "": lambda _: False,
    "lossy": _may_lose,
    "skipping": _skips_late,
}
_DEFAULTS = sorted(
    ((metric.name, metric.zero) for metric in POPULATIONS if metric.zero is not None),
    key=lambda each: each[1].place,
)
