"""The distribution of the deliveries to a shared group over its members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import product
from math import fsum

from pubstorm.contract.plan import Plan, PlannedPopulation
from pubstorm.measure.ledger import Ledger
from pubstorm.result import GroupShare


def is_one_group(population: PlannedPopulation) -> bool:
    """True if its clients are members of one shared group and have no other filter."""
    filters = [subscription.filter for subscription in population.subscriptions]
    return len(filters) == 1 and filters[0].startswith("$share/")


def joins_groups(plan: Plan, population: int, others: Iterable[int]) -> bool:
    """True if each filter of a population is that of a shared group with members in the other
    populations too, so that they receive what its clients do not."""
    filters = {each.filter for each in plan.populations[population].subscriptions}
    theirs = {each.filter for n in others for each in plan.populations[n].subscriptions}
    return filters <= theirs and all(text.startswith("$share/") for text in filters)


def group_share(
    plan: Plan, ledger: Ledger, stages: Iterable[int], populations: Iterable[int]
) -> GroupShare:
    """Returns the shares of the members among the clients of populations in publish stages."""
    grouped = [p for p in populations if is_one_group(plan.populations[p])]
    shares = Counter[float]()
    for stage, population in product(stages, grouped):
        shares.update(member_shares(ledger, stage, population))
    return share_statistics(shares)


def member_shares(ledger: Ledger, stage: int, population: int) -> Counter[float]:
    """Returns the members of a group by their deliveries in a publish stage, as multiples of the
    mean. Returns nothing if the agents did not count them, or nothing was delivered."""
    members = Counter(dict(ledger.population([population], [stage]).clients_by_deliveries))
    delivered = sum(deliveries * number for deliveries, number in members.items())
    if not delivered:
        return Counter()
    mean = delivered / members.total()
    shares = Counter[float]()
    for deliveries, number in members.items():
        shares[deliveries / mean] += number
    return shares


def share_statistics(shares: Counter[float]) -> GroupShare:
    """Returns the statistics of shares, each with its number of members. The fairness is the index
    of Jain, Chiu and Hawe (DEC Research Report TR-301, 1984)."""
    count = shares.total()
    if not count:
        return GroupShare()
    total = fsum(share * number for share, number in shares.items())
    squares = fsum(share * share * number for share, number in shares.items())
    return GroupShare(
        count=count,
        fairness=round(total * total / (count * squares), 6),
        min=round(min(shares), 6),
        p50=round(quantile(shares, 0.5), 6),
        max=round(max(shares), 6),
    )


def quantile(clients: Counter[float], share: float) -> float:
    """Returns the value that this share of the clients, above 0 and at most 1, does not exceed.
    `clients` are numbers of clients by their value, not empty."""
    reached, count = 0, clients.total()
    for value, number in sorted(clients.items()):
        reached += number
        if reached >= share * count:
            return value
    return max(clients)
