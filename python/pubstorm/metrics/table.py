"""The scenario's own table: what each of its columns shows of a judged result. Columns that show a
value of the scenario, the place of a step in its series, or what a search found, are not its to
fill."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pubstorm.metrics import parse_expression
from pubstorm.metrics.columns import shows_scenario, shows_search
from pubstorm.metrics.evaluate import Missing, evaluate
from pubstorm.result import Cell, Result


def cells(table: Mapping[str, str], result: Result) -> dict[str, Cell]:
    """Each column that a result alone can tell, by its heading."""
    own = {heading: column for heading, column in table.items() if _is_of_result(column)}
    return {heading: _cell(column, result) for heading, column in own.items()}


def headings(table: Mapping[str, str]) -> tuple[str, ...]:
    """The headings of the columns that a result alone can tell."""
    return tuple(heading for heading, column in table.items() if _is_of_result(column))


def _is_of_result(column: str) -> bool:
    return not shows_scenario(column) and not shows_search(column)


def word(column: str, result: Result) -> Cell | None:
    """The field of a result that a column shows, such as `verdict`; None if it shows a metric."""
    return _WORDS[column](result) if column in _WORDS else None


def _cell(column: str, result: Result) -> Cell:
    said = word(column, result)
    if said is not None:
        return said
    found = evaluate(result, parse_expression(column))
    if isinstance(found, Missing):
        return Cell()
    return Cell(value=found.value, unit=found.unit, bound=found.bound)


_WORDS: Mapping[str, Callable[[Result], Cell]] = {
    "verdict": lambda result: Cell(word=str(result.verdict.status)),
    "limited_by": lambda result: Cell(word=str(result.verdict.limited_by)),
    "evidence": lambda result: Cell(word="; ".join(result.verdict.evidence)),
    "duration": lambda result: Cell(value=result.duration_s, unit="s"),
    "command": lambda result: Cell(word=result.command),
}
