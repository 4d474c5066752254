"""`pubstorm run`: plays a scenario, a series or a search, and prints its verdict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from pubstorm.cli.asked import asked_for
from pubstorm.cli.completion import scenario_names
from pubstorm.cli.outcome import Output, output_options
from pubstorm.errors import UsageError
from pubstorm.experiment import play as play_scenario
from pubstorm.experiment.invocation import Invocation
from pubstorm.play.display import Live
from pubstorm.result import RunResult, SearchResult, Series
from pubstorm.result.comparison import Comparison


@click.command()
@click.argument("scenario", required=False, shell_complete=scenario_names)
@asked_for
@output_options
@click.option(
    "--resume",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Instead of SCENARIO: continue the series, search or comparison in this folder.",
)
@click.option(
    "--no-report",
    is_flag=True,
    help="Store data only; `pubstorm report` makes page, tables, JUnit and histograms of it.",
)
def run(asked: Invocation, output: Output, resume: Path | None, no_report: bool) -> int:
    """Run SCENARIO, a file or the name of a ready one.

    With - as SCENARIO, it is read from stdin. Prints one screen at the end: verdict, thresholds,
    key figures and folder. A scenario with a sweep is played as a series, step after step, one with
    a search until the answer is found. Ends with 0 where it passes, 1 where a threshold fails, 2 on
    a wrong scenario, 3 where the run is invalid, 130 when interrupted; a series ends with the
    highest of its steps, a search with 0 where there is an answer, 1 where no value passes, 3 where
    nothing could be counted. Where a result cannot be stored, it ends with 3.
    """
    asked = replace(asked, reports=not no_report)
    with output.shown() as live:
        played = play(asked, output.folder, resume, live)
    return output.conclude(played)


def play(
    asked: Invocation, out: Path | None, resume: Path | None, live: Live
) -> RunResult | Series | SearchResult | Comparison:
    """Plays what is asked for: a run, a series or a search, or the rest of a comparison."""
    if resume is not None:
        if asked != Invocation("") or out is not None:
            raise UsageError(
                "--resume goes with no SCENARIO, --set, --on, --target, --out or --no-report",
                "the folder holds them",
            )
        from pubstorm.report import ASKED_FILE, SEARCH_FILE

        if (resume / ASKED_FILE).exists():
            from pubstorm.experiment.comparison import resume_comparison

            return resume_comparison(resume, live)
        if (resume / SEARCH_FILE).exists():
            from pubstorm.experiment.search import resume_search

            return resume_search(resume, live)
        from pubstorm.experiment.series import resume_series

        return resume_series(resume, live)
    if not asked.scenario:
        raise click.UsageError("Missing argument 'SCENARIO'.", click.get_current_context())
    return play_scenario(asked.load(), asked, out, live)
