"""Assigns a host to each agent. The functions are pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pubstorm.errors import FleetError

LABEL = "pubstorm"
"""Ray's label of hosts that a scenario names: ray start --labels pubstorm=NAME."""


@dataclass(frozen=True, slots=True)
class RayHost:
    """A host of a cluster."""

    node: str
    """Ray's id of it."""
    address: str
    """Its address in the cluster."""
    is_here: bool
    """True if the controller is on it."""
    cores: int
    """Processors that it gives to the cluster."""
    free: int
    """Processors that are not reserved."""
    label: str = ""
    """Name that scenarios have for it and its like; empty: none."""
    is_for_agents: bool = True
    """False if only other hosts are marked to play agents."""

    def has(self, label: str) -> bool:
        """Returns True if a scenario means it by a name: its label or its address."""
        return label in {self.label, self.address}


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels that a scenario gives to hosts."""

    fleet: str | None = None
    """That of hosts to play on; None: hosts without one of the others, if there are such."""
    engines: frozenset[str] = frozenset()
    """Those of hosts for some populations."""
    servers: frozenset[str] = frozenset()
    """Those of hosts with servers."""


def labelled(hosts: Sequence[RayHost], label: str) -> tuple[RayHost, ...]:
    """Returns the hosts that a scenario means by a name; FleetError lists the labels of all."""
    found = tuple(host for host in hosts if host.has(label))
    if found:
        return found
    each = ", ".join(f"{host.address} has {host.label or 'none'}" for host in hosts)
    raise FleetError(
        f"found no host of the Ray cluster with the label {label}: {each}",
        f"ray start --labels {LABEL}={label} on such hosts, or name an address",
    )


def for_agents(
    hosts: Sequence[RayHost], label: str | None, of_servers: Collection[str]
) -> tuple[RayHost, ...]:
    """Returns the hosts that play agents: those of a label; without one, hosts that are marked for
    it and have none of the labels of servers, if there are any."""
    if label is not None:
        return tuple(host for host in labelled(hosts, label) if host.cores)
    found = [host for host in hosts if host.is_for_agents and host.cores]
    apart = [host for host in found if not any(host.has(each) for each in of_servers)]
    return tuple(apart or found)


def chosen(hosts: Sequence[RayHost], agents: int, spread: str) -> tuple[RayHost, ...]:
    """Returns a host for each agent, in the order of the hosts: each its own if `spread` is strict,
    else as many on one as it has free processors. FleetError lists the free processors of each."""
    room = {host: min(1, host.free) if spread == "strict" else host.free for host in hosts}
    places = [host for host, agents_max in room.items() for _ in range(agents_max)]
    if len(places) < agents:
        raise FleetError(f"found {shortage(hosts, len(places), agents, spread)}", HINTS[spread])
    return tuple(places[:agents])


def spare(
    hosts: Sequence[RayHost], lost: str, taken: Collection[str], spread: str
) -> tuple[RayHost, ...]:
    """Hosts for an agent that has lost its place on the node `lost`, the best first; `taken` are
    the nodes of the others."""
    free = [host for host in hosts if host.free and host.node != lost]
    others = [host for host in free if host.node not in taken]
    shared = [host for host in free if host.node in taken] if spread == "pack" else []
    return (*others, *shared)


def shortage(hosts: Sequence[RayHost], places: int, agents: int, spread: str) -> str:
    """Returns the number of agents with room, and the free processors of each host."""
    each = ", ".join(f"{host.address} has {host.free} of {host.cores}" for host in hosts)
    kind = "hosts with a free processor" if spread == "strict" else "free processors"
    return f"{places} {kind} for {agents} agents: {each}"


HINTS = {
    "strict": "ask for fewer (--set fleet.agents=N), put several on a host (--set "
    "fleet.spread=pack), or add hosts to the cluster",
    "pack": "ask for fewer (--set fleet.agents=N), or add hosts to the cluster",
}
