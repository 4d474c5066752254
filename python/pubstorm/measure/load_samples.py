"""Makes samples of the load in spans of equal length, from snapshots whose intervals end at
different instants. Counts are shared out by overlap, histograms belong to the middle of their
interval, and gauges hold until the next interval."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pubstorm.contract.flows import OpenPace
from pubstorm.contract.histogram import Histogram, HistogramSum
from pubstorm.contract.plan import Plan
from pubstorm.contract.snapshot import Snapshot
from pubstorm.contract.source import Sample, Source
from pubstorm.fleet.assignment import Assignment
from pubstorm.result.timeline.rows import GAUGES, overlaps

SECOND_NS = 10**9
OPEN_MAX = 8
"""Spans that are kept open for agents that are behind."""
MIN_COVERED = 0.1
"""Smallest share of a span with reports of an agent from which its rates are computed."""
PUBLISHER_FIGURES = ("busy", "lateness_p99_us")
COUNTS = ("sent", "acked", "received", "skipped")


@dataclass
class _AgentPart:
    """The activity of one agent in one span."""

    covered_ns: float = 0.0
    counts: defaultdict[tuple[int, str], float] = field(default_factory=lambda: defaultdict(float))
    """Messages by population and kind."""
    cpu_ns: float = 0.0
    busy_ns: float = 0.0
    run_delay_ns: float | None = None
    """Time without a processor; None if the agents do not know."""
    lateness: HistogramSum = field(default_factory=HistogramSum)


@dataclass
class _Span:
    """One span of all agents."""

    agents: dict[int, _AgentPart] = field(default_factory=dict)
    delivery: dict[int, HistogramSum] = field(default_factory=dict)
    acknowledgement: dict[int, HistogramSum] = field(default_factory=dict)
    last_ns: int = 0
    """End of the last interval that reaches into it."""


@dataclass
class _AgentState:
    """The latest gauges of an agent, with what is summed up since the start."""

    to_ns: int = 0
    gauges: dict[tuple[int, str], int] = field(default_factory=dict)
    rss_bytes: int = 0
    missing: Counter[int] = field(default_factory=Counter)
    clock_bound_ns: int | None = None

    def emptied(self, at_ns: int) -> _AgentState:
        """Returns the state without clients; sums stay."""
        return _AgentState(at_ns, dict.fromkeys(self.gauges, 0), missing=self.missing)


class LoadSampler:
    """Turns snapshots into samples, span by span."""

    def __init__(self, plan: Plan, assignment: Assignment, started_ns: int) -> None:
        self._plan = plan
        self._agents = assignment.agents
        self._publishers = assignment.publishers
        self._started_ns = started_ns
        self._width_ns = plan.snapshot_interval_ns
        self._spans: dict[int, _Span] = {}
        self._next = 0
        """The first span that is not closed."""
        self._states: dict[int, list[_AgentState]] = {}
        self._failed: set[int] = set()
        """Agents that report nothing more."""
        self._delivers: set[int] = set()
        self._subjects = plan.members
        """Subjects of samples: populations, and the sums of populations with shares."""
        self._scheduled = {
            name: _is_scheduled(plan, indices) for name, indices in self._subjects.items()
        }
        self._gauges = {name: _gauges(plan, indices) for name, indices in self._subjects.items()}

    def take(self, snapshot: Snapshot) -> list[Sample]:
        """Adds a snapshot; the samples of the spans that are complete with it."""
        if snapshot.to_ns <= self._started_ns:
            return []
        self._failed.discard(snapshot.agent)
        self._share_out(snapshot)
        self._add_histograms(snapshot)
        self._add_state(snapshot)
        return list(self._close(self._complete_until(snapshot.to_ns)))

    def fail(self, agent: int, at_ns: int) -> None:
        """Empties the gauges of an agent that failed, until its replacement reports."""
        self._failed.add(agent)
        if states := self._states.get(agent):
            states.append(states[-1].emptied(max(at_ns, states[-1].to_ns)))

    def finish(self) -> list[Sample]:
        """The samples of all spans that are still open."""
        return list(self._close(max(self._spans, default=-1) + 1))

    def _share_out(self, snapshot: Snapshot) -> None:
        length_ns = max(snapshot.to_ns - snapshot.from_ns, 1)
        counts = self._counts(snapshot)
        interval = (snapshot.from_ns, snapshot.to_ns)
        for index, covered_ns in overlaps(interval, self._started_ns, self._width_ns):
            if index < self._next:
                continue
            share = covered_ns / length_ns
            end_ns = self._started_ns + (index + 1) * self._width_ns
            span = self._spans.setdefault(index, _Span())
            span.last_ns = max(span.last_ns, min(end_ns, snapshot.to_ns))
            part = span.agents.setdefault(snapshot.agent, _AgentPart())
            part.covered_ns += covered_ns
            part.cpu_ns += snapshot.engine.cpu_ns * share
            part.busy_ns += snapshot.engine.busy_ns * share
            if snapshot.engine.run_delay_ns is not None:
                waited_ns = snapshot.engine.run_delay_ns * share
                part.run_delay_ns = (part.run_delay_ns or 0.0) + waited_ns
            for key, count in counts.items():
                part.counts[key] += count * share

    def _counts(self, snapshot: Snapshot) -> dict[tuple[int, str], int]:
        """Returns the messages of a snapshot by population and kind, without zeros. Due messages
        are those that were sent, skipped, or added to the backlog."""
        counts = Counter[tuple[int, str]]()
        states = self._states.get(snapshot.agent)
        for index, population in enumerate(snapshot.populations):
            counters = population.counters
            counts[index, "sent"] = counters.sent_total
            counts[index, "acked"] = counters.acked_total
            counts[index, "skipped"] = counters.skipped_total
            before = states[-1].gauges[index, "backlog"] if states else 0
            added = population.gauges.backlog - before
            counts[index, "due"] = counters.sent_total + counters.skipped_total + added
        for flow in snapshot.flows:
            counts[flow.to, "received"] += flow.counters.received_total
        return {key: count for key, count in counts.items() if count}

    def _add_histograms(self, snapshot: Snapshot) -> None:
        middle = self._index((snapshot.from_ns + snapshot.to_ns) // 2)
        span = self._spans.get(max(middle, self._next))
        if span is None:
            return
        for flow in snapshot.flows:
            if flow.latency_intended.count:
                self._delivers.add(flow.to)
                span.delivery.setdefault(flow.to, HistogramSum()).add(flow.latency_intended)
        for index, population in enumerate(snapshot.populations):
            if population.ack_intended.count:
                sums = span.acknowledgement
                sums.setdefault(index, HistogramSum()).add(population.ack_intended)
        part = span.agents.setdefault(snapshot.agent, _AgentPart())
        part.lateness.add(snapshot.engine.lateness)

    def _add_state(self, snapshot: Snapshot) -> None:
        states = self._states.setdefault(snapshot.agent, [])
        missing = Counter(states[-1].missing) if states else Counter[int]()
        for flow in snapshot.flows:
            missing[flow.to] += flow.counters.missing_total
        gauges: dict[tuple[int, str], int] = {
            (index, gauge): getattr(population.gauges, gauge)
            for index, population in enumerate(snapshot.populations)
            for gauge in GAUGES
        }
        bound_ns = None if snapshot.clock is None else snapshot.clock.bound_ns
        state = _AgentState(snapshot.to_ns, gauges, snapshot.engine.rss_bytes, missing, bound_ns)
        states.append(state)

    def _complete_until(self, newest_ns: int) -> int:
        """Returns the first span that some agent has not reported completely, unless that agent is
        too far behind."""
        reported_ns = [
            s[-1].to_ns for agent, s in self._states.items() if agent not in self._failed
        ]
        everybody = len(reported_ns) + len(self._failed) == self._agents
        slowest_ns = min(reported_ns) if reported_ns and everybody else self._started_ns
        return max(self._index(slowest_ns), self._index(newest_ns) - OPEN_MAX)

    def _close(self, until: int) -> Iterator[Sample]:
        for index in range(self._next, until):
            span = self._spans.pop(index, None)
            if span is not None:
                yield from self._samples(span)
        self._next = max(self._next, until)

    def _samples(self, span: _Span) -> Iterator[Sample]:
        at_s = round((span.last_ns - self._started_ns) / SECOND_NS, 3)
        states = {agent: self._state_at(agent, span.last_ns) for agent in self._states}
        known = {agent: state for agent, state in states.items() if state is not None}
        for name, indices in self._subjects.items():
            source = Source.single("population", name)
            states_of = [(state, index) for state in known.values() for index in indices]
            figures = {
                **{
                    gauge: sum(state.gauges[index, gauge] for state, index in states_of)
                    for gauge in self._gauges[name]
                },
                **self._rates(name, span.agents.values()),
                "missing": sum(state.missing[index] for state, index in states_of),
                **_latencies(self._latency(indices, span)),
            }
            for metric, value in figures.items():
                yield Sample(source, metric, at_s, value)
        for agent, part in sorted(span.agents.items()):
            state = known.get(agent)
            if part.covered_ns >= MIN_COVERED * self._width_ns and state is not None:
                yield from self._agent_samples(at_s, agent, _agent_figures(part, state))

    def _agent_samples(
        self, at_s: float, agent: int, figures: Mapping[str, float]
    ) -> Iterator[Sample]:
        """Of a publisher only what no monitor of its process sees."""
        publisher = self._publishers.get(agent)
        source = Source.member("agent", "agent", agent) if publisher is None else publisher.source
        for metric, value in figures.items():
            if publisher is None or metric in PUBLISHER_FIGURES:
                yield Sample(source, metric, at_s, value)

    def _state_at(self, agent: int, instant_ns: int) -> _AgentState | None:
        """An agent's latest state of an instant; older ones are forgotten."""
        states = self._states[agent]
        while len(states) > 1 and states[1].to_ns <= instant_ns:
            states.pop(0)
        return states[0] if states[0].to_ns <= instant_ns else None

    def _rates(self, name: str, parts: Iterable[_AgentPart]) -> dict[str, float]:
        """Returns rates over the reported time: the sum of each agent's own."""
        enough = [p for p in parts if p.covered_ns >= MIN_COVERED * self._width_ns]
        if not enough:
            return {}
        counted = [(part, index) for part in enough for index in self._subjects[name]]
        kinds = (*COUNTS, *(["due"] if self._scheduled[name] else []))
        rates = {
            kind: sum(part.counts[index, kind] / part.covered_ns for part, index in counted)
            for kind in kinds
        }
        return {f"{kind}_per_s": round(rate * SECOND_NS, 2) for kind, rate in rates.items()}

    def _latency(self, populations: Sequence[int], span: _Span) -> Histogram:
        """Of deliveries, or of acknowledgements where they have received nothing yet."""
        delivers = not self._delivers.isdisjoint(populations)
        sums, together = span.delivery if delivers else span.acknowledgement, HistogramSum()
        for index in populations:
            if index in sums:
                together.add(sums[index].value())
        return together.value()

    def _index(self, instant_ns: int) -> int:
        return (instant_ns - self._started_ns) // self._width_ns


