"""Hosts for the brokers that a run starts, by their label: what the brokers need of memory, and
nodes of a cluster of a host each. Their processors and networks are not counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from pubstorm.contract.plan import Plan
from pubstorm.host.costs import Costs
from pubstorm.host.preflight.brokers import APPETITES
from pubstorm.host.preflight.connections import connections_at
from pubstorm.scenario.topology import Broker, Topology

MEMORY_SHARE = 0.8
"""Share of a host's memory for brokers."""


@dataclass(frozen=True, slots=True)
class ServerHosts:
    """Hosts of one label."""

    label: str
    """The label; empty: the controller's host."""
    brokers: int
    """Brokers on them."""
    bytes: int
    """Memory of these with their connections."""
    hosts: int
    """Hosts that give it."""
    largest: int
    """Connections of the broker that has the most."""

    @property
    def is_enough(self) -> bool:
        """True if the label can have so many hosts: there is one controller."""
        return bool(self.label) or self.hosts <= 1


def server_hosts(
    topology: Topology, plan: Plan, costs: Costs, host_bytes: int
) -> Iterator[ServerHosts]:
    """Yields the hosts of each label, with `host_bytes` of memory each."""
    publishers = sum(each.clients for each in plan.populations if each.is_publisher)
    at = connections_at(plan)
    # The targets of publishers come after those of brokers.
    first = len(at) - publishers - sum(broker.count for broker in topology.brokers.values())
    found: dict[str, list[tuple[Broker, list[int]]]] = {}
    for broker in topology.brokers.values():
        own, first = at[first : first + broker.count], first + broker.count
        found.setdefault(broker.hosts or "", []).append((broker, own))
    for label, groups in sorted(found.items()):
        needed = sum(_bytes(broker, connections, costs) for broker, connections in groups)
        nodes = max((broker.count for broker, _ in groups if broker.is_cluster), default=1)
        yield ServerHosts(
            label=label,
            brokers=sum(broker.count for broker, _ in groups),
            bytes=round(needed),
            hosts=max(ceil(needed / (host_bytes * MEMORY_SHARE)), nodes),
            largest=max(each for _, connections in groups for each in connections),
        )


def _bytes(broker: Broker, connections: list[int], costs: Costs) -> float:
    appetite = APPETITES[broker.kind]
    each = appetite.client_bytes + costs.end.value
    return broker.count * appetite.bytes + sum(connections) * each
