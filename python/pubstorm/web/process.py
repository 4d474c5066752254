"""A server in a process of its own, as the controller sees it. The controller never waits for the
process: what its pipe cannot take is left out, and the newest is sent next. Sums for Prometheus are
made here, so that a page that is left out loses no count. If the process ends, the run
continues."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, TypeAdapter

from pubstorm.contract import Value
from pubstorm.exports import Item, Run
from pubstorm.exports.tally import Family, Tally
from pubstorm.host.children import parent_death_prefix
from pubstorm.play.display import Live, Summary

TEXT_CHARS_MAX = 500
"""Longest text of a message."""
PIPE_BYTES = 1 << 20
"""Bytes that the pipe to the process holds, if the kernel allows it."""
END_S = 5.0
"""Longest time in which the process sends clients the end of the run."""


class WebSettings(Value):
    """The first line that the process reads."""

    serves: Literal["page", "metrics"] = "page"
    descriptor: int
    """Number of the listening socket."""
    hosts: tuple[str, ...]
    """Names under which the server may be asked; none: any."""
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


class WebProcess:
    """The process, until it is closed."""

    def __init__(self, listener: socket.socket, settings: WebSettings) -> None:
        """The process has the listening socket; the caller's is closed."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 -- closed with the process
        self._process = subprocess.Popen(
            [*parent_death_prefix(signal.SIGCONT), sys.executable, "-m", "pubstorm.web"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
        listener.close()
        assert self._process.stdin is not None
        self._pipe = self._process.stdin.fileno()
        self._rest = b""
        """Bytes of a line whose beginning the pipe has taken."""
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        os.set_blocking(self._pipe, False)
        self.send(settings.model_dump_json().encode())

    @property
    def is_alive(self) -> bool:
        """True as long as the process serves."""
        return self._process.poll() is None

    @property
    def is_behind(self) -> bool:
        """True as long as the pipe has not taken all of a line."""
        return bool(self._rest)

    def send(self, line: bytes, within_s: float = 0) -> bool:
        """Sends a line, unless the pipe is full. A longer one takes `within_s` at most; its rest
        comes before the next line. Returns False if the process has ended."""
        until_s = time.monotonic() + within_s
        try:
            self._write(until_s)
            if not self._rest:
                self._rest = line + b"\n"
                self._write(until_s)
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
        for _ in range(2):
            try:
                self._process.wait(END_S)
                break
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._errors.close()

    def _write(self, until_s: float) -> None:
        """Writes what is left of a line, as far as the pipe takes it."""
        while self._rest:
            try:
                self._rest = self._rest[os.write(self._pipe, self._rest) :]
            except BlockingIOError:
                left_s = until_s - time.monotonic()
                if left_s <= 0 or not select.select([], [self._pipe], [], left_s)[1]:
                    return


class WebLive(Live):
    """A display that also informs the page which run is on."""

    def __init__(self, inner: Live, page: WebProcess) -> None:
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
        if not self._page.send(message.model_dump_json(exclude_none=True).encode()):
            self._lose()

    def _lose(self) -> None:
        if self._has_reader:
            self._has_reader = False
            self._inner.warn(f"the live page ended, the run continues: {self._page.problem()}")


@contextmanager
def page_of(listener: socket.socket, settings: WebSettings, live: Live) -> Iterator[Live]:
    """Serves the page while it is open. Yields the display of the runs that it shows."""
    page = WebProcess(listener, settings)
    try:
        yield WebLive(live, page)
    finally:
        page.close()


FAMILIES = TypeAdapter(
    tuple[Family, ...], config=ConfigDict(defer_build=True, ser_json_inf_nan="constants")
)
"""All metrics, as the process gets them."""
PAUSE_S = 0.5
"""Shortest time between two pages."""
SHARE = 1 / 20
"""Largest share of one core for pages, on average."""
SEND_S = 1.0
"""Longest time for the process to take a page."""


class ScrapeEndpoint:
    """The endpoint."""

    unit = ("page", "pages")
    dropped = 0
    problem = ""

    def __init__(self, name: str, listener: socket.socket, settings: WebSettings) -> None:
        """Serves at once, on a socket that listens."""
        self.name = name
        self._process = WebProcess(listener, settings.model_copy(update={"serves": "metrics"}))
        self._tally = Tally()
        self._is_new = False
        self._next_s = 0.0

    def take(self, run: Run, item: Item) -> None:
        """Adds an item to the sums."""
        self._tally.take(run, item)
        self._is_new = True

    def rest(self) -> None:
        """Hands over the figures that are new."""
        if self._is_new and time.monotonic() >= self._next_s:
            self._hand_over()

    def end(self) -> None:
        """Keeps the sums until the next run."""
        self._tally.end()
        self._hand_over()

    def close(self) -> None:
        """Stops listening."""
        self._process.close()

    def _hand_over(self) -> None:
        began_s = time.thread_time()
        page = FAMILIES.dump_json(self._tally.families())
        took_s = time.thread_time() - began_s
        self._next_s = time.monotonic() + max(PAUSE_S, took_s / SHARE)
        if not self._process.send(page, SEND_S) and not self.problem:
            self.dropped = 1
            self.problem = f"its process ended: {self._process.problem()}"
        self._is_new = self._process.is_behind
