"""The report files of a stored run, experiment or data sheet, Markdown and JUnit XML among them. A
file that fails takes no other with it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from xml.etree import ElementTree

from pubstorm.errors import StoredRunError
from pubstorm.output import without_controls
from pubstorm.report.document import Case, Document, mark
from pubstorm.report.latencies import hdr_log
from pubstorm.report.layout import Table
from pubstorm.report.of_run import run_document
from pubstorm.report.page import library, page, run_page
from pubstorm.report.stored import (
    COMPARISON_FILE,
    DATASHEET_FILE,
    DATASHEETS_FILE,
    SEARCH_FILE,
    SERIES_FILE,
    StoredRun,
    Write,
    holds,
    load_comparison,
    load_datasheet,
    load_datasheets,
    load_run,
    load_search,
    load_series,
)
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


NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold."""


def junit(document: Document) -> str:
    """Returns the text of `junit.xml`."""
    cases = document.cases
    suite = ElementTree.Element(
        "testsuite",
        name=_xml(document.title),
        tests=str(len(cases)),
        failures=str(sum(case.failure is not None for case in cases)),
        errors="0",
        skipped=str(sum(case.skipped is not None for case in cases)),
        time=f"{math.fsum(case.took_s for case in cases):.3f}",
        timestamp=document.started,
    )
    suite.extend(_case(document.title, case) for case in cases)
    output = (*document.output, f"run directory: {document.run_directory}")
    ElementTree.SubElement(suite, "system-out").text = _xml("\n".join(output))
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    text = ElementTree.tostring(suites, encoding="unicode")
    return without_controls(f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n')


def _case(suite: str, case: Case) -> ElementTree.Element:
    took = f"{case.took_s:.3f}"
    element = ElementTree.Element(
        "testcase", name=_xml(case.name), time=took, classname=_xml(suite)
    )
    if case.failure is not None:
        message = _xml(case.failure.split("\n")[0])
        ElementTree.SubElement(element, "failure", message=message).text = _xml(case.failure)
    if case.skipped is not None:
        ElementTree.SubElement(element, "skipped", message=_xml(case.skipped))
    return element


def _xml(text: str) -> str:
    return NOT_XML.sub("\ufffd", text)


Files = dict[str, Callable[[], str]]
"""Files by name, each with what makes its text."""


def write_files(directory: Path, write: Write) -> Iterator[str]:
    """Makes every report file of what is stored in a folder. Yields the files that could not be
    made, in words."""
    try:
        files = _files(directory)
    except StoredRunError as error:
        yield f"there is no report: {error.message}"
        return
    with ThreadPoolExecutor(1) as beside:
        # A quarter of the time, on a core of its own; where no thread starts, the page packs it.
        with suppress(RuntimeError):
            beside.submit(library)
        for file, rendered in files.items():
            yield from _written(file, rendered, write)


def run_files(run: StoredRun) -> Files:
    """Returns the files of a run. The page comes last, since it lists the others."""
    document = cache(partial(run_document, run.result))
    return {
        **_texts(document),
        "latencies.hlog": lambda: hdr_log(run.path, run.result),
        "report.html": lambda: run_page(run, document()),
    }


def _files(directory: Path) -> Files:
    """Returns the files of what a folder stores. Imports what a run needs not."""
    own: Files = {}
    if holds(directory, DATASHEETS_FILE):
        from pubstorm.report.data import compared_table, csv_bytes
        from pubstorm.report.of_datasheets import datasheets_document

        found = load_datasheets(directory)
        document = cache(partial(datasheets_document, found, has_plots=True))
        own = {"figures.csv": lambda: csv_bytes(compared_table(found)).decode()}
    elif holds(directory, DATASHEET_FILE):
        from pubstorm.report.data import csv_bytes, sheet_table
        from pubstorm.report.of_datasheet import datasheet_document

        sheet = load_datasheet(directory)
        document = cache(partial(datasheet_document, sheet, directory))
        own = {"figures.csv": lambda: csv_bytes(sheet_table(sheet)).decode()}
    elif holds(directory, SERIES_FILE):
        from pubstorm.report.of_experiments import series_document

        document = cache(partial(series_document, load_series(directory), directory))
    elif holds(directory, SEARCH_FILE):
        from pubstorm.report.of_experiments import search_document

        document = cache(partial(search_document, load_search(directory), directory))
    elif holds(directory, COMPARISON_FILE):
        from pubstorm.report.of_comparison import comparison_document

        document = cache(partial(comparison_document, load_comparison(directory), directory))
    else:
        return run_files(load_run(directory))
    return {**_texts(document), **own, "report.html": lambda: page(document())}


def _texts(document: Callable[[], Document]) -> Files:
    return {
        "report.md": lambda: markdown(document()),
        "junit.xml": lambda: junit(document()),
    }


def _written(file: str, rendered: Callable[[], str], write: Write) -> Iterator[str]:
    try:
        text = rendered()
    except StoredRunError as error:
        yield f"there is no {file}: {error.message}"
        return
    except Exception as error:  # whatever is wrong with one file must not cost the others
        yield f"there is no {file}: {type(error).__name__}: {error}"
        return
    if (reason := write(file, text)) is not None:
        yield f"there is no {file}: {reason}"
