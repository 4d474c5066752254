"""A report as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pubstorm.output import without_controls
from pubstorm.report.document import Document, mark
from pubstorm.report.layout import Table
from pubstorm.result import Verdict


def markdown(document: Document) -> str:
    """Returns the text of `report.md`."""
    return without_controls("\n".join(_lines(document)) + "\n")


def _lines(document: Document) -> Iterator[str]:
    yield f"# {escaped(document.title)}"
    if document.verdict is not None:
        yield from _verdict(document.verdict)
    status = "" if document.status is None else f"**{document.status_word.upper()}** "
    for number, statement in enumerate(document.outcome):
        yield from ("", escaped(statement) if number else f"{status}{escaped(statement)}")
    if document.facts:
        yield from ("", f"## {document.kind.capitalize()}", "")
    for fact in document.facts:
        value = code_span(fact.value) if fact.is_code else escaped(fact.value)
        yield f"- **{escaped(fact.name)}**: {value}"
    for table in (*document.tables, *document.details):
        yield from ("", f"## {escaped(table.title)}", "", *_table(table))
    for item in document.items:
        if item.is_notable:
            yield from ("", f"## {escaped(f'{item.number}: {item.name}: {item.outcome}')}", "")
            yield from (f"- {escaped(fact)}" for fact in item.facts)
    if commands := [item.command for item in document.items if item.command]:
        yield from ("", "## Commands", "", "```sh", *commands, "```")


def _verdict(verdict: Verdict) -> Iterator[str]:
    if verdict.headline:
        yield from ("", escaped(verdict.headline))
    yield from ("", f"**{str(verdict.status).upper()}**, limited by {verdict.limited_by}")
    if verdict.thresholds or verdict.evidence:
        yield ""
    for threshold in verdict.thresholds:
        default = " (default)" if threshold.default else ""
        yield f"- {mark(threshold)} `{threshold.expression}`{default}: {threshold.text}"
    for fact in verdict.evidence:
        yield f"- {escaped(fact)}"


def _table(table: Table) -> Iterator[str]:
    yield _row(column.name for column in table.columns)
    yield _row("---:" if column.right else ":---" for column in table.columns)
    for row in table.texts:
        yield _row(map(escaped, row))
    if table.notes:
        yield from ("", escaped(table.notes))


def code_span(text: str) -> str:
    """Returns text as code, which can be copied."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    space = " " if text[:1] == "`" or text[-1:] == "`" else ""
    return f"{fence}{space}{text}{space}{fence}"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escaped(text: str) -> str:
    """Returns text in which no character has a meaning in Markdown."""
    for character in "\\|<*_`":
        text = text.replace(character, f"\\{character}")
    return text
