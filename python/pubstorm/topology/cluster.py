"""Brokers that form one cluster: an address for each, the port on which they find each other, their
shared secret, and the order of their start."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from pubstorm.errors import TopologyError
from pubstorm.host.machine import Machine
from pubstorm.host.ports import free_port
from pubstorm.topology.ports import node_host

NODE_PORT_TRIES = 20
"""Ports tried for nodes on several hosts."""


class Cluster:
    """Common properties of the nodes of a cluster."""

    def __init__(self, group: str, count: int) -> None:
        self.names: Sequence[str] = [f"{group}-{number}" for number in range(count)]
        """The nodes, in the order of their start."""
        self.secret = secrets.token_hex(16)
        """Secret that the nodes of the cluster share."""
        self.node_port = 0
        """Port of each node for the others, on its own address; 0 before the first start."""
        self._machines: dict[str, Machine] = {}
        self._is_there: dict[str, Callable[[], bool]] = {}
        self._up = [asyncio.Event() for _ in range(count)]

    def host(self, name: str) -> str:
        """The address of a node: one of its own, so that all of them can have the same port."""
        if name in self._machines:
            return self._machines[name].address
        return node_host(self.names.index(name))

    def put(self, name: str, machine: Machine) -> None:
        """Puts a node on a host of its own; raises TopologyError if that has another node."""
        if machine in self._machines.values():
            text = f"broker {name}: the nodes of a cluster need a host each, and {machine.address}"
            raise TopologyError(f"{text} has one already", "give its label to more hosts")
        self._machines[name] = machine

    async def choose_port(self) -> None:
        """Chooses the port for all nodes; done by the first of them, before any runs."""
        if not self._machines:
            self.node_port = free_port([self.host(name) for name in self.names])
            return
        first, *others = self._machines.values()
        for _ in range(NODE_PORT_TRIES):
            self.node_port = await first.free_port()
            if all([await machine.is_free(self.node_port) for machine in others]):
                return
        raise TopologyError(f"found no port that is free on all hosts of {', '.join(self.names)}")

    def join(self, name: str, is_there: Callable[[], bool]) -> None:
        """Takes a function that returns True while the process of a node runs."""
        self._is_there[name] = is_there

    def there(self) -> int:
        """Returns the number of nodes that have a process now."""
        return sum(is_there() for is_there in self._is_there.values())

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        """A node's turn to start: the one before it is up, and it is up when this is left."""
        number = self.names.index(name)
        if number:
            await self._up[number - 1].wait()
        yield
        self._up[number].set()
