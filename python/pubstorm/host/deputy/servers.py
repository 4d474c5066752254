"""Servers of the deputy's host: their files, processes, output and ends."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ctypes
import os
import signal
import zlib
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pubstorm.host.children import close_stdin, signal_child
from pubstorm.host.ends import killed
from pubstorm.host.process_tree import ProcessTree
from pubstorm.host.spawn_errors import CANNOT_START, start_failure

LOG_BYTES_MAX = 1 << 20
"""Bytes of a log that are sent at the end of its server; of a longer one, the end."""
UNFINISHED_MODE = 0o600
"""Mode of a file until its last piece has come."""
PR_SET_PDEATHSIG = 1
_PRCTL = ctypes.CDLL(None, use_errno=True).prctl


class RefusedError(Exception):
    """A request that could not be carried out: text and advice."""

    def __init__(self, text: str, hint: str | None = None) -> None:
        super().__init__(text)
        self.hint = hint


@dataclass
class _Server:
    """One server."""

    process: Process
    tree: ProcessTree
    log: Path
    log_from: int
    """Offset of the first byte of this process in its log."""
    over: asyncio.Task[None] | None = None


class Servers:
    """All servers that were started here."""

    def __init__(self, home: Path, say: Callable[[Mapping[str, object]], None]) -> None:
        self._home = home
        self._say = say
        self._servers: dict[int, _Server] = {}

    async def store(self, name: str, at: int, piece: str, mode: int | None) -> None:
        """Writes a piece of a file, compressed and in Base64, from an offset. After the last piece,
        which comes with the mode, the file gets its name."""
        path = self._home / name
        unfinished = path.with_name(f"{path.name}.new")
        try:
            if at == 0:
                path.parent.mkdir(parents=True, exist_ok=True)
                unfinished.touch(mode=UNFINISHED_MODE)
            with unfinished.open("ab" if at else "wb") as file:
                file.write(zlib.decompress(base64.b64decode(piece)))
            if mode is not None:
                unfinished.chmod(mode)
                unfinished.replace(path)
        except OSError as error:
            raise RefusedError(f"cannot write {path}: {error.strerror}") from error

    async def output(self, words: list[str], text: str, environment: dict[str, str]) -> str:
        """Returns the stdout of a command, which gets a text as stdin."""
        try:
            process = await asyncio.create_subprocess_exec(
                *words,
                stdin=PIPE if text else DEVNULL,
                stdout=PIPE,
                stderr=DEVNULL,
                env={**os.environ, **environment},
                preexec_fn=_END_WITH_PARENT,
            )
        except CANNOT_START:
            return ""
        output, _ = await process.communicate(text.encode() if text else None)
        await close_stdin(process)
        return output.decode(errors="replace")

    async def spawn(
        self, words: list[str], folder: str, log: str, environment: dict[str, str], talks: bool
    ) -> int:
        """Starts a server; returns its process id."""
        path = self._home / log
        try:
            (self._home / folder).mkdir(parents=True, exist_ok=True)
            with path.open("ab") as file:
                log_from = os.fstat(file.fileno()).st_size
                process = await asyncio.create_subprocess_exec(
                    *words,
                    stdin=PIPE if talks else DEVNULL,
                    stdout=PIPE if talks else file,
                    stderr=file,
                    env={**os.environ, **environment},
                    start_new_session=True,
                    preexec_fn=_END_WITH_PARENT,
                )
        except CANNOT_START as error:
            raise RefusedError(*start_failure(words[0], error)) from error
        server = _Server(process, ProcessTree(process.pid), path, log_from)
        self._servers[process.pid] = server
        server.over = asyncio.create_task(self._follow(server))
        return process.pid

    async def signal(self, pid: int, number: int, tree: bool) -> None:
        """Sends a signal to a server, or to all that it has started too."""
        server = self._servers[pid]
        if tree:
            server.tree.send(signal.Signals(number))
        else:
            signal_child(server.process, signal.Signals(number))

    async def listens(self, pid: int, port: int) -> bool:
        """Returns False if nothing of a server listens on a port."""
        return await asyncio.to_thread(self._servers[pid].tree.listens, port)

    async def look(self, pid: int) -> None:
        """Notes what a server has started."""
        self._servers[pid].tree.look()

    async def end_rest(self, pid: int) -> None:
        """Ends what is left of a server that has ended."""
        await self._servers[pid].tree.end()

    async def close(self) -> None:
        """Ends all servers at once, with all that they have started."""
        running = [each for each in self._servers.values() if each.process.returncode is None]
        for server in running:
            server.tree.send(signal.SIGKILL)
        await asyncio.gather(*map(_end, running))

    async def _follow(self, server: _Server) -> None:
        """Says the lines and the end of a server."""
        pid = server.process.pid
        if server.process.stdout is not None:
            while line := await server.process.stdout.readline():
                self._say({"server": pid, "line": line.decode(errors="replace")})
        code = await server.process.wait()
        await close_stdin(server.process)
        log = base64.b64encode(zlib.compress(_tail(server), 1)).decode()
        self._say({"server": pid, "code": code, "log": log})


async def _end(server: _Server) -> None:
    await killed(server.process)
    await server.tree.end()


def _tail(server: _Server) -> bytes:
    with contextlib.suppress(OSError), server.log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        skipped = max(0, size - server.log_from - LOG_BYTES_MAX)
        file.seek(server.log_from + skipped)
        words = f"[{skipped} bytes were not sent]\n".encode() if skipped else b""
        return words + file.read()
    return b""


def at_parent_death(number: signal.Signals) -> None:
    """Asks the kernel to send this process a signal when its parent ends."""
    _PRCTL(PR_SET_PDEATHSIG, number)


_END_WITH_PARENT = partial(at_parent_death, signal.SIGKILL)
