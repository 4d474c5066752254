"""The engines of a run on a Ray cluster: a host for each, program and files there, the reference
clock for those on other hosts, another host for one that is lost. It knows no stage."""

from __future__ import annotations

import asyncio
import hashlib
import time
import zlib
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray

from pubstorm.binaries import engine_path
from pubstorm.errors import FleetError
from pubstorm.fleet.files import PlanFiles
from pubstorm.fleet.local import log_name
from pubstorm.fleet.ray.choice import Host, chosen, shortage, spare
from pubstorm.fleet.ray.cluster import LOOK, Cluster, Room, in_thread
from pubstorm.fleet.ray.head import HeadWatch
from pubstorm.fleet.ray.slot import Cargo, RaySlot
from pubstorm.fleet.reference import ReferenceClock
from pubstorm.fleet.site import AgentCommand, AgentHost
from pubstorm.fleet.slot import Slot
from pubstorm.plan import Plan
from pubstorm.scenario.fleet import Spread

LEASE_S = 4
"""An agent that hears nothing for so long stops."""
LEAVING_S = 2.0
"""How long its clients may take to leave then."""
PLACE_S = 60.0
"""How long all agents together may wait for their room."""
SPARE_S = 5.0
"""How long a lost one may wait for room on one host."""
SHIP_S = 60.0
"""How long program and files may take into the object store."""
MACHINES = {62: "x86_64", 183: "aarch64", 243: "riscv64"}
"""Architectures, by the number in the head of an ELF file."""


