"""The loss of single clients: a distribution over the clients that expect the same messages."""

from __future__ import annotations

from collections import Counter

from pubstorm.measure.totals import StageTotals
from pubstorm.result import ClientLoss


def client_losses(totals: StageTotals, population: int) -> Counter[float]:
    """Returns the clients of a population by their loss in a publish stage, as a share of the
    deliveries that were expected for each. Returns nothing if the clients are not alike."""
    clients = totals.population(population).clients_by_deliveries
    expected = sum(
        flow.counters["expected_total"]
        for (_, to), flow in totals.flows.items()
        if to == population
    )
    if not clients or expected <= 0 or expected % clients.total():
        return Counter()
    each = expected // clients.total()
    losses = Counter[float]()
    for deliveries, number in clients.items():
        losses[max(0.0, 1 - deliveries / each)] += number
    return losses


def summed_up(losses: Counter[float]) -> ClientLoss:
    """Returns the statistics of losses, each with its number of clients."""
    count = losses.total()
    if not count:
        return ClientLoss()

    def quantile(share: float) -> float:
        reached = 0
        for loss, number in sorted(losses.items()):
            reached += number
            if reached >= share * count:
                return round(loss, 6)
        return round(max(losses), 6)

    return ClientLoss(
        count=count,
        mean=round(sum(loss * number for loss, number in losses.items()) / count, 6),
        p50=quantile(0.5),
        p90=quantile(0.9),
        p99=quantile(0.99),
        max=quantile(1),
    )
