"""`pubstorm view`: shows a stored or active run on the live page."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import click

from pubstorm.cli.serving import PAGE, Serving, listen_options
from pubstorm.host.signals import ending_signals
from pubstorm.web.follow import RunFollower
from pubstorm.web.guard import Guard, guard_of
from pubstorm.web.live import OPEN, serve
from pubstorm.web.watch import Surroundings, run_in


@click.command()
@click.argument("run_dir", type=click.Path(path_type=Path), metavar="RUN_DIR")
@listen_options
def view(run_dir: Path, serving: Serving) -> None:
    """Show the run in RUN_DIR on the live page, until interrupted.

    The run may be over, or be played by another process. Of a series or search, it is the newest
    run. The page has no controls.
    """
    folder = run_in(run_dir)
    listener, settings = serving.listen(PAGE)
    asyncio.run(_serve(folder, guard_of(settings, open=OPEN), listener))


async def _serve(folder: Path, guard: Guard, listener: socket.socket) -> None:
    follower, ended = RunFollower(Surroundings()), asyncio.Event()
    follower.show(folder)
    loop = asyncio.get_running_loop()
    for number in ending_signals():
        loop.add_signal_handler(number, ended.set)
    await serve(follower, guard, listener, ended)
