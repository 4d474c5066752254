"""The needs of brokers that the run starts, by their kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from pubstorm.scenario.topology import Topology


@dataclass(frozen=True, slots=True)
class Appetite:
    """The needs of one broker."""

    bytes: int
    """Private memory of its own and of the kernel for it."""
    threads: int
    """Threads, beside those for cores."""
    threads_per_core: int = 0
    """Threads for each core."""
    pipes: int = 0
    """Descriptors of Pubstorm for it, beside the one that stands for its process."""
    client_bytes: int = 35_000
    """Memory for each client, without the kernel's memory for its end of the connection."""


APPETITES: Mapping[str, Appetite] = {
    # 10 000 clients, half of them with a subscription, take 18 kB each.
    "embedded": Appetite(4 * 2**20, 4, threads_per_core=1, pipes=2, client_bytes=20_000),
    # Measured: 1000 of mosquitto 2.0 with a bridge each take 1.3 MiB private memory each (USS in
    # /proc/PID/smaps); the rest is allowed for what the kernel has for process and sockets.
    # A client with a subscription takes 1.2 kB.
    "mosquitto": Appetite(2 * 2**20, 1, client_bytes=1_200),
    # A client of RabbitMQ 3.10 with ten filters takes 290 kB on a node of a cluster.
    "rabbitmq": Appetite(200 * 2**20, 40, threads_per_core=4, client_bytes=300_000),
    "nats": Appetite(32 * 2**20, 8, threads_per_core=2),
    "command": Appetite(32 * 2**20, 8, threads_per_core=1),
}
"""Needs by kind of broker; high estimates for kinds that are not measured."""

Kinds = Mapping[str, int]
"""Number of brokers of each kind that a run starts."""


def broker_kinds(topology: Topology) -> Kinds:
    """Number of brokers of each kind in a topology."""
    kinds = Counter[str]()
    for broker in topology.brokers.values():
        kinds[broker.kind] += broker.count
    return kinds


def broker_bytes(kinds: Kinds) -> int:
    """Memory of all brokers without clients."""
    return sum(APPETITES[kind].bytes * count for kind, count in kinds.items())


def client_bytes(kinds: Kinds) -> int:
    """Memory of a broker for each client, of the kind that needs the most."""
    return max((APPETITES[kind].client_bytes for kind in kinds), default=0)


def broker_threads(kinds: Kinds, cores: int) -> int:
    """Threads of all brokers."""
    return sum(count * _threads(APPETITES[kind], cores) for kind, count in kinds.items())


def descriptors_for(kinds: Kinds) -> int:
    """Descriptors that Pubstorm itself has for brokers."""
    return sum((1 + APPETITES[kind].pipes) * count for kind, count in kinds.items())


def _threads(appetite: Appetite, cores: int) -> int:
    return appetite.threads + appetite.threads_per_core * cores
