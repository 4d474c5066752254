"""Tables as data: the rows of a table and its columns, each with its head, its unit and the value
that it shows of a row. The registry defines unit and place of a metric."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from pubstorm.metrics.expressions import parse_expression
from pubstorm.metrics.metric import unit_at_end
from pubstorm.metrics.monitors import unit_of
from pubstorm.quantities import Unit
from pubstorm.report.document import Column, Table, Value
from pubstorm.report.document import Unit as Written
from pubstorm.report.plot import Part
from pubstorm.result import Result, Statistics
from pubstorm.result.figures.reading import number_at

S = TypeVar("S")
R = TypeVar("R")
Text: TypeAlias = str | Callable[[S], str]
When = Literal["always", "known", "any"]
"""Columns that a table has: all, those with a cell, or those with a cell that is not zero."""


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


class Layout(Generic[S, R]):
    """A table, as data. Its source is a result, or a part of one."""

    def __init__(
        self,
        title: Text[S],
        part: Part,
        rows: Callable[[S], Mapping[str, R] | Iterable[R]],
        *columns: Cells[R] | Iterable[Cells[R]] | Callable[[S], Iterable[Cells[R]]],
        note: Text[S] = "",
        bound_us: Callable[[R], float] | None = None,
    ) -> None:
        """`rows` returns what has a row each, by name if the rows have names. The source decides
        some `columns`. `bound_us` returns the largest error of the latencies of a row."""
        self.title, self.part, self.rows, self.columns = title, part, rows, columns
        self.note, self.bound_us = note, bound_us

    def table(self, source: S) -> Table:
        """Returns the table of a source, which may have no row."""
        found = self.rows(source)
        rows = [*found.items()] if isinstance(found, Mapping) else [("", row) for row in found]
        made = [(column, column.of(rows)) for column in self._columns(source)]
        kept = [(column, cells) for column, cells in made if column.is_shown(cells)]
        table = Table(
            _text(self.title, source),
            tuple(Column(column.head, column.unit) for column, _ in kept),
            [*zip(*(cells for _, cells in kept), strict=True)],
            _text(self.note, source),
            part=self.part,
        )
        bound_us = self.bound_us
        return table if bound_us is None else table.with_bounds([bound_us(row) for _, row in rows])

    def _columns(self, source: S) -> Iterable[Cells[R]]:
        for column in self.columns:
            if isinstance(column, Cells):
                yield column
            else:
                yield from column(source) if callable(column) else column


RunTable: TypeAlias = Layout[Result, R]
"""A table of a run."""


def names(head: str) -> Cells[Any]:
    """Returns the column of the names of the rows."""
    return Cells(head, "word", str, is_name=True)


def metrics(
    *texts: str,
    when: When = "always",
    given: Callable[[Any], object] | None = None,
    without_zero: bool = False,
) -> list[Cells[Any]]:
    """Returns a column for each of some metrics of the registry, such as `lost` or `latency.p99 as
    slowest`. By default its head is the name of the metric or of its statistic.

    `given` returns True for rows with a cell. `without_zero`: zeros are empty cells."""

    def made(text: str) -> Cells[Any]:
        name, _, head = text.partition(" as ")
        asked = parse_expression(name)
        path = [*asked.figure.path, *([asked.statistic] if asked.statistic else [])]

        def read(row: Any) -> Value:
            value = number_at(row, path) if given is None or given(row) else None
            return None if without_zero and not value else value

        return Cells(head or _head(asked.statistic or name), _written(asked.unit), read, when)

    return [*map(made, texts)]


def statistics(metric: str, *parts: str, head: str = "") -> list[Cells[Any]]:
    """Returns a column for each of some statistics of a metric. `head` begins their heads."""
    columns = metrics(*(f"{metric}.{part}" for part in parts))
    return [replace(column, head=f"{head} {column.head}".strip()) for column in columns]


def fields(*texts: str, when: When = "always", without_zero: bool = False) -> list[Cells[Any]]:
    """Returns a column for each of some fields of the rows, such as `at_s` or `duration_s as took`.
    By default its head is the name. The end of the name is the unit.

    `without_zero`: zeros are empty cells."""

    def made(text: str) -> Cells[Any]:
        path, _, head = text.partition(" as ")
        value = attrgetter(path)
        read = (lambda row: value(row) or None) if without_zero else value
        name = path.rpartition(".")[2]
        unit = "share" if name.endswith("share") else unit_at_end(name)
        short = name.removesuffix(f"_{unit}").removesuffix("_total")
        return Cells(head or _head(short), _written(unit), read, when)

    return [*map(made, texts)]


def words(*texts: str, when: When = "always", without_empty: bool = False) -> list[Cells[Any]]:
    """Returns a column of words for each of some fields of the rows, as `fields` does."""
    columns = fields(*texts, when=when, without_zero=without_empty)
    return [replace(column, unit="word") for column in columns]


def readings(
    *texts: str, of: Literal["load.mean", "whole.first", "whole.max"], when: When = "always"
) -> list[Cells[Any]]:
    """Returns a column for each of some metrics of monitors, such as `cpu as CPU`: a statistic of
    the load or of the whole run. Rows have their monitors by metric in `found`."""
    span, _, statistic = of.partition(".")

    def made(text: str) -> Cells[Any]:
        name, _, head = text.partition(" as ")

        def read(row: Any) -> Value:
            known: Statistics = getattr(row.found.get(name), span, Statistics())
            return known.value(statistic) if known.count else None

        return Cells(head or name, _written(unit_of(name)), read, when)

    return [*map(made, texts)]


def _head(name: str) -> str:
    return name.replace("_", " ").replace("p999", "p99.9")


def _written(unit: Unit | None) -> Written:
    """Returns the way in which a column writes a unit."""
    return "rate" if unit == "per_s" else unit or "count"


def _text(text: Text[S], source: S) -> str:
    return text if isinstance(text, str) else text(source)
