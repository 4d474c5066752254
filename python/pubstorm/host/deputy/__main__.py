"""The deputy: carries out requests that come as JSON lines on stdin, and writes answers and events
as JSON lines to stdout. It ends, with all its servers and their files, when stdin closes or when no
line has come for a lease. The arguments are the folder in which it makes its own, and the lease in
seconds."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pubstorm.host.children import raised_priority, run_loop
from pubstorm.host.counters import counters
from pubstorm.host.deputy.servers import Servers, at_parent_death
from pubstorm.host.members import PROCESSES_HERE
from pubstorm.host.ports import free_port, is_free
from pubstorm.host.programs import find

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
