"""Summary of a run, from hand-made snapshots and samples whose sums are known."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from pubstorm.contract.histogram import Histogram
from pubstorm.contract.plan import (
    Action,
    AddClients,
    ConnectAction,
    DisconnectAction,
    HoldAction,
    Plan,
    PlannedAttachment,
    PlannedLifetime,
    PlannedPopulation,
    PlannedStage,
    PublishAction,
)
from pubstorm.contract.reasons import Reason, ReasonFamily, reasons_of
from pubstorm.contract.snapshot import (
    AddressSnapshot,
    FlowSnapshot,
    PopulationSnapshot,
    Snapshot,
    Stall,
    TargetSnapshot,
)
from pubstorm.contract.sums import STALLS_MAX
from pubstorm.experiment.series import memory_of_steps, steady_memory
from pubstorm.measure.assemble import Assembly
from pubstorm.measure.run_log import AppliedChange, RunLog, StageSpan
from pubstorm.measure.summary import Sources, peaks, planned_clients, summaries
from pubstorm.measure.summary.memory import fitted
from pubstorm.report.summary import memory_layout
from pubstorm.result import BrokerResult, Measured, MemoryPoint, PopulationResult, RunResult
from pubstorm.result.samples import Track, Tracks
from pubstorm.result.summary import KINDS, problems
from pubstorm.result.verdict import evaluate_run
from tests.kit import made
from tests.kit.made import SECOND_NS, START_NS
from tests.kit.measured import measured_run
from tests.pure.experiment.test_series import step

RAMP_S, HELD_S, LOAD_S = 10, 5, 5
CLIENTS = 4000
SHORT, QOS1, REST, MOBILE = range(4)
BYTES_PER_CONNECTION, BASE_BYTES = 10_000, 50_000_000


def population(name: str, pub: int | None, sub: int | None, **changes: object) -> PlannedPopulation:
    plain = made.golden_plan().populations[0]
    publication, subscription = plain.publications[0], plain.subscriptions[0]
    fields = {
        "name": name,
        "whole": name.partition("/")[0] if "/" in name else None,
        "clients": 1000,
        "lifetime": None,
        "flapping": None,
        "rows": None,
        "at": PlannedAttachment(first=0, count=2),
        "publications": () if pub is None else (publication.model_copy(update={"qos": pub}),),
        "subscriptions": () if sub is None else (subscription.model_copy(update={"qos": sub}),),
        **changes,
    }
    return plain.model_copy(update=fields)


def plan(**changes: object) -> Plan:
    """Devices in three shares, and mobiles, at two nodes; a ramp, a rest, a load, a tear-down."""
    everybody = (SHORT, QOS1, REST, MOBILE)
    connect = ConnectAction(rate_per_s=None, parallelism=None, timeout_ns=1)
    publish = PublishAction(duration_ns=LOAD_S * SECOND_NS)
    actions: dict[str, Action] = {
        "ramp": connect,
        "rest": HoldAction(duration_ns=HELD_S * SECOND_NS),
        "load": publish,
        "leave": DisconnectAction(rate_per_s=None),
    }
    life = PlannedLifetime(min_ns=1, max_ns=2, offline_ns=None)
    fields = {
        "bridges": (),
        "populations": (
            population("device/short", 0, 1, lifetime=life),
            population("device/qos1", 1, None),
            population("device/rest", 0, None),
            population("mobile", None, 1),
        ),
        "stages": tuple(
            PlannedStage(name=name, action=action, populations=everybody)
            for name, action in actions.items()
        ),
        **changes,
    }
    return made.golden_plan().model_copy(update=fields)


def snapshot(second: int, connected: int, *targets: int, **changes: object) -> Snapshot:
    """A second of the only agent, with as many clients of each population, and so many at each
    target."""
    ends = (0, RAMP_S, RAMP_S + HELD_S, RAMP_S + HELD_S + LOAD_S)
    of_targets = tuple(
        TargetSnapshot(target=index, connected=count) for index, count in enumerate(targets)
    )
    fields = {
        "sequence": second,
        "stage": sum(second >= end for end in ends) - 1,
        "settled": True,
        "targets": of_targets,
        "engine": made.load(busy_ns=1, cpu_ns=1, rss_bytes=1),
        **changes,
    }
    populations = (did(connected) for _ in range(4))
    return made.snapshot(*populations, from_ns=START_NS + second * SECOND_NS, **fields)


def did(
    connected: int = 0, *, ack_us: int = 0, connect_us: int = 0, **counts: Any
) -> PopulationSnapshot:
    acks = Histogram.of([1000 * ack_us] * counts.get("acked_total", 0))
    return made.population(
        connected=connected,
        ready=connected,
        acks=acks,
        acks_actual=acks,
        connect_time=Histogram.of([1000 * connect_us] * counts.get("connected_total", 0)),
        **counts,
    )


def flow(source: int, to: int, expected: int, received: int, latency_us: int) -> FlowSnapshot:
    intended, actual = (Histogram.of([each_ns * latency_us] * received) for each_ns in (1000, 500))
    return made.flow(source, to, intended, actual, expected_total=expected, received_total=received)


def ramp(per_second: Sequence[int]) -> list[Snapshot]:
    """The ramp, with so many clients of each population after each second, and what follows."""
    there = [snapshot(n, count, 2 * count, 2 * count) for n, count in enumerate(per_second)]
    last = per_second[-1]
    stay = range(len(per_second), RAMP_S + HELD_S + LOAD_S)
    return there + [snapshot(n, last, 2 * last, 2 * last) for n in stay]


def assembly(*snapshots: Snapshot, played: Plan | None = None) -> Assembly:
    ends = [0, RAMP_S, RAMP_S + HELD_S, RAMP_S + HELD_S + LOAD_S, RAMP_S + HELD_S + LOAD_S + 2]
    instants = [START_NS + end * SECOND_NS for end in ends]
    log = RunLog(START_NS, ended_ns=instants[-1], endings={0: "bye"})
    log.spans = [
        StageSpan(index, from_ns, to_ns if index == 2 else from_ns, to_ns, settled=True)
        for index, (from_ns, to_ns) in enumerate(pairwise(instants))
    ]
    return made.assembly(played or plan(), log, snapshots, made.hello(clients=(1000,) * 4))


def nodes(run: Assembly) -> list[BrokerResult]:
    return [
        BrokerResult(
            name=f"node-{number}",
            group="node",
            kind="rabbitmq",
            version="3",
            host=target.host,
            port=target.port,
            pid=1,
            died=False,
        )
        for number, target in enumerate(run.plan.targets)
    ]


def accounted(run: Assembly, tracks: Tracks | None = None) -> Measured:
    """The measurements of a run with what they come to."""
    found = measured_run(
        populations=run.populations(), flows=run.flows(), stages=run.stages, fleet={}
    )
    parts = summaries(found, run, Sources(tracks or {}, nodes(run), {"node": (0, 1)}))
    return found.model_copy(update={name: make() for name, (make, _) in parts.items()})


def test_connect_times_are_those_of_a_stage_too() -> None:
    """First sessions connect in one stage, and kept ones again in another."""
    rows = [
        snapshot(second, 1, populations=[did(connected_total=2, connect_us=us)] * 4)
        for second, us in ((0, 100), (RAMP_S + HELD_S, 900))
    ]
    run = assembly(*rows)
    by_stage = [stage.populations["device/short"] for stage in run.stages]
    assert [each.connect_time_us.max for each in by_stage] == [100, 0, 900, 0]
    assert by_stage[2].time_histograms_ns["connect_time_us"].count == 2
    assert run.populations()["device/short"].connect_time_us.count == 4


def test_every_share_has_samplers_and_so_have_all_of_a_qos() -> None:
    busy = (
        did(connected_total=10, connect_attempts_total=10, connect_us=100, sent_total=20),
        did(ack_us=400, sent_total=10, acked_total=9),
        did(connected_total=30, connect_attempts_total=31, connect_us=300, sent_total=980,
            skipped_total=20),
        did(subscribed_total=7, subscribe_failed_total=1),
    )  # fmt: skip
    flows = (flow(SHORT, MOBILE, 100, 90, 10), flow(REST, MOBILE, 300, 300, 30),
             flow(QOS1, MOBILE, 5, 5, 50), flow(REST, SHORT, 8, 8, 1))  # fmt: skip
    found = accounted(assembly(snapshot(16, 1, populations=busy, flows=flows)))
    by_name = {s.name: s for s in found.samplers}
    assert list(by_name) == [
        "device connect",
        "device pub QoS 0",
        "device pub QoS 1",
        "device sub QoS 0",
        "device/short connect",
        "device/short pub QoS 0",
        "device/short sub QoS 0",
        "device/qos1 pub QoS 1",
        "device/rest connect",
        "device/rest pub QoS 0",
        "mobile subscribe",
        "mobile sub QoS 0",
        "mobile sub QoS 1",
    ]
    connect = by_name["device connect"]
    assert (connect.count, connect.of, connect.mean_us, connect.max_us) == (40, 41, 250, 300)
    assert connect.is_sum
    publish = by_name["device pub QoS 0"]
    assert (publish.count, publish.of, publish.mean_us) == (1000, 1020, None)
    acked = by_name["device pub QoS 1"]
    assert (acked.count, acked.of, acked.mean_us) == (9, 10, 400)
    mobile = by_name["mobile sub QoS 0"]
    assert (mobile.count, mobile.of, mobile.max_us) == (390, 400, 30)
    assert mobile.mean_us == pytest.approx((90 * 10 + 300 * 30) / 390, rel=1e-3)
    assert mobile.mean_from_send_us == pytest.approx((90 * 5 + 300 * 15) / 390, rel=1e-3)
    assert by_name["mobile subscribe"].of == 8
    assert by_name["device/short sub QoS 0"].of is None, (
        "what is expected of clients offline is not known"
    )


def test_a_population_of_several_levels_says_so() -> None:
    both = population("both", 0, None)
    second = both.publications[0].model_copy(update={"qos": 1})
    both = both.model_copy(update={"publications": (*both.publications, second)})
    populations = (both, *plan().populations[1:])
    busy = (did(ack_us=3, sent_total=20, acked_total=9), *(did() for _ in range(3)))
    run = assembly(snapshot(16, 1, populations=busy), played=plan(populations=populations))
    (sampler,) = accounted(run).samplers
    assert (sampler.name, sampler.count, sampler.of) == ("both pub QoS 0 and 1", 20, 20)
    assert sampler.mean_us == 3


def test_problems_have_their_kind_their_reasons_and_those_that_had_them() -> None:
    device = PopulationResult(
        clients=100,
        ready_max=98,
        connect_attempts_total=150,
        connected_total=104,
        connect_failed_total=46,
        disconnected_total=6,
        outcomes={
            Reason.CONNECT_REFUSED: 30,
            Reason.BAD_CREDENTIALS: 11,
            Reason.CLOSED_BY_BROKER: 4,
            Reason.SOCKET_ERROR: 7,
        },
    )
    mobile = PopulationResult(
        clients=1,
        subscribed_total=1,
        subscribe_failed_total=1,
        received_total=9,
        duplicate_total=2,
        outcomes={Reason.SUBSCRIBE_REFUSED: 1},
    )
    found = problems({"device": device, "mobile": mobile}, unfollowed_total=3)
    assert [problem.text.replace("\u202f", " ") for problem in found] == [
        "2 of 100 clients were never ready",
        "46 of 150 connection attempts failed: 30 connect refused, 11 bad credentials, "
        "5 socket error",
        "6 of 104 connections were lost: 4 closed by broker, 2 socket error",
        "1 of 2 filters were refused: 1 subscribe refused",
        "2 deliveries were duplicates",
        "3 of 9 deliveries were not followed",
    ]
    assert found[0].populations == {"device": 2}


def test_every_reason_belongs_to_a_kind_and_a_good_run_has_no_problem() -> None:
    reasons = [reason for kind in KINDS.values() for reason in kind.failures.certain]
    possible = {reason for kind in KINDS.values() for reason in kind.failures.possible}
    assert len(reasons) == len(set(reasons))
    assert set(reasons) | possible | reasons_of(ReasonFamily.BREACH) == set(Reason)
    assert not set(reasons) & possible
    assert problems({"device": PopulationResult(clients=1)}, 0) == ()


def test_reasons_that_can_be_of_two_kinds_go_where_there_is_room() -> None:
    device = PopulationResult(clients=1, disconnected_total=3, outcomes={Reason.PROTOCOL_ERROR: 3})
    (lost,) = problems({"device": device}, 0)
    assert lost.reasons == {Reason.PROTOCOL_ERROR: 3}


def memory(points: Sequence[float], bytes_each: float = BYTES_PER_CONNECTION) -> Track:
    """Readings a tenth of a second after each second, of a line over the clients in between."""
    per_second = [0.0, *points]
    at_s = [second + 0.5 for second in range(len(points))]
    values = [
        BASE_BYTES + bytes_each * (before + after) / 2 for before, after in pairwise(per_second)
    ]
    return Track(at_s, values)


EVEN_RAMP = [100 * n for n in range(1, RAMP_S + 1)]


def test_memory_is_a_line_over_the_connections_of_each() -> None:
    tracks = {
        (made.source("node-0"), "rss_bytes"): memory([2 * n for n in EVEN_RAMP]),
        (made.source("agent-0"), "rss_bytes"): memory([4 * n for n in EVEN_RAMP], 600),
        (made.source("host"), "kernel_bytes"): memory([4 * n for n in EVEN_RAMP], 5_000),
        (made.source("host"), "slab_bytes"): memory([4 * n for n in EVEN_RAMP], 9_000),
        (made.source("redis"), "rss_bytes"): memory([1.0] * 10),
    }
    found = accounted(assembly(*ramp(EVEN_RAMP)), tracks)
    lines = {model.subject: model for model in found.memory}
    assert list(lines) == ["node-0", "engines", "host"]
    node = lines["node-0"]
    assert node.bytes_per_connection == pytest.approx(BYTES_PER_CONNECTION)
    assert node.base_bytes == pytest.approx(BASE_BYTES)
    assert (node.r_squared, node.points) == (1, 10)
    assert node.bytes_of_million == pytest.approx(10_050_000_000)
    assert lines["engines"].bytes_per_connection is None
    assert lines["engines"].problem == "an agent takes its memory when it starts"
    assert lines["host"].bytes_per_connection == pytest.approx(5_000)
    table = memory_layout("readings").table(found)
    assert [str(row[0]) for row in table.rows] == ["node-0", "host"], "engines have no line"


def test_without_connections_by_target_only_a_lone_broker_has_a_line() -> None:
    untold = [each.model_copy(update={"targets": ()}) for each in ramp(EVEN_RAMP)]
    tracks = {(made.source("node-0"), "rss_bytes"): memory(EVEN_RAMP)}
    assert accounted(assembly(*untold), tracks).memory == ()
    lone = plan().model_copy(update={"targets": plan().targets[:1]})
    (line,) = accounted(assembly(*untold, played=lone), tracks).memory
    assert line.bytes_per_connection == pytest.approx(BYTES_PER_CONNECTION / 4)


def test_clients_that_join_a_publish_stage_are_a_ramp_too() -> None:
    per_second = [500] * RAMP_S + [500] * HELD_S + [500 + 100 * n for n in range(1, LOAD_S + 1)]
    run = assembly(*(snapshot(n, each) for n, each in enumerate(per_second)))
    after_s = RAMP_S + HELD_S
    track = Track(
        [after_s + n for n in range(1, LOAD_S)],
        [BASE_BYTES + 4 * 700.0 * per_second[after_s + n - 1] for n in range(1, LOAD_S)],
    )
    tracks = {(made.source("host"), "kernel_bytes"): track}
    assert accounted(run, tracks).memory[0].problem is not None
    join = AddClients(clients=500, over_ns=LOAD_S * SECOND_NS)
    run.run_log.changes = [AppliedChange(2, START_NS + after_s * SECOND_NS, "join", REST, join)]
    assert accounted(run, tracks).memory[0].bytes_per_connection == pytest.approx(700)


@pytest.mark.parametrize(
    ("points", "problem"),
    [
        ([(0, 1), (900, 2), (900, 3)], "readings at 2 numbers of connections, needed are 4"),
        ([(0, 1), (1, 2), (2, 3), (3, 4)], "readings over 3 connections, needed are 200"),
        ([(0, 9), (500, 8), (600, 7), (700, 6)], "memory did not grow with connections"),
        ([(0, 5), (500, 5), (600, 5), (700, 5)], "memory did not grow with connections"),
        ([], "readings at 0 numbers of connections, needed are 4"),
    ],
)
def test_where_there_is_no_line_there_is_a_word(
    points: list[tuple[int, int]], problem: str
) -> None:
    found = fitted("broker-0", [MemoryPoint(connections=x, bytes=y) for x, y in points])
    assert found.problem == problem
    assert found.bytes_per_connection is None
    assert found.bytes_of_million is None


def test_a_series_has_a_line_over_its_steps() -> None:
    steps = []
    for number, clients in enumerate((250, 500, 1000)):
        there = [clients] * RAMP_S
        load = Track([16.5, 17.5], [BASE_BYTES + clients * 4 * 700.0] * 2)
        run = accounted(assembly(*ramp(there)), {(made.source("agent-0"), "rss_bytes"): load})
        result = RunResult.of(run, evaluate_run(run, []))
        assert steady_memory(result)["engines"].connections == 4 * clients
        steps.append(step(f"clients {clients}", number=number, memory=steady_memory(result)))
    (line,) = memory_of_steps(steps)
    assert (line.subject, line.points) == ("engines", 3)
    assert line.bytes_per_connection == pytest.approx(700)
    assert memory_of_steps(steps[:2]) == ()


def test_each_target_has_its_part_and_its_part_by_the_plan() -> None:
    targets = (
        TargetSnapshot(target=0, connected=600, connected_total=610, connect_failed_total=3),
        TargetSnapshot(target=1, connected=200, connected_total=200),
    )
    run = assembly(
        snapshot(1, 300, targets=targets), snapshot(2, 200, 400, 0), snapshot(3, 200, 200, 600)
    )
    first, second = accounted(run).balance
    assert (first.name, first.group, first.connected_max, second.connected_max) == (
        "node-0",
        "node",
        600,
        600,
    )
    assert (first.connected_total, first.connect_failed_total) == (610, 3)
    assert (first.share, second.share, first.planned_share) == (0.5, 0.5, 0.5)


def test_the_addresses_with_the_most_attempts_have_a_row_each() -> None:
    def of(target: int, number: int) -> AddressSnapshot:
        return AddressSnapshot(
            target=target,
            address=f"192.0.2.{number}",
            connect_attempts_total=number,
            connected_total=1,
            connect_failed_total=1,
            outcomes={Reason.CONNECT_REFUSED: 1},
        )

    alone = AddressSnapshot(target=0, address="2001:db8::7", connect_attempts_total=4)
    many = tuple(of(1, number) for number in range(1, 21))
    run = assembly(
        snapshot(1, 2, addresses=many), snapshot(2, 2, addresses=(alone, *many)), snapshot(3, 2)
    )
    first, *rows, others = accounted(run).addresses
    assert (first.target, first.address) == ("node-0", "2001:db8::7")
    assert (first.connect_attempts_total, first.outcomes) == (4, {})
    assert [row.address for row in rows] == [f"192.0.2.{n}" for n in range(20, 4, -1)]
    assert (rows[0].target, rows[0].connect_attempts_total) == ("node-1", 40)
    assert (others.address, others.connect_attempts_total) == (None, 2 * (1 + 2 + 3 + 4))
    assert (others.connected_total, others.connect_failed_total) == (8, 8)
    assert others.outcomes == {Reason.CONNECT_REFUSED: 8}


def test_the_plan_shares_clients_out_as_the_engine_does() -> None:
    at = PlannedAttachment(first=0, count=2, shift=1)
    shifted = population("device", 0, None, clients=5, at=at)
    at_random = at.model_copy(update={"choice": "random"})
    drawn = population("mobile", 0, None, clients=400, at=at_random)
    planned = planned_clients(plan(populations=(shifted,)))
    assert planned == {0: 2, 1: 3}
    assert sum(planned_clients(plan(populations=(drawn,))).values()) == 400


def stall(number: int) -> Stall:
    """An open stall of a mobile client."""
    since_ns = START_NS + 16 * SECOND_NS
    return Stall(population=MOBILE, number=number, since_ns=since_ns, until_ns=None, due=34)


def test_a_stall_is_one_however_often_it_is_reported() -> None:
    begun = stall(17)
    over = begun.model_copy(update={"until_ns": START_NS + 18 * SECOND_NS, "due": 40})
    lasting = stall(3)
    run = assembly(snapshot(18, 1, stalls=(over,)), snapshot(17, 1, stalls=(begun, lasting)))
    found = accounted(run).stalls
    assert [(s.population, s.number, s.stage, s.since_s, s.until_s, s.due) for s in found] == [
        ("mobile", 3, "load", 16, None, 34),
        ("mobile", 17, "load", 16, 18, 40),
    ]
    assert [stall.lasted for stall in found] == [False, False], "no client was left in the end"


def test_a_stall_lasted_where_somebody_was_left_when_the_stage_ended() -> None:
    left = made.population(stalled=1)
    last = snapshot(19, 1, populations=(did(), did(), did(), left))
    found = accounted(assembly(snapshot(17, 1, stalls=(stall(3),)), last))
    assert [stall.lasted for stall in found.stalls] == [True]
    assert found.populations["mobile"].stalled == 1


def test_only_the_earliest_stalls_are_kept_in_any_order() -> None:
    stalls = [
        Stall(population=0, number=n, since_ns=START_NS + n, until_ns=None, due=1)
        for n in range(3 * STALLS_MAX)
    ]
    parts = [stalls[n::3] for n in range(3)]
    snapshots = [snapshot(n, 1, stalls=tuple(part)) for n, part in enumerate(parts)]
    kept = made.sums(snapshots).stalls
    assert made.sums(snapshots[::-1]).stalls == kept
    assert [stall.number for stall in kept] == list(range(STALLS_MAX))


def test_peaks_are_those_of_all_at_one_instant() -> None:
    rates: Tracks = {
        (made.source("mobile"), "received_per_s"): Track([1, 2, 3], [5.0, 50.0, 7.0]),
        (made.source("device/rest"), "received_per_s"): Track([1, 2, 3], [100.0, 1.0, 2.0]),
        (made.source("broker-0"), "received_per_s"): Track([1], [1e9]),
    }
    found = accounted(assembly(snapshot(1, 7), snapshot(2, 9), snapshot(3, 1)), rates).peaks
    assert (found.received_per_s.value, found.received_per_s.at_s) == (105, 1)
    assert found.sent_per_s.at_s is None
    assert found.connected == 36


def test_peaks_of_each_qos_are_those_of_its_receivers() -> None:
    flows = (flow(REST, MOBILE, 300, 300, 30), flow(QOS1, SHORT, 8, 0, 1))
    run = accounted(assembly(snapshot(1, 7, flows=flows)))
    received = {name: each.delivery_qos for name, each in run.populations.items()}
    assert [name for name, levels in received.items() if levels] == ["mobile"]
    levels = dict(zip(run.populations, [(1,), (0,), (0, 1), (0,)], strict=True))
    populations = {
        name: each.model_copy(update={"delivery_qos": levels[name]})
        for name, each in run.populations.items()
    }
    rates: Tracks = {
        (made.source(name), "received_per_s"): Track([1, 2], [10.0 * n, 100.0 * n])
        for n, name in enumerate(populations, 1)
    }
    found = peaks(assembly(snapshot(1, 7)).timeline, rates, populations).received_by_qos
    shown = {qos: (peak.value, peak.at_s) for qos, peak in found.items()}
    assert shown == {"0": (600, 2), "1": (100, 2), "mixed": (300, 2)}


def test_stages_say_who_was_there_after_them_and_how_fast_they_came_and_went() -> None:
    came = tuple(did(1000, connected_total=1000) for _ in range(4))
    there = snapshot(5, 1000, populations=came)
    gone = snapshot(20, 100)
    ramped, rested, _, left = assembly(there, gone).stages
    assert (ramped.connected, ramped.connects_per_s, ramped.disconnects_per_s) == (4000, 400, 0)
    assert (rested.connected, rested.connects_per_s) == (4000, 0)
    assert (left.connected, left.disconnects_per_s) == (400, 1800)
