"""The agents of a run on a Ray cluster: a host for each, program and files there, the reference
clock for other hosts, another host for a failed agent, and a watch on the head."""

from __future__ import annotations

import asyncio
import hashlib
import time
import zlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray

from pubstorm.contract.plan import Plan
from pubstorm.errors import FleetError
from pubstorm.fleet.incarnation import Slot
from pubstorm.fleet.local import log_name
from pubstorm.fleet.ray.choice import (
    Labels,
    RayHost,
    chosen,
    for_agents,
    labelled,
    shortage,
    spare,
)
from pubstorm.fleet.ray.cluster import LOOK, RayCluster, Room, in_thread
from pubstorm.fleet.ray.hosts import Cargo, RaySlot
from pubstorm.fleet.reference import ReferenceClock
from pubstorm.fleet.site import AgentCommand, PlanFiles
from pubstorm.host.binaries import engine_path
from pubstorm.host.ends import end_tasks
from pubstorm.host.preflight.needs import AgentHost
from pubstorm.scenario.fleet import Spread

LEASE_S = 4
"""Time without a line from the controller after which an agent stops."""
LEAVING_S = 2.0
"""Longest time for its clients to leave then."""
PLACE_S = 60.0
"""Longest wait of all agents together for their room."""
SPARE_S = 5.0
"""Longest wait of a replacement for room on one host."""
SHIP_S = 60.0
"""Longest time to put program and files into the object store."""
LOOK_S = 1.0
"""Interval of checks of the head, and longest time to take a connection."""
GONE_S = 10.0
"""Time without a connection after which the head counts as gone."""
MACHINES = {62: "x86_64", 183: "aarch64", 243: "riscv64"}
"""Architectures, by the number in the head of an ELF file."""


