"""The load of a run over time: intervals as agents cut them, filled once from their snapshots.
Seconds, ticks, peaks and percentiles of a span are views of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from typing import Literal

from pubstorm.contract.histogram import Histogram
from pubstorm.contract.plan import Plan
from pubstorm.contract.snapshot import Snapshot
from pubstorm.result.timeline.cells import HistogramCells
from pubstorm.result.timeline.peaks import PeakSums
from pubstorm.result.timeline.rows import Block, Gauge, Row

BLOCK = 60
"""Rows that are packed together."""
TAIL = 10
"""Rows of an agent that are not packed yet: others may still come before them."""

Measure = Literal["delivery", "acknowledgement", "lateness"]
Step = tuple[float, int]
"""An instant, and a sum that holds from then on."""


@dataclass(frozen=True, slots=True)
class HistogramKey:
    """One histogram over time."""

    stage: int | None
    measure: Measure
    population: int = 0
    """Index of the population; 0 for lateness, which is the generator's."""


class Timeline:
    """The load of all agents over time."""

    def __init__(self, plan: Plan, started_ns: int, publishers: Collection[int] = ()) -> None:
        """`publishers` are agents under test: their load is not the generator's."""
        self.histograms = HistogramCells[HistogramKey](started_ns, plan.snapshot_interval_ns)
        """Latency and lateness by stage and population."""
        self.started_ns = started_ns
        self._plan = plan
        self._publishers = publishers
        self._lanes: dict[int, _Lane] = {}
        self._peaks: PeakSums | None = None
        self._ends: dict[tuple[int | None, int], list[Row]] = {}
        """The last rows of a stage, or of the run, before an instant."""

    @property
    def agents(self) -> tuple[int, ...]:
        """The agents that reported."""
        return tuple(self._lanes)

    def take(self, snapshot: Snapshot) -> Row:
        """Adds an interval of an agent."""
        span = snapshot.from_ns, snapshot.to_ns
        self.histograms.add(span, self._histograms(snapshot))
        return self._added(Row.of(snapshot))

    def fail(self, agent: int, at_ns: int, stage: int) -> Row | None:
        """Empties the gauges of an agent that failed, until its replacement reports, and returns
        the empty row; None if the agent reported nothing."""
        lane = self._lanes.get(agent)
        return None if lane is None else self._added(lane.latest.emptied(at_ns, stage))

    def rows(
        self, stage: int | None = None, from_ns: int | None = None, to_ns: int | None = None
    ) -> Iterator[Row]:
        """Yields all rows, or those of a stage and those that reach into a span, in the order of
        their ends."""
        lanes = (self.rows_of(agent, stage, from_ns, to_ns) for agent in self._lanes)
        return merge(*lanes, key=lambda row: (row.to_ns, row.agent, row.sequence))

    def rows_of(
        self,
        agent: int,
        stage: int | None = None,
        from_ns: int | None = None,
        to_ns: int | None = None,
    ) -> Iterator[Row]:
        """Yields the rows of one agent."""
        return self._lanes[agent].rows(_Choice(stage, from_ns, to_ns))

    def last(self, agent: int, stage: int | None = None, until_ns: int | None = None) -> Row | None:
        """Returns the last row of an agent, in a stage and by an instant where they are given."""
        return self._lanes[agent].last(_Choice(stage, None, None), until_ns)

    def inside(self, stage: int, from_ns: int, to_ns: int) -> Iterator[Row]:
        """Yields the rows of a stage that lie wholly in a span, give or take a hundredth."""
        for row in self.rows(stage, from_ns, to_ns):
            if row.from_ns < row.to_ns and row.lies_inside(from_ns, to_ns):
                yield row

    def steps(self, value: Callable[[Row], int]) -> Iterator[Step]:
        """Yields the sum over agents of a value that holds until the agent's next row."""
        return steps((row.to_ns, row.agent, value(row)) for row in self.rows())

    def peaks(self) -> PeakSums:
        """Returns the largest sums of the run so far."""
        if self._peaks is None:
            self._peaks = PeakSums(self._plan, self._publishers)
            for row in self.rows():
                self._peaks.take(row)
            self._peaks.settle()
        return self._peaks

    def connected_at(self, instant_ns: int) -> int:
        """Clients of the generator that were connected at an instant."""
        ends = self._last(None, instant_ns)
        return sum(row.connected for row in ends if row.agent not in self._publishers)

    def at_end(self, stage: int, until_ns: int, populations: Iterable[int], gauge: Gauge) -> int:
        """The sum over agents and populations of a gauge at the end of a stage. Later rows of the
        stage are those of agents that end."""
        chosen = tuple(populations)
        return sum(row.gauge(gauge, chosen) for row in self._last(stage, until_ns))

    def _last(self, stage: int | None, until_ns: int) -> list[Row]:
        """Returns the last row of each agent, or of those in a stage, that ended by an instant."""
        key = stage, until_ns
        if key not in self._ends:
            found = (self.last(agent, stage, until_ns) for agent in self._lanes)
            self._ends[key] = [row for row in found if row is not None]
        return self._ends[key]

    def _added(self, row: Row) -> Row:
        lane = self._lanes.get(row.agent)
        if lane is None:
            lane = self._lanes[row.agent] = _Lane(row)
        lane.add(row)
        self._peaks = None
        self._ends.clear()
        return row

    def _histograms(self, snapshot: Snapshot) -> Iterator[tuple[HistogramKey, Histogram]]:
        stage = snapshot.stage
        for index, population in enumerate(snapshot.populations):
            yield HistogramKey(stage, "acknowledgement", index), population.ack_intended
        for flow in snapshot.flows:
            yield HistogramKey(stage, "delivery", flow.to), flow.latency_intended
        if snapshot.agent not in self._publishers:
            yield HistogramKey(stage, "lateness"), snapshot.engine.lateness


