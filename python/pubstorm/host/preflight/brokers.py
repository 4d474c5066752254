"""The needs of brokers that the run starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Appetite:
    """The needs of one broker; high estimates for a kind that is not measured."""

    bytes: int
    """Private memory of its own and of the kernel for it."""
    threads: int
    """Threads, beside those for cores."""
    threads_per_core: int = 0
    """Threads for each core."""
    pipes: int = 0
    """Descriptors of Pubstorm for it, beside the one that stands for its process. A broker with
    pipes ends when they are closed; for the others the host needs `setpriv`."""
    client_bytes: int = 35_000
    """Memory for each client, without the kernel's memory for its end of the connection."""


Kinds = Mapping[Appetite, int]
"""Number of brokers that a run starts, by the needs of their kind."""


def broker_bytes(kinds: Kinds) -> int:
    """Memory of all brokers without clients."""
    return sum(kind.bytes * count for kind, count in kinds.items())


def client_bytes(kinds: Kinds) -> int:
    """Memory of a broker for each client, of the kind that needs the most."""
    return max((kind.client_bytes for kind in kinds), default=0)


def broker_threads(kinds: Kinds, cores: int) -> int:
    """Threads of all brokers."""
    return sum(n * (kind.threads + kind.threads_per_core * cores) for kind, n in kinds.items())


def descriptors_for(kinds: Kinds) -> int:
    """Descriptors that Pubstorm itself has for brokers."""
    return sum((1 + kind.pipes) * count for kind, count in kinds.items())
