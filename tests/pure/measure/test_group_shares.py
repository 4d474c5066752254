"""The shares of the members of a group, from the deliveries that each received."""

from __future__ import annotations

import pytest

from pubstorm.measure.group_shares import member_shares, summed_up
from pubstorm.measure.totals import StageTotals
from pubstorm.result import GroupShare


def stage(members: dict[int, int]) -> StageTotals:
    """Totals of a stage whose population 1 has members by deliveries."""
    totals = StageTotals()
    totals.population(1).clients_by_deliveries.update(members)
    return totals


def test_an_even_group_is_fair() -> None:
    found = summed_up(member_shares(stage({250: 4}), 1))
    assert found == GroupShare(count=4, fairness=1, min=1, p50=1, max=1)


def test_a_member_that_receives_everything_has_the_least_fairness() -> None:
    found = summed_up(member_shares(stage({1000: 1, 0: 9}), 1))
    assert found == GroupShare(count=10, fairness=0.1, min=0, p50=0, max=10)


def test_shares_are_multiples_of_the_mean() -> None:
    found = summed_up(member_shares(stage({50: 1, 100: 1, 150: 1}), 1))
    assert (found.min, found.p50, found.max) == (0.5, 1, 1.5)
    assert found.fairness == pytest.approx(3**2 / (3 * (0.25 + 1 + 2.25)), abs=1e-6)


def test_stages_with_more_messages_have_no_more_weight() -> None:
    shares = member_shares(stage({10: 1, 30: 1}), 1) + member_shares(stage({1000: 2}), 1)
    assert summed_up(shares).fairness == pytest.approx(4**2 / (4 * (0.25 + 2.25 + 2)), abs=1e-6)


@pytest.mark.parametrize("members", [{}, {0: 3}])
def test_a_group_without_deliveries_has_no_shares(members: dict[int, int]) -> None:
    assert summed_up(member_shares(stage(members), 1)) == GroupShare()
