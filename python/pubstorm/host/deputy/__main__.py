"""The deputy: starts, signals and watches servers of its host, as requests ask that come as JSON
lines on stdin, and writes answers and events as JSON lines to stdout. It ends, with all its servers
and their files, when stdin closes or when no line has come for a lease. The arguments are the
folder in which it makes its own, and the lease in seconds."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ctypes
import inspect
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pubstorm.errors import TopologyError
from pubstorm.host.children import find, raised_priority, run_loop
from pubstorm.host.counters import counters
from pubstorm.host.ends import killed
from pubstorm.host.machine import LocalChild, LocalMachine, Order
from pubstorm.host.members import PROCESSES_HERE
from pubstorm.host.sockets import free_port, is_free

LOG_BYTES_MAX = 1 << 20
"""Bytes of a log that are sent at the end of its server; of a longer one, the end."""
UNFINISHED_MODE = 0o600
"""Mode of a file until its last piece has come."""
PR_SET_PDEATHSIG = 1
_PRCTL = ctypes.CDLL(None, use_errno=True).prctl


@dataclass
class _Server:
    """One server."""

    child: LocalChild
    log: Path
    log_from: int
    """Offset of the first byte of this process in its log."""
    over: asyncio.Task[None] | None = None


class Servers:
    """All servers that were started here."""

    def __init__(self, home: Path, say: Callable[[Mapping[str, object]], None]) -> None:
        self._home = home
        self._say = say
        self._machine = LocalMachine(before_exec=partial(at_parent_death, signal.SIGKILL))
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
            raise TopologyError(f"cannot write {path}: {error.strerror}") from error

    async def output(self, words: list[str], text: str, environment: dict[str, str]) -> str:
        """Returns the stdout of a command, which gets a text as stdin."""
        return await self._machine.output(*words, text=text, environment=environment)

    async def spawn(
        self, words: list[str], folder: str, log: str, environment: dict[str, str], talks: bool
    ) -> int:
        """Starts a server; returns its process id."""
        path = self._home / log
        try:
            (self._home / folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TopologyError(f"cannot write {folder}: {error.strerror}") from error
        log_from = path.stat().st_size if path.exists() else 0
        order = Order(words, self._home / folder, path, environment, talks)
        child = await self._machine.spawn(order)
        server = self._servers[child.pid] = _Server(child, path, log_from)
        server.over = asyncio.create_task(self._follow(server, talks=talks))
        return child.pid

    async def signal(self, pid: int, number: int, tree: bool) -> None:
        """Sends a signal to a server, or to all that it has started too."""
        child = self._servers[pid].child
        send = child.signal_tree if tree else child.signal
        send(signal.Signals(number))

    async def listens(self, pid: int, port: int) -> bool:
        """Returns False if nothing of a server listens on a port."""
        return await self._servers[pid].child.listens(port)

    async def look(self, pid: int) -> None:
        """Notes what a server has started."""
        await self._servers[pid].child.look()

    async def end_rest(self, pid: int) -> None:
        """Ends what is left of a server that has ended."""
        await self._servers[pid].child.end_rest()

    async def close(self) -> None:
        """Ends all servers at once, with all that they have started."""
        children = (server.child for server in self._servers.values())
        running = [child for child in children if child.returncode is None]
        for child in running:
            child.signal_tree(signal.SIGKILL)
        await asyncio.gather(*map(_end, running))

    async def _follow(self, server: _Server, *, talks: bool) -> None:
        """Says the lines and the end of a server."""
        pid = server.child.pid
        while talks and (line := await server.child.line()):
            self._say({"server": pid, "line": line.decode(errors="replace")})
        code = await server.child.wait()
        log = base64.b64encode(zlib.compress(_tail(server), 1)).decode()
        self._say({"server": pid, "code": code, "log": log})


async def _end(child: LocalChild) -> None:
    await killed(child)
    await child.end_rest()


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


LINE_BYTES_MAX = 256 << 20
"""Longest request: room for the input of a command."""


class Deputy:
    """The requests that are carried out."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._servers = Servers(home, self.say)
        self._requests: Mapping[str, Callable[..., object]] = {
            "beat": lambda: None,  # It only renews the lease.
            "port": lambda address: free_port([address]),
            "is_free": lambda port, address: is_free(port, address),
            "find": find,
            "look_at": lambda roots: PROCESSES_HERE.look_at(roots).to_json(),
            "counters": lambda: counters().to_json(),
            "store": self._servers.store,
            "output": self._servers.output,
            "spawn": self._servers.spawn,
            "signal": self._servers.signal,
            "listens": self._servers.listens,
            "look": self._servers.look,
            "end_rest": self._servers.end_rest,
        }

    def hello(self) -> None:
        """Sends the facts of this host."""
        self.say({"hello": os.getpid(), "home": str(self._home), **_rights()})

    def say(self, line: Mapping[str, object]) -> None:
        """Writes a line."""
        sys.stdout.buffer.write(json.dumps(line).encode() + b"\n")
        sys.stdout.buffer.flush()

    async def carry_out(self, request: dict[str, Any]) -> None:
        """Carries out a request, and answers it."""
        number, name = request.pop("id"), request.pop("do")
        try:
            found = self._requests[name](**request)
            found = await found if inspect.isawaitable(found) else found
            answer = {"id": number, "answer": found}
        except Exception as error:
            hint = getattr(error, "hint", None)
            answer = {"id": number, "error": str(error) or type(error).__name__, "hint": hint}
        self.say(answer)

    async def close(self) -> None:
        """Ends all servers, and deletes their files."""
        await self._servers.close()
        shutil.rmtree(self._home, ignore_errors=True)


def _rights() -> dict[str, object]:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return {"root": os.geteuid() == 0, "descriptors": hard}


async def serve(folder: str, lease_s: float) -> None:
    """Carries out requests until stdin ends or the lease is over."""
    home = Path(tempfile.mkdtemp(prefix="pubstorm-", dir=folder)).absolute()
    deputy = Deputy(home)
    running: set[asyncio.Task[None]] = set()
    try:
        deputy.hello()
        requests = asyncio.StreamReader(limit=LINE_BYTES_MAX)
        protocol = asyncio.StreamReaderProtocol(requests)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
        while line := await _within(lease_s, requests):
            request = json.loads(line)
            if request["do"] == "end":
                break
            task = asyncio.create_task(deputy.carry_out(request))
            running.add(task)
            task.add_done_callback(running.discard)
    finally:
        for task in running:
            task.cancel()
        await deputy.close()


async def _within(lease_s: float, requests: asyncio.StreamReader) -> bytes:
    """Returns the next line; nothing once the lease is over or stdin has ended. The lease has two
    halves: a host that stood still for longer than one of them has lines to read."""
    for _ in range(2):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(lease_s / 2):
                return await requests.readline()
    return b""


def main() -> None:
    """Runs the deputy."""
    # One that is stopped does not read that its stdin has closed.
    at_parent_death(signal.SIGCONT)
    # A reader of stdout that is gone is seen at stdin.
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        try:
            with raised_priority():
                run_loop(serve(sys.argv[1], float(sys.argv[2])))
        except (BrokenPipeError, KeyboardInterrupt):
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
