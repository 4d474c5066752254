"""The load that a plan offers: messages sent and deliveries owed, per second and in all. An
estimate from sampled clients, for preflight and for people; the engine's ledger is exact
(`crates/plan/src/fan_out.rs`). It knows no host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from pubstorm.plan import (
    ChangeRate,
    OpenPace,
    Plan,
    Population,
    Presence,
    Publication,
    PublishAction,
    Stage,
)
from pubstorm.template import Kind, Part, Template, Variable


@dataclass(frozen=True, slots=True)
class PhaseLoad:
    """What a publish stage offers from one change to the next; closed loops count nothing, since
    their rate is the broker's. Clients that join or leave over a time count from its start."""

    name: str
    """That of the stage, or of the change that it begins with."""
    after_ns: int
    """Its start, after that of the stage."""
    seconds: float
    clients: tuple[int, ...]
    """Clients of each population that are there."""
    sent_per_s: float
    delivered_per_s: float


@dataclass(frozen=True, slots=True)
class StageLoad:
    """What a publish stage offers."""

    phases: tuple[PhaseLoad, ...]
    has_closed_loop: bool

    @property
    def peak_per_s(self) -> float:
        """Messages sent and delivered a second, in the busiest phase."""
        return max((p.sent_per_s + p.delivered_per_s for p in self.phases), default=0)

    @property
    def sent_per_s(self) -> float:
        """Messages sent a second, in the mean over the stage."""
        return self.sent_total / seconds if (seconds := self.seconds) else 0

    @property
    def delivered_per_s(self) -> float:
        """Deliveries owed a second, in the mean over the stage."""
        return self.delivered_total / seconds if (seconds := self.seconds) else 0

    @property
    def seconds(self) -> float:
        """How long it publishes."""
        return sum(phase.seconds for phase in self.phases)

    @property
    def sent_total(self) -> float:
        """Messages sent in the stage."""
        return sum(phase.sent_per_s * phase.seconds for phase in self.phases)

    @property
    def delivered_total(self) -> float:
        """Deliveries owed in the stage."""
        return sum(phase.delivered_per_s * phase.seconds for phase in self.phases)


def stage_load(plan: Plan, stage: Stage) -> StageLoad:
    """The load of one stage of the plan; nothing unless it publishes."""
    if not isinstance(stage.action, PublishAction):
        return StageLoad((), False)
    pacing = (p.pace for index in stage.populations for p in plan.populations[index].publications)
    has_closed_loop = any(not isinstance(pace, OpenPace) for pace in pacing)
    return StageLoad(tuple(_phases(plan, stage, stage.action)), has_closed_loop)


def _phases(plan: Plan, stage: Stage, action: PublishAction) -> Iterator[PhaseLoad]:
    presence = Presence.before(plan, stage)
    factors = [float(index in stage.populations) for index in range(len(plan.populations))]
    name, after_ns = stage.name, 0
    for change in (*action.changes, None):
        end_ns = action.duration_ns if change is None else change.after_ns
        sent_per_s, delivered_per_s = _rates(plan, presence.counts, factors)
        seconds, clients = (end_ns - after_ns) / SECOND_NS, tuple(presence.counts)
        yield PhaseLoad(name, after_ns, seconds, clients, sent_per_s, delivered_per_s)
        if change is None:
            return
        name, after_ns = change.name, change.after_ns
        presence.change(change.population, change.action)
        if isinstance(change.action, ChangeRate) and change.population in stage.populations:
            factors[change.population] = change.action.factor


def _rates(plan: Plan, counts: Sequence[int], factors: Sequence[float]) -> tuple[float, float]:
    """Messages sent and delivered a second by the clients that are there."""
    sent_per_s = delivered_per_s = 0.0
    there = tuple(
        population.model_copy(update={"clients": clients})
        for population, clients in zip(plan.populations, counts, strict=True)
    )
    plan = plan.model_copy(update={"populations": there})
    for population, factor in zip(there, factors, strict=True):
        for publication in population.publications:
            if isinstance(publication.pace, OpenPace) and population.clients and factor:
                rate_per_s = population.clients * factor * SECOND_NS / publication.pace.period_ns
                sent_per_s += rate_per_s
                delivered_per_s += rate_per_s * deliveries(plan, population, publication)
    return sent_per_s, delivered_per_s


