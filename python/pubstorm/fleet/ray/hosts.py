"""Hosts of a Ray cluster that servers of a run are on. Each gets a deputy, as an actor's program;
the controller's own host needs none."""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import ray

from pubstorm.fleet.ray.choice import RayHost, labelled
from pubstorm.fleet.ray.cluster import RayCluster, Room, in_thread
from pubstorm.fleet.ray.slot import Cargo, RaySlot
from pubstorm.fleet.site import AgentCommand
from pubstorm.host.deputy.archive import NAME, pack
from pubstorm.host.deputy.remote import SILENT_S, RemoteMachine, lease_s
from pubstorm.host.machine import LocalMachine, Machine

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
