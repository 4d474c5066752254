"""Which host each agent is on. Pure: it asks no cluster."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pubstorm.errors import FleetError


@dataclass(frozen=True, slots=True)
class Host:
    """A host of a cluster."""

    node: str
    """Ray's id of it."""
    address: str
    """Its address in the cluster."""
    is_here: bool
    """Whether the conductor is on it."""
    cores: int
    """Processors that it gives to the cluster."""
    free: int
    """Those of them that nobody has reserved."""


def chosen(hosts: Sequence[Host], agents: int, spread: str) -> tuple[Host, ...]:
    """A host for each agent, in the order of the hosts: each its own where `spread` is strict, else
    as many on one as it has free processors. FleetError says what each has free."""
    room = {host: min(1, host.free) if spread == "strict" else host.free for host in hosts}
    places = [host for host, agents_max in room.items() for _ in range(agents_max)]
    if len(places) < agents:
        raise FleetError(f"found {shortage(hosts, len(places), agents, spread)}", HINTS[spread])
    return tuple(places[:agents])


def spare(
    hosts: Sequence[Host], lost: str, taken: Collection[str], spread: str
) -> tuple[Host, ...]:
    """Hosts for an agent that has lost its place on the node `lost`, the best first; `taken` are
    the nodes of the others."""
    free = [host for host in hosts if host.free and host.node != lost]
    others = [host for host in free if host.node not in taken]
    shared = [host for host in free if host.node in taken] if spread == "pack" else []
    return (*others, *shared)


def shortage(hosts: Sequence[Host], places: int, agents: int, spread: str) -> str:
    """How many agents there is room for, and what each host has free."""
    each = ", ".join(f"{host.address} has {host.free} of {host.cores}" for host in hosts)
    kind = "hosts with a free processor" if spread == "strict" else "free processors"
    return f"{places} {kind} for {agents} agents: {each}"


HINTS = {
    "strict": "ask for fewer (--set fleet.agents=N), put several on a host (--set "
    "fleet.spread=pack), or add hosts to the cluster",
    "pack": "ask for fewer (--set fleet.agents=N), or add hosts to the cluster",
}
