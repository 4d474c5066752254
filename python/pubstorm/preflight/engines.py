"""How many engines a plan asks for, and how the clients fall on them. It knows a host by two
numbers only: descriptors of a process, and cores."""

from __future__ import annotations

from math import ceil

from pubstorm.descriptors import DESCRIPTORS_KEPT, most_at_one, processes_needed
from pubstorm.errors import UsageError
from pubstorm.offered import peak_per_s
from pubstorm.plan import Plan

MESSAGES_PER_S_PER_AGENT = 60_000
"""Sent and delivered; from here on another engine is worth its core."""


def agents_needed(plan: Plan, *, descriptors: int, cores: int) -> int:
    """Engines that the plan asks for: by the descriptor limit of a process, and by load."""
    by_descriptors = processes_needed(_clients(plan), descriptors)
    if by_descriptors is None:
        raise UsageError(
            f"a process may open {descriptors} files, which is too few for an engine",
            f"ulimit -n {DESCRIPTORS_KEPT + min(plan.clients, 20_000)}",
        )
    by_load = min(cores, ceil(peak_per_s(plan) / MESSAGES_PER_S_PER_AGENT))
    return max(by_descriptors, by_load)


def agents_that_fit(plan: Plan, *, descriptors: int) -> int:
    """Engines by which each has descriptors for its share."""
    room = max(1, descriptors - DESCRIPTORS_KEPT - len(plan.populations))
    return ceil(plan.clients / room)


def largest_share(plan: Plan, agents: int) -> int:
    """Clients of agent 0, which plays the most. Clients that join in a stage are among them."""
    return most_at_one(_clients(plan), agents)


def _clients(plan: Plan) -> list[int]:
    return [population.clients for population in plan.populations]