class RaySite:
    """The hosts of a Ray cluster of which this host is one."""

    def __init__(
        self,
        address: str | None,
        spread: Spread,
        logs: Path,
        labels: Labels | None = None,
    ) -> None:
        """`address`: `HOST:PORT` of the cluster's head; None: the cluster that this host is in."""
        self._labels = labels or Labels()
        self._nodes: dict[str | None, Sequence[str]] = {}
        self._cluster = RayCluster(address)
        self._spread: Spread = spread
        self._logs = logs
        self._facts: dict[str, AgentHost] = {}
        self._files: PlanFiles | None = None
        self._commands: list[AgentCommand] = []
        self._slots: dict[int, RaySlot] = {}
        self._former: list[RaySlot] = []
        self._programs: list[RaySlot] = []
        self._reference: ReferenceClock | None = None
        self._head: HeadWatch | None = None

    def hosts(self, label: str | None) -> Sequence[AgentHost]:
        """Returns the hosts of a label, or of the fleet, that have answered."""
        return tuple(self._facts[node] for node in self._nodes[label] if node in self._facts)

    async def open(self) -> None:
        """Joins the cluster and asks its hosts what they are."""
        await self._cluster.join()
        self._head = HeadWatch(self._cluster.address, self._give_up)
        by_label = {label: await self._hosts(label) for label in (None, *self._labels.engines)}
        self._nodes = {label: [h.node for h in found] for label, found in by_label.items()}
        every = {host.node: host for found in by_label.values() for host in found}
        self._facts = await self._cluster.facts(tuple(every.values()))
        for label, found in by_label.items():
            if not self.hosts(label):
                names = ", ".join(host.address for host in found)
                raise FleetError(f"no host of the Ray cluster answers: {names}", LOOK)

    def localised(self, plan: Plan) -> Plan:
        """The plan with the paths that files have in an agent's folder."""
        away = [host.address for host in self._facts.values() if host.address]
        for target in plan.targets:
            if away and target.is_loopback:
                raise FleetError(
                    f"agents on {', '.join(away[:3])} do not reach {target.host}:{target.port} of "
                    "this host",
                    "name a target that they reach, or let the run start the broker",
                )
        self._files = PlanFiles(plan)
        return self._files.plan

    async def place(self, commands: Sequence[AgentCommand]) -> Sequence[Slot]:
        """Returns a place for each agent, with program and files there."""
        self._commands = list(commands)
        rooms: dict[int, Room] = {}
        for label in dict.fromkeys(command.hosts for command in commands):
            agents = [agent for agent, each in enumerate(commands) if each.hosts == label]
            own = [commands[agent] for agent in agents]
            rooms |= zip(agents, await self._reserved(own, label), strict=True)
        await self._settle(rooms)
        return tuple(self._slots[agent] for agent in range(len(commands)))

    async def _reserved(
        self, commands: Sequence[AgentCommand], label: str | None
    ) -> Sequence[Room]:
        where = chosen(await self._answering(label), len(commands), self._spread)
        for host, command in zip(where, commands, strict=True):
            _check_machine(self._facts[host.node], Path(command.words[0]))
        try:
            return await self._cluster.reserve(where, self._spread, PLACE_S)
        except TimeoutError:
            there = await self._answering(label)
            found = shortage(there, len(where), len(commands), self._spread)
            text = f"got no room on the Ray cluster within {PLACE_S:.0f} s: {found}"
            raise FleetError(text, LOOK) from None

    async def place_programs(
        self, commands: Sequence[AgentCommand], addresses: Sequence[str]
    ) -> Sequence[Slot]:
        """Returns a place on the host with its address for each program that is no engine. It takes
        no processor from engines."""
        hosts = await self._cluster.all_hosts()
        where = [labelled(hosts, address)[0] for address in addresses]
        facts = await self._cluster.facts(tuple({host.node: host for host in where}.values()))
        for host, command in zip(where, commands, strict=True):
            if host.node not in facts:
                raise FleetError(f"no answer from {host.address} of the Ray cluster", LOOK)
            _check_machine(facts[host.node], Path(command.words[0]))
        await self._follow_reference(where)
        slots = []
        for worker, host, command in zip(
            await self._cluster.pinned(where), where, commands, strict=True
        ):
            log = self._logs / log_name(command.title)
            room = Room(host, None, 0)
            slots.append(RaySlot(worker, room, self._with_options(command, host), log))
        self._programs += slots
        files = self._files.shared if self._files else {}
        await self._load([(slot, files) for slot in slots])
        return slots

    async def replace(self, agent: int) -> Slot:
        """Returns another place for an agent, on another host if there is one, once the failed
        agent certainly plays no client."""
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
        slots = (*self._slots.values(), *self._former, *self._programs)
        await asyncio.gather(*(slot.gone() for slot in slots))
        if self._reference is not None:
            await self._reference.close()
        await self._cluster.leave()

    def _give_up(self, why: str) -> None:
        for slot in (*self._slots.values(), *self._programs):
            slot.give_up(why)

    async def _hosts(self, label: str | None) -> tuple[RayHost, ...]:
        """The hosts of a label, or of the fleet, that may play agents, and what each has free
        now."""
        apart = self._labels.engines | self._labels.servers
        every = await self._cluster.all_hosts()
        hosts = for_agents(every, label or self._labels.fleet, apart)
        if not hosts:
            message = "found no host with processors for agents in the Ray cluster"
            raise FleetError(message, "ray start --address HEAD:PORT on each host")
        return hosts

    async def _answering(self, label: str | None) -> tuple[RayHost, ...]:
        """The hosts as they are now, of those that answered at first."""
        return tuple(host for host in await self._hosts(label) if host.node in self._facts)

    async def _other_room(self, old: RaySlot) -> Room:
        taken = {slot.room.host.node for slot in self._slots.values() if slot is not old}
        there = await self._answering(old.command.hosts)
        hosts = spare(there, old.room.host.node, taken, self._spread)
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
        await self._follow_reference([room.host for room in rooms.values()])
        workers = await self._cluster.workers(list(rooms.values()))
        for worker, (agent, room) in zip(workers, rooms.items(), strict=True):
            command = self._commands[agent]
            suffix = f" {command.incarnation}" if command.incarnation else ""
            log = self._logs / log_name(command.title + suffix)
            self._slots[agent] = RaySlot(worker, room, self._with_options(command, room.host), log)
        await self._load([(self._slots[agent], self._files_of(agent)) for agent in rooms])

    def _files_of(self, agent: int) -> Mapping[str, Path]:
        command = self._commands[agent]
        share = command.share or (agent, len(self._commands))
        return self._files.of(*share, command.populations) if self._files else {}

    async def _follow_reference(self, hosts: Sequence[RayHost]) -> None:
        """Starts the reference clock, if one of the hosts needs it and it is not started."""
        if self._reference is None and not all(host.is_here for host in hosts):
            self._reference = ReferenceClock(engine_path(), self._logs / "reference.log")
            await self._reference.start(self._cluster.here)

    def _with_options(self, command: AgentCommand, host: RayHost) -> AgentCommand:
        """Returns the further options of agents on a cluster."""
        words, environment = command.words, dict(command.environment)
        if "--lease" not in words:
            words = (*words, "--lease", str(LEASE_S))
        if self._reference is not None and not host.is_here:
            words = (*words, *self._reference.words)
            environment |= self._reference.environment
        return replace(command, words=words, environment=environment)

    async def _load(self, slots: Sequence[tuple[RaySlot, Mapping[str, Path]]]) -> None:
        """Brings programs and files to slots, all at once. Each later slot gets new copies in the
        object store: it would wait for a copy on a host that died."""
        cargo = await in_thread(lambda: self._shipped(slots), SHIP_S)
        await _all([slot.load(each) for (slot, _), each in zip(slots, cargo, strict=True)])

    def _shipped(self, slots: Sequence[tuple[RaySlot, Mapping[str, Path]]]) -> list[Cargo]:
        programs: dict[str, tuple[str, str, Any]] = {}
        cargo = []
        for slot, paths in slots:
            path = slot.command.words[0]
            if path not in programs:
                program = Path(path).read_bytes()
                digest = hashlib.sha256(program).hexdigest()
                programs[path] = Path(path).name, digest, ray.put(zlib.compress(program, 1))
            files = {there: here.read_bytes() for there, here in paths.items()}
            early = self._files.read_early if self._files else ()
            cargo.append(Cargo(*programs[path], files=ray.put(files), read_early=early))
        return cargo


