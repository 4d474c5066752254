"""Brokers that form one cluster: an address for each, the port on which they find each other, the
secret that they share, and the order in which they come up. It knows no kind of broker."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from pubstorm.topology.ports import free_port, node_host


class Cluster:
    """What the nodes of a cluster have in common."""

    def __init__(self, group: str, count: int) -> None:
        self.names: Sequence[str] = [f"{group}-{number}" for number in range(count)]
        """The nodes, in the order of their start."""
        self.secret = secrets.token_hex(16)
        """Who knows it belongs to the cluster."""
        self.node_port = 0
        """Where each node listens for the others, on its own address; 0 before the first start."""
        self._is_there: dict[str, Callable[[], bool]] = {}
        self._up = [asyncio.Event() for _ in range(count)]

    def host(self, name: str) -> str:
        """The address of a node: one of its own, so that all of them can have the same port."""
        return node_host(self.names.index(name))

    def choose_port(self) -> None:
        """Chooses the port for all nodes; done by the first of them, before any is there."""
        self.node_port = free_port([self.host(name) for name in self.names])

    def join(self, name: str, is_there: Callable[[], bool]) -> None:
        """From now on it can be asked whether the process of a node is there."""
        self._is_there[name] = is_there

    def there(self) -> int:
        """How many nodes have a process now."""
        return sum(is_there() for is_there in self._is_there.values())

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        """A node's turn to start: the one before it is up, and it is up when this is left."""
        number = self.names.index(name)
        if number:
            await self._up[number - 1].wait()
        yield
        self._up[number].set()
