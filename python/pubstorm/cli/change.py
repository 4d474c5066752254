"""`pubstorm change`: steers an active run. `pubstorm down`: takes down what a killed run has
left."""

from __future__ import annotations

from pathlib import Path

import click

from pubstorm.output import say
from pubstorm.play.control_socket import ask
from pubstorm.play.down import take_down


@click.command()
@click.argument("run_dir", type=click.Path(path_type=Path), metavar="RUN_DIR")
@click.argument("words", nargs=-1, required=True, metavar="CHANGE")
def change(run_dir: Path, words: tuple[str, ...]) -> None:
    """Change the active run in RUN_DIR: its load, a fault, its end.

    CHANGE is add 500 POPULATION [over 5s], remove 500 POPULATION [over 5s], migrate 500 POPULATION
    [over 5s], rate 2 POPULATION, pause, resume, fault kill BROKERS [for 10s], repair FAULT, end
    stage or stop. Beside kill, a fault may be stop, freeze, cut BRIDGES or delay BRIDGES by 100ms.
    """
    say(ask(run_dir, " ".join(words)))


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
