"""The scenario's own table: a cell of a result for each column. Other modules fill columns that
show the scenario, a step or a search."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pubstorm.metrics.expressions import parse_expression
from pubstorm.result import Cell, RunResult
from pubstorm.result.figures import evaluate

RESULT_WORDS = ("verdict", "limited_by", "evidence", "duration", "command")
"""Parts of a result."""
STEP_WORDS = ("step", "number", "note")
"""Properties of a step of a series."""
SEARCH_WORDS = ("search.best", "search.most", "search.limited_by", "search.trials")
"""Parts of a search's answer: the largest value that passes and the largest figure, with intervals;
the limit; the number of trials."""
TRIAL_WORDS = ("search.best", "search.most")
"""Trials of a search that a figure can be asked of: `search.most:feed.cpu`."""
SCENARIO_PATHS = ("target", "seed", "populations.", "stages.", "topology.")
"""Prefixes of columns that show a value of the scenario."""


def cells(table: Mapping[str, str], result: RunResult) -> dict[str, Cell]:
    """Returns the columns that a result fills, by heading."""
    own = {heading: column for heading, column in table.items() if _is_of_result(column)}
    return {heading: _cell(column, result) for heading, column in own.items()}


def headings(table: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the headings of the columns that a result fills."""
    return tuple(heading for heading, column in table.items() if _is_of_result(column))


def shows_scenario(column: str) -> bool:
    """Returns True if a column shows a value of the scenario or a property of a step."""
    return column in STEP_WORDS or column.startswith(SCENARIO_PATHS)


def shows_search(column: str) -> bool:
    """Returns True if a column shows a search's answer, or a figure at one of its trials."""
    return column in SEARCH_WORDS or asked_trials(column)[0] is not None


def asked_trials(column: str) -> tuple[str | None, str]:
    """The trial of a search that a column asks, and what it asks there: of
    `search.most:feed.cpu` the trial with the largest figure, and `feed.cpu`. None: no trial."""
    trial, colon, asked = column.partition(":")
    return (trial, asked) if colon and trial in TRIAL_WORDS else (None, column)


def is_metric(column: str) -> bool:
    """Returns True if a column is a metric expression."""
    return column not in RESULT_WORDS and not shows_search(column) and not shows_scenario(column)


def _is_of_result(column: str) -> bool:
    return not shows_scenario(column) and not shows_search(column)


def word(column: str, result: RunResult) -> Cell | None:
    """The field of a result that a column shows, such as `verdict`; None if it shows a metric."""
    return _WORDS[column](result) if column in _WORDS else None


def _cell(column: str, result: RunResult) -> Cell:
    said = word(column, result)
    if said is not None:
        return said
    return Cell.found(evaluate(result, parse_expression(column)))


_WORDS: Mapping[str, Callable[[RunResult], Cell]] = {
    "verdict": lambda result: Cell(word=str(result.verdict.status)),
    "limited_by": lambda result: Cell(word=str(result.verdict.limited_by)),
    "evidence": lambda result: Cell(word="; ".join(result.verdict.evidence)),
    "duration": lambda result: Cell(value=result.duration_s, unit="s"),
    "command": lambda result: Cell(word=result.command),
}
