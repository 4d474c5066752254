"""The row of a step in the table over a series: its headings and its cells. A cell is a metric of
the step's result or something that the step knows of itself. It knows no run and draws nothing."""

from __future__ import annotations

from collections.abc import Mapping

from pubstorm.metrics.columns import shows_search
from pubstorm.metrics.table import cells as measured_cells
from pubstorm.result import Cell, Result, SeriesStep
from pubstorm.scenario import Scenario

DEFAULT_TABLE = {
    "step": "step",
    "connected": "connected",
    "sent/s": "sent_per_s",
    "acked/s": "acked_per_s",
    "received/s": "received_per_s",
    "p99": "latency.p99",
    "ack p99": "ack_latency.p99",
    "lost": "lost",
    "verdict": "verdict",
    "limited by": "limited_by",
}
"""The table of a scenario that has none of its own."""


def with_table(scenario: Scenario) -> Scenario:
    """The scenario, with the default table where it has none."""
    return scenario if scenario.table else scenario.model_copy(update={"table": DEFAULT_TABLE})


def cells(table: Mapping[str, str], step: SeriesStep, result: Result | None) -> tuple[Cell, ...]:
    """The cells of a step under the headings of a table."""
    measured = {} if result is None else measured_cells(table, result)
    own = (_own(column, step) for column in table.values())
    return tuple(
        measured.get(heading, Cell()) if cell is None else cell
        for heading, cell in zip(table, own, strict=True)
    )


def value_cell(value: str) -> Cell:
    """A value that steps vary, as a cell."""
    is_count = value.isascii() and value.isdigit()
    return Cell(value=int(value)) if is_count else Cell(word=value)


def _own(column: str, step: SeriesStep) -> Cell | None:
    """What a step says of itself, with or without a result: one of its words, or a value that it
    changes. None: the column is not its to fill."""
    if column in step.values:
        return value_cell(step.values[column])
    if shows_search(column):
        figure = step.figures.get(column)
        return Cell() if figure is None else Cell.of(figure.estimate, figure.word)
    words = {
        "step": step.name,
        "note": step.note,
        "command": step.command,
        "verdict": step.outcome,
        "limited_by": None if step.limited_by is None else str(step.limited_by),
    }
    if column == "number":
        return Cell(value=step.number)
    said = words.get(column)
    return None if said is None else Cell(word=said)
