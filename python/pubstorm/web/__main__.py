"""`python -m pubstorm.web`: the process that serves the page of a run that is played."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

from pydantic import ValidationError

from pubstorm.web.follow import RunFollower
from pubstorm.web.guard import Guard
from pubstorm.web.process import Message, PageSettings
from pubstorm.web.server import serve
from pubstorm.web.watch import Surroundings

NICENESS = 10
"""The load comes first."""


async def main() -> None:
    """Serves until stdin closes."""
    loop, lines = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    settings = PageSettings.model_validate_json(await lines.readline())
    around = Surroundings()
    follower = RunFollower(around, has_controls=True)
    guard = Guard(
        frozenset(settings.hosts),
        settings.token,
        None if settings.cert is None else Path(settings.cert),
        None if settings.key is None else Path(settings.key),
    )
    ended = asyncio.Event()

    async def listen() -> None:
        while line := await lines.readline():
            try:
                _take(Message.model_validate_json(line), around, follower)
            except ValidationError:
                continue
        ended.set()

    listening = asyncio.create_task(listen())
    await serve(follower, guard, socket.socket(fileno=settings.descriptor), ended)
    listening.cancel()


def _take(message: Message, around: Surroundings, follower: RunFollower) -> None:
    if message.name is not None:
        around.name = message.name
    if message.step is not None:
        around.step = message.step
    if message.after_s is not None:
        around.after_s = message.after_s
    if message.starting is not None:
        around.starting = message.starting
    if message.folder is not None:
        around.starting = ""
        follower.show(Path(message.folder))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    asyncio.run(main())
