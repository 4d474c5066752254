"""Tables, and their layouts: the rows of a table and its columns as data, each with its head, its
unit and the value that it shows of a row. The registry defines unit and place of a metric."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

from pubstorm.metrics import columns_of
from pubstorm.metrics.metric import Metric, ReportColumn, in_words, unit_at_end
from pubstorm.quantities import (
    NOTHING,
    Unit,
    count_text,
    rate_text,
    value_text,
)
from pubstorm.report.plot import Part
from pubstorm.result import Cell, PopulationResult, RunResult, SeriesCell, Statistics, are_figures
from pubstorm.result.figures import number_at

BOUND = "±"
"""Heading of the largest error of latencies that clocks of several hosts made."""
BOUND_NOTE = "±: the times are off by this much at most, since clocks of several hosts made them."

Written = Unit | Literal["word", "bar", "count", "rate", "signed rate"]
"""Unit of the numbers of a column; `word` for a column of words, `bar` for characters of one
width."""
MARKS = "¹²³⁴⁵⁶⁷⁸⁹"
"""Marks of remarks in their order; beyond them the number in brackets."""
S = TypeVar("S")
R = TypeVar("R")
Text: TypeAlias = str | Callable[[S], str]
When = Literal["always", "known", "any"]
"""Columns that a table has: all, those with a cell, or those with a cell that is not zero."""


class HasUnit(Protocol):
    """A figure that has a unit of its own."""

    @property
    def text(self) -> str:
        """The figure as it is shown."""
        ...


Value = HasUnit | float | str | None
"""A cell: a figure, a number in the unit of its column, a word, or nothing."""


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    unit: Written = "count"

    @property
    def right(self) -> bool:
        """True if the cells are numbers, set flush right."""
        return self.unit not in ("word", "bar")

    @property
    def style(self) -> str:
        """Class of the cells on the page; empty for words."""
        return "number" if self.right else self.unit.replace("word", "")

    def text(self, value: Value) -> str:
        """Returns a cell as it is shown."""
        if value is None:
            return NOTHING
        if isinstance(value, int | float):
            writer = _WRITERS.get(self.unit)
            return value_text(value, self.unit) if writer is None else writer(value)
        return value if isinstance(value, str) else value.text


@dataclass(frozen=True)
class Shown:
    """A text in a column of numbers."""

    text: str


def columns(unit: Written, *names: str) -> tuple[Column, ...]:
    """Returns columns of one unit."""
    return tuple(Column(name, unit) for name in names)


def cell_columns(names: Sequence[str], rows: Sequence[Sequence[Cell]]) -> tuple[Column, ...]:
    """Returns the columns of rows whose cells have units of their own."""
    return tuple(
        head
        for place, name in enumerate(names)
        for head in columns("count" if are_figures([row[place] for row in rows]) else "word", name)
    )


@dataclass(frozen=True)
class Table:
    """A table."""

    title: str
    columns: tuple[Column, ...]
    rows: Sequence[tuple[Value, ...]]
    note: str = ""
    """Text below the table; the remarks of its cells follow."""
    links: tuple[str, ...] = ()
    """Address that each row links to, such as `#part-3`; empty for none."""
    part: Part = "details"
    """Section of the page that has the table."""

    @property
    def texts(self) -> tuple[tuple[str, ...], ...]:
        """The rows as they are shown."""
        marks = self._marks
        return tuple(
            tuple(
                " ".join(
                    [column.text(value), *(["".join(marks[r] for r in found)] if found else [])]
                )
                for column, value in zip(self.columns, row, strict=True)
                for found in [_remarks(value)]
            )
            for row in self.rows
        )

    @property
    def notes(self) -> str:
        """The note and the remarks of the cells, each with its mark."""
        remarks = "; ".join(f"{mark} {remark}" for remark, mark in self._marks.items())
        return " ".join(filter(None, (self.note, remarks)))

    @property
    def _marks(self) -> dict[str, str]:
        found = dict.fromkeys(
            remark for row in self.rows for cell in row for remark in _remarks(cell)
        )
        return {
            remark: MARKS[n] if n < len(MARKS) else f"[{n + 1}]" for n, remark in enumerate(found)
        }

    def with_bounds(self, bounds_us: Sequence[float]) -> Table:
        """Returns the table with a last column: the largest error of the latencies of each row.
        Returns the table itself if one clock made all latencies."""
        if not any(bounds_us):
            return self
        rows = [(*row, bound or None) for row, bound in zip(self.rows, bounds_us, strict=True)]
        note = f"{self.note} {BOUND_NOTE}".strip()
        return replace(self, columns=(*self.columns, Column(BOUND, "us")), rows=rows, note=note)

    def without_empty(self) -> Table:
        """Returns the table without empty columns."""
        kept = [
            place
            for place in range(len(self.columns))
            if not self.rows or any(row[place] is not None for row in self.rows)
        ]
        return self.only(kept)

    def only(self, places: Sequence[int]) -> Table:
        """Returns the table with some of its columns."""
        rows = [tuple(row[place] for place in places) for row in self.rows]
        return replace(self, columns=tuple(self.columns[place] for place in places), rows=rows)


@dataclass(frozen=True)
class Cells(Generic[R]):
    """A column of a table, as data."""

    head: str
    unit: Written
    read: Callable[[R], Value]
    """Returns the cell of a row; None for an empty one."""
    when: When = "always"
    is_name: bool = False
    """True for the column of the names of the rows."""

    def of(self, rows: Sequence[tuple[str, R]]) -> list[Value]:
        """Returns the cells of rows with their names."""
        return [name if self.is_name else self.read(row) for name, row in rows]

    def is_shown(self, cells: Sequence[Value]) -> bool:
        """Returns True if a table has the column. A table without rows has all."""
        nothing: tuple[Value, ...] = (None, 0) if self.when == "any" else (None,)
        return self.when == "always" or not cells or any(cell not in nothing for cell in cells)


Columns: TypeAlias = Cells[R] | Iterable[Cells[R]] | Callable[[S], Iterable[Cells[R]]]
"""One column, several, or those that a source decides."""


@dataclass(frozen=True)
class Layout(Generic[S, R]):
    """A table, as data. Its source is a result, or a part of one."""

    title: Text[S]
    part: Part
    """Section of the page that has the table."""
    rows: Callable[[S], Iterable[R] | Iterable[tuple[str, R]]]
    """Returns what has a row each, with its name if a column has the names."""
    columns: tuple[Columns[R, S], ...] = ()
    note: Text[S] = ""
    bound_us: Callable[[R], float] | None = None
    """Returns the largest error of the latencies of a row; None if they have none."""

    def of(
        self,
        *columns: Columns[R, S],
        note: Text[S] = "",
        bound_us: Callable[[R], float] | None = None,
    ) -> Layout[S, R]:
        """Returns the layout with columns."""
        return replace(self, columns=columns, note=note, bound_us=bound_us)

    def table(self, source: S) -> Table:
        """Returns the table of a source, which may have no row."""
        columns = [*self._columns(source)]
        have_names = any(column.is_name for column in columns)
        rows: Any = self.rows(source)
        named = [*rows] if have_names else [("", row) for row in rows]
        made = [(column, column.of(named)) for column in columns]
        kept = [(column, cells) for column, cells in made if column.is_shown(cells)]
        table = Table(
            _text(self.title, source),
            tuple(Column(column.head, column.unit) for column, _ in kept),
            [*zip(*(cells for _, cells in kept), strict=True)],
            _text(self.note, source),
            part=self.part,
        )
        bound_us = self.bound_us
        return table if bound_us is None else table.with_bounds([bound_us(row) for _, row in named])

    def _columns(self, source: S) -> Iterable[Cells[R]]:
        for column in self.columns:
            if isinstance(column, Cells):
                yield column
            else:
                yield from column(source) if callable(column) else column


RunTable: TypeAlias = Layout[RunResult, R]
"""A table of a run."""


def names(head: str) -> Cells[Any]:
    """Returns the column of the names of the rows."""
    return Cells(head, "word", str, is_name=True)


def listed(table: str, *, given: Callable[[Any], object] | None = None) -> list[Cells[Any]]:
    """Returns the columns that the registry has of a table, or of a group of its columns.

    A row of a list shows the sum. `given` returns True for rows with cells. Rows of monitors have
    them by metric in `found`."""
    return [
        Cells(head, written(metric.unit), _reader(metric, column, statistic, given), column.when)
        for metric, column in columns_of(table)
        for head, statistic in column.named(metric.name)
    ]


def _reader(
    metric: Metric,
    column: ReportColumn,
    statistic: str,
    given: Callable[[Any], object] | None,
) -> Callable[[Any], Value]:
    def read(row: Any) -> Value:
        if statistic.endswith(".slope"):
            return _slope(row, metric, statistic)
        if isinstance(row, list):
            value: float | None = sum(_number(each, metric, statistic) or 0 for each in row)
        elif not all((given is None or given(row), _is_given(row, metric, column))):
            return None
        else:
            value = _number(row, metric, statistic)
        return None if column.without_zero and not value else value

    return read


def _slope(row: Any, metric: Metric, statistic: str) -> Cell | None:
    span = statistic.removesuffix(".slope")
    known: Statistics = getattr(row.found.get(metric.name), span, Statistics())
    if known.slope_per_h is None:
        return None
    unit = metric.slope.unit or ""
    return Cell(value=known.slope_per_h, unit=unit, bound=known.slope_bound_per_h)


def _is_given(row: Any, metric: Metric, column: ReportColumn) -> bool:
    has_acks = not metric.of_acks or getattr(row, "acknowledged", True)
    return has_acks and (not column.given or any(getattr(row, name) for name in column.given))


def _number(row: Any, metric: Metric, statistic: str) -> float | None:
    """Returns the number of a metric in a row. Raises AttributeError if such rows never have it."""
    if not metric.at:
        span, _, of_span = statistic.partition(".")
        known: Statistics = getattr(row.found.get(metric.name), span, Statistics())
        return known.value(of_span) if known.count else None
    first, *_ = path = [*metric.path, *filter(None, (statistic,))]
    if first != "rates":
        getattr(row, first)
    value = number_at(row, path)
    if metric.divisor is None or value is None:
        return value
    below = number_at(row, [metric.divisor.field])
    return round(value / below, 5) if below else None


def populations_in(table: str) -> Callable[[RunResult], Iterable[tuple[str, PopulationResult]]]:
    """Returns rows: the populations with one of the counts that make rows of a table, or all."""
    paths = [
        [metric.at, "count"] if metric.kind == "histogram" else [metric.at]
        for metric, column in columns_of(table)
        if column.makes_rows
    ]
    return lambda result: (
        (name, population)
        for name, population in result.populations.items()
        if not paths or any(number_at(population, path) for path in paths)
    )


def fields(*texts: str, when: When = "always", without_zero: bool = False) -> list[Cells[Any]]:
    """Returns a column for each of some fields of the rows, such as `at_s` or `duration_s as took`.
    By default its head is the name. The end of the name is the unit. A field of nothing is empty.

    `without_zero`: zeros are empty cells."""

    def made(text: str) -> Cells[Any]:
        path, _, head = text.partition(" as ")
        *_, name = steps = path.split(".")

        def read(row: Any) -> Any:
            value = reduce(lambda at, step: None if at is None else getattr(at, step), steps, row)
            return None if without_zero and not value else value

        unit = "share" if name.endswith("share") else unit_at_end(name)
        short = name.removesuffix(f"_{unit}").removesuffix("_total")
        return Cells(head or in_words(short), written(unit), read, when)

    return [*map(made, texts)]


def words(*texts: str, when: When = "always", without_empty: bool = False) -> list[Cells[Any]]:
    """Returns a column of words for each of some fields of the rows, as `fields` does."""
    columns = fields(*texts, when=when, without_zero=without_empty)
    return [replace(column, unit="word") for column in columns]


def written(unit: Unit | None) -> Written:
    """Returns the way in which a column writes a unit."""
    return "rate" if unit == "per_s" else unit or "count"


def _text(text: Text[S], source: S) -> str:
    return text if isinstance(text, str) else text(source)


def _remarks(value: Value) -> tuple[str, ...]:
    return value.remarks if isinstance(value, SeriesCell) else ()


_WRITERS: Mapping[Written, Callable[[float], str]] = {
    "word": count_text,
    "bar": count_text,
    "count": count_text,
    "rate": rate_text,
    "signed rate": lambda value: f"{'+' if value > 0 else ''}{rate_text(value)}",
}
