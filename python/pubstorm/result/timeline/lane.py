"""The rows of one agent: its own intervals, then minutes, then hours, each packed in blocks.
Resolution by age: what is old is merged into minutes, and then into hours. One rule says what may
be merged, and edges keep it apart."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pubstorm.result.timeline.rows import Block, Row

SECOND_NS = 10**9
MINUTE_NS = 60 * SECOND_NS
HOUR_NS = 60 * MINUTE_NS
EDGES_MAX = 10_000
"""Edges that are kept; later ones are not."""


class Edges:
    """Instants across which nothing is merged: stages, changes, faults and agent failures."""

    def __init__(self, origin_ns: int) -> None:
        """Minutes and hours begin at `origin_ns`."""
        self._origin_ns = origin_ns
        self._edges: list[int] = []
        self.left_out = 0
        """Edges beyond those that are kept."""

    def add(self, at_ns: int) -> None:
        """Adds an edge, unless there are too many."""
        place = bisect_left(self._edges, at_ns)
        if self._edges[place : place + 1] == [at_ns]:
            return
        if len(self._edges) < EDGES_MAX:
            self._edges.insert(place, at_ns)
        else:
            self.left_out += 1

    def place(self, at_s: float, cell_ns: int) -> tuple[int, int]:
        """Returns the cell of an instant, in seconds after the start, and the edges before it."""
        at_ns = round(at_s * SECOND_NS)
        return at_ns // cell_ns, bisect_right(self._edges, self._origin_ns + at_ns)

    def may_merge(self, one: tuple[int, int], next_one: tuple[int, int], cell_ns: int) -> bool:
        """True if two spans that follow each other may become one: their middles lie in one cell of
        the time since the start, and no edge lies in them. The rule has one result, whether minutes
        or their parts become hours."""
        places = {(sum(span) // 2 - self._origin_ns) // cell_ns for span in (one, next_one)}
        from_ns, to_ns = one[0], next_one[1]
        after = bisect_right(self._edges, from_ns)
        is_cut = after < len(self._edges) and self._edges[after] < to_ns
        return len(places) == 1 and not is_cut


BLOCK = 60
"""Rows that are packed together."""
TAIL = 10
"""Rows that are not packed yet: others may still come before them."""
MINUTES_MAX = 2 * 24 * 60
"""Minutes that are kept before they become hours."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Rows to read: of a stage, and those that reach into a span; None: all."""

    stage: int | None = None
    from_ns: int | None = None
    to_ns: int | None = None

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


class Tier:
    """Rows of one resolution, in the order of their ends."""

    def __init__(self) -> None:
        self.blocks: deque[Block] = deque()
        self.open: list[Row] = []

    def __len__(self) -> int:
        return BLOCK * len(self.blocks) + len(self.open)

    def add(self, row: Row) -> None:
        """Adds a row. Rows come nearly in the order of their ends."""
        self.open.append(row)
        if len(self.open) == BLOCK + TAIL:
            self.open.sort(key=end_of)
            self.blocks.append(Block.of(self.open[:BLOCK]))
            del self.open[:BLOCK]

    def merge(self, row: Row, edges: Edges, cell_ns: int) -> None:
        """Adds a row that is later than all, to the last one if the rule allows it."""
        if self.open and _may_merge(self.open[-1], row, edges, cell_ns):
            self.open[-1] = self.open[-1].merged_with(row)
        else:
            self.add(row)

    def rows(self, choice: Choice) -> Iterator[Row]:
        """Yields rows."""
        for block in self.blocks:
            if choice.may_be_in(block):
                yield from filter(choice.has, block.unpacked())
        yield from filter(choice.has, sorted(self.open, key=end_of))


class Lane:
    """The rows of one agent, in the order of their ends."""

    def __init__(self, first: Row, edges: Edges) -> None:
        self.latest = first
        self._edges = edges
        self._own, self._minutes, self._hours = Tier(), Tier(), Tier()

    def __len__(self) -> int:
        """Number of rows that are the agent's own intervals."""
        return len(self._own)

    def add(self, row: Row) -> None:
        """Adds a row."""
        self.latest = max(self.latest, row, key=end_of)
        self._own.add(row)

    @property
    def oldest_ns(self) -> int:
        """End of the oldest block of own intervals."""
        return self._own.blocks[0].to_ns

    def age(self, until_ns: int) -> None:
        """Merges the blocks of own intervals that ended by an instant into minutes, and minutes
        that are too many into hours."""
        while self._own.blocks and self._own.blocks[0].to_ns <= until_ns:
            for row in self._own.blocks.popleft().unpacked():
                self._minutes.merge(row, self._edges, MINUTE_NS)
        while self._minutes.blocks and len(self._minutes) > MINUTES_MAX + BLOCK:
            for row in self._minutes.blocks.popleft().unpacked():
                self._hours.merge(row, self._edges, HOUR_NS)

    def rows(self, choice: Choice) -> Iterator[Row]:
        """Yields rows."""
        for tier in (self._hours, self._minutes, self._own):
            yield from tier.rows(choice)

    def resolution_ns(self, choice: Choice) -> int:
        """Returns the length of the cells in which some of the rows were merged; 0 if none was."""
        merged = ((HOUR_NS, self._hours), (MINUTE_NS, self._minutes))
        return next((ns for ns, tier in merged if any(tier.rows(choice))), 0)

    def last(self, choice: Choice, until_ns: int | None) -> Row | None:
        """Returns the last row that ended by an instant."""

        def chosen(rows: Iterable[Row]) -> list[Row]:
            return [r for r in rows if choice.has(r) and (until_ns is None or r.to_ns <= until_ns)]

        for tier in (self._own, self._minutes, self._hours):
            found = chosen(tier.open)
            for block in reversed(tier.blocks):
                if found:
                    break
                if choice.may_be_in(block) and (until_ns is None or block.first_ns <= until_ns):
                    found = chosen(block.unpacked())
            if found:
                return max(found, key=end_of)
        return None


def end_of(row: Row) -> tuple[int, int]:
    """Returns the place of a row among those of its agent."""
    return row.to_ns, row.sequence


def _may_merge(one: Row, following: Row, edges: Edges, cell_ns: int) -> bool:
    if one.stage != following.stage or one.to_ns != following.from_ns:
        return False
    if one.length_ns <= 0 or following.length_ns <= 0:
        return False
    spans = (one.from_ns, one.to_ns), (following.from_ns, following.to_ns)
    return edges.may_merge(*spans, cell_ns)