def peak_per_s(plan: Plan) -> float:
    """Messages sent and delivered a second, in the busiest phase."""
    return max((stage_load(plan, stage).peak_per_s for stage in plan.stages), default=0)


def deliveries(plan: Plan, population: Population, publication: Publication) -> float:
    """Clients that receive a message of the publication, in the mean over sampled messages."""
    template = Template.parse(publication.topic)
    separate = 1 if plan.targets_joined else len(plan.targets)
    found = [
        sum(
            _receivers(
                receiver, template.text(population.first + client, variant), client, separate
            )
            for receiver in plan.populations
        )
        for client in _sample(population.clients)
        for variant in _sample(template.variants)
    ]
    return sum(found) / len(found)


def _receivers(population: Population, topic: str, client: int, separate: int) -> float:
    """Clients of `population` that receive `topic`, published by client `client` of another."""
    own = 0.0
    groups: dict[str, bool] = {}
    for subscription in population.subscriptions:
        levels = Template.parse(subscription.filter).levels()
        shared = len(levels) > 2 and levels[0] == ("$share",)
        matching = _Matching(population, levels[2:] if shared else levels)
        count = matching.count(topic, client % separate, separate)
        if shared:
            group = "".join(map(str, levels[1]))
            groups[group] = groups.get(group, False) or count > 0
        else:
            own += count
    return min(own, population.clients) + sum(groups.values())


class _Matching:
    """Which client numbers of a population hold a filter that matches a topic."""

    def __init__(self, population: Population, levels: Sequence[tuple[Part, ...]]) -> None:
        self.first = population.first
        self.low = population.first
        self.high = population.first + population.clients - 1
        self.levels = levels
        self.remainders: list[tuple[int, int]] = []

    def count(self, topic: str, target: int, separate: int) -> float:
        """How many of them are connected to `target` of `separate` targets."""
        if not self._matches(topic.split("/")):
            return 0
        if separate > 1:
            self.remainders.append((separate, (target + self.first) % separate))
        span = self.high - self.low + 1
        if span > ENUMERATED_MAX:
            return span / prod(k for k, _ in self.remainders)
        numbers = range(self.low, self.high + 1)
        return sum(all(n % k == r for k, r in self.remainders) for n in numbers)

    def _matches(self, texts: Sequence[str]) -> bool:
        if texts[0].startswith("$") and self.levels[0] in {("+",), ("#",)}:
            return False
        for place, level in enumerate(self.levels):
            if level == ("#",):
                return True
            if place >= len(texts) or not self._narrow(level, texts[place]):
                return False
        return len(texts) == len(self.levels)

    def _narrow(self, level: tuple[Part, ...], text: str) -> bool:
        """Keeps the numbers for which `level` reads `text`; whether that can be at all."""
        variable = next((part for part in level if isinstance(part, Variable)), None)
        before, after = _around(level)
        if variable is None:
            return before in {"+", text}
        middle = text.removeprefix(before).removesuffix(after)
        if not text.startswith(before) or f"{before}{middle}{after}" != text:
            return False
        if not (middle.isascii() and middle.isdigit() and str(int(middle)) == middle):
            return False
        return self._require(variable, int(middle))

    def _require(self, variable: Variable, value: int) -> bool:
        match variable.kind:
            case Kind.NUMBER:
                self.low, self.high = max(self.low, value), min(self.high, value)
            case Kind.QUOTIENT:
                self.low = max(self.low, value * variable.a)
                self.high = min(self.high, value * variable.a + variable.a - 1)
            case Kind.REMAINDER:
                self.remainders.append((variable.a, value))
                return value < variable.a
            case Kind.RANGE:
                return variable.a <= value <= variable.b
        return self.low <= self.high


def _around(level: tuple[Part, ...]) -> tuple[str, str]:
    """The text before and after the level's variable; all of it before where there is none."""
    before, after = "", ""
    passed = False
    for part in level:
        if isinstance(part, Variable):
            passed = True
        elif passed:
            after += part
        else:
            before += part
    return before, after


def _sample(count: int) -> Iterator[int]:
    """Up to `SAMPLES` indices below `count`, evenly spread."""
    step = max(1, count // SAMPLES)
    yield from range(0, count, step) if count <= SAMPLES else (i * step for i in range(SAMPLES))


SECOND_NS = 10**9
SAMPLES = 16
ENUMERATED_MAX = 4096
