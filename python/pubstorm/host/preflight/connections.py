"""The number of connections that a plan makes at each target, by arithmetic."""

from __future__ import annotations

from pubstorm.contract.attachment import most_at_one
from pubstorm.contract.plan import Plan

PORTS_SHARE_EASY = 0.5
"""Share of the port range up to which connect() is fast: it looks at every second port first."""


def connections_at(plan: Plan) -> list[int]:
    """Connections of each target at the peak: of clients, silent ones of clients that vanished, and
    of bridges to the target."""
    found = [0] * len(plan.targets)
    for population in plan.populations:
        if population.is_publisher:
            continue
        at = population.at
        for target in range(at.first, min(at.first + at.count, len(found))):
            found[target] += most_at_one(at, population.connections_max)
    for bridges in plan.bridges:
        found[bridges.main] += bridges.count
    return found


def connecting(plan: Plan) -> int:
    """Number of connections of clients to targets, each with a socket of its own; publishers do not
    connect."""
    return sum(each.connections_max for each in plan.populations if not each.is_publisher)


def bridges_of(plan: Plan) -> int:
    """Bridges of a plan, each a connection of its own."""
    return sum(bridges.count for bridges in plan.bridges)
