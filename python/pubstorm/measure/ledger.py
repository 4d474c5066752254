"""The ledger of a run: the sums of its agents, as they counted them, with the deliveries that the
run log excludes from loss. The loss of single clients and the shares of group members are
distributions over clients that expect the same messages."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import fsum

from pubstorm.contract.offered_load import lacks_stamps
from pubstorm.contract.plan import Plan, PlannedPopulation, PublishAction
from pubstorm.contract.snapshot import FlowCounters, FlowSnapshot, PopulationSnapshot
from pubstorm.contract.sums import ALL, Pair, RunSum, Stages
from pubstorm.measure.run_log import RunLog
from pubstorm.result import ClientLoss, GroupShare


@dataclass(frozen=True)
class Surplus:
    """Deliveries of a flow beyond the expected ones, which are no part of those received."""

    messages: int = 0
    """Deliveries of messages."""
    wills: int = 0
    """Deliveries of wills."""

    @classmethod
    def of(cls, counters: FlowCounters) -> Surplus:
        """Returns the surplus of a flow."""
        return cls(*(max(-missing, 0) for missing in _missing(counters)))

    @property
    def total(self) -> int:
        """All of them."""
        return self.messages + self.wills


class Ledger:
    """Expected, received and lost deliveries of a run. Populations that are excluded from loss
    expect what they received; deliveries that came early are expected in the next stage, to which
    they belong. Over the whole run, a flow receives no more messages and no more wills than are
    expected, so that none makes up for another: the others are its surplus. So are messages without
    a stamp that one client received beyond those expected of it: they make up for no message of
    another client."""

    def __init__(self, sums: RunSum, plan: Plan, run_log: RunLog) -> None:
        """`sums` stay as they are while the ledger is in use."""
        self.sums = sums
        self._plan = plan
        self._excluded = run_log.expect_received
        self._cut_stage = _cut_stage(plan, run_log)
        self._flows: dict[_Key, Mapping[Pair, FlowSnapshot]] = {}
        self._pairs_into: dict[_Key, defaultdict[int, list[tuple[int, Pair]]]] = {}
        self._surplus: dict[Pair, Surplus] = {}
        self._populations: dict[tuple[_Key, tuple[int, ...]], PopulationSnapshot] = {}

    def flows(self, stages: Stages = ALL) -> Mapping[Pair, FlowSnapshot]:
        """Returns the ledger of each flow that was counted, in the order of flows."""
        key = _key(stages)
        if key not in self._flows:
            self._flows[key] = self._flows_of(stages)
        return self._flows[key]

    def into(self, indices: Collection[int], stages: Stages = ALL) -> Mapping[Pair, FlowSnapshot]:
        """Returns the ledger of each flow to some populations, in the order of flows."""
        flows, key = self.flows(stages), _key(stages)
        if key not in self._pairs_into:
            into = self._pairs_into[key] = defaultdict(list)
            for place, pair in enumerate(flows):
                into[pair[1]].append((place, pair))
        chosen = (each for index in {*indices} for each in self._pairs_into[key].get(index, ()))
        return {pair: flows[pair] for _, pair in sorted(chosen)}

    def population(self, indices: Iterable[int], stages: Stages = ALL) -> PopulationSnapshot:
        """Returns the sum of some populations."""
        key = _key(stages), tuple(indices)
        if key not in self._populations:
            self._populations[key] = self._population_of(key[1], stages)
        return self._populations[key]

    def in_flight(self, pairs: Iterable[Pair], stages: Stages = ALL) -> int:
        """Returns the deliveries of some flows that were in flight when the run was cut short
        before the drain of a publish stage was over. Messages that a receiver had passed over are
        lost."""
        flows = self.flows(self._cut(stages))
        cut = (flows[pair].counters for pair in pairs if pair in flows)
        return sum(max(_open(counters) - max(counters.missing_total, 0), 0) for counters in cut)

    def lost(self, pairs: Iterable[Pair], stages: Stages = ALL) -> int:
        """Returns the expected deliveries of some flows that did not come, without those in
        flight."""
        flows = self.flows(stages)
        return sum(
            max(_open(flows[pair].counters) - self.in_flight([pair], stages), 0) for pair in pairs
        )

    def surplus(self, pair: Pair) -> Surplus:
        """Returns the deliveries of a flow beyond those that were expected in the run."""
        self.flows()
        return self._surplus.get(pair, Surplus())

    def unanswered(self, indices: Collection[int], stages: Stages = ALL) -> int:
        """Returns the answers to populations that did not come, without those that were in flight
        when the run was cut short."""
        unanswered, in_flight = (
            _unanswered(self.population(indices, each)) for each in (stages, self._cut(stages))
        )
        return max(unanswered - in_flight, 0)

    def _cut(self, stages: Stages) -> Collection[int]:
        """Returns the stage in which the run was cut short, if it is among some stages."""
        cut = self._cut_stage
        return [cut] if cut is not None and (stages is None or cut in stages) else []

    def _population_of(self, indices: Sequence[int], stages: Stages) -> PopulationSnapshot:
        population, shift = self.sums.population(indices, stages), 0
        for stage, excluded in self._excluded.items():
            if stages is None or stage in stages:
                found = self.sums.population(excluded.intersection(indices), [stage]).answers
                shift += found.answered_total - found.answers_expected_total
        answers = population.answers
        shifted = {"answers_expected_total": answers.answers_expected_total + shift}
        return population.model_copy(update={"answers": answers.model_copy(update=shifted)})

    def _flows_of(self, stages: Stages) -> Mapping[Pair, FlowSnapshot]:
        flows, shifts = dict(sorted(self.sums.flows(stages).items())), Counter[Pair]()
        for stage in self.sums.stages:
            if stage is not None and (stages is None or stage in stages):
                shifts.update(dict(self._shifts(stage)))
        for pair, shift in shifts.items():
            counters = flows[pair].counters
            flows[pair] = _with(flows[pair], expected_total=counters.expected_total + shift)
        for pair, repeated in self._repeated_in(stages).items():
            counters = flows[pair].counters
            flows[pair] = _with(flows[pair], received_total=counters.received_total - repeated)
        return flows if stages is not None else dict(self._without_surplus(flows))

    def _without_surplus(
        self, flows: Mapping[Pair, FlowSnapshot]
    ) -> Iterator[tuple[Pair, FlowSnapshot]]:
        repeated = self._repeated_in(ALL)
        for pair, flow in flows.items():
            counters, left = flow.counters, Surplus.of(flow.counters)
            surplus = replace(left, messages=left.messages + repeated[pair])
            if surplus.total:
                self._surplus[pair] = surplus
                received, wills = counters.received_total, counters.wills_received_total
                less = {"wills_received_total": wills - left.wills}
                flow = _with(flow, received_total=received - left.total, **less)
            yield pair, flow

    def _repeated_in(self, stages: Stages) -> Counter[Pair]:
        """Returns the deliveries that surely came twice, by flow."""
        found = Counter[Pair]()
        for stage, pair, repeated in self._repeated:
            if stages is None or stage in stages:
                found[pair] += repeated
        return found

    @cached_property
    def _repeated(self) -> tuple[tuple[int, Pair, int], ...]:
        """The messages without a stamp that surely came twice, by stage and flow: those that single
        clients received beyond the expected ones, where these are known. Those that may be of
        another stage are none: late ones, as many as earlier stages lack, and early ones."""
        found, late = list[tuple[int, Pair, int]](), Counter[Pair]()
        for stage in sorted(each for each in self.sums.stages if each is not None):
            flows, shifts = self.sums.flows([stage]), dict(self._shifts(stage))
            early = self.sums.early(stage)
            for pair, flow in flows.items():
                is_only = sum(other[1] == pair[1] for other in flows) == 1
                beyond = self._beyond(stage, pair[1], flow.counters) if is_only else 0
                repeated = beyond - late[pair] - early.get(pair, 0)
                if repeated > 0 and not shifts.get(pair) and self._lacks_stamps(pair):
                    found.append((stage, pair, repeated))
                late[pair] += max(_missing(flow.counters)[0] + beyond, 0)
        return tuple(found)

    def _lacks_stamps(self, pair: Pair) -> bool:
        publisher, receiver = (self._plan.populations[index] for index in pair)
        in_groups = any(each.filter.startswith("$share/") for each in receiver.subscriptions)
        return not in_groups and publisher.mqtt is not None and lacks_stamps(publisher, receiver)

    def _beyond(self, stage: int, population: int, counters: FlowCounters) -> int:
        """Returns the deliveries that single clients of a population received beyond those that
        are expected of each; 0 if the clients are not alike."""
        clients = dict(self.sums.population([population], [stage]).clients_by_deliveries)
        expected = counters.expected_total - counters.wills_expected_total
        number = sum(clients.values())
        if not number or expected < 0 or expected % number:
            return 0
        each = expected // number
        return sum(max(came - each, 0) * count for came, count in clients.items())

    def _shifts(self, stage: int) -> Iterator[tuple[Pair, int]]:
        """Yields the flows of a stage whose expected deliveries are not those that the agents
        counted, each with the difference."""
        excluded, following = (self._excluded.get(n, ()) for n in (stage, stage + 1))
        if not excluded and not following:
            return
        early = self.sums.early(stage)
        for pair, flow in self.sums.flows([stage]).items():
            shift = early.get(pair, 0) if pair[1] in following else 0
            if pair[1] in excluded:
                counters = flow.counters
                shift += counters.received_total - early.get(pair, 0) - counters.expected_total
            yield pair, shift


_Key = frozenset[int | None] | None


def _key(stages: Stages) -> _Key:
    return None if stages is None else frozenset(stages)


def _with(flow: FlowSnapshot, **counts: int) -> FlowSnapshot:
    return flow.model_copy(update={"counters": flow.counters.model_copy(update=counts)})


def lost_wills(flows: Iterable[FlowSnapshot]) -> int:
    """Returns the expected deliveries of wills of some flows that did not arrive."""
    return sum(max(_missing(flow.counters)[1], 0) for flow in flows)


def _cut_stage(plan: Plan, run_log: RunLog) -> int | None:
    """Returns the publish stage in which the run was cut short, None if there is none."""
    if not run_log.ended_early or not run_log.spans:
        return None
    last = run_log.spans[-1].index
    return last if isinstance(plan.stages[last].action, PublishAction) else None


def _open(counters: FlowCounters) -> int:
    return sum(max(missing, 0) for missing in _missing(counters))


def _missing(counters: FlowCounters) -> tuple[int, int]:
    """Returns the expected deliveries of messages, and those of wills, less those received."""
    wills = counters.wills_expected_total - counters.wills_received_total
    return counters.expected_total - counters.received_total - wills, wills


def _unanswered(population: PopulationSnapshot) -> int:
    answers = population.answers
    return max(answers.answers_expected_total - answers.answered_total, 0)


def is_one_group(population: PlannedPopulation) -> bool:
    """True if its clients are members of one shared group and have no other filter."""
    filters = [subscription.filter for subscription in population.subscriptions]
    return len(filters) == 1 and filters[0].startswith("$share/")


def joins_groups(plan: Plan, population: int, others: Iterable[int]) -> bool:
    """True if each filter of a population is that of a shared group with members in the other
    populations too, so that they receive what its clients do not."""
    filters = {each.filter for each in plan.populations[population].subscriptions}
    theirs = {each.filter for n in others for each in plan.populations[n].subscriptions}
    return filters <= theirs and all(text.startswith("$share/") for text in filters)


def group_share(
    plan: Plan, ledger: Ledger, stages: Iterable[int], populations: Iterable[int]
) -> GroupShare:
    """Returns the shares of the members among the clients of populations in publish stages."""
    grouped = [p for p in populations if is_one_group(plan.populations[p])]
    shares = Counter[float]()
    for stage, population in product(stages, grouped):
        shares.update(member_shares(ledger, stage, population))
    return share_statistics(shares)


def member_shares(ledger: Ledger, stage: int, population: int) -> Counter[float]:
    """Returns the members of a group by their deliveries in a publish stage, as multiples of the
    mean. Returns nothing if the agents did not count them, or nothing was delivered."""
    members = Counter(dict(ledger.population([population], [stage]).clients_by_deliveries))
    delivered = sum(deliveries * number for deliveries, number in members.items())
    if not delivered:
        return Counter()
    mean = delivered / members.total()
    shares = Counter[float]()
    for deliveries, number in members.items():
        shares[deliveries / mean] += number
    return shares


def share_statistics(shares: Counter[float]) -> GroupShare:
    """Returns the statistics of shares, each with its number of members. The fairness is the index
    of Jain, Chiu and Hawe (DEC Research Report TR-301, 1984)."""
    count = shares.total()
    if not count:
        return GroupShare()
    total = fsum(share * number for share, number in shares.items())
    squares = fsum(share * share * number for share, number in shares.items())
    return GroupShare(
        count=count,
        idle=shares[0.0],
        fairness=round(total * total / (count * squares), 6),
        min=round(min(shares), 6),
        p50=round(quantile(shares, 0.5), 6),
        max=round(max(shares), 6),
    )


def quantile(clients: Counter[float], share: float) -> float:
    """Returns the value that this share of the clients, above 0 and at most 1, does not exceed.
    `clients` are numbers of clients by their value, not empty."""
    reached, count = 0, clients.total()
    for value, number in sorted(clients.items()):
        reached += number
        if reached >= share * count:
            return value
    return max(clients)


def client_loss(
    plan: Plan, ledger: Ledger, stages: Iterable[int], populations: Iterable[int]
) -> ClientLoss:
    """Returns the losses of the clients of populations in publish stages. Shared groups are left
    out: their members expect no message of their own."""
    alike = [p for p in populations if not is_one_group(plan.populations[p])]
    losses = Counter[float]()
    for stage, population in product(stages, alike):
        losses.update(client_losses(ledger, stage, population))
    return loss_statistics(losses)


def client_losses(ledger: Ledger, stage: int, population: int) -> Counter[float]:
    """Returns the clients of a population by their loss in a publish stage, as a share of the
    deliveries that were expected for each, without wills. Returns nothing if the clients are not
    alike."""
    clients = Counter(dict(ledger.population([population], [stage]).clients_by_deliveries))
    flows = (flow.counters for flow in ledger.into([population], [stage]).values())
    expected = sum(each.expected_total - each.wills_expected_total for each in flows)
    if not clients or expected <= 0 or expected % clients.total():
        return Counter()
    each = expected // clients.total()
    losses = Counter[float]()
    for deliveries, number in clients.items():
        losses[max(0.0, 1 - deliveries / each)] += number
    return losses


def loss_statistics(losses: Counter[float]) -> ClientLoss:
    """Returns the statistics of losses, each with its number of clients."""
    count = losses.total()
    if not count:
        return ClientLoss()

    def at(share: float) -> float:
        return round(quantile(losses, share), 6)

    return ClientLoss(
        count=count,
        mean=round(sum(loss * number for loss, number in losses.items()) / count, 6),
        p50=at(0.5),
        p90=at(0.9),
        p99=at(0.99),
        max=at(1),
    )
