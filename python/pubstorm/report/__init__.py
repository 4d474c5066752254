"""Renders stored runs, experiments and data sheets: on the terminal, and as files in their
folders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pubstorm.errors import StoredRunError
from pubstorm.report.document import Document
from pubstorm.report.stored import (
    ASKED_FILE,
    COMPARISON_FILE,
    DATASHEET_FILE,
    DATASHEETS_FILE,
    RESULT_FILE,
    SCENARIO_FILE,
    SEARCH_FILE,
    SERIES_FILE,
    Stored,
    Write,
    check_format,
    holds,
    load_datasheet,
    load_result,
    load_search,
    load_series,
    load_stored,
)
from pubstorm.result import SearchResult, Series
from pubstorm.result.comparison import Comparison
from pubstorm.result.datasheet import Datasheet
from pubstorm.result.datasheet_comparison import SheetComparison

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "ASKED_FILE",
    "COMPARISON_FILE",
    "DATASHEETS_FILE",
    "DATASHEET_FILE",
    "RESULT_FILE",
    "SCENARIO_FILE",
    "SEARCH_FILE",
    "SERIES_FILE",
    "Stored",
    "Write",
    "check_format",
    "document_of",
    "holds",
    "is_stored",
    "load_datasheet",
    "load_result",
    "load_search",
    "load_series",
    "load_stored",
    "render_directory",
    "write_reports",
]


def write_reports(directory: Path, write: Write) -> Iterator[str]:
    """Makes every file of a run, a series or a search from its folder. Yields problems, in words.

    Imports the renderers here, since a run needs none before its end.
    """
    try:
        from pubstorm.report.files import write_files
    except (OSError, ImportError, MemoryError) as error:
        yield f"there are no reports: {type(error).__name__}: {error}"
        return
    yield from write_files(directory, write)


def is_stored(directory: Path) -> bool:
    """Returns True if a directory has the result of a run, an experiment or a data sheet."""
    sheets = (DATASHEET_FILE, DATASHEETS_FILE)
    files = (RESULT_FILE, SERIES_FILE, SEARCH_FILE, COMPARISON_FILE, *sheets)
    return any(holds(directory, file) for file in files)


def document_of(stored: Stored) -> Document:
    """Returns the report of what is stored, without plots. Imports its builder here, since a run
    needs none before its end."""
    if isinstance(stored, SheetComparison):
        from pubstorm.report.of_datasheets import datasheets_document

        return datasheets_document(stored)
    if isinstance(stored, Datasheet):
        from pubstorm.report.of_datasheet import datasheet_document

        return datasheet_document(stored)
    if isinstance(stored, Comparison):
        from pubstorm.report.of_comparison import comparison_document

        return comparison_document(stored)
    if isinstance(stored, Series):
        from pubstorm.report.of_experiments import series_document

        return series_document(stored)
    if isinstance(stored, SearchResult):
        from pubstorm.report.of_experiments import search_document

        return search_document(stored)
    from pubstorm.report.of_run import run_document

    return run_document(stored)


def render_directory(directory: Path, console: Console) -> None:
    """Renders what a directory stores on the terminal again. Raises StoredRunError if it cannot be
    read, or has what no report can show."""
    from pubstorm.report.text import render

    stored = load_stored(directory).model_copy(update={"run_directory": str(directory)})
    try:
        render(document_of(stored), console)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        text = f"{directory} cannot be shown: {type(error).__name__}: {error}"
        raise StoredRunError(text, "its files are not as Pubstorm has written them") from error
