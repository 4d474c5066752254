"""Steers a run while it is played: pause, rates, clients, faults, end of the stage, end of the run.
Keys of the terminal, `pubstorm change` and the live page ask with the same words."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from pubstorm.errors import PubstormError, UsageError
from pubstorm.host.ends import end_tasks
from pubstorm.play.changes import parse_change, publishing
from pubstorm.play.context import RunContext
from pubstorm.play.display.keyboard import keyboard_of
from pubstorm.play.stages import Controller

RATE_STEP = 1.1
"""Factor between two rates."""
KEYS = {"p": "pause", "+": "faster", "-": "slower", "s": "end stage", "q": "stop"}
"""Words of each key. `p` continues a stage that is paused."""
ALIASES = {"=": "+", "_": "-"}
"""The same keys with and without shift."""


class Steering:
    """Turns words and keys into changes of a run."""

    def __init__(
        self, run: RunContext, controller: Controller, interrupt: Callable[[], None]
    ) -> None:
        """`interrupt` ends the run, and nothing else that this process does."""
        self._run = run
        self._controller = controller
        self._interrupt = interrupt
        self._stage = -1
        self._factors: dict[str, float] = {}
        """Times the planned rate, by population; without an entry 1."""
        self._paused = False

    async def ask(self, words: str) -> str:
        """Does what words ask for, and returns it in words. Raises PubstormError with the reason
        if it cannot be done."""
        if self._run.progress.stage != self._stage:
            # A change lasts to the end of its stage.
            self._stage, self._factors, self._paused = self._run.progress.stage, {}, False
        match words.split():
            case ["pause"]:
                return await self._change(1.0, paused=True)
            case ["resume"]:
                return await self._change(1.0, paused=False)
            case ["faster"]:
                return await self._change(RATE_STEP, paused=False)
            case ["slower"]:
                return await self._change(1 / RATE_STEP, paused=False)
            case ["end", "stage"]:
                self._controller.end_stage()
                return "the stage ends"
            case ["stop"]:
                self._interrupt()
                return "the run ends"
            case ["fault", *_]:
                return f"{self._controller.inject(words.strip().removeprefix('fault'))} begins"
            case ["repair", *_]:
                name = self._controller.repair(words.strip().removeprefix("repair").strip())
                return f"{name} is being repaired"
            case _:
                made = await self._controller.change(words)
                asked = parse_change(words)
                # After a rate of 0, which is a pause, the rate before comes back.
                if asked.kind == "rate" and isinstance(asked.amount, float) and asked.amount:
                    self._factors[asked.population] = asked.amount
                return made

    async def press(self, key: str) -> None:
        """Does what a key asks for. A refusal is a note of the display."""
        words = KEYS.get(ALIASES.get(key, key))
        if words == "pause" and self._is_paused:
            words = "resume"
        if words is None:
            return
        try:
            await self.ask(words)
        except PubstormError as error:
            self._run.live.note(f"{key}: {error.message}")

    @property
    def _is_paused(self) -> bool:
        return self._paused and self._run.progress.stage == self._stage

    async def _change(self, times: float, *, paused: bool) -> str:
        """Changes the rate of all populations that publish in the stage. Those of a stage that is
        paused have their earlier rates again."""
        plan = self._run.plan
        populations = publishing(plan, plan.stages[self._stage])
        if not populations:
            raise UsageError("no population publishes in this stage")
        factors = {each: self._factors.get(each, 1.0) * times for each in populations}
        made = [
            await self._controller.change(f"rate {0.0 if paused else factor:.4g} {population}")
            for population, factor in factors.items()
        ]
        self._factors |= factors
        self._paused = paused
        return ", ".join(made)


@asynccontextmanager
async def steered(run: RunContext, steering: Steering) -> AsyncIterator[None]:
    """Listens to the keys of the terminal while it is open, if the display is on a terminal."""
    if not run.live.takes_keys or sys.stdin is None or not sys.stdin.isatty():
        yield
        return
    keys: asyncio.Queue[str] = asyncio.Queue()

    async def follow() -> None:
        while True:
            await steering.press(await keys.get())

    following = asyncio.create_task(follow())
    with keyboard_of(sys.stdin.fileno(), keys.put_nowait, run.live):
        try:
            yield
        finally:
            await end_tasks([following])
