"""Log files of child processes: opened so that a full disk stops no process, and read for their
last lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from pubstorm.host.spawn_errors import thread_lack

TAIL_BYTES = 65536
_PANIC = re.compile(r"panicked at [^\n]*\n([^\n]+)")


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
    """The last lines of a log that say anything; empty if there are none. Of a Rust program that
    panicked, what it said, without the backtrace."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    if (panic := _PANIC.search(text)) is not None:
        if (lack := thread_lack(panic[1])) is not None:
            return lack
        return f"internal error: {panic[1]}"
    return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])
