"""The progress of a run, by the latest snapshot of each agent: answers the questions of the
barriers at the ends of stages. Barriers: conditions that a stage waits for, with the instants at
which the wait ends without them, and the longest times of stages beyond the plan."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pubstorm.contract.commands import Sent
from pubstorm.contract.plan import Plan, PlannedPopulation, PublishAction
from pubstorm.contract.snapshot import Snapshot
from pubstorm.contract.sums import RunSum
from pubstorm.fleet.incarnation import LATE_S, LOOK_S
from pubstorm.fleet.programs import Assignment
from pubstorm.quantities import SECOND_NS

NEVER_NS = 2**63
"""Later than every instant."""
LEAVE_TIMEOUT_NS = 30 * SECOND_NS
"""Longest time of a disconnect stage beyond its schedule."""
WILLS_WAIT_MAX_NS = 600 * SECOND_NS
"""Longest time in which a disconnect stage waits for wills that are not due yet."""
HOPELESS_NS = 3 * SECOND_NS
"""Time of failing attempts after which a run has to end, unless some are still under way."""
CONNECT_TIMEOUTS_MAX = 3
"""Timeouts of a connect stage after which it ends, whatever moves."""
CONNECT_EACH_NS = SECOND_NS // 10
"""Further time for each client."""
LOOK_NS, LATE_NS = round(LOOK_S * SECOND_NS), round(LATE_S * SECOND_NS)
"""Longest wait of a barrier for one event, and the delay of its end that still counts in full."""
STOOD_MAX_NS = 60 * SECOND_NS
"""Longest time in which a controller had no processor that counts for nothing."""
DRAINS_MAX = 20
"""Times of the drain after which a publish stage ends, whatever moves."""

Clock = Callable[[], int]
"""Returns the present instant, in nanoseconds on the monotonic clock."""


@dataclass(frozen=True)
class Barrier:
    """A condition, and the instant at which a wait for it ends. Progress may move the instant."""

    done: Callable[[], bool]
    until_ns: Callable[[], int]

    async def passed(self, clock: Clock, wait: Callable[[int], Awaitable[None]]) -> bool:
        """Waits for the condition; False if its time is over before. `wait` returns after an event,
        at the latest after the nanoseconds that it gets. Time in which the controller had no
        processor counts for nothing: what came meanwhile has not been read."""
        stood_ns = 0
        while not self.done():
            began_ns = clock()
            asked_ns = min(self.until_ns() + stood_ns - began_ns, LOOK_NS)
            if asked_ns <= 0:
                return False
            await wait(asked_ns)
            late_ns = clock() - began_ns - asked_ns
            if late_ns > LATE_NS:
                stood_ns = min(stood_ns + late_ns + LATE_NS, STOOD_MAX_NS)
        return True


def connect_bound_ns(clients: int, timeout_ns: int) -> int:
    """Longest time of a connect stage beyond its schedule. No progress can move it."""
    return CONNECT_TIMEOUTS_MAX * timeout_ns + clients * CONNECT_EACH_NS


def wills_wait_ns(leaving: Iterable[PlannedPopulation]) -> int:
    """Longest time from the end of the last connection to the publication of its will, at most
    `WILLS_WAIT_MAX_NS`; 0 if clients leave without wills."""
    waits = (p.will_wait_ns for p in leaving if p.will is not None and p.end != "disconnect")
    return min(max(waits, default=0), WILLS_WAIT_MAX_NS)


def schedule_ns(clients: int, rate_per_s: float | None) -> int:
    """Time in which `clients` connect or leave at a rate."""
    return round(clients / rate_per_s * SECOND_NS) if rate_per_s else 0


class Progress:
    """The state of a run while it is played."""

    def __init__(
        self, plan: Plan, assignment: Assignment, sums: RunSum, clock: Clock = time.monotonic_ns
    ) -> None:
        self.plan = plan
        self.sums = sums
        self._assignment = assignment
        self._clock = clock
        self._latest: dict[int, Snapshot] = {}
        self._settled_ns: dict[int, int] = {}
        """End of the first snapshot of each agent that has settled the present stage."""
        self._away: set[int] = set()
        self._rejoining: set[int] = set()
        self._expected = Counter[tuple[int, int]]()
        """Deliveries of messages that are expected and have not come, by flow."""
        self._expected_wills = Counter[tuple[int, int]]()
        """The same of wills: a message makes up for no will, and a will for no message."""
        self.missing = Counter[int]()
        """Deliveries passed over in streams and not received yet, by population."""
        self.totals = Counter[str]()
        """Messages since the start: sent, acked, received, and foreign ones of other programs."""
        self.outcomes = Counter[str]()
        """Problems of the clients, by reason."""
        self._connected_total = 0
        self._first_attempts_total = 0
        self._present_max = 0
        """Most clients present at once in this stage."""
        self.stage = 0
        self.entered_ns = clock()
        self.moved_ns = 0
        """Instant of the last message that was new: sent, acknowledged or received."""
        self.connecting_ns = 0
        """Instant of the last first attempt, or of the last new maximum of ready clients."""
        self._failing_since_ns: int | None = None
        """Instant of the first failed attempt."""
        self._awaited: Sequence[int] | None = None
        """Attempts of each population that had begun when some had failed for long."""

    @property
    def latest(self) -> Mapping[int, Snapshot]:
        """The last snapshot of each agent that is not away."""
        return self._latest

    @property
    def latest_of_load(self) -> list[Snapshot]:
        """The last snapshots of agents that are not under test."""
        publishers = self._assignment.publishers
        return [snapshot for agent, snapshot in self._latest.items() if agent not in publishers]

    def enter(self, stage: int, at_ns: int) -> None:
        """Begins a stage. Deliveries beyond the expected ones of the stages so far make up for
        none of this stage."""
        self.stage = stage
        self._settled_ns.clear()
        self._expected, self._expected_wills = +self._expected, +self._expected_wills
        self.entered_ns = self.connecting_ns = at_ns
        self._present_max = self._present()

    def fail(self, agent: int) -> int | None:
        """Takes a failed agent out of the barriers. Returns the end of its last snapshot, None if
        there was none."""
        latest = self._latest.pop(agent, None)
        self._away.add(agent)
        self._rejoining.discard(agent)
        self._present_max = self._present()
        return None if latest is None else latest.to_ns

    def begin_rejoin(self, agent: int) -> None:
        """Counts the snapshots of a replacement to the present stage while it goes through earlier
        ones."""
        self._rejoining.add(agent)

    def include(self, agent: int, until_ns: int) -> None:
        """Includes an agent in the barriers again; it has clients to connect until an instant."""
        self._away.discard(agent)
        self.connecting_ns = max(self.connecting_ns, until_ns)

    def forget_expected(self) -> None:
        """Expects no more deliveries of the stages so far."""
        self._expected.clear()
        self._expected_wills.clear()

    def take(self, snapshot: Snapshot) -> int | None:
        """Takes a snapshot and returns the stage that it counts for: the present one if its agent
        goes through earlier stages to rejoin."""
        now_ns = self._clock()
        self._latest[snapshot.agent] = snapshot
        if snapshot.stage == self.stage:
            self._rejoining.discard(snapshot.agent)
            if snapshot.settled:
                self._settled_ns.setdefault(snapshot.agent, snapshot.to_ns)
        if self._take_messages(snapshot):
            self.moved_ns = now_ns
        is_publisher = snapshot.agent in self._assignment.publishers
        if not is_publisher and self._take_connections(snapshot, now_ns):
            self.connecting_ns = max(self.connecting_ns, now_ns)
        return self.stage if snapshot.agent in self._rejoining else snapshot.stage

    def is_early(self, snapshot: Snapshot) -> bool:
        """True if an agent is still in the stage before a publish stage that has begun. All
        deliveries of the earlier stage had come, or were given up, when this one began."""
        publishes = isinstance(self.plan.stages[self.stage].action, PublishAction)
        is_behind = snapshot.agent not in self._rejoining and snapshot.stage == self.stage - 1
        return publishes and is_behind and snapshot.to_ns > self.entered_ns

    def settled(self, agents: Collection[int] | None = None) -> bool:
        """True if every agent that is left, or these of them, has done all that it can in this
        stage."""
        asked = range(self._assignment.agents) if agents is None else agents
        return all(self.has_settled(a, self.stage) for a in asked if a not in self._away)

    def settled_ns(self) -> int:
        """Returns the instant by which the last agent had done all that it can in this stage. The
        controller may take note of it later."""
        return max(self._settled_ns.values(), default=self.entered_ns)

    def is_out(self, due_until_ns: int) -> bool:
        """True if agents of the engine have sent all messages that were due until an instant."""
        left = (agent for agent in range(self._assignment.engines) if agent not in self._away)
        engines = [self._latest.get(agent) for agent in left]
        return all(
            latest is not None
            and latest.to_ns >= due_until_ns
            and not any(population.gauges.backlog for population in latest.populations)
            for latest in engines
        )

    def has_settled(self, agent: int, stage: int) -> bool:
        """True if an agent has done all that it can in a stage."""
        latest = self._latest.get(agent)
        return latest is not None and latest.stage == stage and latest.settled

    def connected_of(self, agent: int) -> int:
        """Clients of an agent that are connected."""
        latest = self._latest.get(agent)
        return sum(each.gauges.connected for each in latest.populations) if latest else 0

    def sent(self) -> tuple[Sent, ...]:
        """Returns the messages that each publisher has sent in the whole run, as far as it has
        reported."""
        return tuple(
            Sent(
                population=each.population,
                client=each.share,
                total=self.sums.agent([agent]).sent_total,
            )
            for agent, each in self._assignment.publishers.items()
        )

    def balanced(self) -> bool:
        """True if every expected delivery has come and every message is acknowledged."""
        counts = (*self._expected.values(), *self._expected_wills.values())
        expected = any(count > 0 for count in counts)
        return not expected and not any(
            population.gauges.in_flight
            for snapshot in self._latest.values()
            for population in snapshot.populations
        )

    @property
    def connected(self) -> int:
        """Clients that are connected; what is under test is none."""
        return sum(
            population.gauges.connected
            for snapshot in self.latest_of_load
            for population in snapshot.populations
        )

    def nothing_connected(self) -> bool:
        """True if no attempt has succeeded since the start, though there were some."""
        return self._connected_total == 0 and self._first_attempts_total > 0

    def hopeless_ns(self) -> int | None:
        """Returns how long attempts have failed, if that is long, no client ever connected, and the
        attempts that had begun by then have failed too; None otherwise."""
        since_ns = self._failing_since_ns
        if since_ns is None or not self.nothing_connected():
            return None
        failing_ns = self._clock() - since_ns
        if failing_ns < HOPELESS_NS:
            return None
        every = range(len(self.plan.populations))
        counts = [self.sums.population([index]).counters for index in every]
        if self._awaited is None:
            self._awaited = [each.connect_attempts_total for each in counts]
        pairs = zip(counts, self._awaited, strict=True)
        is_over = all(each.connect_failed_total >= awaited for each, awaited in pairs)
        return failing_ns if is_over else None

    def _take_messages(self, snapshot: Snapshot) -> bool:
        """Returns True if something moved. Deliveries that were not expected are no movement, as
        duplicates are none: a broker may send them for ever."""
        moved, is_open = 0, not self.settled()
        for population in snapshot.populations:
            own = population.counters
            moved += own.sent_total + own.acked_total
            self.totals["sent"] += own.sent_total
            self.totals["acked"] += own.acked_total
            self.totals["foreign"] += own.foreign_total
            for reason, count in population.outcomes.items():
                self.outcomes[str(reason)] += count
        for flow in snapshot.flows:
            counters, pair = flow.counters, (flow.source, flow.to)
            wills, received_wills = counters.wills_expected_total, counters.wills_received_total
            expected, received = counters.expected_total - wills, counters.received_total
            # While an agent has not settled, it has not computed what is expected.
            if is_open or expected > 0 or self._expected[pair] > 0:
                moved += received - received_wills
            if self._expected_wills[pair] > 0:
                moved += received_wills
            self.totals["received"] += counters.received_total
            self.missing[flow.to] += counters.missing_total
            self._expected[pair] += expected - (received - received_wills)
            self._expected_wills[pair] += wills - received_wills
        return moved > 0

    def _take_connections(self, snapshot: Snapshot, now_ns: int) -> bool:
        before = self._present_max, self._first_attempts_total
        clients = self.plan.clients
        for population in snapshot.populations:
            counters = population.counters
            self._connected_total += counters.connected_total
            attempts = self._first_attempts_total + counters.connect_attempts_total
            self._first_attempts_total = min(attempts, clients)
            if counters.connect_failed_total and self._failing_since_ns is None:
                self._failing_since_ns = now_ns
        # A connection by itself is no progress: two runs may take each other's client ids for ever.
        self._present_max = max(self._present_max, self._present())
        return before != (self._present_max, self._first_attempts_total)

    def present(self, population: int) -> int:
        """Clients of a population that are ready, or offline after their session lifetime."""
        gauges = (each.populations[population].gauges for each in self.latest_of_load)
        return sum(each.ready + each.offline for each in gauges)

    def _present(self) -> int:
        return sum(map(self.present, range(len(self.plan.populations))))
