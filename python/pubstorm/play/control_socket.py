"""The control socket: a user changes a run through a Unix socket in the run directory, for its
owner only. One line of words is answered by one line. A problem here ends no run, and no socket is
left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

from pydantic import ValidationError

from pubstorm.contract import Value
from pubstorm.errors import PubstormError, UsageError
from pubstorm.play.directory import CONTROL_FILE

PATIENCE_S = 10.0
"""Longest time that either side waits for the other."""
LINE_BYTES_MAX = 4096

Change = Callable[[str], Awaitable[str]]
"""Makes a change and returns it in words; raises PubstormError with the reason why not."""


class Answer(Value):
    """Answer of a run to its user."""

    accepted: bool
    text: str
    """The change that was made, or the reason why not."""
    hint: str | None = None
    """Advice."""


@contextlib.asynccontextmanager
async def listening(
    directory: Path, change: Change, note: Callable[[str], None]
) -> AsyncIterator[None]:
    """Takes changes during the run. Without a socket the run continues without changes."""
    with contextlib.ExitStack() as stack:
        server = None
        try:
            listener = stack.enter_context(_bound(directory))
            server = await asyncio.start_unix_server(_answering(change), sock=listener)
        except OSError as error:
            note(f"no change by control is possible: {error.strerror}")
        try:
            yield
        finally:
            if server is not None:
                server.close()


def ask(directory: Path, words: str) -> str:
    """Asks the run in `directory` for a change and returns the answer. Raises UsageError if there
    is no such run, or if the run refuses."""
    try:
        with (
            _short_path(directory) as path,
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream,
        ):
            stream.settimeout(PATIENCE_S)
            stream.connect(path)
            stream.sendall(words.encode() + b"\n")
            stream.shutdown(socket.SHUT_WR)
            with stream.makefile("rb") as answers:
                answer = Answer.model_validate_json(answers.readline(LINE_BYTES_MAX))
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError) as error:
        hint = "name the directory of an active run: its --out, or the newest in runs"
        raise UsageError(f"no run is active in {directory}", hint) from error
    except OSError as error:
        reason = error.strerror or "it does not answer"
        raise UsageError(f"cannot reach the run in {directory}: {reason}") from error
    except ValidationError as error:
        raise UsageError(f"the run in {directory} ended before it answered") from error
    if not answer.accepted:
        raise UsageError(answer.text, answer.hint)
    return answer.text


@contextlib.contextmanager
def _bound(directory: Path) -> Iterator[socket.socket]:
    """A listening socket that only its owner can open, gone at the end."""
    with (
        _short_path(directory) as path,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener,
    ):
        before = os.umask(0o177)
        try:
            listener.bind(path)
        finally:
            os.umask(before)
        try:
            listener.setblocking(False)
            yield listener
        finally:
            with contextlib.suppress(OSError):
                Path(path).unlink()


@contextlib.contextmanager
def _short_path(directory: Path) -> Iterator[str]:
    """The socket's path by way of an open descriptor: the kernel takes no more than 108 bytes."""
    descriptor = os.open(directory, os.O_DIRECTORY | os.O_PATH | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{CONTROL_FILE}"
    finally:
        os.close(descriptor)


def _answering(
    change: Change,
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A client that disconnects before the answer does not disturb the run.
        with contextlib.suppress(OSError, ValueError, TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                line = await reader.readline()
                answer = await _answer(change, line)
                writer.write(answer.model_dump_json().encode() + b"\n")
                await writer.drain()
        writer.close()

    return handle


async def _answer(change: Change, line: bytes) -> Answer:
    try:
        return Answer(accepted=True, text=await change(line.decode(errors="replace").strip()))
    except PubstormError as error:
        return Answer(accepted=False, text=error.message, hint=error.hint)
