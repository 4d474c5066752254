"""Log files of child processes: opened so that a full disk stops no process, and read for their
last lines. Programs that log there and talk over pipes."""

from __future__ import annotations

import asyncio
import os
import re
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from pubstorm.host.spawn_errors import thread_lack

TAIL_BYTES = 65536
LINE_BYTES_MAX = 1 << 16
"""Longest line of a program, unless it is allowed more."""
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


async def start_piped(
    words: Sequence[str],
    log: Path,
    environment: Mapping[str, str] | None = None,
    limit: int = LINE_BYTES_MAX,
) -> Process:
    """Starts a program with pipes as stdin and stdout, and with its stderr in a log. It gets a
    session of its own, so that a Ctrl-C at the terminal does not reach it. Raises one of
    CANNOT_START. `limit`: longest line that can be read."""
    with open_log(log) as file:
        return await asyncio.create_subprocess_exec(
            *words,
            stdin=PIPE,
            stdout=PIPE,
            stderr=file or DEVNULL,
            limit=limit,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )


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
