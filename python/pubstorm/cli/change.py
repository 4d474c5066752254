"""`pubstorm change`: changes a population of an active run."""

from __future__ import annotations

from pathlib import Path

import click

from pubstorm.output import say
from pubstorm.play.control_socket import ask


@click.command()
@click.argument("run_dir", type=click.Path(path_type=Path), metavar="RUN_DIR")
@click.argument("words", nargs=-1, required=True, metavar="CHANGE")
def change(run_dir: Path, words: tuple[str, ...]) -> None:
    """Change a population of the active run in RUN_DIR.

    CHANGE is add 500 POPULATION [over 5s], remove 500 POPULATION [over 5s] or rate 2 POPULATION.
    """
    say(ask(run_dir, " ".join(words)))
