"""Tables over a series as they are stored: a row for each value that its steps vary, and in each
cell a figure with how surely it is known. It draws nothing."""

from __future__ import annotations

from pubstorm.result.cells import Cell, Estimate
from pubstorm.result.model import LimitedBy
from pubstorm.value import Value


class Figure(Value):
    """What a column of a table over the series shows of one step."""

    estimate: Estimate | None = None
    """The figure; null: a word, or nothing."""
    word: str = ""
    """A word in place of a figure, such as a verdict."""
    limited_by: LimitedBy | None = None
    """Who set the limit where it was measured."""
    remark: str | None = None
    """What has to be said of it besides, or why there is none."""


class SeriesCell(Cell):
    """One cell of such a table."""

    remarks: tuple[str, ...] = ()
    """What the table says of it in its notes, such as that this host was the limit."""


class SeriesTable(Value):
    """A table over a series."""

    title: str
    columns: tuple[str, ...]
    """Headings."""
    rows: tuple[tuple[SeriesCell, ...], ...]
    """One for each step without its variants."""
