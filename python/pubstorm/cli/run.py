"""`pubstorm run`: plays a scenario, a series or a search, and prints its verdict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import click

from pubstorm.cli.asked import asked_for
from pubstorm.cli.console import standard_output
from pubstorm.errors import UsageError
from pubstorm.experiment.invocation import Invocation
from pubstorm.host.signals import INTERRUPTED
from pubstorm.output import never_waiting, warn
from pubstorm.report.console import PlainConsole
from pubstorm.result import Result, SearchResult, Series, SeriesStep, Status
from pubstorm.run.display import Live, live_for
from pubstorm.run.play import RunOptions, run_scenario

EXIT_CODES = {Status.PASS: 0, Status.FAIL: 1, Status.INVALID: 3}
NOT_STORED = 3
"""Exit code where a result could not be stored."""


@click.command()
@click.argument("scenario", required=False)
@asked_for
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep the run in this new or empty folder. Default: runs/TIME-NAME.",
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Instead of SCENARIO: continue the series or search in this folder.",
)
@click.option(
    "--no-report",
    is_flag=True,
    help="Store data only; `pubstorm report` makes page, tables, JUnit and histograms of it.",
)
@click.option("--quiet", is_flag=True, help="Only print the verdict and the run directory.")
def run(
    asked: Invocation, out: Path | None, resume: Path | None, no_report: bool, quiet: bool
) -> int:
    """Run SCENARIO, a file or the name of a ready one.

    A scenario with a sweep is played as a series, step after step, one with a search until the
    answer is found. Ends with 0 where it passes, 1 where a threshold fails, 2 on a wrong scenario,
    3 where the run is invalid, 130 when interrupted; a series ends with the highest of its steps, a
    search with 0 where there is an answer, 1 where no value holds, 3 where nothing could be
    counted. Where a result cannot be stored, it ends with 3.
    """
    asked = replace(asked, reports=not no_report)
    console = standard_output()
    with never_waiting():
        played = play(asked, out, resume, live_for(console, quiet))
    return print_result(played, console, is_brief=quiet)


def print_result(
    played: Result | Series | SearchResult, console: PlainConsole, *, is_brief: bool
) -> int:
    """Prints a result and returns the exit code. If `is_brief`, it prints the verdict without the
    tables."""
    # Renderers are imported after the load, so that they take no memory during it.
    from pubstorm.report import RESULT_FILE, SEARCH_FILE, SERIES_FILE, document_of
    from pubstorm.report.text import render, render_brief

    (render_brief if is_brief else render)(document_of(played), console)
    if isinstance(played, Series):
        code, files = max(map(_code, played.steps)), [SERIES_FILE]
        files += [f"{step.folder}/{_file(step)}" for step in played.steps if step.status]
    elif isinstance(played, SearchResult):
        code, files = EXIT_CODES[played.status], [SEARCH_FILE]
    else:
        code, files = EXIT_CODES[played.verdict.status], [RESULT_FILE]
    code = INTERRUPTED if played.interrupted else code
    return code if _are_stored(Path(played.run_directory), files) else NOT_STORED


def play(
    asked: Invocation, out: Path | None, resume: Path | None, live: Live
) -> Result | Series | SearchResult:
    """Plays what is asked for: a run, a series or a search."""
    if resume is not None:
        if asked != Invocation("") or out is not None:
            raise UsageError(
                "--resume goes with no SCENARIO, --set, --on, --target, --out or --no-report",
                "the folder holds them",
            )
        from pubstorm.report import SEARCH_FILE

        if (resume / SEARCH_FILE).exists():
            from pubstorm.experiment.search import resume_search

            return resume_search(resume, live)
        from pubstorm.experiment.series import resume_series

        return resume_series(resume, live)
    if not asked.scenario:
        raise click.UsageError("Missing argument 'SCENARIO'.", click.get_current_context())
    loaded = asked.load()
    if loaded.steps:
        from pubstorm.experiment.series import run_series

        return run_series(loaded, asked, out, live)
    if loaded.search is not None:
        from pubstorm.experiment.search import run_search

        return run_search(loaded, asked, out, live)
    return run_scenario(loaded, RunOptions(out, asked.command(), reports=asked.reports), live)


def _are_stored(folder: Path, files: Iterable[str]) -> bool:
    """Returns True if these results are in the folder. Reports the first missing one."""
    missing = next((file for file in files if not (folder / file).is_file()), None)
    if missing is None:
        return True
    warn(f"error: found no {missing} in {folder}: the result is not stored")
    if folder.exists():
        warn(f"  hint: with room on the disk, pubstorm report {folder} makes it from what was kept")
    return False


def _file(step: SeriesStep) -> str:
    from pubstorm.report import RESULT_FILE, SEARCH_FILE

    return RESULT_FILE if step.answer is None else SEARCH_FILE


def _code(step: SeriesStep) -> int:
    """Returns the exit code of a step; a step without a measurement counts as invalid."""
    if step.status is None:
        return EXIT_CODES[Status.INVALID] if step.problem is not None else 0
    return EXIT_CODES[step.status]