def _is_scheduled(plan: Plan, indices: Sequence[int]) -> bool:
    """True if populations publish, and all of it by a schedule."""
    publications = [each for index in indices for each in plan.populations[index].publications]
    return bool(publications) and all(isinstance(each.pace, OpenPace) for each in publications)


def _gauges(plan: Plan, indices: Sequence[int]) -> tuple[str, ...]:
    """Returns the gauges that populations can have: only those with a session lifetime are offline,
    only subscribers stall."""
    populations = [plan.populations[index] for index in indices]
    subscribe = plan.stall_ns is not None and any(each.subscriptions for each in populations)
    without = {
        *(() if any(each.lifetime is not None for each in populations) else ("offline",)),
        *(() if subscribe else ("stalled",)),
    }
    return tuple(gauge for gauge in GAUGES if gauge not in without)


def _latencies(histogram: Histogram) -> dict[str, float]:
    if not histogram.count:
        return {}
    return {
        "latency_p50_us": histogram.quantile_ns(0.5) / 1000,
        "latency_p99_us": histogram.quantile_ns(0.99) / 1000,
        "latency_max_us": histogram.max_ns / 1000,
    }


def _agent_figures(part: _AgentPart, state: _AgentState) -> dict[str, float]:
    figures: dict[str, float] = {
        "cpu": round(part.cpu_ns / part.covered_ns, 4),
        "busy": round(part.busy_ns / part.covered_ns, 4),
        "rss_bytes": state.rss_bytes,
    }
    if part.run_delay_ns is not None:
        figures["run_delay"] = round(part.run_delay_ns / part.covered_ns, 4)
    lateness = part.lateness.value()
    if lateness.count:
        figures["lateness_p99_us"] = lateness.quantile_ns(0.99) / 1000
    if state.clock_bound_ns is not None:
        figures["clock_bound_us"] = state.clock_bound_ns / 1000
    return figures
