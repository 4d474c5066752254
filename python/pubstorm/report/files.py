"""The report files of a stored run, series or search. A file that fails takes no other with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

from pubstorm.errors import StoredRunError
from pubstorm.report.document import Document
from pubstorm.report.junit import junit
from pubstorm.report.latencies import hdr_log
from pubstorm.report.markdown import markdown
from pubstorm.report.of_run import run_document
from pubstorm.report.page import library, page
from pubstorm.report.run_page import run_page
from pubstorm.report.stored import (
    COMPARISON_FILE,
    SEARCH_FILE,
    SERIES_FILE,
    StoredRun,
    Write,
    holds,
    load_comparison,
    load_run,
    load_search,
    load_series,
)

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
    if holds(directory, SERIES_FILE):
        from pubstorm.report.of_series import series_document

        document = cache(partial(series_document, load_series(directory), directory))
    elif holds(directory, SEARCH_FILE):
        from pubstorm.report.of_search import search_document

        document = cache(partial(search_document, load_search(directory), directory))
    elif holds(directory, COMPARISON_FILE):
        from pubstorm.report.of_comparison import comparison_document

        document = cache(partial(comparison_document, load_comparison(directory), directory))
    else:
        return run_files(load_run(directory))
    return {**_texts(document), "report.html": lambda: page(document())}


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
