"""Default thresholds: every client connects, nothing is lost, every message is sent and
acknowledged. Each stands for the figures that a scenario has no threshold about."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from pubstorm.contract.template import RECORDED
from pubstorm.metrics.expressions import Expression, Threshold
from pubstorm.metrics.metric import Doing, Zero
from pubstorm.metrics.populations import POPULATIONS
from pubstorm.scenario.flows import MqttPublication
from pubstorm.scenario.kinds import MqttClients
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import Population, Simulated
from pubstorm.scenario.shares import PlannedClients, PopulationShare, meant_by
from pubstorm.scenario.stages import Stage

VARIABLE = re.compile(r"\{[^{}]*\}")
SHARE = "$share/"
"""Begin of the filter of a shared group."""


def covers(topic_filter: str, topic: str) -> bool:
    """Returns True if a filter matches a topic for each client, where both are templates."""
    levels, names = _levels(topic_filter), _levels(topic)
    for place, level in enumerate(levels):
        if level == "#":
            return True
        if place >= len(names) or level not in {"+", names[place]}:
            return False
    return len(levels) == len(names)


def may_match(topic_filter: str, topic: str) -> bool:
    """Returns False if a filter matches the topic of no client, where both are templates. A shared
    filter is the one behind its group. A recorded topic has any levels."""
    if RECORDED in topic:
        return True
    levels, names = _levels(topic_filter), _levels(topic)
    if levels[0] == "$share":
        levels = levels[2:]
    for place, level in enumerate(levels):
        if level == "#":
            return True
        if place >= len(names):
            return False
        is_open = level == "+" or VARIABLE.search(level) or VARIABLE.search(names[place])
        if not is_open and level != names[place]:
            return False
    return len(levels) == len(names)


def _levels(topic: str) -> list[str]:
    """Returns the levels of a template; a variable may contain a slash."""
    return [
        level.replace("\0", "/")
        for level in VARIABLE.sub(lambda found: found[0].replace("/", "\0"), topic).split("/")
    ]


def conditions_of(scenario: Scenario) -> tuple[Threshold, ...]:
    """All thresholds of a run: the scenario's own, then the defaults."""
    return (*scenario.thresholds, *default_thresholds(scenario))


def default_thresholds(scenario: Scenario) -> tuple[Threshold, ...]:
    """The defaults that no threshold of the scenario replaces."""
    if scenario.defaults == "off":
        return ()
    course = _Course(scenario)
    return tuple(
        Threshold(
            expression := Expression(name, metric, span=span),
            "==",
            0.0,
            f"{expression} == 0",
            is_default=True,
            may_be_about_nothing=zero.may_be_about_nothing,
        )
        for metric, zero in _DEFAULTS
        for span, there in course.spans(zero)
        for name in _subjects(course, (metric, zero), there)
    )


@dataclass
class _PlannedStage:
    """A stage of the scenario, with the shares that take each part in it."""

    stage: Stage
    is_broken: bool
    """True if a fault of the stage, or one that lasts for ever, is under way."""
    doing: defaultdict[Doing, set[str]] = field(default_factory=lambda: defaultdict(set))


