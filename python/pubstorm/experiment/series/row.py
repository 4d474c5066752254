"""The row of a step in the table over a series, and its memory by connections. A cell is a figure
of the step's result or a property of the step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pubstorm.measure.summary.memory import fitted
from pubstorm.metrics import expressions_of
from pubstorm.result import Cell, MemoryModel, MemoryPoint, RunResult, SeriesStep
from pubstorm.result.figures import ROUND_TRIP
from pubstorm.result.figures.table import cells as measured_cells
from pubstorm.result.figures.table import shows_search
from pubstorm.scenario import Scenario
from pubstorm.scenario.flows import MqttPublication
from pubstorm.scenario.shares import shares_of

DEFAULT_TABLE = {
    "step": "step",
    **expressions_of("steps"),
    "verdict": "verdict",
    "limited by": "limited_by",
}
"""The table of a scenario that has none of its own."""


def with_table(scenario: Scenario) -> Scenario:
    """The scenario, with the default table where it has none. Only requests have round trips."""
    if scenario.table:
        return scenario
    flows = (flow for each in shares_of(scenario).values() for flow in each.population.flows)
    asks = any(isinstance(flow, MqttPublication) and flow.request for flow in flows)
    columns = DEFAULT_TABLE.items()
    table = {head: text for head, text in columns if asks or not text.startswith(ROUND_TRIP)}
    return scenario.model_copy(update={"table": table})


def cells(table: Mapping[str, str], step: SeriesStep, result: RunResult | None) -> tuple[Cell, ...]:
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
    """Returns a cell that needs no result: a word of the step, or a value that the step changes.
    None for other columns."""
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


def steady_memory(result: RunResult) -> dict[str, MemoryPoint]:
    """Returns the memory of each subject of a step under steady load."""
    return {model.subject: model.steady for model in result.memory if model.steady is not None}


def memory_of_steps(steps: Iterable[SeriesStep]) -> tuple[MemoryModel, ...]:
    """The lines through the steps of whatever has one."""
    points: dict[str, list[MemoryPoint]] = {}
    for step in steps:
        for subject, point in step.memory.items():
            points.setdefault(subject, []).append(point)
    models = (fitted(subject, each, points_min=STEPS_MIN) for subject, each in points.items())
    return tuple(model for model in models if model.problem is None)


STEPS_MIN = 3
"""Steps with different numbers of connections from which a line is fitted."""
