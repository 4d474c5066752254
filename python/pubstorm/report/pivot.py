"""The scenario's tables over a series as they are shown: figures with their intervals, and a mark
with a note where something has to be said of one."""

from __future__ import annotations

from pubstorm.report.table import Column, Table
from pubstorm.result import Series, SeriesCell, SeriesTable, are_figures

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
        Column(heading, right=are_figures([row[place] for row in table.rows]))
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
