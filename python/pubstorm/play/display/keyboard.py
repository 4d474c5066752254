"""Keys of a terminal without Enter. The terminal has its own settings again at the end of the run,
at a signal, and while the process is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pubstorm.play.display import Live

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
