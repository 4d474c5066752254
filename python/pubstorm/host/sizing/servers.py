"""Hosts for the servers that a run starts, by their label: the memory of its brokers, each of
which is on one host, and nodes of a cluster of a host each. Their processors and networks are not
counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from pubstorm.contract.plan import Plan
from pubstorm.host.calibration import Costs
from pubstorm.host.preflight.engines import connections_at
from pubstorm.host.preflight.need import Appetite
from pubstorm.scenario import Scenario
from pubstorm.scenario.topology import Broker

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
    fullest_bytes: int
    """Memory of the brokers of the host that needs the most."""
    host_bytes: int
    """Memory that one host gives them."""
    hosts: int
    """Hosts that give the memory, at most one for each broker."""
    largest: int
    """Connections of the broker that has the most."""

    @property
    def is_enough(self) -> bool:
        """True if the brokers of each host fit there. A broker is on one host as a whole."""
        return self.fullest_bytes <= self.host_bytes


def server_hosts(
    scenario: Scenario,
    plan: Plan,
    costs: Costs,
    memory_bytes: int,
    appetite_of: Callable[[str], Appetite],
) -> Iterator[ServerHosts]:
    """Yields the hosts of each label, with `memory_bytes` of memory each; `appetite_of` states the
    needs of a kind of broker. Services and publishers have one host of their label."""
    brokers = scenario.topology.brokers
    publishers = sum(each.clients for each in plan.populations if each.is_publisher)
    at = connections_at(plan)
    # The targets of publishers come after those of brokers.
    first = len(at) - publishers - sum(broker.count for broker in brokers.values())
    found: dict[str, list[tuple[Broker, list[int]]]] = {each: [] for each in scenario.server_labels}
    for broker in brokers.values():
        own, first = at[first : first + broker.count], first + broker.count
        found.setdefault(broker.hosts or "", []).append((broker, own))
    gives = memory_bytes * MEMORY_SHARE
    for label, groups in sorted(found.items()):
        needs = [
            _bytes(appetite_of(broker.kind), connections, costs) for broker, connections in groups
        ]
        nodes = max((broker.count for broker, _ in groups if broker.is_cluster), default=1)
        hosts = _hosts(needs, gives, nodes) if label else 1
        yield ServerHosts(
            label=label,
            brokers=sum(broker.count for broker, _ in groups),
            bytes=round(sum(map(sum, needs))),
            fullest_bytes=round(_fullest(needs, hosts)),
            host_bytes=round(gives),
            hosts=hosts,
            largest=max((max(connections) for _, connections in groups), default=0),
        )


def _hosts(needs: Sequence[Sequence[float]], gives: float, nodes: int) -> int:
    """Returns the fewest hosts on which brokers fit that are on them in turn, at least `nodes`; if
    they fit on none, one for each broker of the largest group."""
    most = max((len(each) for each in needs), default=1)
    if _fullest(needs, most) > gives:
        return most
    least = max(nodes, ceil(sum(map(sum, needs)) / gives))
    fitting = (hosts for hosts in range(least, most) if _fullest(needs, hosts) <= gives)
    return next(fitting, most)


def _fullest(needs: Sequence[Sequence[float]], hosts: int) -> float:
    """Returns the memory that the fullest of some hosts needs."""
    return max(sum(sum(each[host::hosts]) for each in needs) for host in range(hosts))


def _bytes(appetite: Appetite, connections: Sequence[int], costs: Costs) -> Sequence[float]:
    each = appetite.client_bytes + costs.end.value
    return [appetite.bytes + number * each for number in connections]
