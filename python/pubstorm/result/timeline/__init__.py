"""The load of a run over time: intervals as agents cut them, filled once from their snapshots.
Seconds, ticks, peaks and percentiles of a span are views of it. Memory has a bound: what is old is
merged into minutes, and then into hours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from copy import copy
from heapq import merge
from itertools import zip_longest
from operator import add
from typing import Literal

from pubstorm.contract.plan import Plan
from pubstorm.contract.snapshot import Snapshot
from pubstorm.result.timeline.cells import HistogramCells, HistogramKey, over_time
from pubstorm.result.timeline.lane import BLOCK, HOUR_NS, Choice, Edges, Lane
from pubstorm.result.timeline.rows import GAUGES, Gauge, Row

NUMBERS_MAX = 8_000_000
"""Own intervals that are kept, counted by agent and population: 80 MB of 10 bytes each."""
ROWS_MAX = 300_000
"""Own intervals that are kept, of all agents together: readers have a number for each."""
OWN_MIN = 900
"""Own intervals of an agent that are kept in any case."""
OWN_MAX_NS = 7 * 24 * HOUR_NS
"""Time of own intervals that are kept at most."""

Step = tuple[float, int]
"""An instant, and a sum that holds from then on."""
Peak = Gauge | Literal["reached"]
"""A gauge, or clients that are ready or offline after their session lifetime."""
COLUMNS: tuple[Peak, ...] = (*GAUGES, "reached")


class Timeline:
    """The load of all agents over time."""

    def __init__(self, plan: Plan, started_ns: int, publishers: Collection[int] = ()) -> None:
        """`publishers` are agents under test: their load is not the generator's."""
        self.started_ns = started_ns
        self.edges = Edges(started_ns)
        self.histograms = HistogramCells[HistogramKey](
            started_ns, plan.snapshot_interval_ns, self.edges
        )
        """Latency and lateness by stage and population."""
        self._interval_ns = plan.snapshot_interval_ns
        self._populations = max(len(plan.populations), 1)
        self._publishers = publishers
        self._lanes: dict[int, Lane] = {}
        self._aged_ns = 0
        """End of the last own interval that was merged."""
        self._aged_peaks = PeakSums(plan, publishers)
        """The peaks until then."""
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
        self.histograms.add(span, over_time(snapshot, self._publishers))
        return self._added(Row.of(snapshot))

    def fail(self, agent: int, at_ns: int, stage: int) -> Row | None:
        """Empties the gauges of an agent that failed, until its replacement reports, and returns
        the empty row; None if the agent reported nothing."""
        lane = self._lanes.get(agent)
        self.keep_apart(at_ns)
        return None if lane is None else self._added(lane.latest.emptied(at_ns, stage))

    def keep_apart(self, *edges_ns: int) -> None:
        """Keeps what is before and after some instants apart, however old it gets."""
        for at_ns in edges_ns:
            self.edges.add(at_ns)

    def resolution_ns(self, from_ns: int, to_ns: int) -> int:
        """Returns the length of the coarsest cells in a span: the snapshot interval, a minute or an
        hour."""
        choice = Choice(None, from_ns + 1, to_ns - 1)
        found = [lane.resolution_ns(choice) for lane in self._lanes.values()]
        return max([*found, self.histograms.resolution_ns(from_ns, to_ns), self._interval_ns])

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
        return self._lanes[agent].rows(Choice(stage, from_ns, to_ns))

    def last(self, agent: int, stage: int | None = None, until_ns: int | None = None) -> Row | None:
        """Returns the last row of an agent, in a stage and by an instant where they are given."""
        return self._lanes[agent].last(Choice(stage), until_ns)

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
            self._peaks = self._aged_peaks.copy()
            for row in self._since_aged():
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
            lane = self._lanes[row.agent] = Lane(row, self.edges)
        lane.add(row)
        self._peaks = None
        self._ends.clear()
        if len(lane) > self._own_max + BLOCK:
            self._age(lane.oldest_ns)
        return row

    @property
    def _own_max(self) -> int:
        """Own intervals of an agent that are kept."""
        most = min(NUMBERS_MAX // self._populations, ROWS_MAX) // len(self._lanes)
        return max(min(most, OWN_MAX_NS // self._interval_ns), OWN_MIN)

    def _age(self, until_ns: int) -> None:
        """Merges own intervals of all agents that ended by an instant."""
        for row in self._since_aged():
            if row.to_ns > until_ns:
                break
            self._aged_peaks.take(row)
        self._aged_ns = max(self._aged_ns, until_ns)
        for lane in self._lanes.values():
            lane.age(until_ns)

    def _since_aged(self) -> Iterator[Row]:
        """Yields the rows of which the peaks so far know nothing."""
        return self.rows(from_ns=self._aged_ns + 1)


class PeakSums:
    """Running sums over agents, with the largest of each. Rows are taken in the order of time;
    those of one instant make one step."""

    def __init__(self, plan: Plan, publishers: Collection[int]) -> None:
        """`publishers` are agents under test: their clients are not the generator's."""
        self._publishers = publishers
        self._populations = len(plan.populations)
        self._wholes = [indices for indices in plan.wholes.values() if len(indices) > 1]
        subjects = [*((index,) for index in range(self._populations)), *self._wholes]
        self._subjects = {indices: place for place, indices in enumerate(subjects)}
        self._connected = len(COLUMNS) * len(subjects)
        """Place of the generator's clients; those of the targets follow."""
        self._sums: list[int] = []
        self._largest: list[int] = []
        self._latest: dict[int, list[int]] = {}
        """The addends of each agent's latest row."""
        self._at_ns: int | None = None

    def copy(self) -> PeakSums:
        """Returns the same sums, which grow by themselves."""
        found = copy(self)
        found._latest = dict(self._latest)
        return found

    def take(self, row: Row) -> None:
        """Adds a row."""
        if row.to_ns != self._at_ns:
            self.settle()
        self._at_ns = row.to_ns
        now, before = self._numbers(row), self._latest.get(row.agent, [])
        self._latest[row.agent] = now
        parts = zip_longest(self._sums, now, before, fillvalue=0)
        self._sums = [total + new - old for total, new, old in parts]

    def settle(self) -> None:
        """Counts the sums of the present instant."""
        self._largest = [max(pair) for pair in zip_longest(self._largest, self._sums, fillvalue=0)]

    def of(self, populations: Sequence[int], gauge: Peak) -> int:
        """Returns the peak of a population, or of a population with shares."""
        column = COLUMNS.index(gauge) * len(self._subjects)
        return self._at(column + self._subjects[tuple(populations)])

    @property
    def connected(self) -> int:
        """The most clients of the generator that were connected at once."""
        return self._at(self._connected)

    def connected_to(self, target: int) -> int:
        """Returns the most clients that were connected to a target."""
        return self._at(self._connected + 1 + target)

    def _at(self, place: int) -> int:
        return self._largest[place] if place < len(self._largest) else 0

    def _numbers(self, row: Row) -> list[int]:
        """Returns the addends of a row, in the order of the sums."""
        count = self._populations
        columns = {
            gauge: list(row.gauges[n * count : (n + 1) * count]) for n, gauge in enumerate(GAUGES)
        }
        reached = list(map(add, columns["ready"], columns["offline"]))
        numbers: list[int] = []
        for column in (*columns.values(), reached):
            numbers += column
            numbers += [sum(column[index] for index in indices) for indices in self._wholes]
        numbers.append(0 if row.agent in self._publishers else row.connected)
        return [*numbers, *row.targets]


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
