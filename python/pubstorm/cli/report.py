"""`pubstorm report`: renders a stored run, series or search again."""

from __future__ import annotations

from pathlib import Path

import click

from pubstorm.cli.console import standard_output
from pubstorm.errors import StoredRunError
from pubstorm.output import warn
from pubstorm.play.directory import RunDirectory, is_played, player_of
from pubstorm.play.display import QuietLive
from pubstorm.report import SCENARIO_FILE, is_stored, render_directory, write_reports
from pubstorm.result.samples import START_FILE


@click.command()
@click.argument("run_dir", type=click.Path(path_type=Path), metavar="RUN_DIR")
def report(run_dir: Path) -> int:
    """Render the stored run, series or search in RUN_DIR again, with every file made of it.

    Of a run whose controller was killed, it makes the result from what was kept, marked invalid.
    Ends with 2 where the folder cannot take a file.
    """
    if not is_stored(run_dir) and (run_dir / SCENARIO_FILE).exists():
        _salvage(run_dir)
    render_directory(run_dir, standard_output())
    directory = RunDirectory(run_dir)
    for problem in write_reports(run_dir, directory.write):
        warn(f"warning: {problem}")
    return 0 if directory.failure is None else StoredRunError.default_exit_code


def _salvage(run_dir: Path) -> None:
    """Makes the result of a run that has none. Imports what that takes here, since a stored result
    needs none of it."""
    if not (run_dir / START_FILE).exists():
        if player_of(run_dir):
            raise is_played(run_dir)
        text = f"found no measurement in {run_dir}: the run ended before its first stage"
        raise StoredRunError(text, "its logs are in the folder; run it again")
    from pubstorm.play.salvage import salvage

    salvage(run_dir, QuietLive())
