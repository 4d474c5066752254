"""A result as Markdown, with the same tables as on the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pubstorm.report.outcomes import mark
from pubstorm.report.table import Table
from pubstorm.report.tables import COMMAND, detail_tables, facts, tables
from pubstorm.result import Result, Verdict


def markdown(result: Result) -> str:
    """The text of `report.md`."""
    lines = [f"# {escaped(result.name)}", "", *_verdict(result.verdict)]
    lines += ["## Run", "", *(_fact(name, value) for name, value in facts(result))]
    for table in (*tables(result), *detail_tables(result)):
        lines += ["", f"## {table.title}", "", *table_lines(table)]
    return "\n".join(lines) + "\n"


def _fact(name: str, value: str) -> str:
    return f"- **{name}**: {code_span(value) if name == COMMAND else escaped(value)}"


def _verdict(verdict: Verdict) -> Iterator[str]:
    if verdict.headline:
        yield from (escaped(verdict.headline), "")
    yield f"**{str(verdict.status).upper()}**, limited by {verdict.limited_by}"
    yield ""
    for threshold in verdict.thresholds:
        default = " (default)" if threshold.default else ""
        yield f"- {mark(threshold)} `{threshold.expression}`{default}: {threshold.text}"
    for fact in verdict.evidence:
        yield f"- {escaped(fact)}"
    if verdict.thresholds or verdict.evidence:
        yield ""


def table_lines(table: Table) -> Iterator[str]:
    """A table, line by line."""
    yield _row(column.name for column in table.columns)
    yield _row("---:" if column.right else ":---" for column in table.columns)
    for row in table.rows:
        yield _row(map(escaped, row))
    if table.note:
        yield from ("", escaped(table.note))


def code_span(text: str) -> str:
    """Text as code, which can be copied as it is."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    space = " " if text[:1] == "`" or text[-1:] == "`" else ""
    return f"{fence}{space}{text}{space}{fence}"


def _row(cells: Iterator[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escaped(text: str) -> str:
    """Text in which no character has a meaning of its own."""
    for character in "\\|<*_`":
        text = text.replace(character, f"\\{character}")
    return text
