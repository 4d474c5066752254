"""Default thresholds: every client connects, nothing is lost, every scheduled message is sent. Each
stands for the figures that a scenario has no threshold about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from pubstorm.metrics.expressions import Expression
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
        for metric, default in DEFAULTS.items()
        for name in _subjects(scenario, default)
        for subject in ("" if name is None else f"{name}.",)
    )


@dataclass(frozen=True, slots=True)
class Default:
    """A default threshold: its metric has to be 0."""

    replaced_by: frozenset[str]
    """Metrics about the same figure: a threshold about one of them replaces the default."""
    concerns: Callable[[Population], bool]
    """Returns True if clients of a population or share have the figure."""
    exempts: Callable[[Population], bool]
    """Returns True if the figure of these clients is not 0 by design."""
    publishing: bool = True
    """True if the figure needs messages of a publish stage."""


def _subjects(scenario: Scenario, default: Default) -> Iterator[str | None]:
    """The populations or shares that a default is still needed for; None stands for all of them
    together."""
    if default.publishing and not _takes_part(scenario, "publish"):
        return
    shares = shares_of(scenario)
    concerned = {n: d for n, d in shares.items() if default.concerns(d.population)}
    exempt = {name for name, each in concerned.items() if default.exempts(each.population)}
    subjects = {None, *shares, *scenario.populations}
    own = subjects & {
        threshold.expression.subject
        for threshold in scenario.thresholds
        if threshold.expression.figure.name in default.replaced_by
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


DEFAULTS: Mapping[str, Default] = {
    "never_ready": Default(
        replaced_by=frozenset({"never_ready", "connected", "ready_max"}),
        concerns=lambda _: True,
        exempts=lambda _: False,
        publishing=False,
    ),
    "lost": Default(
        replaced_by=frozenset({"lost", "loss"}),
        concerns=_receives,
        exempts=_may_lose,
    ),
    "unanswered": Default(
        replaced_by=frozenset({"unanswered"}), concerns=_requests, exempts=_may_lose
    ),
    "answers_dropped": Default(
        replaced_by=frozenset({"answers_dropped"}), concerns=_responds, exempts=_may_lose
    ),
    "rejected": Default(
        replaced_by=frozenset({"rejected"}), concerns=_can_be_rejected, exempts=lambda _: False
    ),
    "skipped": Default(
        replaced_by=frozenset({"skipped"}), concerns=_has_schedule, exempts=_skips_late
    ),
}
"""By metric."""
