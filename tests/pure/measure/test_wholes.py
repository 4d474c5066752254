"""Totals of the shares of a population: sums over all shares, maxima over time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pubstorm.contract.commands import ActiveClients
from pubstorm.contract.histogram import Histogram
from pubstorm.contract.plan import AddClients, ChangeRate, Plan, RemoveClients
from pubstorm.contract.snapshot import PopulationSnapshot, Snapshot
from pubstorm.errors import UsageError
from pubstorm.measure.assemble import Assembly
from pubstorm.measure.phases import phases
from pubstorm.measure.run_log import AppliedChange, excluded_from_loss
from pubstorm.metrics.expressions import parse_expression
from pubstorm.play.changes import AskedChange, members_of
from pubstorm.quantities import PartOf
from pubstorm.result import Measured, PhaseStatus
from pubstorm.result.figures import Found, Missing, evaluate
from tests.kit import made
from tests.kit.made import SECOND_NS, START_NS
from tests.kit.measured import measured_run

SCENARIO = """
target: mqtt://127.0.0.1
populations:
  device:
    clients: 100
    subscriptions: [news]
    publications: [{topic: t, rate: 1/s, qos: 1}]
    shares:
      brief: {part: 10%, lifetime: {from: 1s, to: 3s, offline: 1s}}
      slow: {part: 20%, read_rate: 1/s}
  backend: {clients: 1, subscriptions: [t]}
