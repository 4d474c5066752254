"""The loss of single clients, from the deliveries that each received."""

from __future__ import annotations

import pytest

from pubstorm.measure.client_loss import client_losses, summed_up
from pubstorm.measure.totals import StageTotals
from pubstorm.result import ClientLoss


def stage(clients: dict[int, int], expected: int) -> StageTotals:
    """Totals of a stage whose population 1 has clients by deliveries, in two flows."""
    totals = StageTotals()
    totals.population(1).clients_by_deliveries.update(clients)
    totals.flow(0, 1).counters["expected_total"] = expected - 1
    totals.flow(1, 1).counters["expected_total"] = 1
    totals.flow(0, 0).counters["expected_total"] = 7
    return totals


def test_half_of_the_clients_lost_no_more_than_the_median() -> None:
    losses = client_losses(stage({100: 60, 90: 30, 50: 9, 0: 1}, 10_000), 1)
    assert summed_up(losses) == ClientLoss(count=100, mean=0.085, p50=0, p90=0.1, p99=0.5, max=1)


def test_more_deliveries_than_expected_are_no_loss() -> None:
    assert summed_up(client_losses(stage({101: 1, 100: 1}, 200), 1)).max == 0


@pytest.mark.parametrize(
    ("clients", "expected"), [({}, 100), ({100: 3}, 0), ({100: 3}, 299), ({0: 3}, -3)]
)
def test_no_loss_is_given_where_clients_are_not_alike(
    clients: dict[int, int], expected: int
) -> None:
    assert summed_up(client_losses(stage(clients, expected), 1)) == ClientLoss()
