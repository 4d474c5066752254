"""`pubstorm down`: takes down what a killed run has left."""

from __future__ import annotations

from pathlib import Path

import click

from pubstorm.output import say
from pubstorm.play.down import take_down


@click.command()
@click.argument("run_dir", type=click.Path(path_type=Path), metavar="RUN_DIR")
@click.option("--force", is_flag=True, help="End the run as well if it is still active.")
@click.option(
    "--retained", is_flag=True, help="Also remove the run's retained messages from its targets."
)
def down(run_dir: Path, force: bool, retained: bool) -> None:
    """Take down what the run, series or search in RUN_DIR has left on this host.

    That is for runs that were killed or cut off by a power failure: it ends processes that are
    surely theirs, removes network namespaces, and deletes keys and passwords. Results stay.
    """
    take_down(run_dir, force=force, log=say, retained=retained)