stages: [connect, {publish: 40s}]
"""
SECONDS = 40


def plan() -> Plan:
    return made.compiled(SCENARIO)


def population(sent: int, connected: int, offline: int, ack_ns: int) -> PopulationSnapshot:
    return made.population(
        connected=connected,
        ready=connected,
        offline=offline,
        sent_total=sent,
        acked_total=sent,
        left_total=offline,
        acks=Histogram.of([ack_ns] * sent),
    )


def snapshot(n: int) -> Snapshot:
    """A second: of ten that live briefly five are active in even seconds, ten in odd ones; slow
    ones the other way round."""
    even = n % 2 == 0
    flows = tuple(
        made.flow(
            source, 3, Histogram.of([latency_ns] * sent), expected_total=sent, received_total=sent
        )
        for source, sent, latency_ns in ((0, 70, 1000), (1, 5, 2000), (2, 20, 3000))
    )
    return made.snapshot(
        population(70, 70, 0, 1000),
        population(5, 5 if even else 10, 5 if even else 0, 5000),
        population(20, 20 if even else 15, 0, 3000),
        population(0, 1, 0, 0),
        from_ns=START_NS + n * SECOND_NS,
        sequence=n,
        flows=flows,
        engine=made.load(lateness=Histogram.of([1000])),
    )


def assembly(changes: Sequence[AppliedChange] = ()) -> Assembly:
    log = made.run_log(START_NS, START_NS + SECONDS * SECOND_NS, changes=list(changes))
    return made.assembly(plan(), log, map(snapshot, range(SECONDS)))


def test_counts_of_shares_add_up_in_the_whole() -> None:
    run = assembly()
    device, shares = run.wholes()["device"], list(run.populations().values())[:3]
    assert set(run.wholes()) == {"device"}
    assert device.clients == sum(share.clients for share in shares) == 100
    assert device.sent_total == sum(share.sent_total for share in shares) == 95 * SECONDS
    assert device.left_total == 5 * SECONDS // 2
    assert device.rates.acked_per_s == pytest.approx(95)
    assert device.ack_latency_us.intended.count == 95 * SECONDS
    assert device.ack_latency_us.intended.p50 == pytest.approx(1, rel=0.01)


def test_the_maximum_of_a_sum_is_not_the_sum_of_maxima() -> None:
    run = assembly()
    shares, whole = run.populations(), run.wholes()["device"]
    names = ("device/rest", "device/brief", "device/slow")
    assert [shares[name].connected_max for name in names] == [70, 10, 20]
    assert (whole.connected_max, whole.asked_max) == (95, 100)
    brief = shares["device/brief"]
    # Clients that are offline were ready before.
    assert (brief.ready_max, brief.offline_max, brief.reached_max, brief.lives) == (10, 5, 10, True)


def test_stages_have_sums_too() -> None:
    load = assembly().stages[1]
    assert set(load.populations) == {"device/rest", "device/brief", "device/slow", "backend"}
    whole = load.wholes["device"]
    assert (whole.sent_total, whole.left_total) == (95 * SECONDS, 5 * SECONDS // 2)
    assert whole.sent_per_s == pytest.approx(95)


def test_receivers_with_lives_are_excluded_in_publish_stages() -> None:
    connecting, load = assembly().stages
    assert (connecting.excluded, load.excluded) == ((), ("device/brief",))
    assert excluded_from_loss(plan(), (), 0) == []


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("device.connected", 95),
        ("device/brief.connected", 10),
        ("device.offline", 5),
        ("device/brief.left", 100),
        ("device.left@publish", 100),
        ("device.sent@publish", 95 * SECONDS),
        ("device/slow.sent@publish", 20 * SECONDS),
        ("device.stalled", 0),
        ("sent", 95 * SECONDS),
        ("device.acked_per_s@publish", 95),
    ],
)
def test_expressions_find_the_whole_and_its_shares(expression: str, value: float) -> None:
    found = evaluate(filled(), parse_expression(expression))
    assert isinstance(found, Found) and found.value == pytest.approx(value)


def test_a_share_that_did_not_take_part_has_no_figure() -> None:
    found = evaluate(filled(), parse_expression("device/brief.sent@connect"))
    assert found == Found(0.0, "")
    missing = evaluate(filled(), parse_expression("device/none.sent"))
    assert isinstance(missing, Missing)


def filled() -> Measured:
    run = assembly()
    parts = {"populations": run.populations(), "wholes": run.wholes(), "stages": run.stages}
    return measured_run().model_copy(update=parts)


def test_samples_describe_the_whole_beside_its_shares() -> None:
    samples = made.Sampled(plan()).all(map(snapshot, range(4)))
    of = {
        source: [s.value for s in samples if s.source.name == source and s.metric == "connected"]
        for source in ("device", "device/brief", "device/slow")
    }
    assert of == {
        "device": [95, 95, 95, 95],
        "device/brief": [5, 10, 5, 10],
        "device/slow": [20, 15, 20, 15],
    }
    rates = [s.value for s in samples if s.source.name == "device" and s.metric == "sent_per_s"]
    assert rates == [95, 95, 95, 95]


def test_a_change_of_every_share_is_one_phase() -> None:
    at_ns = START_NS + 20 * SECOND_NS
    actions = [RemoveClients(clients=n, over_ns=0) for n in (35, 5, 10)]
    changes = [
        AppliedChange(1, at_ns, "-50% device", index, action)
        for index, action in enumerate(actions)
    ]
    found = phases(assembly(changes), {})
    assert [phase.name for phase in found] == ["publish", "-50% device"]
    assert [phase.clients for phase in found] == [100, 50]
    assert found[0].wholes["device"].sent_per_s == pytest.approx(95)
    # Of those with lives of two seconds in the mean, and one of absence, two thirds are active.
    assert found[0].due_per_s == pytest.approx(90 + 10 * 2 / 3)


def test_clients_with_lives_are_reported_and_not_evaluated() -> None:
    found = phases(assembly(), {})
    # The brief ones send less in the mean than is scheduled; the phase passes nevertheless.
    assert [phase.status for phase in found] == [PhaseStatus.HELD]
    assert found[0].populations["device/brief"].sent_per_s == pytest.approx(5)


def test_what_can_be_changed_by_hand_has_the_name_of_a_share_or_of_all() -> None:
    stage = plan().stages[1]
    assert members_of(plan(), stage)["device"] == (0, 1, 2)
    assert members_of(plan(), stage)["device/slow"] == (2,)
    fewer = stage.model_copy(update={"populations": (0, 3)})
    assert set(members_of(plan(), fewer)) == {"device/rest", "backend"}


def connected() -> ActiveClients:
    """The active clients after the first stage."""
    active = ActiveClients(plan())
    active.enter(plan().stages[0])
    return active


def test_a_change_by_hand_is_shared_out() -> None:
    active = connected()
    removed = AskedChange("device", "remove", PartOf(0.5), 7).actions(active, (0, 1, 2))
    assert removed == {
        index: RemoveClients(clients=clients, over_ns=7)
        for index, clients in enumerate((35, 5, 10))
    }
    faster = AskedChange("device", "rate", 2.0).actions(active, (0, 1, 2))
    assert faster == dict.fromkeys((0, 1, 2), ChangeRate(factor=2.0))
    alone = AskedChange("device/slow", "remove", 3).actions(active, (2,))
    assert alone == {2: RemoveClients(clients=3, over_ns=0)}


def test_the_last_client_is_not_added_twice_by_rounding() -> None:
    active = connected()
    for index, there in enumerate((0, 5, 20)):
        active.counts[index] = there
    half = AskedChange("device", "add", PartOf(0.55)).actions(active, (1,))
    assert half == {1: AddClients(clients=5, over_ns=0)}


@pytest.mark.parametrize(
    ("amount", "message"),
    [(50, "population device has shares"), (PartOf(0.0001), "0.01% of device is no client")],
)
def test_a_change_by_hand_that_names_no_client_is_refused(
    amount: int | PartOf, message: str
) -> None:
    active = connected()
    with pytest.raises(UsageError) as caught:
        AskedChange("device", "remove", amount).actions(active, (0, 1, 2))
    assert caught.value.message == message
