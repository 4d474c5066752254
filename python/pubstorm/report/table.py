"""A table of texts, which every format can show. It knows no result."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pubstorm.quantity import NOTHING


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