class HeadWatch:
    """Looks whether the head of the cluster still takes connections. Without its head Ray continues
    for a minute and then ends the program that called it, with all measurements."""

    def __init__(self, address: str, gone: Callable[[str], None]) -> None:
        """`address` is `HOST:PORT` of its GCS. `gone` is called once, with words."""
        host, _, port = address.rpartition(":")
        self._place = host.strip("[]"), int(port)
        self._gone = gone
        self._task = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Looks no longer."""
        await end_tasks([self._task])

    async def _watch(self) -> None:
        clock = asyncio.get_running_loop().time
        there_s = clock()
        while clock() - there_s < GONE_S:
            if await self._is_there():
                there_s = clock()
            await asyncio.sleep(LOOK_S)
        host, port = self._place
        self._gone(f"the head of the Ray cluster, {host}:{port}, is gone")

    async def _is_there(self) -> bool:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(LOOK_S):
                _, writer = await asyncio.open_connection(*self._place)
            writer.close()
            return True
        return False


def _check_machine(host: AgentHost, program: Path) -> None:
    """Raises FleetError if a program is not built for a host."""
    there, here = host.machine, machine_of(program)
    if here and there != here:
        where = host.address or "this host"
        text = f"{where} is {there}, and {program.name} is built for {here}"
        raise FleetError(text, "use hosts of one kind, and a controller of the same")


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
