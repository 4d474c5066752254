"""How many connections a plan makes at each target, by arithmetic. It knows no host."""

from __future__ import annotations

from pubstorm.plan import Plan, most_at_one


def connections_at(plan: Plan) -> list[int]:
    """Connections that each target has at the peak: of clients, and of bridges that lead to it."""
    found = [0] * len(plan.targets)
    for population in plan.populations:
        if population.is_publisher:
            continue
        at = population.at
        for target in range(at.first, min(at.first + at.count, len(found))):
            found[target] += most_at_one(at, population.clients)
    for bridges in plan.bridges:
        found[bridges.main] += bridges.count
    return found


def connecting(plan: Plan) -> int:
    """Clients that connect to somewhere, each with a socket of its own: publishers do not."""
    return sum(each.clients for each in plan.populations if not each.is_publisher)


def bridges_of(plan: Plan) -> int:
    """Bridges of a plan, each a connection of its own."""
    return sum(bridges.count for bridges in plan.bridges)
