"""How many engines a plan asks for, and how the clients fall on them. It knows a host by two
numbers only: descriptors of a process, and cores."""

from __future__ import annotations

from math import ceil

from pubstorm.errors import UsageError
from pubstorm.offered import peak_per_s
from pubstorm.plan import Plan

DESCRIPTORS_KEPT = 200
"""Left to a process for everything that is no client."""
MESSAGES_PER_S_PER_AGENT = 60_000
"""Sent and delivered; from here on another engine is worth its core."""


def agents_needed(plan: Plan, *, descriptors: int, cores: int) -> int:
    """Engines that the plan asks for: by the descriptor limit of a process, and by load."""
    room = descriptors - DESCRIPTORS_KEPT
    if room < len(plan.populations):
        raise UsageError(
            f"a process may open {descriptors} files, which is too few for an engine",
            f"ulimit -n {DESCRIPTORS_KEPT + min(plan.clients, 20_000)}",
        )
    by_load = min(cores, ceil(peak_per_s(plan) / MESSAGES_PER_S_PER_AGENT))
    agents = max(1, by_load, ceil(plan.clients / room))
    while largest_share(plan, agents) > room:
        agents += 1
    return agents


def agents_that_fit(plan: Plan, *, descriptors: int) -> int:
    """Engines by which each has descriptors for its share."""
    room = max(1, descriptors - DESCRIPTORS_KEPT - len(plan.populations))
    return ceil(plan.clients / room)


def largest_share(plan: Plan, agents: int) -> int:
    """Clients of agent 0, which plays the most. Clients that join in a stage are among them."""
    return sum(ceil(population.clients / agents) for population in plan.populations)
