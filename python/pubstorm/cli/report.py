"""`pubstorm report`: renders a stored run, series or search again."""

from __future__ import annotations

from pathlib import Path

import click

from pubstorm.cli.console import standard_output
from pubstorm.live import QuietLive
from pubstorm.output import warn
from pubstorm.report import is_stored, render_directory, write_reports
from pubstorm.run_directory import RunDirectory
from pubstorm.salvage import salvage
from pubstorm.start import START_FILE


@click.command()
@click.argument("run_dir", type=click.Path(path_type=Path), metavar="RUN_DIR")
def report(run_dir: Path) -> None:
    """Render the stored run, series or search in RUN_DIR again, with every file made of it.

    Of a run whose controller was killed, it makes the result from what was kept, marked invalid.
    """
    if not is_stored(run_dir) and (run_dir / START_FILE).exists():
        salvage(run_dir, QuietLive())
    render_directory(run_dir, standard_output())
    directory = RunDirectory(run_dir)
    for problem in write_reports(run_dir, directory.write):
        warn(f"warning: {problem}")
