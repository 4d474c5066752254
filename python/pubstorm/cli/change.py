"""`pubstorm change`: changes a population of a run that goes on."""

from __future__ import annotations

from pathlib import Path

import click

from pubstorm.control_socket import ask
from pubstorm.output import say


@click.command()
@click.argument("run_dir", type=click.Path(path_type=Path), metavar="RUN_DIR")
@click.argument("words", nargs=-1, required=True, metavar="CHANGE")
def change(run_dir: Path, words: tuple[str, ...]) -> None:
    """Change a population of the run that goes on in RUN_DIR.

    CHANGE is add 500 POPULATION [over 5s], remove 500 POPULATION [over 5s] or rate 2 POPULATION.
    """
    say(ask(run_dir, " ".join(words)))
