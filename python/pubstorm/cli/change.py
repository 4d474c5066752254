"""`pubstorm change`: steers an active run."""

from __future__ import annotations

from pathlib import Path

import click

from pubstorm.output import say
from pubstorm.play.control_socket import ask


@click.command()
@click.argument("run_dir", type=click.Path(path_type=Path), metavar="RUN_DIR")
@click.argument("words", nargs=-1, required=True, metavar="CHANGE")
def change(run_dir: Path, words: tuple[str, ...]) -> None:
    """Change the active run in RUN_DIR: its load, a fault, its end.

    CHANGE is add 500 POPULATION [over 5s], remove 500 POPULATION [over 5s], rate 2 POPULATION,
    pause, resume, fault kill BROKERS [for 10s], repair FAULT, end stage or stop. Beside kill, a
    fault may be stop, freeze, cut BRIDGES or delay BRIDGES by 100ms.
    """
    say(ask(run_dir, " ".join(words)))
