"""The largest sums over agents at one time: of the gauges of populations, and of clients connected
to targets."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import copy
from itertools import zip_longest
from operator import add
from typing import Literal

from pubstorm.contract.plan import Plan
from pubstorm.result.timeline.rows import GAUGES, Gauge, Row

Peak = Gauge | Literal["reached"]
"""A gauge, or clients that are ready or offline after their session lifetime."""
COLUMNS: tuple[Peak, ...] = (*GAUGES, "reached")


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