@dataclass(frozen=True, slots=True)
class _Choice:
    """Rows to read: of a stage, and those that reach into a span; None: all."""

    stage: int | None
    from_ns: int | None
    to_ns: int | None

    def may_be_in(self, block: Block) -> bool:
        """True if a block may have such rows."""
        in_stage = self.stage is None or self.stage in block.stages
        return in_stage and self._reaches(block.from_ns, block.to_ns)

    def has(self, row: Row) -> bool:
        """True if a row is one of them."""
        in_stage = self.stage is None or self.stage == row.stage
        return in_stage and self._reaches(row.from_ns, row.to_ns)

    def _reaches(self, from_ns: int, to_ns: int) -> bool:
        after = self.from_ns is None or to_ns >= self.from_ns
        return after and (self.to_ns is None or from_ns <= self.to_ns)


class _Lane:
    """The rows of one agent, in the order of their ends."""

    def __init__(self, first: Row) -> None:
        self.latest = first
        self._blocks: list[Block] = []
        self._open: list[Row] = []

    def add(self, row: Row) -> None:
        """Adds a row. Rows come nearly in the order of their ends."""
        self.latest = max(self.latest, row, key=_end)
        self._open.append(row)
        if len(self._open) == BLOCK + TAIL:
            self._open.sort(key=_end)
            self._blocks.append(Block.of(self._open[:BLOCK]))
            del self._open[:BLOCK]

    def rows(self, choice: _Choice) -> Iterator[Row]:
        """Yields rows."""
        for block in self._blocks:
            if choice.may_be_in(block):
                yield from filter(choice.has, block.unpacked())
        yield from filter(choice.has, sorted(self._open, key=_end))

    def last(self, choice: _Choice, until_ns: int | None) -> Row | None:
        """Returns the last row that ended by an instant."""

        def chosen(rows: Iterable[Row]) -> list[Row]:
            return [r for r in rows if choice.has(r) and (until_ns is None or r.to_ns <= until_ns)]

        found = chosen(self._open)
        for block in reversed(self._blocks):
            if found:
                break
            if choice.may_be_in(block) and (until_ns is None or block.first_ns <= until_ns):
                found = chosen(block.unpacked())
        return max(found, key=_end, default=None)


def _end(row: Row) -> tuple[int, int]:
    return row.to_ns, row.sequence


def steps(values: Iterable[tuple[float, Hashable, int]]) -> Iterator[Step]:
    """Yields the sum over sources of the latest value, in the order of time; values are `(instant,
    source, value)`. Those of one instant make one step."""
    latest, total, at = Counter[Hashable](), 0, None
    for instant, source, value in values:
        if at is not None and instant != at:
            yield at, total
        at = instant
        total += value - latest[source]
        latest[source] = value
    if at is not None:
        yield at, total