class _Course:
    """The stages of a scenario, as far as defaults depend on them."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.planned = PlannedClients(scenario)
        self.shares = self.planned.shares
        self._kept = set[str]()
        """Shares with sessions that the broker keeps."""
        self._is_broken = False

    def spans(self, zero: Zero) -> Iterator[tuple[str | None, frozenset[str]]]:
        """Yields the spans that a default is about, each with the shares that have a part in it:
        the whole run, or without its faults the stages that have none."""
        broken = {played.stage.name for played in self.played if played.is_broken}
        if zero.doing is None:
            yield None, frozenset(self.shares)
        elif zero.is_of_last_stage:
            last = [played for played in self.played if played.stage.publish is not None][-1:]
            quiet = (played for played in last if not played.is_broken)
            yield None, frozenset(name for p in quiet for name in p.doing[zero.doing])
        elif not broken:
            yield None, frozenset(name for p in self.played for name in p.doing[zero.doing])
        else:
            for played in self.played:
                if played.stage.name not in broken:
                    yield played.stage.name, frozenset(played.doing[zero.doing])

    @cached_property
    def played(self) -> list[_PlannedStage]:
        """The stages in order."""
        return [self._play(stage) for stage in self.scenario.stages]

    @cached_property
    def connected(self) -> frozenset[str]:
        """The shares that some stage connects."""
        stages = self.scenario.stages
        joining = {n for s in stages if s.connect is not None for n in self.planned.chosen(s)}
        return frozenset(joining.union(*(self._changed(stage, "add") for stage in stages)))

    @cached_property
    def leavers(self) -> frozenset[str]:
        """The shares with clients that leave while messages are under way: those that changes
        remove, and those that share client identifiers with others."""
        clients = (
            (n, p) for n, p in self.scenario.populations.items() if isinstance(p, MqttClients)
        )
        rivals = ((n, p.takes_over) for n, p in clients if p.takes_over is not None)
        contested = (name for pair in rivals for name in pair)
        removed = (self._changed(stage, "remove") for stage in self.scenario.stages)
        return frozenset(n for name in contested for n in meant_by(self.shares, name)).union(
            *removed
        )

    def _play(self, stage: Stage) -> _PlannedStage:
        before, chosen = self._active(), set(self.planned.chosen(stage))
        played = _PlannedStage(stage, self._is_broken or bool(stage.faults))
        self._is_broken |= any(fault.repair_after_ns is None for fault in stage.faults)
        self.planned.enter(stage)
        added, removed = self._changed(stage, "add"), self._changed(stage, "remove")
        there = before | self._active() | added
        if stage.publish is not None:
            publishing = {name for name in chosen | added if self._population(name).flows}
            played.doing["publishes"] |= publishing
            reached = there | self._kept | (self.shares.keys() - self.connected)
            played.doing["receives"] |= self._receiving(publishing, reached)
        dying = {name for name in there if self._population(name).stay is not None} | removed
        if stage.disconnect is not None:
            dying, there = chosen & before, before - chosen
        wills = self._wills_of(dying)
        played.doing["awaits wills"] |= {
            name
            for name in there - removed
            if any(self._may_match(self._population(name), will) for will in wills)
        }
        for change in stage.changes:
            self.planned.change(change)
        self._kept |= {name for name in there if self._population(name).keeps_session}
        return played

    def _changed(self, stage: Stage, verb: Literal["add", "remove"]) -> set[str]:
        """Returns the shares with clients that changes of a stage add or remove."""
        names = (each.population for each in stage.changes if getattr(each, verb) is not None)
        return {n for name in names for n in meant_by(self.shares, name)}

    def _receiving(self, publishing: set[str], reached: set[str]) -> set[str]:
        """Returns the shares that may receive messages of some that publish, if they are reached.
        Shares whose filters match nothing at all are among them: a threshold about them fails, and
        says so."""
        found = set[str]()
        for name, (sources, is_for_wills) in self._matching.items():
            is_for_nothing = not sources and not is_for_wills
            if publishing and (is_for_nothing or (name in reached and sources & publishing)):
                found.add(name)
        return found

    @cached_property
    def _matching(self) -> Mapping[str, tuple[set[str], bool]]:
        """The shares with publications that each share may receive, and True if it may receive
        wills."""
        flows = [(n, topic) for n in self.shares for topic in self._topics(self._population(n))]
        for flow in self.scenario.flows:
            names = self.scenario.populations[flow.at].can.names
            arrives = self.scenario.names_of(flow)[1]
            arrives = arrives if names is None else names.twin(arrives)
            flows += [(name, arrives) for name in meant_by(self.shares, flow.of)]
        wills = self._wills_of(self.shares)
        return {
            name: (
                {
                    publisher
                    for publisher, topic in flows
                    if self._may_match(each.population, topic)
                },
                any(self._may_match(each.population, will) for will in wills),
            )
            for name, each in self.shares.items()
        }

    def _wills_of(self, names: Iterable[str]) -> list[str]:
        """Returns the topics of the wills of shares whose clients die."""
        populations = map(self._population, names)
        return [
            each.will.topic
            for each in populations
            if isinstance(each, MqttClients) and each.will is not None and each.end != "disconnect"
        ]

    def _may_match(self, population: Population, topic: str) -> bool:
        """Returns True if a filter of a population may match a topic in the words of MQTT. Prefixes
        are not compared."""
        names, around = population.can.names, self.scenario.around(population)
        return names is None or any(
            may_match(names.twin(population.topic_of(each, around)), topic)
            for each in population.filters
        )

    def _topics(self, population: Population) -> list[str]:
        """Returns the topics of the publications, in the words of MQTT."""
        names, around = population.can.names, self.scenario.around(population)
        topics = [population.topic_of(each, around) for each in population.flows]
        return topics if names is None else [*map(names.twin, topics)]

    def _active(self) -> set[str]:
        return {name for name in self.shares if self.planned.most([name]) > 0}

    def _population(self, name: str) -> Population:
        return self.shares[name].population


def _subjects(
    course: _Course, default: tuple[str, Zero], there: frozenset[str]
) -> Iterator[str | None]:
    """The populations or shares that a default is still needed for; None stands for all of them
    together. `there` are the shares that take part."""
    metric, zero = default
    names = {metric, zero.replaced_with} - {""}
    shares: Mapping[str, PopulationShare] = course.shares
    concerned = {n: d for n, d in shares.items() if n in there and _HAVE[zero.of](d.population)}
    exempt = {name for name, each in concerned.items() if _EXEMPT[zero.but](each.population)}
    exempt |= course.leavers & concerned.keys() if zero.exempts_leavers else set()
    subjects = {None, *shares, *course.scenario.populations}
    own = subjects & {
        threshold.expression.subject
        for threshold in course.scenario.thresholds
        if names & {threshold.expression.figure.name, threshold.expression.figure.replaces}
    }
    if None in own or not concerned:
        return
    if not own and not exempt:
        yield None
        return
    wanted = [
        name
        for name, each in concerned.items()
        if name in course.connected and name not in exempt and not own & {name, each.whole}
    ]
    for whole in dict.fromkeys(shares[name].whole for name in wanted):
        parts = [name for name, each in shares.items() if each.whole == whole]
        yield from [whole] if {*parts} <= {*wanted} else (n for n in parts if n in wanted)


def _may_lose(population: Population) -> bool:
    """Slow readers lose messages by design; the loss of clients with a lifetime, or with flapping
    subscriptions, is not known."""
    slow = isinstance(population, Simulated) and population.read_rate is not None
    return slow or population.stay is not None or population.flaps is not None


def _is_acknowledged(population: Population) -> bool:
    return any(flow.level for flow in population.flows)


def _may_leave_unacknowledged(population: Population) -> bool:
    """Clients that read slowly, leave by themselves or die may leave messages behind."""
    slow = isinstance(population, Simulated) and population.read_rate is not None
    dies = isinstance(population, MqttClients) and population.end in {"abort", "vanish"}
    return slow or dies or population.stay is not None


def _requests(population: Population) -> bool:
    flows = population.flows
    return any(isinstance(each, MqttPublication) and each.request for each in flows)


_HAVE: Mapping[str, Callable[[Population], bool]] = {
    "clients": lambda _: True,
    "receivers": lambda p: bool(p.filters),
    "requesters": _requests,
    "responders": lambda p: isinstance(p, MqttClients) and p.responds is not None,
    "rejectable": lambda p: p.can.refuses_messages and _is_acknowledged(p),
    "acknowledged": _is_acknowledged,
    "scheduled": lambda p: any(each.rate_per_s is not None for each in p.flows),
}
_EXEMPT: Mapping[str, Callable[[Population], bool]] = {
    "": lambda _: False,
    "lossy": _may_lose,
    "leaving": _may_leave_unacknowledged,
    "skipping": lambda p: any(each.late == "skip" for each in p.flows),
}
_DEFAULTS = sorted(
    ((metric.name, metric.zero) for metric in POPULATIONS if metric.zero is not None),
    key=lambda each: each[1].place,
)
