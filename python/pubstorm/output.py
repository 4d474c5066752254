"""Standard output and standard error. Streams that are closed, full, broken or limited to ASCII
lose text and nothing else: no write raises, so no output can change a run or its exit code.
Control characters of a scenario or a broker do not reach the terminal."""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import os
import re
import select
import sys
from collections.abc import Iterator
from typing import TextIO

from pubstorm.errors import without_credentials

PIPE_BYTES = 4096
"""Bytes that a pipe takes at once when it is ready (PIPE_BUF)."""
ASCII_ERRORS = "pubstorm-ascii"
"""Error handler that replaces characters that an encoding lacks by similar ASCII text."""
REPLACEMENT = "�"
"""Shown instead of a control character."""


def guard() -> None:
    """Puts streams that never raise in the place of stdout and stderr. A closed descriptor becomes
    /dev/null, so that no file or socket of the run gets its number."""
    stdout, stderr = _DESCRIPTORS
    for descriptor in (0, stdout, stderr):
        _fill(descriptor)
    sys.stdout = _guarded(stdout, sys.stdout)
    sys.stderr = _guarded(stderr, sys.stderr)


@contextlib.contextmanager
def never_waiting() -> Iterator[None]:
    """While this is open, a reader that does not read delays nothing: text that its pipe or
    terminal cannot take is left out."""
    streams = [raw for raw in map(_raw, (sys.stdout, sys.stderr)) if raw is not None]
    for raw in streams:
        raw.waits = False
    try:
        yield
    finally:
        for raw in streams:
            raw.waits = True


def say(text: str) -> None:
    """Writes a line to stdout."""
    sys.stdout.write(f"{visible(text)}\n")


def pour(data: bytes) -> None:
    """Writes data to stdout as it is."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def warn(text: str) -> None:
    """Writes a line to stderr."""
    sys.stderr.write(f"{visible(text)}\n")
    sys.stderr.flush()


def redraw(text: str) -> None:
    """Replaces the last line of a terminal at stderr."""
    sys.stderr.write(f"\r{visible(text)}\x1b[K")
    sys.stderr.flush()


def visible(text: str) -> str:
    """Text without characters that a terminal obeys or that change the direction of writing, and
    without passwords in URLs."""
    return without_credentials(without_controls(text))


def without_controls(text: str) -> str:
    """Text without characters that a terminal obeys or that change the direction of writing. Line
    feeds and tabs stay."""
    return _CONTROL.sub(REPLACEMENT, text)


def name_of(text: str) -> str:
    """Returns a name that a broker or an exporter gave, on one line: control characters are
    written as their numbers, so that different names stay different."""
    return _NO_NAME.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def finish() -> str | None:
    """Flushes both streams. Returns why stdout is incomplete; None if it is complete, or if its
    reader closed it."""
    sys.stdout.flush()
    sys.stderr.flush()
    raw = _raw(sys.stdout)
    failure = None if raw is None else raw.failure
    if failure is None or failure.errno in {errno.EPIPE, errno.EIO}:
        return None
    return f"standard output is not complete: {failure.strerror}"


def data_code() -> int:
    """Returns the exit code of a command whose data is on stdout: 2 if stdout is not complete."""
    return 0 if finish() is None else 2


class _Raw(io.RawIOBase):
    """A descriptor for writing. After the first failure it takes everything and writes nothing."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.failure: OSError | None = None
        """The first failure."""
        self.waits = True
        """True if a write waits for a slow reader."""

    def writable(self) -> bool:
        """Always."""
        return True

    def fileno(self) -> int:
        """The descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Returns True for a terminal."""
        return os.isatty(self._descriptor)

    def write(self, data: object) -> int:
        """Writes what can be written; returns the length of all."""
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        size = len(view)
        try:
            while len(view) and self.failure is None and self._ready():
                with contextlib.suppress(BlockingIOError):
                    view = view[os.write(self._descriptor, view[:PIPE_BYTES]) :]
        except OSError as error:
            self.failure = error
        return size

    def _ready(self) -> bool:
        """Returns True if a write returns at once. Waits for that if `waits` is True."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return bool(poll.poll(None if self.waits else 0))


def _fill(descriptor: int) -> None:
    try:
        os.fstat(descriptor)
    except OSError:
        null = os.open(os.devnull, os.O_RDWR)
        if null != descriptor:
            os.dup2(null, descriptor)
            os.close(null)
        else:
            os.set_inheritable(null, True)


def _guarded(descriptor: int, stream: TextIO | None) -> io.TextIOWrapper:
    raw = _Raw(descriptor)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=(stream.encoding if stream is not None else None) or "utf-8",
        errors=ASCII_ERRORS,
        line_buffering=raw.isatty(),
        write_through=getattr(stream, "write_through", False),
    )


def _raw(stream: object) -> _Raw | None:
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    return raw if isinstance(raw, _Raw) else None


def _similar(error: UnicodeError) -> tuple[str, int]:
    """Replaces what an encoding lacks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(_ASCII.get(character, "?") for character in text), error.end


_DESCRIPTORS = (1, 2)
"""Of stdout and stderr."""
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""All but line feed and tab."""
_NO_NAME = re.compile(f"[\t\n\u2028\u2029\ud800-\udfff{_CONTROL.pattern[1:]}")
"""Those and what ends a line."""
_ASCII = {
    "\u202f": " ",
    "\u00a0": " ",
    "–": "-",
    "…": "...",
    "•": "*",
    "·": ".",
    "“": '"',
    "”": '"',
    "→": "->",
    "×": "x",
    "±": "+/-",
    "≥": ">=",
    "≤": "<=",
    "µ": "u",
    "✓": "+",
    "✗": "x",
    "²": "^2",
    "─": "-",
    "│": "|",
    "├": "+",
    "└": "+",
    "╭": "+",
    "╮": "+",
    "╰": "+",
    "╯": "+",
    "━": "=",
    "╺": "-",
    "╸": "-",
}
codecs.register_error(ASCII_ERRORS, _similar)
