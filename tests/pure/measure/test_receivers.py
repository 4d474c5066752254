"""The loss of single clients and the shares of the members of a group: from deliveries to each."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pubstorm.contract.snapshot import Snapshot
from pubstorm.contract.sums import RunSum
from pubstorm.measure.ledger import (
    Ledger,
    client_losses,
    loss_statistics,
    member_shares,
    share_statistics,
)
from pubstorm.measure.run_log import RunLog
from pubstorm.metrics import OF_POPULATIONS
from pubstorm.result import ClientLoss, GroupShare
from pubstorm.result.figures import together
from tests.kit import made

SCENARIO = """
target: mqtt://127.0.0.1:1883
populations:
  device: {{clients: 1, publications: [{{topic: t, rate: 1/s, {payload}}}]}}
  backend: {{clients: 2, subscriptions: ["{filter}"]}}
stages: [connect, {{publish: 9s}}, {{publish: 9s}}]
"""
NO_STAMP = {"payload": "payload: hello", "filter": "t"}
"""Messages without a place for a stamp."""


def stage(clients: dict[int, int], expected: int = 0, wills: int = 0) -> Ledger:
    """The ledger of stage 0, whose population 1 has clients by deliveries, in two flows; the second
    one has wills too."""
    subscribers = made.population().model_copy(
        update={"clients_by_deliveries": tuple(clients.items())}
    )
    flows = (
        made.flow(0, 1, expected_total=expected - 1),
        made.flow(1, 1, expected_total=1 + wills, wills_expected_total=wills),
        made.flow(0, 0, expected_total=7),
    )
    snapshot = made.snapshot(made.population(), subscribers, from_ns=0, stage=0, flows=flows)
    return Ledger(made.sums([snapshot]), made.plan(), RunLog(0))


def test_half_of_the_clients_lost_no_more_than_the_median() -> None:
    losses = client_losses(stage({100: 60, 90: 30, 50: 9, 0: 1}, 10_000), 0, 1)
    assert loss_statistics(losses) == ClientLoss(
        count=100, mean=0.085, p50=0, p90=0.1, p99=0.5, max=1
    )


def test_wills_are_no_deliveries_that_clients_lost() -> None:
    assert client_losses(stage({100: 2}, 200, wills=50), 0, 1) == {0.0: 2}


def test_more_deliveries_than_expected_are_no_loss() -> None:
    assert loss_statistics(client_losses(stage({101: 1, 100: 1}, 200), 0, 1)).max == 0


@pytest.mark.parametrize(
    ("clients", "expected"), [({}, 100), ({100: 3}, 0), ({100: 3}, 299), ({0: 3}, -3)]
)
def test_no_loss_is_given_where_clients_are_not_alike(
    clients: dict[int, int], expected: int
) -> None:
    assert loss_statistics(client_losses(stage(clients, expected), 0, 1)) == ClientLoss()


@pytest.mark.parametrize(
    ("members", "shares"),
    [
        ({250: 4}, GroupShare(count=4, fairness=1, min=1, p50=1, max=1)),
        # A member that receives everything has the least fairness.
        ({1000: 1, 0: 9}, GroupShare(count=10, idle=9, fairness=0.1, min=0, p50=0, max=10)),
        ({}, GroupShare()),
        ({0: 3}, GroupShare()),
    ],
)
def test_an_even_group_is_fair(members: dict[int, int], shares: GroupShare) -> None:
    assert share_statistics(member_shares(stage(members), 0, 1)) == shares


def test_idle_members_of_several_populations_add_up() -> None:
    idle = OF_POPULATIONS["idle_members"]
    groups = [share_statistics(member_shares(stage({5: 1, 0: n}), 0, 1)) for n in (2, 3)]
    places = [SimpleNamespace(group_share=share) for share in (*groups, GroupShare())]
    assert together(idle, places) == 5
    assert together(idle, places[2:]) is None


def test_shares_are_multiples_of_the_mean() -> None:
    found = share_statistics(member_shares(stage({50: 1, 100: 1, 150: 1}), 0, 1))
    assert (found.min, found.p50, found.max) == (0.5, 1, 1.5)
    assert found.fairness == pytest.approx(3**2 / (3 * (0.25 + 1 + 2.25)), abs=1e-6)


def test_stages_with_more_messages_have_no_more_weight() -> None:
    shares = member_shares(stage({10: 1, 30: 1}), 0, 1) + member_shares(stage({1000: 2}), 0, 1)
    assert share_statistics(shares).fairness == pytest.approx(
        4**2 / (4 * (0.25 + 2.25 + 2)), abs=1e-6
    )


@pytest.mark.parametrize(
    ("texts", "stages", "lost", "surplus"),
    [
        # One client has 25 twice, the other lost 25, or one of many.
        (NO_STAMP, [{125: 1, 75: 1}], 25, 25),
        (NO_STAMP, [{125: 1, 85: 1}], 15, 25),
        (NO_STAMP, [{105: 1, 75: 1}], 25, 5),
        (NO_STAMP, [{125: 2}], 0, 50),
        (NO_STAMP, [{100: 2}], 0, 0),
        (NO_STAMP, [{75: 2}], 50, 0),
        # A late message arrives in the next stage. The missing message can be that one.
        (NO_STAMP, [{75: 2}, {125: 2}], 0, 0),
        (NO_STAMP, [{75: 2}, {150: 1, 75: 1}], 25, 0),
        (NO_STAMP, [{125: 1, 75: 1}, {125: 1, 75: 1}], 25, 25),
        (NO_STAMP, [{75: 1, 100: 1}, {150: 1, 75: 1}], 25, 25),
        # A stamp says which came late or twice, and members of a group share what comes.
        ({**NO_STAMP, "payload": "size: 32B"}, [{125: 1, 75: 1}], 0, 0),
        ({**NO_STAMP, "filter": "$share/g/t"}, [{125: 1, 75: 1}], 0, 0),
    ],
)
def test_what_one_client_received_twice_hides_nothing_that_another_lost(
    texts: dict[str, str], stages: list[dict[int, int]], lost: int, surplus: int
) -> None:
    snapshots = [counted(*each) for each in enumerate(stages, start=1)]
    ledger = Ledger(made.sums(snapshots), made.compiled(SCENARIO.format(**texts)), RunLog(0))
    assert (ledger.lost([(0, 1)]), ledger.surplus((0, 1)).total) == (lost, surplus)
    (flow,) = ledger.flows().values()
    assert flow.counters.expected_total == flow.counters.received_total + lost
    came = sum(each.flows[0].counters.received_total for each in snapshots)
    assert flow.counters.received_total == came - surplus


def test_what_came_early_or_late_did_not_come_twice() -> None:
    """An agent that enters the second stage late counts its first deliveries to the first one."""
    sums = RunSum()
    sums.take(counted(1, {110: 1, 90: 1}), early=True)
    sums.take(counted(2, {90: 1, 110: 1}))
    ledger = Ledger(sums, made.compiled(SCENARIO.format(**NO_STAMP)), RunLog(0))
    assert (ledger.lost([(0, 1)]), ledger.surplus((0, 1)).total) == (0, 0)


def counted(stage: int, clients: dict[int, int]) -> Snapshot:
    """The last snapshot of a stage with 200 expected deliveries, to clients by deliveries."""
    subscribers = made.population().model_copy(
        update={"clients_by_deliveries": tuple(clients.items())}
    )
    came = sum(deliveries * count for deliveries, count in clients.items())
    flow = made.flow(0, 1, expected_total=200, received_total=came)
    return made.snapshot(made.population(), subscribers, from_ns=stage, stage=stage, flows=(flow,))
