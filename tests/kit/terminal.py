"""A command on a terminal of its own: what it shows, and keys for it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

PATIENCE_S = 120.0


class Terminal:
    """A pseudo-terminal with the process that it controls."""

    def __init__(self, command: Sequence[str], cwd: Path, columns: int = 120) -> None:
        self.master, self.slave = os.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.settings = termios.tcgetattr(self.slave)
        self.text = ""
        """Everything that was shown so far."""
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def until(self, words: str) -> str:
        """Reads until the terminal has shown some words; returns what it shows since they came."""
        start, deadline_s = len(self.text), time.monotonic() + PATIENCE_S
        while words not in self.text[start:]:
            assert time.monotonic() < deadline_s, f"found no {words!r} in {self.text[start:]}"
            self._read(f"found no {words!r}")
        return self.text[start:]

    def press(self, keys: str) -> None:
        """Types keys."""
        os.write(self.master, keys.encode())

    def interrupt_the_question(self) -> None:
        """Types Control-C once the process waits for an answer. Python notices a signal that comes
        between the question and the wait only after the next key."""
        process, deadline_s = psutil.Process(self.process.pid), time.monotonic() + PATIENCE_S
        while process.status() != psutil.STATUS_SLEEPING:
            assert time.monotonic() < deadline_s, "the process never waits"
            time.sleep(0.01)
        self.press("\x03")

    def end(self) -> int:
        """Reads until the process ends; returns its exit code."""
        deadline_s = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline_s, f"the process has not ended: {self.text}"
            self._read("", wait_s=0.1)
        while self._read("", wait_s=0.1):
            pass
        return self.process.wait()

    @property
    def is_as_before(self) -> bool:
        """True if the settings of the terminal are those of the beginning."""
        return termios.tcgetattr(self.slave) == self.settings

    def read_for(self, wait_s: float) -> None:
        """Reads what the terminal shows within some seconds."""
        self._read("", wait_s=wait_s)

    def _read(self, what: str, wait_s: float = PATIENCE_S) -> bool:
        if not select.select([self.master], [], [], wait_s)[0]:
            assert wait_s < PATIENCE_S, f"{what} in {self.text}"
            return False
        self.text += os.read(self.master, 65536).decode(errors="replace")
        return True


@contextlib.contextmanager
def on_terminal(command: Sequence[str], cwd: Path, columns: int = 120) -> Iterator[Terminal]:
    """Runs a command on a terminal, and ends it."""
    terminal = Terminal(command, cwd, columns)
    try:
        yield terminal
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.master)
        os.close(terminal.slave)
