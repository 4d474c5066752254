"""The loss of single clients: a distribution over the clients that expect the same messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import product

from pubstorm.contract.plan import Plan
from pubstorm.measure.group_shares import is_one_group, quantile
from pubstorm.measure.ledger import Ledger
from pubstorm.result import ClientLoss


def client_loss(
    plan: Plan, ledger: Ledger, stages: Iterable[int], populations: Iterable[int]
) -> ClientLoss:
    """Returns the losses of the clients of populations in publish stages. Shared groups are left
    out: their members expect no message of their own."""
    alike = [p for p in populations if not is_one_group(plan.populations[p])]
    losses = Counter[float]()
    for stage, population in product(stages, alike):
        losses.update(client_losses(ledger, stage, population))
    return loss_statistics(losses)


def client_losses(ledger: Ledger, stage: int, population: int) -> Counter[float]:
    """Returns the clients of a population by their loss in a publish stage, as a share of the
    deliveries that were expected for each, without wills. Returns nothing if the clients are not
    alike."""
    clients = Counter(dict(ledger.population([population], [stage]).clients_by_deliveries))
    flows = (flow.counters for flow in ledger.into([population], [stage]).values())
    expected = sum(each.expected_total - each.wills_expected_total for each in flows)
    if not clients or expected <= 0 or expected % clients.total():
        return Counter()
    each = expected // clients.total()
    losses = Counter[float]()
    for deliveries, number in clients.items():
        losses[max(0.0, 1 - deliveries / each)] += number
    return losses


def loss_statistics(losses: Counter[float]) -> ClientLoss:
    """Returns the statistics of losses, each with its number of clients."""
    count = losses.total()
    if not count:
        return ClientLoss()

    def at(share: float) -> float:
        return round(quantile(losses, share), 6)

    return ClientLoss(
        count=count,
        mean=round(sum(loss * number for loss, number in losses.items()) / count, 6),
        p50=at(0.5),
        p90=at(0.9),
        p99=at(0.99),
        max=at(1),
    )
