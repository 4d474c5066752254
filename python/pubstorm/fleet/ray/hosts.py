"""Processes of a run on hosts of a Ray cluster. An actor holds an agent there, and its output
returns as a stream of frames; a deputy, the program of an actor, starts servers. Callers set limits
to waits."""

from __future__ import annotations

import asyncio
import hashlib
import signal
import time
import zlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from pubstorm.errors import FleetError
from pubstorm.fleet.incarnation import SlotLostError
from pubstorm.fleet.local import LINE_BYTES_MAX
from pubstorm.fleet.ray.choice import RayHost, is_worker_lost, labelled, loss_in_words
from pubstorm.fleet.ray.cluster import RayCluster, Room, answer, in_thread
from pubstorm.fleet.ray.runner import EXIT, LOG
from pubstorm.fleet.site import AgentCommand
from pubstorm.host.deputy.remote import NAME, SILENT_S, RemoteMachine, lease_s, pack
from pubstorm.host.machine import LocalMachine, Machine, last_lines, open_log

INSTALL_S = 60.0
SPAWN_S = 20.0
SEND_S = 60.0
KILL_S = 2.0
GONE_S = 5 * KILL_S
"""Longest time for all that ends an agent: a call, the wait for its end, and the actor's end."""
UNREAD_FRAMES = 64
"""Frames on their way at most; then the host waits with the next."""


@dataclass(frozen=True)
class Cargo:
    """Program and files for a host."""

    name: str
    """The program's name."""
    digest: str
    """Its SHA-256."""
    program: Any
    """Its bytes, compressed, in the object store."""
    files: Any
    """The agent's files by their paths there, in the object store."""
    read_early: Sequence[str]
    """Those of them that it has read when it greets."""


