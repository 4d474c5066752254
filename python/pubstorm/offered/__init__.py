"""The load that a plan offers: messages sent and expected deliveries, per second and in all. An
estimate from sampled clients, for preflight and for people; the engine's ledger is exact
(`crates/plan/src/fan_out.rs`). It knows no host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pubstorm.offered.crossing import Place, reached
from pubstorm.offered.matching import Matching, filter_levels
from pubstorm.plan import (
    ZMTP,
    ChangeRate,
    OpenPace,
    Plan,
    Population,
    Presence,
    Publication,
    PublishAction,
    Stage,
    clients_at,
    rows_of,
    share_received,
    target_of,
    template_of,
    together,
)


@dataclass(frozen=True, slots=True)
class FlowLoad:
    """What one publication offers."""

    population: Population
    """Whose clients publish it."""
    publication: Publication
    sent_per_s: float
    delivered_per_s: float


@dataclass(frozen=True, slots=True)
class PhaseLoad:
    """What a publish stage offers from one change to the next; closed loops count nothing, since
    their rate is the broker's. Clients that join or leave over a time count from its start; of
    those with lives that come back, so many publish as are there in the mean."""

    name: str
    """That of the stage, or of the change that it begins with."""
    after_ns: int
    """Its start, after that of the stage."""
    seconds: float
    clients: tuple[int, ...]
    """Clients of each population that are there."""
    flows: tuple[FlowLoad, ...]
    """Publications that are on a schedule and whose clients are there."""

    @property
    def sent_per_s(self) -> float:
        """Messages sent a second."""
        return sum(flow.sent_per_s for flow in self.flows)

    @property
    def delivered_per_s(self) -> float:
        """Expected deliveries a second."""
        return sum(flow.delivered_per_s for flow in self.flows)


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
        """Expected deliveries a second, in the mean over the stage."""
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
        """Expected deliveries in the stage."""
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
    for same in (*together(action.changes), None):
        end_ns = action.duration_ns if same is None else same[0].after_ns
        seconds, clients = (end_ns - after_ns) / SECOND_NS, tuple(presence.counts)
        flows = tuple(_flows(plan, presence.counts, factors))
        yield PhaseLoad(name, after_ns, seconds, clients, flows)
        if same is None:
            return
        name, after_ns = same[0].name, same[0].after_ns
        for change in same:
            presence.change(change.population, change.action)
            if isinstance(change.action, ChangeRate) and change.population in stage.populations:
                factors[change.population] = change.action.factor


def _flows(plan: Plan, counts: Sequence[int], factors: Sequence[float]) -> Iterator[FlowLoad]:
    """What the clients that are there offer."""
    there = tuple(
        population.model_copy(update={"clients": clients})
        for population, clients in zip(plan.populations, counts, strict=True)
    )
    plan = plan.model_copy(update={"populations": there})
    for population, factor in zip(there, factors, strict=True):
        for publication in population.publications:
            if isinstance(publication.pace, OpenPace) and population.clients and factor:
                lifetime = population.lifetime
                share_there = 1.0 if lifetime is None else lifetime.share_there
                publishers = population.clients * share_there * factor
                sent_per_s = publishers * SECOND_NS / publication.pace.period_ns
                delivered_per_s = sent_per_s * deliveries(plan, population, publication)
                yield FlowLoad(population, publication, sent_per_s, delivered_per_s)


def peak_per_s(plan: Plan) -> float:
    """Messages sent and delivered a second, in the busiest phase."""
    return max((stage_load(plan, stage).peak_per_s for stage in plan.stages), default=0)


def deliveries(plan: Plan, population: Population, publication: Publication) -> float:
    """Clients that receive a message of the publication, in the mean over sampled messages."""
    template = template_of(population, publication.topic)
    index = plan.populations.index(population)
    found = []
    for client in _sample(population.clients):
        for variant in _sample(template.variants):
            topic = template.text(population.first + client, variant)
            found.append(receivers(plan, index, client, topic))
    return sum(found) / len(found)


def receivers(plan: Plan, index: int, client: int, topic: str) -> float:
    """Clients that receive a topic which a client of the population with this index publishes."""
    population, target = plan.populations[index], target_of(plan, index, client)
    if population.version == ZMTP:
        return _subscribed(plan, target, topic)
    places = reached(plan, target, topic)
    received = (_received(plan, to, place) for to in plan.populations for place in places)
    own = population.bridge and _has(population, population.first + client, topic)
    return sum(received) - own


def _subscribed(plan: Plan, target: int, topic: str) -> float:
    """Subscribers of ZeroMQ that receive a topic of the publisher at a target."""
    subscribers = 0.0
    for index, population in enumerate(plan.populations):
        if population.version == ZMTP and population.subscriptions:
            there = clients_at(plan, index, target)
            subscribers += len(there) * share_received(population, there, topic)
    return subscribers


def _received(plan: Plan, population: Population, place: Place) -> float:
    """Clients of `population` that receive a message at a place."""
    if population.version == ZMTP:
        return 0
    at = population.at
    targets, target = place.within(at.first, at.count)
    if plan.targets_joined:
        targets = at.count
    if not targets:
        return 0
    own = 0.0
    groups: dict[str, float] = {}
    for subscription in population.subscriptions:
        levels = filter_levels(subscription.filter)
        shared = len(levels) > 2 and levels[0] == ("$share",)
        levels_seen = levels[2:] if shared else levels
        numbers = range(population.first, population.first + population.clients)
        matching = Matching(levels_seen, place.topic, numbers, rows_of(population))
        share = targets / at.count
        if targets == 1 and at.choice == "turn":
            remainder = target - at.first - at.shift + population.first
            matching.keep_remainder(at.count, remainder % at.count)
            share = 1
        count = matching.count() * share
        if shared:
            group = "".join(map(str, levels[1]))
            groups[group] = max(groups.get(group, 0), min(count, 1))
        else:
            own += count
    each = 1 if plan.targets_joined else targets
    return min(own, population.clients * targets / at.count) + sum(groups.values()) * each


def _has(population: Population, n: int, topic: str) -> bool:
    """Whether client number `n` subscribes to a topic."""
    filters = (filter_levels(subscription.filter) for subscription in population.subscriptions)
    one, rows = range(n, n + 1), rows_of(population)
    return any(Matching(levels, topic, one, rows).count() for levels in filters)


def _sample(count: int) -> Iterator[int]:
    """Up to `SAMPLES` indices below `count`, evenly spread."""
    step = max(1, count // SAMPLES)
    yield from range(0, count, step) if count <= SAMPLES else (i * step for i in range(SAMPLES))


SECOND_NS = 10**9
SAMPLES = 16
