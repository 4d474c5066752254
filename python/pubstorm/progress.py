"""How far a run is: what the barriers of the stages ask, from the snapshots that came so far, and
the summary for the live display. It knows neither commands nor processes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection

from pubstorm.cast import Cast
from pubstorm.control import Sent
from pubstorm.histogram import Histogram, HistogramSum
from pubstorm.live import Live, PopulationSummary, Summary
from pubstorm.merge import Count, Interval, Totals, rate_per_s
from pubstorm.plan import ConnectAction, DisconnectAction, Plan, PublishAction, Stage
from pubstorm.snapshot import Snapshot

SECOND_NS = 10**9


class Progress:
    """The state of a run that goes on."""

    def __init__(self, plan: Plan, cast: Cast | None = None) -> None:
        self._plan = plan
        self._cast = cast or Cast(engines=1)
        self._publishers = self._cast.publishers
        self._latest: dict[int, Snapshot] = {}
        self._away: set[int] = set()
        self._returning: set[int] = set()
        self._owed = Counter[tuple[int, int]]()
        self._missing = Counter[int]()
        self._outcomes = Counter[str]()
        self._connected_total = 0
        self._first_attempts_total = 0
        self._there_max = 0
        """Most clients seen there at once, in the stage that is on."""
        self._sent = Counter[int]()
        self._started_ns = self._entered_ns = time.monotonic_ns()
        self.totals = Totals(publishers=frozenset(self._publishers))
        self.stage = 0
        self.moved_ns = 0
        """Instant of the last message that was new: sent, acknowledged or received."""
        self.connecting_ns = 0
        """Instant of the last first attempt, or of the last new maximum of ready clients."""
        self.failing_since_ns: int | None = None
        """When the first failed attempt was seen."""
        self.next_show_ns = 0

    def start(self) -> None:
        """The run starts."""
        self._started_ns = time.monotonic_ns()

    def enter(self, stage: int, at_ns: int) -> None:
        """A stage begins."""
        self.stage = stage
        self._entered_ns = at_ns
        self.connecting_ns = at_ns
        self._there_max = self._there()
        self.next_show_ns = 0

    def lose(self, agent: int, at_ns: int) -> int | None:
        """An agent is lost: no barrier asks for it, and what it was owed does not come. The end of
        its last snapshot, None if there was none."""
        latest = self._latest.pop(agent, None)
        self._away.add(agent)
        self._returning.discard(agent)
        self._there_max = self._there()
        self.totals.lose(agent, at_ns, self.stage)
        return None if latest is None else latest.to_ns

    def bring_back(self, agent: int) -> None:
        """Another engine is in its place, and on its way through the stages so far."""
        self._returning.add(agent)

    def await_again(self, agent: int, until_ns: int) -> None:
        """It takes part in this stage: barriers ask for it, and it has clients to connect until
        an instant."""
        self._away.discard(agent)
        self.connecting_ns = max(self.connecting_ns, until_ns)

    def forget_owed(self) -> None:
        """What has not come of the stages so far will not come."""
        self._owed.clear()

    def take(self, snapshot: Snapshot) -> None:
        """Adds a snapshot. What an agent does on its way through the stages so far, it does now."""
        now_ns = time.monotonic_ns()
        self._latest[snapshot.agent] = snapshot
        if snapshot.stage == self.stage:
            self._returning.discard(snapshot.agent)
        if snapshot.agent in self._returning:
            snapshot = snapshot.model_copy(update={"stage": self.stage})
        self.totals.add_snapshot(snapshot)
        if self._is_early(snapshot):
            self.totals.note_early(snapshot)
        if self._take_messages(snapshot):
            self.moved_ns = now_ns
        if snapshot.agent in self._publishers:
            self._sent[snapshot.agent] += sum(
                population.counters.sent_total for population in snapshot.populations
            )
        elif self._take_connections(snapshot, now_ns):
            self.connecting_ns = max(self.connecting_ns, now_ns)

    def settled(self, agents: Collection[int] | None = None) -> bool:
        """Whether every agent that is left, or these of them, has done all that it can in this
        stage."""
        asked = range(self._cast.agents) if agents is None else agents
        return all(self.has_settled(a, self.stage) for a in asked if a not in self._away)

    def is_out(self, due_until_ns: int) -> bool:
        """Whether engines have sent all that was due until an instant."""
        left = (agent for agent in range(self._cast.engines) if agent not in self._away)
        engines = [self._latest.get(agent) for agent in left]
        return all(
            latest is not None
            and latest.to_ns >= due_until_ns
            and not any(population.gauges.backlog for population in latest.populations)
            for latest in engines
        )

    def has_settled(self, agent: int, stage: int) -> bool:
        """Whether an agent has done all that it can in a stage."""
        latest = self._latest.get(agent)
        return latest is not None and latest.stage == stage and latest.settled

    def connected_of(self, agent: int) -> int:
        """Clients of an agent that are connected."""
        latest = self._latest.get(agent)
        return sum(each.gauges.connected for each in latest.populations) if latest else 0

    def sent(self) -> tuple[Sent, ...]:
        """What each publisher has sent in the whole run, as far as it has told."""
        return tuple(
            Sent(population=each.population, client=each.share, total=self._sent[agent])
            for agent, each in self._publishers.items()
        )

    def balanced(self) -> bool:
        """Whether every delivery owed has come and every message is acknowledged."""
        owed = any(count > 0 for count in self._owed.values())
        return not owed and not any(
            population.gauges.in_flight
            for snapshot in self._latest.values()
            for population in snapshot.populations
        )

    @property
    def connected(self) -> int:
        """Clients that are connected; what is under test is none."""
        return sum(
            population.gauges.connected
            for agent, snapshot in self._latest.items()
            if agent not in self._publishers
            for population in snapshot.populations
        )

    def nothing_connected(self) -> bool:
        """Whether no attempt has succeeded since the start, though there were some."""
        return self._connected_total == 0 and self._first_attempts_total > 0

    def show(self, live: Live, now_ns: int) -> None:
        """Shows the state, at most once a second."""
        if now_ns >= self.next_show_ns:
            self.next_show_ns = now_ns + SECOND_NS
            live.show(self.summary(now_ns))

    def summary(self, now_ns: int) -> Summary:
        """The state of the run for the live display."""
        stage = self._plan.stages[self.stage]
        left_s, done = self._time_left(now_ns)
        return Summary(
            elapsed_s=(now_ns - self._started_ns) / SECOND_NS,
            stage=stage.name,
            stage_number=self.stage + 1,
            stages=len(self._plan.stages),
            progress=done,
            left_s=left_s,
            populations=tuple(map(self._population, range(len(self._plan.populations)))),
            latency=self._latency(),
            outcomes=dict(self._outcomes),
            busy_share=max(
                (_busy_share(s) for a, s in self._latest.items() if a not in self._publishers),
                default=0.0,
            ),
        )

    def _is_early(self, snapshot: Snapshot) -> bool:
        """Whether an agent is still in the stage before a publish stage that has begun: what was to
        come of the stage before had come, or was given up, when this one was entered."""
        publishes = isinstance(self._plan.stages[self.stage].action, PublishAction)
        return publishes and snapshot.stage == self.stage - 1 and snapshot.to_ns > self._entered_ns

    def _take_messages(self, snapshot: Snapshot) -> bool:
        moved = 0
        for population in snapshot.populations:
            moved += population.counters.sent_total + population.counters.acked_total
            self._outcomes.update({str(k): count for k, count in population.outcomes.items()})
        for flow in snapshot.flows:
            counters = flow.counters
            # Duplicates are no progress: a broker may send them for ever.
            moved += counters.received_total
            self._owed[flow.source, flow.to] += counters.expected_total - counters.received_total
            self._missing[flow.to] += counters.missing_total
        return moved > 0

    def _take_connections(self, snapshot: Snapshot, now_ns: int) -> bool:
        before = self._there_max, self._first_attempts_total
        for population in snapshot.populations:
            counters = population.counters
            self._connected_total += counters.connected_total
            self._first_attempts_total = min(
                self._first_attempts_total + counters.connect_attempts_total, self._plan.clients
            )
            if counters.connect_failed_total and self.failing_since_ns is None:
                self.failing_since_ns = now_ns
        # A connection by itself is no progress: two runs may take each other's client ids for ever.
        self._there_max = max(self._there_max, self._there())
        return before != (self._there_max, self._first_attempts_total)

    def _there(self) -> int:
        """Clients that are ready, or away after their session lifetime."""
        return sum(
            population.gauges.ready + population.gauges.away
            for agent, snapshot in self._latest.items()
            if agent not in self._publishers
            for population in snapshot.populations
        )

    def _time_left(self, now_ns: int) -> tuple[float | None, float]:
        """Seconds left in the stage and the share that is done."""
        stage = self._plan.stages[self.stage]
        if isinstance(stage.action, ConnectAction | DisconnectAction):
            share = self._connected_share(stage)
            return None, share if isinstance(stage.action, ConnectAction) else 1 - share
        duration_ns = max(stage.action.duration_ns, 1)
        gone_ns = max(now_ns - self._entered_ns, 0)
        return max(duration_ns - gone_ns, 0) / SECOND_NS, min(gone_ns / duration_ns, 1.0)

    def _connected_share(self, stage: Stage) -> float:
        """Of the clients that a stage brings up, or may let go."""
        chosen = stage.populations
        clients = sum(self._plan.populations[p].clients for p in chosen)
        if isinstance(stage.action, ConnectAction) and stage.action.clients is not None:
            clients = sum(stage.action.clients)
        snapshots = self._latest.values()
        connected = sum(s.populations[p].gauges.connected for s in snapshots for p in chosen)
        return min(connected / clients, 1.0) if clients else 1.0

    def _population(self, index: int) -> PopulationSummary:
        latest = [Interval.of(snapshot) for snapshot in self._latest.values()]

        def rate(count: Count) -> float:
            return rate_per_s(latest, [index], count)

        return PopulationSummary(
            name=self._plan.populations[index].name,
            clients=self._plan.populations[index].clients,
            connected=sum(interval.populations[index].connected for interval in latest),
            sent_per_s=rate("sent"),
            acked_per_s=rate("acked"),
            received_per_s=rate("received"),
            missing=self._missing[index],
        )

    def _latency(self) -> Histogram:
        deliveries, acknowledgements = HistogramSum(), HistogramSum()
        for snapshot in self._latest.values():
            for flow in snapshot.flows:
                deliveries.add(flow.latency_intended)
            for population in snapshot.populations:
                acknowledgements.add(population.ack_intended)
        delivered = deliveries.value()
        return delivered if delivered.count else acknowledgements.value()


def _busy_share(snapshot: Snapshot) -> float:
    span_ns = snapshot.to_ns - snapshot.from_ns
    return snapshot.engine.busy_ns / span_ns if span_ns > 0 else 0.0
