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
ZMTP_MESSAGES_PER_S_PER_AGENT = 2_000_000
"""Delivered by publishers of ZeroMQ, many with each read."""


def agents_needed(plan: Plan, *, descriptors: int, cores: int) -> int:
    """Engines that the plan asks for: by the descriptor limit of a process, and by load."""
    by_descriptors = processes_needed(_clients(plan), descriptors)
    if by_descriptors is None:
        raise UsageError(
            f"a process may open {descriptors} files, which is too few for an engine",
            f"ulimit -n {DESCRIPTORS_KEPT + min(sum(_clients(plan)), 20_000)}",
        )
    publishers = sum(each.clients for each in plan.populations if each.is_publisher)
    each_per_s = ZMTP_MESSAGES_PER_S_PER_AGENT if publishers else MESSAGES_PER_S_PER_AGENT
    # What is under test on this host is to have its core, too.
    by_load = min(max(1, cores - publishers), ceil(peak_per_s(_played(plan)) / each_per_s))
    return max(by_descriptors, by_load)


def agents_that_fit(plan: Plan, *, descriptors: int) -> int:
    """Engines by which each has descriptors for its share."""
    room = max(1, descriptors - DESCRIPTORS_KEPT - len(plan.populations))
    return max(1, ceil(sum(_clients(plan)) / room))


def largest_share(plan: Plan, agents: int) -> int:
    """Clients of agent 0, which plays the most. Clients that join in a stage are among them."""
    return most_at_one(_clients(plan), agents)


def _played(plan: Plan) -> Plan:
    """The plan without what other programs receive."""
    others = {"subscriptions": ()}
    populations = tuple(
        each if each.player == "engine" else each.model_copy(update=others)
        for each in plan.populations
    )
    return plan.model_copy(update={"populations": populations})


def _clients(plan: Plan) -> list[int]:
    """Clients that engines play."""
    return [each.clients if each.player == "engine" else 0 for each in plan.populations]
