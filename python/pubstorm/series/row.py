"""The row of a step in the table over a series: its headings and its cells. A cell is a metric of
the step's result or something that the step knows of itself. It knows no run and draws nothing."""

from __future__ import annotations

from collections.abc import Mapping

from pubstorm.metrics.columns import shows_search
from pubstorm.metrics.table import cells as measured_cells
from pubstorm.quantity import NOTHING, count_text
from pubstorm.result import Figure, Result, SeriesStep
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


def cells(table: Mapping[str, str], step: SeriesStep, result: Result | None) -> tuple[str, ...]:
    """The cells of a step under the headings of a table."""
    measured = {} if result is None else measured_cells(table, result)
    own = (_own(column, step) for column in table.values())
    return tuple(
        measured.get(heading, NOTHING) if cell is None else cell
        for heading, cell in zip(table, own, strict=True)
    )


def value_cell(value: str) -> str:
    """A value that steps vary, as a cell."""
    return count_text(int(value)) if value.isascii() and value.isdigit() else value


def _own(column: str, step: SeriesStep) -> str | None:
    """What a step says of itself, with or without a result: one of its words, or a value that it
    changes. None: the column is not its to fill."""
    if column in step.values:
        return value_cell(step.values[column])
    if shows_search(column):
        return _of_search(step.figures.get(column))
    words = {
        "number": str(step.number),
        "step": step.name,
        "note": step.note,
        "command": step.command,
        "verdict": step.outcome,
        "limited_by": None if step.limited_by is None else str(step.limited_by),
    }
    return words.get(column)


def _of_search(figure: Figure | None) -> str:
    """What the search of a step found, or a figure at one of its points."""
    if figure is None:
        return NOTHING
    return figure.word or NOTHING if figure.estimate is None else figure.estimate.text
