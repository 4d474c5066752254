"""Renders stored runs, series and searches: on the terminal, and as files beside what was stored.
It reads their folders and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from pubstorm.report.stored import (
    RESULT_FILE,
    SCENARIO_FILE,
    SEARCH_FILE,
    SERIES_FILE,
    Write,
    load_result,
    load_search,
    load_series,
)
from pubstorm.report.text import render

__all__ = [
    "RESULT_FILE",
    "SCENARIO_FILE",
    "SEARCH_FILE",
    "SERIES_FILE",
    "Write",
    "is_stored",
    "load_result",
    "load_search",
    "load_series",
    "render_directory",
    "write_reports",
]


def write_reports(directory: Path, write: Write) -> Iterator[str]:
    """Makes every file of a run, a series or a search from its folder. Yields problems, in words.

    Imports what makes pages here, since a run needs none of it before its end.
    """
    try:
        from pubstorm.report.files import write_files
    except (OSError, ImportError, MemoryError) as error:
        yield f"there are no reports: {type(error).__name__}: {error}"
        return
    yield from write_files(directory, write)


def is_stored(directory: Path) -> bool:
    """Returns True if a directory has the result of a run, a series or a search."""
    return any((directory / file).exists() for file in (RESULT_FILE, SERIES_FILE, SEARCH_FILE))


def render_directory(directory: Path, console: Console) -> None:
    """Renders what is stored in a directory, a run, a series or a search, on the terminal again."""
    where = {"run_directory": str(directory)}
    if (directory / SERIES_FILE).exists():
        from pubstorm.report.series import render_series

        render_series(load_series(directory).model_copy(update=where), console)
    elif (directory / SEARCH_FILE).exists():
        from pubstorm.report.search import render_search

        render_search(load_search(directory).model_copy(update=where), console)
    else:
        render(load_result(directory).model_copy(update=where), console)