class RaySlot:
    """One agent on another host."""

    def __init__(self, actor: Any, room: Room, command: AgentCommand, log: Path) -> None:
        self.room = room
        self.command = command
        self.sent_s = time.monotonic()
        """Instant of the last line that may have reached it."""
        self._actor = actor
        self._log = log
        self._pid = 0
        self._program = ""
        self._read_early: Sequence[str] = ()
        self._number = 0
        self._tail = b""
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._over: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._worker_died = False
        self._over.add_done_callback(lambda over: over.cancelled() or over.exception())
        self._following: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """Its name in messages, with host and process id."""
        where = f" on {self.host}" if self.host else ""
        return f"{self.command.title}{where}" + (f" (pid {self._pid})" if self._pid else "")

    @property
    def host(self) -> str:
        """Address of its host; empty: this one."""
        return "" if self.room.host.is_here else self.room.host.address

    @property
    def agents(self) -> int:
        """Number of agents in its hello."""
        return self.command.agents

    @property
    def is_surely_gone(self) -> bool:
        """True if its process is known to have ended."""
        return self._over.done() and self._over.exception() is None

    @property
    def left_its_room(self) -> bool:
        """True if its host answers and the room on it is free again."""
        return self.is_surely_gone or self._worker_died

    async def load(self, cargo: Cargo) -> None:
        """Brings program and files to the host; raises FleetError."""
        install = self._actor.install.remote(cargo.name, cargo.digest, cargo.program)
        node, problem = await self._call(install, INSTALL_S)
        problem = problem or await self._call(self._actor.store.remote(cargo.files), INSTALL_S)
        if problem:
            raise FleetError(f"{self.name}: {problem}", ROOM)
        assert node == self.room.host.node, "its room is tied to its host"
        # The cargo itself is not kept: it takes room in the object store.
        self._program, self._read_early = cargo.name, cargo.read_early

    async def spawn(self) -> None:
        """Starts the agent, and begins to read its output."""
        words = (self._program, *self.command.words[1:])
        variables = dict(self.command.environment)
        call = self._actor.spawn.remote(words, variables, self._read_early)
        self._pid, problem = await self._call(call, SPAWN_S)
        if problem:
            hint = "the folder for temporary files (TMPDIR) must allow programs (no noexec)"
            raise FleetError(f"{self.name}: {problem}", hint)
        self._following = asyncio.create_task(self._follow())

    async def send(self, line: str) -> None:
        """Writes a line to its stdin."""
        number, self._number = self._number, self._number + 1
        if self._ending is None and not self._over.done():
            self.sent_s = time.monotonic()
            with suppress(RayError, TimeoutError):
                call = self._actor.send.remote(number, zlib.compress(line.encode(), 1))
                await answer(call, SEND_S)

    async def line(self) -> bytes:
        """Its next line."""
        if self._over.done() and self._lines.empty():
            await self.wait()
            return b""
        return await self._lines.get() or await self.line()

    async def wait(self) -> int:
        """Its exit code."""
        return await asyncio.shield(self._over)

    def give_up(self, why: str) -> None:
        """Takes it for lost, if its end is not known."""
        self._settle(SlotLostError(why))

    def kill(self) -> None:
        """Ends it, and takes its worker away."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())

    async def gone(self) -> None:
        """Kills it and waits until all has been tried."""
        self.kill()
        if self._ending is not None:
            await asyncio.wait({self._ending}, timeout=GONE_S)

    def last_words(self) -> str:
        """The last lines of its log."""
        return last_lines(self._log)

    async def _call(self, call: Any, limit_s: float) -> Any:
        try:
            return await answer(call, limit_s)
        except TimeoutError as error:
            text = f"{self.name}: its host has not answered for {limit_s:.0f} s"
            raise SlotLostError(text) from error
        except RayError as error:
            raise SlotLostError(f"{self.name}: {loss_in_words(error)}") from error

    async def _follow(self) -> None:
        """Takes its output, to its end or its failure."""
        try:
            frames = self._actor.frames.options(
                num_returns="streaming", _generator_backpressure_num_objects=UNREAD_FRAMES
            ).remote()
            async for frame in frames:
                self._take(await frame)
            self._settle(SlotLostError("its worker ended without a word"))
        except RayError as error:
            self._worker_died = is_worker_lost(error)
            self._settle(SlotLostError(loss_in_words(error)))
        except ValueError as error:
            self._settle(SlotLostError(f"what it said cannot be read: {error}"))

    def _take(self, frame: bytes) -> None:
        if frame.startswith(EXIT):
            if self._tail:
                self._lines.put_nowait(self._tail)
            self._settle(int(frame[1:]))
            return
        data = zlib.decompress(frame[1:])
        if frame.startswith(LOG):
            with open_log(self._log) as log:
                if log is not None:
                    log.write(data)
            return
        *lines, self._tail = (self._tail + data).split(b"\n")
        if len(self._tail) > LINE_BYTES_MAX:
            raise ValueError(f"a line of more than {LINE_BYTES_MAX} bytes")
        for line in lines:
            self._lines.put_nowait(line + b"\n")

    def _settle(self, end: int | SlotLostError) -> None:
        if self._over.done():
            return
        if isinstance(end, int):
            self._over.set_result(end)
        else:
            self._over.set_exception(end)
        self._lines.put_nowait(b"")

    async def _end(self) -> None:
        """Ends the process, so that its end is known, then the worker, which takes with it what
        may be left of it."""
        if self._following is None:
            self._settle(-signal.SIGKILL)
        else:
            with suppress(Exception):  # Whatever Ray raises of a cluster that is gone.
                await answer(self._actor.kill.remote(), KILL_S)
                await asyncio.wait({self._over}, timeout=KILL_S)
            self._settle(SlotLostError(f"{self.room.host.address} does not answer"))
        with suppress(Exception):
            await in_thread(lambda: ray.kill(self._actor), KILL_S)
        if self._following is not None:
            self._following.cancel()


ROOM = "is there room in the folder for temporary files (TMPDIR) of that host?"


SHIP_S = 60.0
"""Longest time to put the deputy into the object store."""


class RayHosts:
    """The hosts of a Ray cluster of which this host is one."""

    are_here = False

    def __init__(
        self,
        address: str | None,
        folder: Path,
        watched: Collection[str] = (),
        silent_s: float = SILENT_S,
    ) -> None:
        """`address`: `HOST:PORT` of the cluster's head; None: the cluster that this host is in.
        `folder` gets the logs of the deputies. `watched`: labels of the hosts of agents.
        `silent_s`: silence after which a host is lost."""
        self.watched = watched
        """Labels of hosts without servers that are watched too."""
        self._silent_s = silent_s
        self._cluster = RayCluster(address)
        self._folder = folder
        self._hosts: tuple[RayHost, ...] = ()
        self._here = LocalMachine()
        self._machines: dict[str, Machine] = {}
        self._by_label: dict[str, tuple[RayHost, ...]] = {}
        self._slots: list[RaySlot] = []
        self._remote: list[RemoteMachine] = []

    @property
    def others(self) -> Sequence[RemoteMachine]:
        """The machines besides the controller's."""
        return tuple(self._remote)

    async def open(self, wanted: Mapping[str, int]) -> None:
        """Joins the cluster, and starts a deputy on each host that gets a server or is watched,
        unless it has one."""
        if not self._hosts:
            await self._cluster.join()
            self._here = LocalMachine(self._cluster.here)
            self._hosts = await self._cluster.all_hosts()
        for label, servers in wanted.items():
            found = labelled(self._hosts, label)[:servers]
            self._by_label[label] = max(found, self._by_label.get(label, ()), key=len)
        agents = (labelled(self._hosts, label) for label in self.watched)
        chosen = (*self._by_label.values(), *agents)
        new = {host.node: host for found in chosen for host in found}
        away = [h for h in new.values() if h.node not in self._machines and not h.is_here]
        self._machines |= {host.node: self._here for host in new.values() if host.is_here}
        if away:
            await self._start(away)

    def machine(self, label: str | None, number: int) -> Machine:
        """Returns the machine of a server."""
        if label is None:
            return self._here
        hosts = self._by_label[label]
        return self._machines[hosts[number % len(hosts)].node]

    async def close(self) -> None:
        """Ends the deputies, with whatever they have started, and leaves the cluster."""
        await asyncio.gather(*(machine.close() for machine in self._remote))
        await asyncio.gather(*(slot.gone() for slot in self._slots))
        await self._cluster.leave()

    async def _start(self, hosts: Sequence[RayHost]) -> None:
        path = self._folder / NAME
        pack(path)
        cargo = await in_thread(lambda: _cargo(path), SHIP_S)
        path.unlink()
        slots = []
        for worker, host in zip(await self._cluster.pinned(hosts), hosts, strict=True):
            title = f"deputy on {host.address}"
            command = AgentCommand((NAME, ".", str(lease_s(self._silent_s))), title, 0)
            log = self._folder / f"deputy-{host.address}.log"
            slots.append(RaySlot(worker, Room(host, None, 0), command, log))
        self._slots += slots
        opened = await asyncio.gather(
            *(self._opened(slot, cargo) for slot in slots), return_exceptions=True
        )
        for outcome in opened:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _opened(self, slot: RaySlot, cargo: Cargo) -> None:
        await slot.load(cargo)
        machine = RemoteMachine(slot, slot.room.host.address, self._silent_s)
        self._remote.append(machine)
        self._machines[slot.room.host.node] = machine
        await machine.open()


def _cargo(path: Path) -> Cargo:
    program = path.read_bytes()
    digest = hashlib.sha256(program).hexdigest()
    packed = ray.put(zlib.compress(program, 1))
    return Cargo(NAME, digest, packed, files=ray.put({}), read_early=())
