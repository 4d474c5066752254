"""The scenario's own table: what each of its columns shows of a judged result. Columns that show a
value of the scenario, the place of a step in its series, or what a search found, are not its to
fill."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pubstorm.metrics import parse_expression
from pubstorm.metrics.columns import shows_scenario, shows_search
from pubstorm.metrics.evaluate import Missing, evaluate
from pubstorm.quantity import NOTHING, span_text
from pubstorm.result import Result


def cells(table: Mapping[str, str], result: Result) -> dict[str, str]:
    """The text of each column that a result alone can tell, by its heading."""
    own = {heading: column for heading, column in table.items() if _is_of_result(column)}
    return {heading: _cell(column, result) for heading, column in own.items()}


def _is_of_result(column: str) -> bool:
    return not shows_scenario(column) and not shows_search(column)


def word(column: str, result: Result) -> str | None:
    """What a column shows of a result that is no figure, such as `verdict`; None: it is one."""
    return _WORDS[column](result) if column in _WORDS else None


def _cell(column: str, result: Result) -> str:
    said = word(column, result)
    if said is not None:
        return said
    found = evaluate(result, parse_expression(column))
    return NOTHING if isinstance(found, Missing) else str(found)


_WORDS: Mapping[str, Callable[[Result], str]] = {
    "verdict": lambda result: str(result.verdict.status),
    "limited_by": lambda result: str(result.verdict.limited_by),
    "evidence": lambda result: "; ".join(result.verdict.evidence) or NOTHING,
    "duration": lambda result: span_text(result.duration_s),
    "command": lambda result: result.command or NOTHING,
}
