"""The target that a client connects to, as in `crates/plan/src/schedule/attachment.rs`: a pure
function of the plan's seed, the population and the client.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, sqrt

from pubstorm.contract.plan import Plan, PlannedAttachment
from pubstorm.contract.random import mix as _mix


def target_of(plan: Plan, population: int, client: int) -> int:
    """Index of the target of a client of the population with this index."""
    at = plan.populations[population].at
    if at.choice == "turn":
        return at.first + (client + at.shift) % at.count
    drawn = _mix(_mix(plan.seed ^ _mix(PURPOSE + population)) ^ _mix(client))
    return at.first + (drawn * at.count >> 64)


def clients_at(plan: Plan, population: int, target: int) -> Sequence[int]:
    """The clients of the population with this index that connect to a target."""
    at, clients = plan.populations[population].at, plan.populations[population].clients
    if not at.first <= target < at.first + at.count:
        return ()
    if at.choice == "turn":
        return range((target - at.first - at.shift) % at.count, clients, at.count)
    return tuple(c for c in range(clients) if target_of(plan, population, c) == target)


def most_at_one(at: PlannedAttachment, clients: int) -> int:
    """Returns the largest number of clients at one of their targets. If targets are drawn, it is
    four standard deviations above the mean."""
    mean = clients / at.count
    spread = 4 * sqrt(mean) if at.choice == "random" and at.count > 1 else 0
    return min(clients, ceil(mean + spread))


def most_at_a_target(among: Sequence[tuple[PlannedAttachment, int]]) -> int:
    """Returns the largest number of clients at a target, by the attachments and their clients."""
    starts = {at.first for at, _ in among}
    at_each = (
        sum(most_at_one(a, n) for a, n in among if a.first <= target < a.first + a.count)
        for target in starts
    )
    return max(at_each, default=0)


PURPOSE = 1 << 40
"""Separates these draws from the draws of publications."""
