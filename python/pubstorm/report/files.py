"""The files that are made of a stored run, series or search. Each is written by itself: one that
fails takes no other with it. It knows which there are, and nothing of their content."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from pubstorm.errors import StoredRunError
from pubstorm.report.hdr_log import hdr_log
from pubstorm.report.junit import junit, search_junit, series_junit
from pubstorm.report.markdown import markdown
from pubstorm.report.page import library
from pubstorm.report.run_page import run_page
from pubstorm.report.search import search_markdown
from pubstorm.report.search_page import search_page
from pubstorm.report.series import series_markdown
from pubstorm.report.series_page import series_page
from pubstorm.report.stored import (
    SEARCH_FILE,
    SERIES_FILE,
    StoredRun,
    Write,
    load_run,
    load_search,
    load_series,
)

RUN_FILES: dict[str, Callable[[StoredRun], str]] = {
    "report.md": lambda run: markdown(run.result),
    "junit.xml": lambda run: junit(run.result),
    "latencies.hlog": lambda run: hdr_log(run.result),
    "report.html": run_page,
}
"""The page comes last, since it lists the others."""


def write_files(directory: Path, write: Write) -> Iterator[str]:
    """Makes every file of a run, a series or a search from what is stored in its folder. Yields
    what could not be made, in words."""
    try:
        if (directory / SERIES_FILE).exists():
            files = _series_files(directory)
        elif (directory / SEARCH_FILE).exists():
            files = _search_files(directory)
        else:
            run = load_run(directory)
            files = {file: partial(rendered, run) for file, rendered in RUN_FILES.items()}
    except StoredRunError as error:
        yield f"there is no report: {error.message}"
        return
    with ThreadPoolExecutor(1) as beside:
        # A quarter of the time, on a core of its own; where no thread starts, the page packs it.
        with suppress(RuntimeError):
            beside.submit(library)
        for file, rendered in files.items():
            yield from _written(file, rendered, write)


def _series_files(directory: Path) -> dict[str, Callable[[], str]]:
    series = load_series(directory)
    return {
        "report.md": partial(series_markdown, series),
        "junit.xml": partial(series_junit, series),
        "report.html": partial(series_page, directory, series),
    }


def _search_files(directory: Path) -> dict[str, Callable[[], str]]:
    search = load_search(directory)
    return {
        "report.md": partial(search_markdown, search),
        "junit.xml": partial(search_junit, search),
        "report.html": partial(search_page, directory, search),
    }


def _written(file: str, rendered: Callable[[], str], write: Write) -> Iterator[str]:
    try:
        text = rendered()
    except Exception as error:  # whatever is wrong with one file must not cost the others
        yield f"there is no {file}: {type(error).__name__}: {error}"
        return
    if (reason := write(file, text)) is not None:
        yield f"there is no {file}: {reason}"
