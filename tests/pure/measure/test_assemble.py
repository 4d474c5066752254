"""From snapshots to measurements, by hand-made intervals whose sums are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pubstorm.contract.histogram import CELL_BITS, Histogram, bucket_index
from pubstorm.contract.plan import (
    AddClients,
    ConnectAction,
    Plan,
    PlannedStage,
    PublishAction,
    RemoveClients,
)
from pubstorm.contract.protocol import FixedPayload
from pubstorm.contract.snapshot import FlowCounters, FlowSnapshot, Snapshot
from pubstorm.measure.assemble import Assembly
from pubstorm.measure.run_log import AppliedChange
from tests.kit import made
from tests.kit.made import SECOND_NS, START_NS

PUBLISHING_NS = START_NS + 10 * SECOND_NS


def plan() -> Plan:
    """The first two populations of the golden plan, with a connect stage and a publish stage of
    3 s; the first is no share, and stays."""
    golden = made.golden_plan()
    stays = {"name": "device", "whole": None, "lifetime": None, "flapping": None}
    populations = (golden.populations[0].model_copy(update=stays), golden.populations[1])
    connect = ConnectAction(rate_per_s=None, parallelism=None, timeout_ns=1)
    stages = (
        PlannedStage(name="connect", action=connect, populations=(0, 1)),
        PlannedStage(
            name="load", action=PublishAction(duration_ns=3 * SECOND_NS), populations=(0,)
        ),
    )
    return golden.model_copy(update={"stages": stages, "populations": populations})


def flow(expected: int = 0, received: int = 0, latency_ns: int = 1000) -> FlowSnapshot:
    latency = Histogram.of([latency_ns] * received)
    return made.flow(0, 1, latency, latency, expected_total=expected, received_total=received)


def snapshot(
    agent: int,
    sequence: int,
    second: float,
    sent: int,
    *flows: FlowSnapshot,
    busy: float = 0.1,
    **load: Any,
) -> Snapshot:
    """A second of the publish stage, or before it where `second` is negative."""
    from_ns = PUBLISHING_NS + round(second * SECOND_NS)
    return made.snapshot(
        made.population(sent_total=sent, connected=500, ready=499),
        made.population(),
        from_ns=from_ns,
        agent=agent,
        sequence=sequence,
        stage=0 if second < 0 else 1,
        settled=True,
        flows=flows,
        engine=made.load(
            busy_ns=round(busy * SECOND_NS),
            **{
                "cpu_ns": SECOND_NS // 10,
                "rss_bytes": 1000 + sequence,
                "lateness": Histogram.of([5000]),
                "ledger_pairs": 7,
                **load,
            },
        ),
    )


def assembly(*snapshots: Snapshot) -> Assembly:
    log = made.run_log(
        PUBLISHING_NS,
        PUBLISHING_NS + 3 * SECOND_NS,
        drain_s=1,
        ended_ns=PUBLISHING_NS + 5 * SECOND_NS,
        endings={0: "bye", 1: "bye"},
    )
    hellos = (made.hello(i, 2, pid=i, clients=(500, i)) for i in (0, 1))
    return made.assembly(plan(), log, snapshots, *hellos)


def test_rates_are_taken_over_the_publishing_time_only() -> None:
    run = assembly(
        snapshot(0, 0, -1, sent=1000),
        snapshot(0, 1, 0, 100, flow(200, 90)),
        snapshot(0, 2, 1, 100, flow(200, 100)),
        snapshot(0, 3, 2, 100, flow(200, 100)),
        snapshot(0, 4, 3, 5, flow(10, 20)),
        snapshot(1, 0, 0, 50),
        snapshot(1, 1, 1, 50),
        snapshot(1, 2, 2, 50),
    )
    load = run.stages[1]
    assert load.steady_s == 3
    assert load.populations["device"].sent_per_s == pytest.approx(150)
    assert load.populations["backend"].received_per_s == pytest.approx(290 / 3)
    device = run.populations()["device"]
    assert device.rates.sent_per_s == pytest.approx(150)
    assert device.sent_total == 1000 + 305 + 150


def test_arrivals_are_taken_until_the_last_message_of_a_stage_came() -> None:
    run = assembly(
        snapshot(0, 0, -1, sent=1000),
        snapshot(0, 1, 0, 100, flow(200, 90)),
        snapshot(1, 0, 1, 50, flow(0, 200)),
        snapshot(0, 2, 3, 0, flow(10, 20)),
        snapshot(1, 1, 4, 0, flow(0, 0)),
    )
    before, load = run.stages
    assert (load.arrived_s, load.arrivals_per_s) == (4, 77.5)
    assert (before.arrived_s, before.arrivals_per_s) == (0, 0)


def test_a_population_has_the_deliveries_of_all_flows_into_it() -> None:
    run = assembly(
        snapshot(0, 0, 0, 1, flow(expected=10)),
        snapshot(1, 0, 0, 1, flow(received=7, latency_ns=3_000_000)),
    )
    backend = run.populations()["backend"]
    assert (backend.expected_total, backend.received_total, backend.lost_total) == (10, 7, 3)
    assert backend.latency_us.intended.count == 7
    assert backend.latency_us.intended.max == 3000
    assert run.populations()["device"].lost_total == 0
    (only,) = run.flows()
    assert (only.source, only.to, only.lost_total, only.surplus_total) == (
        "device",
        "backend",
        3,
        0,
    )


def test_live_deliveries_are_those_that_were_not_queued() -> None:
    """A distribution without queued deliveries is that of all, and is not stored twice."""
    live, queued = [1_000] * 8, [SECOND_NS] * 2
    every = flow(10, 10).model_copy(
        update={
            "latency_intended": Histogram.of(live + queued),
            "queued_latency": Histogram.of(queued),
        }
    )
    run = assembly(snapshot(0, 1, 0, 10, flow(5, 5)), snapshot(0, 2, 1, 10, every))
    for found in (run.populations()["backend"], run.stages[1].populations["backend"]):
        assert found.latency_us.intended.count == 15
        assert (found.queued_latency_us.count, found.queued_latency_us.min) == (2, 10**6)
        assert (found.live_latency_us.count, found.live_latency_us.min) == (13, 1)
        stored = found.time_histograms_ns
        assert (stored["queued_latency_us"].count, stored["live_latency_us"].count) == (2, 13)
    without = assembly(snapshot(0, 1, 0, 10, flow(5, 5))).populations()["backend"]
    assert without.live_latency_us == without.latency_us.intended
    assert without.queued_latency_us.count == 0
    assert "live_latency_us" not in without.time_histograms_ns


def test_each_stage_has_the_parts_of_its_latencies() -> None:
    latency = Histogram.of([1_000_000] * 10)
    cell = bucket_index(1_000_000) >> CELL_BITS
    delayed = flow(10, 10, latency_ns=1_000_000)
    sender = made.population(acks=latency, acks_actual=latency)

    def interval(agent: int, second: float, window_ns: int, generator_ns: int) -> Snapshot:
        acks = {"ack_delays": ((cell, 0, window_ns, 0, 0),)}
        trips = {"round_trip": latency, "round_trip_delays": ((cell, generator_ns, 0, 0, 0),)}
        deliveries = {"latency_delays": ((cell, generator_ns, window_ns, 0, 0),)}
        found = snapshot(agent, 0, second, 10, delayed.model_copy(update=deliveries))
        populations = (sender.model_copy(update=acks | trips), made.population())
        return found.model_copy(update={"populations": populations})

    run = assembly(
        interval(0, -1, 0, 0), interval(0, 0, 5_000_000, 1_000_000), interval(1, 0, 0, 2_000_000)
    )
    before, load = run.stages
    delivered = load.populations["backend"].latency_us
    assert delivered.parts is not None
    whole_us = delivered.intended.p99
    assert dict(delivered.parts.p99) == pytest.approx(
        {
            **{"generator": 150, "window": 250, "socket": 0, "connection": 0},
            **{"rest": whole_us - 400, "host_most": None},
        },
        rel=0.01,
    )
    device = load.populations["device"]
    assert device.ack_latency_us.parts is not None
    assert device.ack_latency_us.parts.p50.window == pytest.approx(250, rel=0.01)
    assert device.round_trip_parts is not None
    assert device.round_trip_parts.p50.generator == pytest.approx(150, rel=0.01)
    assert before.populations["backend"].latency_us.parts is not None
    assert before.populations["backend"].latency_us.parts.p99.rest == pytest.approx(whole_us)
    whole = run.populations()["backend"].latency_us.parts
    assert whole is not None
    assert whole.p50.generator == pytest.approx(100, rel=0.01)


def test_the_host_is_bounded_by_the_longest_time_without_a_processor_of_the_stage() -> None:
    cell = bucket_index(10_000_000) >> CELL_BITS
    delays = {"latency_delays": ((cell, 1, 0, 0, 0),)}
    delayed = flow(10, 10, latency_ns=10_000_000).model_copy(update=delays)
    run = assembly(
        snapshot(0, 0, -1, 10, delayed, run_delay_ns=20_000_000),
        snapshot(0, 1, 0, 10, delayed, run_delay_ns=500_000),
        snapshot(0, 2, 1, 10, run_delay_ns=100_000),
        snapshot(1, 0, 0, 10, run_delay_ns=None),
    )
    found = [stage.populations["backend"].latency_us for stage in run.stages]
    # Two agents, in two intervals each; at most the whole latency.
    whole_us = found[0].intended.p99
    assert [each.parts and each.parts.p99.host_most for each in found] == [whole_us, 2000]


def test_more_than_was_expected_is_no_negative_loss() -> None:
    run = assembly(snapshot(0, 0, 0, 1, flow(expected=1, received=3)))
    (only,) = run.flows()
    assert (only.lost_total, only.surplus_total) == (0, 2)
    assert run.populations()["backend"].lost_total == 0


@pytest.mark.parametrize(
    ("payload", "latencies", "unstamped"),
    [
        (FixedPayload(bytes=32), 90, 0),
        # The broker dropped the property with the stamp, or there is none.
        (FixedPayload(bytes=32), 0, 90),
        (FixedPayload(bytes=31), 0, 90),
        (FixedPayload(bytes=31), 30, 60),
    ],
)
def test_deliveries_without_a_stamp_are_only_counted(
    payload: FixedPayload, latencies: int, unstamped: int
) -> None:
    device, backend = plan().populations
    (publication, *_) = device.publications
    publications = (publication.model_copy(update={"payload": payload}),)
    device = device.model_copy(update={"publications": publications, "responds": None})
    latency = Histogram.of([1000] * latencies)
    came = made.flow(0, 1, latency, latency, expected_total=90, received_total=90)
    run = assembly(snapshot(0, 0, 0, 90, came))
    run = replace(run, plan=run.plan.model_copy(update={"populations": (device, backend)}))
    (only,) = run.flows()
    assert only.unstamped == unstamped


MESSAGES = {"expected_total": 100, "received_total": 75}
WILLS = {"expected_total": 10, "wills_expected_total": 10}


def counting(counts: dict[str, int]) -> FlowSnapshot:
    return made.flow(0, 1).model_copy(update={"counters": FlowCounters(**counts)})


def of_wills(count: int) -> dict[str, int]:
    return {"received_total": count, "wills_received_total": count}


@pytest.mark.parametrize(
    ("counts", "lost", "wills_lost", "surplus", "wills_surplus"),
    [
        ([MESSAGES], 25, 0, 0, 0),
        # Unexpected wills stand for no message, and messages for no will.
        ([MESSAGES, of_wills(25)], 25, 0, 25, 25),
        ([MESSAGES, WILLS, of_wills(10)], 25, 0, 0, 0),
        ([MESSAGES, WILLS, of_wills(17)], 25, 0, 7, 7),
        ([MESSAGES, WILLS, of_wills(3)], 32, 7, 0, 0),
        ([MESSAGES, WILLS, {"received_total": 35}], 10, 10, 10, 0),
        ([WILLS, of_wills(12)], 0, 0, 2, 2),
    ],
)
def test_a_flow_takes_no_more_wills_and_messages_than_are_expected(
    counts: list[dict[str, int]], lost: int, wills_lost: int, surplus: int, wills_surplus: int
) -> None:
    flows = [counting(each) for each in counts]
    run = assembly(*(snapshot(0, n, n, 0, each) for n, each in enumerate(flows)))
    (flow,), backend = run.flows(), run.populations()["backend"]
    assert (flow.lost_total, backend.lost_total) == (lost, lost)
    assert backend.wills_lost_total == wills_lost
    assert (flow.surplus_total, flow.wills_surplus_total) == (surplus, wills_surplus)
    for each in (flow, backend):
        assert each.expected_total == each.received_total + each.lost_total
    assert backend.wills_expected_total == backend.wills_received_total + wills_lost
    came = sum(each.counters.received_total for each in flows)
    assert backend.received_total == came - surplus


def test_unexpected_wills_are_nothing_that_a_drain_cut_short_left_in_flight() -> None:
    run = assembly(*(snapshot(0, n, n, 0, counting(each)) for n, each in enumerate(
        (MESSAGES, of_wills(25))
    )))  # fmt: skip
    run.run_log.ended_early = True
    (flow,) = replace(run).flows()
    assert (flow.lost_total, flow.in_flight_total, flow.surplus_total) == (0, 25, 25)


def test_a_drain_cut_short_leaves_deliveries_in_flight_that_were_not_passed_over() -> None:
    passed_over = made.flow(0, 1, expected_total=100, received_total=60, missing_total=10)
    run = assembly(snapshot(0, 0, 0, 100, passed_over))
    assert [f.lost_total for f in run.flows()] == [40]
    run.run_log.ended_early = True
    cut = replace(run)
    (only,) = cut.flows()
    assert (only.lost_total, only.in_flight_total) == (10, 30)
    backend = cut.populations()["backend"]
    assert (backend.lost_total, backend.to_come_total) == (10, 30)
    stage = cut.stages[1]
    assert [f.lost_total for f in stage.flows] == [10]
    assert stage.populations["backend"].lost_total == 10
    assert [f.in_flight_total for f in stage.flows] == [30]


def test_a_run_cut_short_after_a_drain_has_lost_what_the_drain_waited_for() -> None:
    run = assembly(snapshot(0, 0, 0, 100, flow(100, 60)))
    run.run_log.ended_early = True
    first, publish = run.run_log.spans
    run.run_log.spans = [first, publish, replace(first, from_ns=publish.to_ns)]
    (only,) = replace(run).flows()
    assert (only.lost_total, only.in_flight_total) == (40, 0)


def test_receivers_that_change_are_named_with_their_stage() -> None:
    found = assembly(snapshot(0, 0, 0, 10))
    subscribes = [bool(population.subscriptions) for population in found.plan.populations]
    for index in range(len(found.plan.populations)):
        action = RemoveClients(clients=1, over_ns=0)
        found.run_log.changes = [AppliedChange(1, PUBLISHING_NS, "fewer", index, action)]
        connecting, publishing = (stage.excluded for stage in found.stages)
        assert connecting == (), "nothing is published"
        # Connections that are taken over exclude both populations in every publish stage.
        changed = found.plan.contested | {index}
        excluded = [index for index in sorted(changed) if subscribes[index]]
        assert publishing == tuple(found.plan.populations[index].name for index in excluded)


def test_clients_that_were_not_requested_are_not_missed() -> None:
    found = assembly(snapshot(0, 0, 0, 10))
    assert found.populations()["device"].asked_max == found.plan.populations[0].clients
    connect = found.plan.stages[0].model_copy(update={"populations": (1,)})
    stages = (connect, found.plan.stages[1])
    found = replace(found, plan=found.plan.model_copy(update={"stages": stages}))
    for change, asked in [(AddClients, 7), (RemoveClients, 0)]:
        action = change(clients=7, over_ns=0)
        found.run_log.changes = [AppliedChange(1, PUBLISHING_NS, "some", 0, action)]
        assert replace(found).populations()["device"].asked_max == asked


def test_gauges_of_agents_add_up() -> None:
    run = assembly(snapshot(0, 0, 0, 1), snapshot(1, 0, 0.5, 1))
    device = run.populations()["device"]
    assert (device.connected_max, device.ready_max, device.clients) == (1000, 998, 1000)


def test_the_generator_is_evaluated_by_its_publishing_time() -> None:
    run = assembly(
        snapshot(0, 0, -1, 0, busy=1.0),
        snapshot(0, 1, 0, 1, busy=0.95),
        snapshot(0, 2, 1, 1, busy=0.5),
        snapshot(0, 3, 3.5, 0, busy=1.0),
    )
    fleet = run.fleet()
    assert (fleet.busy_intervals_total, fleet.load_intervals_total) == (1, 2)
    assert fleet.lateness_us.count == 3
    agent = fleet.agents[0]
    assert agent.busy_share == pytest.approx(0.725)
    assert agent.cpu_s == pytest.approx(0.4)
    assert agent.rss_max_bytes == 1003
    assert (agent.snapshots, agent.clients, agent.ending) == (4, 500, "bye")


def test_late_messages_and_busy_intervals_without_a_processor_are_counted_apart() -> None:
    late, waited = Histogram.of([20_000_000] * 3 + [1000]), 300_000_000
    own = {"cpu_ns": 950_000_000, "run_delay_ns": waited, "lateness": late}
    run = assembly(
        snapshot(0, 0, 0, 1, busy=0.95, run_delay_ns=waited, lateness=late),
        snapshot(0, 1, 1, 1, busy=0.95, **own),
        snapshot(0, 2, 2, 1, busy=0.5, run_delay_ns=SECOND_NS // 50, lateness=late),
        snapshot(1, 0, 0, 1, busy=0.1, run_delay_ns=None),
    )
    fleet = run.fleet()
    assert (fleet.late_total, fleet.late_starved_total) == (9, 3)
    assert (fleet.busy_intervals_total, fleet.busy_starved_total) == (2, 1)
    assert fleet.starved_intervals_total == 1
    assert [agent.run_delay_s for agent in fleet.agents] == [0.62, None]


def test_a_stage_too_short_for_an_interval_has_rates_all_the_same() -> None:
    long = snapshot(0, 0, 0, 300).model_copy(update={"to_ns": PUBLISHING_NS + 4 * SECOND_NS})
    load = assembly(long).stages[1]
    assert load.steady_s == 4
    assert load.populations["device"].sent_per_s == pytest.approx(75)


def test_an_agent_whose_interval_outlasts_the_stage_keeps_its_rate_beside_others() -> None:
    long = snapshot(1, 0, 0, 400).model_copy(update={"to_ns": PUBLISHING_NS + 4 * SECOND_NS})
    short = (snapshot(0, second, second, 100) for second in range(3))
    load = assembly(*short, long).stages[1]
    assert load.populations["device"].sent_per_s == pytest.approx(100 + 100)


def test_a_run_without_a_snapshot_has_zeros() -> None:
    run = assembly()
    assert run.populations()["device"].sent_total == 0
    assert run.flows() == ()
    assert run.fleet().load_intervals_total == 0
    assert run.fleet().agents[0].snapshots == 0


@pytest.mark.parametrize(
    ("attempts", "ended", "asked"),
    [
        # Of those that began to connect, and those of later stages.
        ((3, 0, 0), (0,), 500),
        ((3, 0), (0, 1), 3),
        ((3, 0), (), 500),
        ((900, 0), (0,), 500),
        # A change adds seven clients, and four of them began.
        ((3, 4), (0, 1), 7),
        ((3, 4), (0,), 10),
        ((3, 9), (0, 1), 10),
    ],
)
def test_clients_that_had_not_begun_to_join_when_the_user_ended_a_stage_are_not_missed(
    attempts: tuple[int, ...], ended: tuple[int, ...], asked: int
) -> None:
    begun = [
        made.snapshot(
            made.population(connect_attempts_total=count),
            made.population(),
            from_ns=PUBLISHING_NS + number * SECOND_NS,
            sequence=number,
            stage=number,
        )
        for number, count in enumerate(attempts)
    ]
    run = assembly(*begun)
    connect, publish = run.plan.stages
    stages = (connect, publish, connect)[: len(attempts)]
    first = run.plan.populations[0].model_copy(update={"clients": 500})
    populations = (first, *run.plan.populations[1:])
    plan = run.plan.model_copy(update={"stages": stages, "populations": populations})
    spans = [
        replace(run.run_log.spans[0], index=number, by_user=number in ended)
        for number in range(len(stages))
    ]
    action = AddClients(clients=7, over_ns=10 * SECOND_NS)
    more = AppliedChange(1, PUBLISHING_NS, "more", 0, action)
    run.run_log.spans, run.run_log.changes = spans, [more]
    assert replace(run, plan=plan).populations()["device"].asked_max == asked
