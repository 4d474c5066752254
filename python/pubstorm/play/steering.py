"""Steers a run while it is played: pause, rates, clients, faults, end of the stage, end of the run.
Keys of the terminal, `pubstorm change` and the live page ask with the same words. The terminal has
its own settings again at the end of the run, at a signal, and while the process is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import termios
import tty
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from pubstorm.errors import PubstormError, UsageError
from pubstorm.host.ends import end_tasks
from pubstorm.play.changes import parse_change, publishing
from pubstorm.play.context import RunContext
from pubstorm.play.display import Live
from pubstorm.play.stages import Controller

SEVERAL = re.compile(r"\x1b(?:\[[0-9;]*[A-Za-z~]|O.|.)?")
"""Keys that send several characters, such as arrows."""
READ_BYTES = 64


@contextmanager
def keyboard_of(terminal: int, press: Callable[[str], None], live: Live) -> Iterator[None]:
    """Calls `press` with each key while it is open. Without the terminal, or in the background,
    there are no keys."""
    keyboard = _Keyboard(terminal, press, live)
    keyboard.open()
    try:
        yield
    finally:
        keyboard.close()


class _Keyboard:
    def __init__(self, terminal: int, press: Callable[[str], None], live: Live) -> None:
        self._terminal = terminal
        self._press = press
        self._live = live
        self._loop = asyncio.get_running_loop()
        self._settings: list[Any] | None = None
        """Settings before the first key; None while the terminal has its own."""

    def open(self) -> None:
        """Takes the terminal, and follows signals that stop and continue the process."""
        self._take()
        self._loop.add_signal_handler(signal.SIGTSTP, self._stop)
        self._loop.add_signal_handler(signal.SIGCONT, self._take)

    def close(self) -> None:
        """Gives the terminal back."""
        for number in (signal.SIGTSTP, signal.SIGCONT):
            self._loop.remove_signal_handler(number)
        self._give_back()

    def _stop(self) -> None:
        """Stops the process as Ctrl-Z asks, with the terminal as it was before."""
        self._give_back()
        self._live.suspend()
        self._loop.remove_signal_handler(signal.SIGTSTP)
        os.kill(os.getpid(), signal.SIGTSTP)
        # The process continues here.
        self._loop.add_signal_handler(signal.SIGTSTP, self._stop)
        self._live.resume()
        self._take()

    def _take(self) -> None:
        """Reads keys from now on, unless the process is in the background."""
        with contextlib.suppress(OSError, termios.error):
            if self._settings is not None or os.tcgetpgrp(self._terminal) != os.getpgrp():
                return
            self._settings = termios.tcgetattr(self._terminal)
            tty.setcbreak(self._terminal, termios.TCSANOW)
            self._loop.add_reader(self._terminal, self._read)

    def _give_back(self) -> None:
        """Restores the settings. Keys that were typed and not read are dropped."""
        settings, self._settings = self._settings, None
        if settings is None:
            return
        self._loop.remove_reader(self._terminal)
        with contextlib.suppress(OSError, termios.error):
            if os.tcgetpgrp(self._terminal) == os.getpgrp():
                termios.tcflush(self._terminal, termios.TCIFLUSH)
                termios.tcsetattr(self._terminal, termios.TCSANOW, settings)

    def _read(self) -> None:
        try:
            text = os.read(self._terminal, READ_BYTES).decode(errors="ignore")
        except OSError:
            text = ""
        if not text:
            self._loop.remove_reader(self._terminal)
        for key in SEVERAL.sub("", text):
            self._press(key)


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
