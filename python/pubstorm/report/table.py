"""A table of texts, which every format can show. It knows no result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pubstorm.quantity import NOTHING, duration_text

BOUND = "±"
"""The heading of how far latencies are off at most, since clocks of several hosts made them."""
BOUND_NOTE = "±: the times are off by this much at most, since clocks of several hosts made them."


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    right: bool = True
    """Whether its cells are numbers, set flush right."""


@dataclass(frozen=True)
class Table:
    """A table of texts."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    """What is to be said below it."""

    def with_bounds(self, bounds_us: Sequence[float]) -> Table:
        """The table with a last column of how far the latencies of each row are off at most; as it
        is where one clock made all of them."""
        if not any(bounds_us):
            return self
        cells = (duration_text(bound_us) if bound_us else NOTHING for bound_us in bounds_us)
        rows = tuple((*row, cell) for row, cell in zip(self.rows, cells, strict=True))
        note = f"{self.note} {BOUND_NOTE}".strip()
        return replace(self, columns=(*self.columns, Column(BOUND)), rows=rows, note=note)

    def without_empty_columns(self) -> Table:
        """The table without the columns that no row has anything in."""
        filled = [
            place
            for place in range(len(self.columns))
            if any(row[place] != NOTHING for row in self.rows) or not self.rows
        ]
        return replace(
            self,
            columns=tuple(self.columns[place] for place in filled),
            rows=tuple(tuple(row[place] for place in filled) for row in self.rows),
        )
