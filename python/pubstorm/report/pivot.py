"""The scenario's tables over a series as they are shown: figures with their intervals, and a mark
with a note where something has to be said of one."""

from __future__ import annotations

from pubstorm.quantity import NOTHING
from pubstorm.report.table import Column, Table
from pubstorm.result import Series, SeriesCell, SeriesTable

MARKS = "¹²³⁴⁵⁶⁷⁸⁹"
"""Marks of the notes in their order; beyond them the number in brackets."""


def pivot_tables(series: Series) -> list[Table]:
    """The tables in their order, each with its notes below it."""
    return [_drawn(table) for table in series.tables]


def _drawn(table: SeriesTable) -> Table:
    cells = [cell for row in table.rows for cell in row]
    remarks = list(dict.fromkeys(remark for cell in cells for remark in cell.remarks))
    marks = {remark: _mark(number) for number, remark in enumerate(remarks)}
    columns = tuple(
        Column(heading, right=_is_of_figures([row[place] for row in table.rows]))
        for place, heading in enumerate(table.columns)
    )
    rows = tuple(tuple(_marked(cell, marks) for cell in row) for row in table.rows)
    note = "; ".join(f"{mark} {remark}" for remark, mark in marks.items())
    return Table(table.title, columns, rows, note)


def _mark(number: int) -> str:
    return MARKS[number] if number < len(MARKS) else f"[{number + 1}]"


def _marked(cell: SeriesCell, marks: dict[str, str]) -> str:
    own = "".join(marks[remark] for remark in cell.remarks)
    return f"{cell.text} {own}" if own else cell.text


def _is_of_figures(cells: list[SeriesCell]) -> bool:
    """Whether a column is set flush right: it has figures or whole numbers, and no word."""
    said = [cell for cell in cells if cell.text != NOTHING]
    return bool(said) and all(cell.estimate is not None or _is_number(cell.text) for cell in said)


def _is_number(text: str) -> bool:
    return "".join(text.split()).isdecimal()
