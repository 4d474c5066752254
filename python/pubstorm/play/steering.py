"""Keys while a run is played on a terminal: pause, rate, end of the stage, end of the run. They use
the same changes as `pubstorm change`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pubstorm.errors import PubstormError
from pubstorm.play.changes import publishing
from pubstorm.play.context import RunContext
from pubstorm.play.display.keyboard import keyboard_of
from pubstorm.play.stages import Controller

RATE_STEP = 1.1
"""Factor between two rates."""
ALIASES = {"=": "+", "_": "-"}
"""The same keys with and without shift."""


class Steering:
    """Turns keys into changes of a run."""

    def __init__(self, run: RunContext, controller: Controller) -> None:
        self._run = run
        self._controller = controller
        self._stage = -1
        self._factor = 1.0
        """Times the planned rate."""
        self._paused = False

    async def press(self, key: str) -> None:
        """Does what a key asks for. A refusal is a note of the display."""
        if self._run.progress.stage != self._stage:
            # A change lasts to the end of its stage.
            self._stage, self._factor, self._paused = self._run.progress.stage, 1.0, False
        try:
            match ALIASES.get(key, key):
                case "p":
                    await self._change(self._factor, paused=not self._paused)
                case "+":
                    await self._change(self._factor * RATE_STEP, paused=False)
                case "-":
                    await self._change(self._factor / RATE_STEP, paused=False)
                case "s":
                    self._controller.end_stage()
                case "q":
                    os.kill(os.getpid(), signal.SIGINT)
        except PubstormError as error:
            self._run.live.note(f"{key}: {error.message}")

    async def _change(self, factor: float, *, paused: bool) -> None:
        """Sets the rate of all populations that publish in the stage."""
        plan, rate = self._run.plan, 0.0 if paused else factor
        for population in publishing(plan, plan.stages[self._stage]):
            await self._controller.change(f"rate {rate:.4g} {population}")
        self._factor, self._paused = factor, paused


@asynccontextmanager
async def steered(run: RunContext, controller: Controller) -> AsyncIterator[None]:
    """Listens to the keys of the terminal while it is open, if the display is on a terminal."""
    if not run.live.takes_keys or sys.stdin is None or not sys.stdin.isatty():
        yield
        return
    steering = Steering(run, controller)
    keys: asyncio.Queue[str] = asyncio.Queue()

    async def follow() -> None:
        while True:
            await steering.press(await keys.get())

    following = asyncio.create_task(follow())
    with keyboard_of(sys.stdin.fileno(), keys.put_nowait, run.live):
        try:
            yield
        finally:
            following.cancel()
            await asyncio.wait([following])
