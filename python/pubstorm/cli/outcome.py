"""The options on what a command shows of a run, and the output at its end: one screen, all tables,
or one JSON document."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pubstorm.cli.options import Exporting, Serving, export_options, shown_by, web_options
from pubstorm.errors import UsageError
from pubstorm.host.signals import INTERRUPTED
from pubstorm.output import data_code, never_waiting, say, warn
from pubstorm.play.directory import NOT_STORED
from pubstorm.play.display import Live, QuietLive, live_for
from pubstorm.quantities import QuantityField, UnfitError, duration_ns
from pubstorm.result import SearchResult, Series, SeriesStep, Status
from pubstorm.result.comparison import Comparison
from pubstorm.result.datasheet import Datasheet
from pubstorm.result.datasheet_comparison import SheetComparison

if TYPE_CHECKING:
    from pubstorm.report import Stored

EXIT_CODES = {Status.PASS: 0, Status.FAIL: 1, Status.INVALID: 3, Status.OPEN: 4}
PROGRESS = QuantityField(duration_ns, 10**9, 10**12)
PROGRESS_NS = 10**10
"""Interval of the lines of progress by default."""


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a command that plays."""

    folder: Path | None
    """Folder of the run; None for a new one in `runs`."""
    quiet: bool
    details: bool
    json: bool
    progress_ns: int
    exporting: Exporting
    serving: Serving | None
    """Address of the live page; None without a page."""

    @contextmanager
    def shown(self) -> Iterator[Live]:
        """Shows what is played while it is open: on the terminal, on the live page, and to other
        programs. Yields the display."""
        live = live_of(is_quiet=self.quiet, for_data=self.json, progress_ns=self.progress_ns)
        with (
            never_waiting(),
            self.exporting.begun() as exports,
            shown_by(self.serving, live) as shown,
        ):
            shown.exports = exports
            yield shown

    def conclude(self, played: Stored) -> int:
        """Prints a result and returns the exit code."""
        return conclude(played, details=self.details, quiet=self.quiet, as_json=self.json)


def conclude(
    played: Stored,
    *,
    details: bool = False,
    quiet: bool = False,
    as_json: bool = False,
) -> int:
    """Prints a result and returns the exit code. A comparison has no screen: all its tables are
    printed, or as JSON what is stored."""
    # Renderers are imported after the load, so that they take no memory during it.
    from pubstorm.cli.console import standard_output
    from pubstorm.report import document_of
    from pubstorm.report.document import unstored
    from pubstorm.report.text import render, render_brief, render_screen

    document, missing = document_of(played), _missing(played)
    code = _exit_code(played) if missing is None else NOT_STORED
    if missing is not None:
        document = unstored(document, missing)
    full = render if details or isinstance(played, Comparison | SheetComparison) else render_screen
    draw = render_brief if quiet else full
    if not as_json:
        draw(document, standard_output())
        return code
    if isinstance(played, Comparison | Datasheet | SheetComparison):
        say(played.to_json().rstrip())
    else:
        from pubstorm.report.data import conclusion_of

        say(conclusion_of(played, document, code).model_dump_json(indent=2))
    return code or data_code()


def live_of(*, is_quiet: bool, for_data: bool = False, progress_ns: int = PROGRESS_NS) -> Live:
    """Returns the display while something is played. With `for_data`, stdout is for data alone."""
    if is_quiet:
        return QuietLive()
    from pubstorm.cli.console import standard_error, standard_output

    consoles = [standard_error()] if for_data else [standard_output(), standard_error()]
    return live_for(consoles, progress_ns)


def output_options(command: Callable[..., int]) -> Callable[..., int]:
    """Gives a command the options on its output as one value."""

    @click.option(
        "--out",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Keep the run in this new or empty folder. Default: runs/TIME-NAME.",
    )
    @click.option("--details", is_flag=True, help="Print all tables at the end.")
    @click.option("--quiet", is_flag=True, help="Only print the verdict and the run directory.")
    @click.option("--json", is_flag=True, help="Print the outcome as one JSON document on stdout.")
    @click.option(
        "--progress",
        metavar="TIME",
        default=f"{PROGRESS_NS // 10**9}s",
        callback=_progress_ns,
        help="Interval of the lines on stderr without a terminal. Default: 10s.",
    )
    @export_options
    @web_options
    @functools.wraps(command)
    def with_output(
        out: Path | None,
        quiet: bool,
        details: bool,
        progress: int,
        exporting: Exporting,
        **others: object,
    ) -> int:
        as_json, serving = bool(others.pop("json")), others.pop("serving")
        assert serving is None or isinstance(serving, Serving)
        for name in [name for name, is_on in (("quiet", quiet), ("json", as_json)) if is_on]:
            if details:
                message = f"found --details and --{name}, allowed is one of them"
                raise UsageError(message, f"leave out --{name} for the tables")
        output = Output(out, quiet, details, as_json, progress, exporting, serving)
        return command(output=output, **others)

    return with_output


def _progress_ns(_context: click.Context, _parameter: click.Parameter, value: str) -> int:
    try:
        return int(PROGRESS.read(value))
    except UnfitError as unfit:
        raise UsageError(f"--progress: {unfit}", unfit.hint or "write 10s or 1min") from unfit


def _exit_code(played: Stored) -> int:
    if isinstance(played, SheetComparison):
        return 0
    if played.interrupted:
        return INTERRUPTED
    if isinstance(played, Series):
        return max(map(_code, played.steps))
    if isinstance(played, Datasheet):
        is_measured = any(cell.state == "measured" for cell in played.cells)
        return EXIT_CODES[Status.PASS if is_measured else Status.INVALID]
    if isinstance(played, Comparison):
        return 0 if played.status is None else EXIT_CODES[played.status]
    status = played.status if isinstance(played, SearchResult) else played.verdict.status
    return EXIT_CODES[status]


def _missing(played: Stored) -> str | None:
    """Returns which file of a result is missing, and warns; None if the result is stored, or if
    none was to be."""
    from pubstorm.report import (
        COMPARISON_FILE,
        DATASHEET_FILE,
        DATASHEETS_FILE,
        RESULT_FILE,
        SEARCH_FILE,
        SERIES_FILE,
    )

    if not played.run_directory:
        return None

    files, folder = [RESULT_FILE], Path(played.run_directory)
    if isinstance(played, Series):
        steps = (f"{step.folder}/{_file(step)}" for step in played.steps if step.status)
        files = [SERIES_FILE, *steps]
    elif isinstance(played, SearchResult):
        files = [SEARCH_FILE]
    elif isinstance(played, Comparison):
        files = [COMPARISON_FILE]
    elif isinstance(played, Datasheet):
        files = [DATASHEET_FILE]
    elif isinstance(played, SheetComparison):
        files = [DATASHEETS_FILE]
    missing = next((file for file in files if not (folder / file).is_file()), None)
    if missing is None:
        return None
    warn(f"error: found no {missing} in {folder}: the result is not stored")
    if folder.exists():
        warn(f"  hint: with room on the disk, pubstorm report {folder} makes it from what was kept")
    return f"found no {missing} in {folder}"


def _file(step: SeriesStep) -> str:
    from pubstorm.report import RESULT_FILE, SEARCH_FILE

    return RESULT_FILE if step.answer is None else SEARCH_FILE


def _code(step: SeriesStep) -> int:
    """Returns the exit code of a step; a step without a measurement counts as invalid."""
    if step.status is None:
        return EXIT_CODES[Status.INVALID] if step.problem is not None else 0
    return EXIT_CODES[step.status]
