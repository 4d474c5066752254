"""Each close returns, whatever its peers, tasks and processes do: in virtual time, with peers that
take nothing, say nothing and never end."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest

from pubstorm.fleet import Fleet
from pubstorm.fleet.local import LocalSite, LocalSlot
from pubstorm.fleet.reference import ReferenceClock
from pubstorm.fleet.site import AgentCommand
from pubstorm.host import members
from pubstorm.host.deputy.__main__ import Servers, _Server
from pubstorm.host.deputy.remote import RemoteMachine
from pubstorm.host.machine import LocalChild
from pubstorm.host.members import ProcessTree
from pubstorm.measure.monitors.profiling import Perf
from pubstorm.play.agent_failure import AgentFailures
from pubstorm.play.faults import FaultPlay
from pubstorm.topology.adapters import adapter_of
from pubstorm.topology.bridges.links import Links
from pubstorm.topology.broker import Place
from pubstorm.topology.supervision import Supervision
from pubstorm.web.server import ConnectionLimits, Server
from tests.kit.virtual import run_virtually

PACKAGE = Path(__file__).parents[3] / "python" / "pubstorm"
Closing = Coroutine[Any, Any, object]
LIMIT_S = 60.0
"""Longest time of a close: several waits, one after the other."""
NO_PID = 1 << 23
"""A process id that Linux gives to no process."""
ENDINGS = frozenset({"close", "stop", "end", "leave", "gone", "__aexit__"})
"""Names of methods that end something."""


class Stuck:
    """A process, a slot or a channel that takes and says nothing, and never ends."""

    pid = NO_PID
    returncode = None
    lost = ""
    name = title = host = "stuck"
    agents = 1
    stdout = None
    is_killed = False

    def __init__(self) -> None:
        self.stdin = self

    async def forever(self, *_: object, **__: object) -> Any:
        """Waits, and takes no cancellation before the end of the test, as work in a thread."""
        while True:
            try:
                await asyncio.sleep(1e6)
            except asyncio.CancelledError:
                if released():
                    raise

    async def waiting(self) -> Any:
        """Waits for an end that never comes."""
        await asyncio.get_running_loop().create_future()

    async def hello(self) -> bytes:
        """The first line of a deputy; there is no other."""
        if self.is_killed:
            await self.forever()
        self.is_killed = True
        return b'{"home": "/", "root": true, "descriptors": 9}'

    async def spawn(self, *_: object) -> None:
        """Does nothing: it runs."""

    def close(self, *_: object) -> None:
        """Takes no notice."""

    kill = signal = note = close
    wait = wait_closed = waiting
    send = line = ending = forever
    look = end_rest = spawn


def released() -> bool:
    """True once the test is over, so that its loop can end."""
    return getattr(asyncio.get_running_loop(), "is_over", False)


def with_process(made: Any) -> Any:
    made._process = Stuck()
    return made


def with_tasks(made: Any, name: str) -> Any:
    task = asyncio.create_task(Stuck().forever())
    setattr(made, name, {0: task} if name == "_tasks" and isinstance(made._tasks, dict) else [task])
    return made


async def fleet(_: Path) -> Closing:
    made = Fleet([cast(Any, Stuck())], lambda _event: None)
    bringing = asyncio.create_task(made.up("{}"))
    await asyncio.sleep(1)
    bringing.cancel()
    return made.close()


async def local_site(folder: Path) -> Closing:
    site = LocalSite(folder)
    site._started = [with_process(LocalSlot(AgentCommand((), "agent 0", 1), folder / "log"))]
    return site.close()


async def machine(_: Path) -> Closing:
    channel: Any = Stuck()
    channel.line = channel.hello
    made = RemoteMachine(channel, "127.0.0.2", silent_s=1e6)
    await made.open()
    await asyncio.sleep(1)
    return made.close()


async def servers(folder: Path) -> Closing:
    made = Servers(folder, lambda _: None)
    process = cast(Any, Stuck())
    made._servers[NO_PID] = _Server(LocalChild(process), folder / "log", 0)
    return made.close()


async def failures(_: Path) -> Closing:
    run = Mock()
    run.assignment.engines = 1
    made = with_tasks(AgentFailures(run, "replace", Mock()), "_tasks")
    return made.stop()  # type: ignore[no-any-return]


async def faults(_: Path) -> Closing:
    return with_tasks(FaultPlay([], Mock(), Mock()), "_tasks").stop()  # type: ignore[no-any-return]


async def supervision(_: Path) -> Closing:
    made = Supervision(lambda _: None)
    made.watch([(cast(Any, Stuck()), None)])
    await asyncio.sleep(1)
    return made.end()


async def broker(folder: Path) -> Closing:
    made = with_process(adapter_of("mosquitto")(Place(name="m-0", folder=folder)))
    return made.stop()  # type: ignore[no-any-return]


async def server(_: Path) -> Closing:
    made = Server(Mock(), ConnectionLimits(trusted_max=1, idle_s=1), None)
    connection = Mock()
    made._trusted.add(connection)
    made.state.connections.add(connection)
    made.state.tasks.add(asyncio.create_task(Stuck().forever()))
    await asyncio.sleep(1)
    return made.end()


def of(made: Callable[[Path], Any], method: str) -> Any:
    """A closer of an object whose process never ends."""

    async def closing(folder: Path) -> Closing:
        return getattr(with_process(made(folder)), method)()  # type: ignore[no-any-return]

    return closing


CLOSERS: dict[str, Callable[[Path], Coroutine[Any, Any, Closing]]] = {
    "Fleet.close": fleet,
    "LocalSite.close": local_site,
    "LocalSlot.end": of(lambda path: LocalSlot(AgentCommand((), "a", 1), path / "log"), "end"),
    "ReferenceClock.close": of(lambda path: ReferenceClock(path, path / "log"), "close"),
    "RemoteMachine.close": machine,
    "Servers.close": servers,
    "ProcessTree.end": lambda _: coroutine(ProcessTree(NO_PID).end),
    "AgentFailures.stop": failures,
    "FaultPlay.stop": faults,
    "Supervision.end": supervision,
    "ServerProcess.stop": broker,
    "Server.end": server,
    "Links.stop": of(lambda _: Links(), "stop"),
    "Perf.stop": of(lambda path: Perf(path, 99, ()), "stop"),
}
LIMITED_ELSEWHERE = {
    "Fleet.stop": "an incarnation limits each wait for its slot",
    "Incarnation.stop": "send waits for an answer at most",
    "RayCluster.leave": "each call has a limit: tests/pure/ray",
    "HeadWatch.close": "tests/pure/ray",
    "RaySlot.gone": "tests/pure/ray",
    "RayHosts.close": "its machines, slots and cluster are rows",
    "RaySite.close": "its watch, slots, clock and cluster are rows",
    "Deputy.close": "its servers are a row",
    "OneHost.close": "holds nothing",
    "Starter.close": "waits twice for END_S at most: tests/system/web/test_starts.py",
    "Monitoring.end": "a deadline for all readers: tests/pure/monitors/test_monitoring.py",
    "RemotePerf.stop": "writes to a socket that has a timeout",
    "Topology.stop": "its parts are rows",
    "Bridges.close": "joins each observer with a timeout; its links are a row",
    "Network.stop": "each program of iproute2 has a timeout",
    "Networks.stop": "each program of iproute2 has a timeout",
}
"""Further closers, with the reason why no row is needed."""


async def coroutine(method: Callable[[], Closing]) -> Any:
    return method()


@pytest.mark.parametrize("name", CLOSERS)
def test_a_close_returns_whatever_its_peers_do(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = Mock(pid=NO_PID, parent=1, session=NO_PID, started=1, has_ended=False)
    monkeypatch.setattr(members, "_living", lambda: [left])

    async def play() -> float:
        loop = asyncio.get_running_loop()
        closing = await CLOSERS[name](tmp_path)
        began_s = loop.time()
        work = asyncio.create_task(closing)
        await asyncio.wait({work}, timeout=2 * LIMIT_S)
        if work.done():
            # An error that names the child is an end, too.
            work.exception()
        took_s = loop.time() - began_s
        loop.is_over = True  # type: ignore[attr-defined]
        return took_s

    assert run_virtually(play()) < LIMIT_S


def test_every_close_has_a_row_or_a_reason() -> None:
    found = {
        f"{noun.name}.{method.name}"
        for path in PACKAGE.rglob("*.py")
        for noun in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(noun, ast.ClassDef)
        and not any(isinstance(base, ast.Name) and base.id == "Protocol" for base in noun.bases)
        for method in noun.body
        if isinstance(method, ast.AsyncFunctionDef) and method.name in ENDINGS
    }
    assert found == {*CLOSERS, *LIMITED_ELSEWHERE}
