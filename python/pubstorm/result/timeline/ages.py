"""Resolution by age: what is old is merged into minutes, and then into hours. One rule says what
may be merged, and edges keep it apart."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

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