class RaySite:
    """The hosts of a Ray cluster of which this host is one."""

    def __init__(self, address: str | None, spread: Spread, logs: Path) -> None:
        """`address`: `HOST:PORT` of the cluster's head; None: the cluster that this host is in."""
        self._cluster = Cluster(address)
        self._spread: Spread = spread
        self._logs = logs
        self._facts: dict[str, AgentHost] = {}
        self._files: PlanFiles | None = None
        self._commands: list[AgentCommand] = []
        self._slots: dict[int, RaySlot] = {}
        self._former: list[RaySlot] = []
        self._reference: ReferenceClock | None = None
        self._head: HeadWatch | None = None

    @property
    def hosts(self) -> Sequence[AgentHost]:
        """The hosts that have answered."""
        return tuple(self._facts.values())

    async def open(self) -> None:
        """Joins the cluster and asks its hosts what they are."""
        await self._cluster.join()
        self._head = HeadWatch(self._cluster.address, self._give_up)
        hosts = await self._cluster.hosts()
        self._facts = await self._cluster.facts(hosts)
        if not self._facts:
            names = ", ".join(host.address for host in hosts)
            raise FleetError(f"no host of the Ray cluster answers: {names}", LOOK)

    def localised(self, plan: Plan) -> Plan:
        """The plan with the paths that files have in an agent's folder."""
        away = [host.address for host in self.hosts if host.address]
        for target in plan.targets:
            if away and target.is_loopback:
                raise FleetError(
                    f"agents on {', '.join(away[:3])} do not reach {target.host}:{target.port} of "
                    "this host",
                    "name a target that they reach; brokers that the run starts listen on "
                    "127.0.0.1 only",
                )
        self._files = PlanFiles(plan)
        return self._files.plan

    async def place(self, commands: Sequence[AgentCommand]) -> Sequence[Slot]:
        """A place for each agent, with program and files there."""
        self._commands = list(commands)
        where = chosen(await self._answering(), len(commands), self._spread)
        for host, command in zip(where, commands, strict=True):
            self._check_machine(host, Path(command.words[0]))
        try:
            rooms = await self._cluster.reserve(where, self._spread, PLACE_S)
        except TimeoutError:
            found = shortage(await self._answering(), len(where), len(commands), self._spread)
            text = f"got no room on the Ray cluster within {PLACE_S:.0f} s: {found}"
            raise FleetError(text, LOOK) from None
        await self._settle(dict(enumerate(rooms)))
        return tuple(self._slots[agent] for agent in range(len(commands)))

    async def replace(self, agent: int) -> Slot:
        """Another place for an agent, on another host if there is one. It returns when the lost one
        surely plays no client."""
        if agent not in self._slots:
            raise FleetError(f"agent {agent} is no engine, and no other program can replace it")
        old = self._slots[agent]
        await old.gone()
        room = await self._other_room(old)
        self._former.append(old)
        self._commands[agent] = self._commands[agent].again()
        await self._settle({agent: room})
        if not old.is_surely_gone:
            await asyncio.sleep(old.sent_s + LEASE_S + LEAVING_S - time.monotonic())
        return self._slots[agent]

    async def close(self) -> None:
        """Ends every agent, gives the room back, leaves the cluster."""
        if self._head is not None:
            await self._head.close()
        await asyncio.gather(*(slot.gone() for slot in (*self._slots.values(), *self._former)))
        if self._reference is not None:
            await self._reference.close()
        await self._cluster.leave()

    def _give_up(self, why: str) -> None:
        for slot in self._slots.values():
            slot.give_up(why)

    async def _answering(self) -> tuple[Host, ...]:
        """The hosts as they are now, of those that answered at first."""
        return tuple(host for host in await self._cluster.hosts() if host.node in self._facts)

    async def _other_room(self, old: RaySlot) -> Room:
        taken = {slot.room.host.node for slot in self._slots.values() if slot is not old}
        hosts = spare(await self._answering(), old.room.host.node, taken, self._spread)
        for host in hosts:
            try:
                (room,) = await self._cluster.reserve([host], self._spread, SPARE_S)
            except TimeoutError:
                continue
            return room
        if old.left_its_room:
            return old.room
        text = f"there is no free host for {old.command.title} besides {old.room.host.address}"
        raise FleetError(text, "add a spare host to the cluster")

    async def _settle(self, rooms: Mapping[int, Room]) -> None:
        """Agents with workers, program and files in their rooms."""
        if self._reference is None and not all(room.host.is_here for room in rooms.values()):
            self._reference = ReferenceClock(engine_path(), self._logs / "reference.log")
            await self._reference.start(self._cluster.here)
        workers = await self._cluster.workers(list(rooms.values()))
        for worker, (agent, room) in zip(workers, rooms.items(), strict=True):
            command = self._commands[agent]
            suffix = f" {command.incarnation}" if command.incarnation else ""
            log = self._logs / log_name(command.title + suffix)
            self._slots[agent] = RaySlot(worker, room, self._told(command, room.host), log)
        await self._load(list(rooms))

    def _told(self, command: AgentCommand, host: Host) -> AgentCommand:
        """With what agents of a cluster are told besides."""
        words, environment = command.words, dict(command.environment)
        if "--lease" not in words:
            words = (*words, "--lease", str(LEASE_S))
        if self._reference is not None and not host.is_here:
            words = (*words, *self._reference.words)
            environment |= self._reference.environment
        return replace(command, words=words, environment=environment)

    async def _load(self, agents: Sequence[int]) -> None:
        """Brings program and files to agents, all at once. What is put into the object store is put
        there anew for each that comes later: a copy on a host that died would be waited for."""
        cargo = await in_thread(lambda: self._shipped(agents), SHIP_S)
        loading = [self._slots[agent].load(each) for agent, each in zip(agents, cargo, strict=True)]
        await _all(loading)

    def _shipped(self, agents: Sequence[int]) -> list[Cargo]:
        programs: dict[str, tuple[str, str, Any]] = {}
        cargo = []
        for agent in agents:
            path = self._commands[agent].words[0]
            if path not in programs:
                program = Path(path).read_bytes()
                digest = hashlib.sha256(program).hexdigest()
                programs[path] = Path(path).name, digest, ray.put(zlib.compress(program, 1))
            paths = self._files.of(agent, len(self._commands)) if self._files else {}
            files = {there: here.read_bytes() for there, here in paths.items()}
            early = self._files.read_early if self._files else ()
            cargo.append(Cargo(*programs[path], files=ray.put(files), read_early=early))
        return cargo

    def _check_machine(self, host: Host, program: Path) -> None:
        there, here = self._facts[host.node].machine, machine_of(program)
        if here and there != here:
            text = f"{host.address} is {there}, and {program.name} is built for {here}"
            raise FleetError(text, "use hosts of one kind, and a conductor of the same")


def machine_of(program: Path) -> str:
    """The architecture that a program is built for; empty where it is no ELF file."""
    with program.open("rb") as file:
        head = file.read(20)
    number = int.from_bytes(head[18:20], "little")
    return MACHINES.get(number, "") if head.startswith(b"\x7fELF") else ""


async def _all(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Waits for all, and then raises what one of them has raised."""
    for outcome in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
