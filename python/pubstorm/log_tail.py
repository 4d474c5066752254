"""Log files of child processes: opened so that a full disk stops no process, and read back for
their last words. It knows nothing of the processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

TAIL_BYTES = 4096


@contextmanager
def open_log(path: Path) -> Iterator[BinaryIO | None]:
    """The file, open for appending; None if it cannot be made."""
    try:
        file = path.open("ab")
    except OSError:
        yield None
        return
    with file:
        yield file


def last_lines(path: Path, lines: int = 5) -> str:
    """The last lines of a log that say anything; empty if there are none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])
