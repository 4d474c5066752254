"""The page's own process, as the controller sees it: started before the first run, and informed of
each. The controller never waits for the process: what its pipe cannot take is left out."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pubstorm.contract.value import Value
from pubstorm.host.children import parent_death_prefix
from pubstorm.play.display import Live, Summary

TEXT_CHARS_MAX = 500
"""Longest text that the process gets: a message is written as a whole or not at all."""
END_S = 5.0
"""Longest time in which the process sends browsers the end of the run."""


class PageSettings(Value):
    """The first line that the process reads."""

    descriptor: int
    """Number of the listening socket."""
    hosts: tuple[str, ...]
    """Names under which the page may be asked for; none: any."""
    token: str | None
    cert: str | None
    key: str | None


class Message(Value):
    """A further line: what changed."""

    folder: str | None = None
    """Directory of the run that begins."""
    name: str | None = None
    step: str | None = None
    starting: str | None = None
    after_s: float | None = None


class PageProcess:
    """The process, until it is closed."""

    def __init__(self, listener: socket.socket, settings: PageSettings) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 -- closed with the process
        self._process = subprocess.Popen(
            [*parent_death_prefix(signal.SIGCONT), sys.executable, "-m", "pubstorm.web"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
        assert self._process.stdin is not None
        self._pipe = self._process.stdin.fileno()
        os.write(self._pipe, settings.model_dump_json().encode() + b"\n")
        os.set_blocking(self._pipe, False)

    @property
    def is_alive(self) -> bool:
        """True as long as the process serves."""
        return self._process.poll() is None

    def send(self, message: Message) -> bool:
        """Sends a message, unless the pipe is full. Returns False if the process has ended."""
        line = message.model_dump_json(exclude_none=True).encode() + b"\n"
        try:
            os.write(self._pipe, line)
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True

    def problem(self) -> str:
        """Returns why the process has ended, in its own words."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").splitlines()
        return lines[-1] if lines else "it gave no reason"

    def close(self) -> None:
        """Lets the process send the end of the run, and ends it."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()


class WebLive(Live):
    """A display that also informs the page which run is on."""

    def __init__(self, inner: Live, page: PageProcess) -> None:
        self._inner = inner
        self._page = page
        self._has_reader = True
        self.takes_keys = inner.takes_keys

    @property
    def after_s(self) -> float:
        """Time that further runs take after the present one, in seconds."""
        return self._inner.after_s

    @after_s.setter
    def after_s(self, value: float) -> None:
        self._inner.after_s = value
        self._send(Message(after_s=value))

    def begin(self, name: str, folder: Path) -> None:
        """The run starts: the page follows its folder."""
        self._inner.begin(name, folder)
        self._send(Message(folder=str(folder.absolute()), name=name[:TEXT_CHARS_MAX]))

    def step(self, text: str) -> None:
        """One line about a step of a series."""
        self._inner.step(text)
        self._send(Message(step=text[:TEXT_CHARS_MAX]))

    def starting(self, text: str) -> None:
        """Progress of the start of the run."""
        self._inner.starting(text)
        self._send(Message(starting=text[:TEXT_CHARS_MAX]))

    def show(self, summary: Summary) -> None:
        """The state of the run. The page reads it from the files of the run."""
        self._inner.show(summary)
        if not self._page.is_alive:
            self._lose()

    def note(self, text: str) -> None:
        """One line about something that happened."""
        self._inner.note(text)

    def warn(self, text: str) -> None:
        """One line about something that the user has to know."""
        self._inner.warn(text)

    def suspend(self) -> None:
        """The process stops until the user continues it."""
        self._inner.suspend()

    def resume(self) -> None:
        """The process continues."""
        self._inner.resume()

    def end(self) -> None:
        """Nothing more comes of this run."""
        self._inner.end()

    def _send(self, message: Message) -> None:
        if not self._page.send(message):
            self._lose()

    def _lose(self) -> None:
        if self._has_reader:
            self._has_reader = False
            self._inner.warn(f"the live page ended, the run continues: {self._page.problem()}")


@contextmanager
def page_of(listener: socket.socket, settings: PageSettings, live: Live) -> Iterator[Live]:
    """Serves the page while it is open. Yields the display of the runs that it shows."""
    page = PageProcess(listener, settings)
    listener.close()
    try:
        yield WebLive(live, page)
    finally:
        page.close()
