"""Effects of faults, from samples and intervals made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pubstorm.contract import Source
from pubstorm.contract.snapshot import Snapshot
from pubstorm.measure.assemble import Assembly
from pubstorm.measure.faults import (
    Times,
    Waiting,
    backlog,
    fault_results,
    fault_spans,
    recovery,
    summed,
)
from pubstorm.measure.phases import phases
from pubstorm.measure.run_log import AppliedFault
from pubstorm.metrics.expressions import parse_expression
from pubstorm.plan.stages import planned_faults
from pubstorm.result import BridgeResult, FaultResult, Phase, PhaseStatus, Recovery
from pubstorm.result.figures import Found, Missing, evaluate
from pubstorm.result.samples import Span, Track, Tracks
from pubstorm.result.verdict import evaluate_run
from pubstorm.scenario import parse_scenario
from tests.kit import made
from tests.kit.made import SECOND_NS, START_NS
from tests.kit.measured import measured_run
from tests.kit.measured import phase as measured_phase

SCENARIO = """\
topology:
  brokers: {{cloud: {{kind: mosquitto}}, boxes: {{kind: mosquitto, count: 4}}}}
  bridges: {{up: {{from: boxes, to: cloud, topics: [{{topic: "up/#", direction: out}}]}}}}
populations:
  device:
    clients: 100
    at: cloud
    publications: [{{topic: "d/{{n}}", rate: {rate}, qos: 1}}]
  backend:
    clients: 2
    at: cloud
    subscriptions: [{{topic: "d/#", qos: 1}}]
stages:
  - connect
  - {verb}: {{for: 60s, name: load, faults: [{faults}]}}
"""
KILL = "{at: 20s, kill: cloud, for: 5s}"


def times(began: float, repaired: float | None, end: float, then: float | None = None) -> Times:
    return Times(began, repaired, end if then is None else then, end)


# Seconds with numbers of connections.
FALL_AND_RISE = [(0, 100), (10, 100), (11, 40), (12, 0), (16, 1), (18, 60), (22, 99), (31, 100)]


LOST = {"before": 100, "lowest": 0}


@pytest.mark.parametrize(
    ("spans", "back"),
    [
        # Times count from the repairing.
        (times(10.5, 15.0, 60.0), {"first_s": 1.0, "most_s": 7.0, "all_s": 16.0}),
        (times(10.5, 15.0, 20.0), {"first_s": 1.0}),
        (times(10.5, 15.0, 15.5), {}),
        (times(10.5, None, 60.0), {}),
        # Clients that reconnect before the repair count as 0 s.
        (times(10.5, 20.0, 60.0), {"first_s": 0.0, "most_s": 2.0, "all_s": 11.0}),
    ],
)
def test_a_recovery_has_the_times_that_came(spans: Times, back: dict[str, float]) -> None:
    assert recovery(FALL_AND_RISE, spans) == Recovery.model_validate({**LOST, **back})


def test_without_losses_there_is_no_recovery() -> None:
    assert recovery([(0, 100), (30, 100)], times(10, 15, 60)) is None
    assert recovery([], times(10, 15, 60)) is None
    assert recovery([(0, 100), (40, 0)], times(10, 15, 60, then=39)) is None


def test_the_worst_moment_is_that_before_the_next_fault() -> None:
    steps = [(0, 100), (11, 50), (16, 60), (31, 0), (40, 100)]
    found = recovery(steps, times(10, 15, 60, then=30))
    assert found == Recovery(before=100, lowest=50, first_s=1.0, most_s=25.0, all_s=25.0)


def test_bridges_of_several_names_are_counted_together() -> None:
    tracks = [Track([0.0, 10.0], [3.0, 0.0]), Track([0.0, 10.0, 12.5], [5.0, 2.0, 5.0])]
    assert summed(tracks) == [(0.0, 8), (10.0, 2), (12.5, 5)]


def waits(counts: Sequence[float], came_per_s: float = 100.0) -> list[Waiting]:
    return [Waiting(float(n + 1), came_per_s, count) for n, count in enumerate(counts)]


def overtaken() -> list[Waiting]:
    """Messages that wait, some of which others have passed over."""
    counts, missing = (400, 600, 600, 600, 600, 450), (0, 0, 0, 0, 400, 400)
    passed = zip(waits([5] * 10 + list(counts))[10:], missing, strict=True)
    return waits([5] * 10) + [replace(each, missing=over) for each, over in passed]


SILENT = [*waits([1] * 10), *(Waiting(float(n), 0.0, 1) for n in range(11, 20))]
"""A closed loop that stops: its silence is no recovery."""


@pytest.mark.parametrize(
    ("seen", "spans", "lost", "peak", "drained_s"),
    [
        # It is gone with no more than a second of messages.
        (waits([5] * 10 + [200, 400, 600, 300, 100, 5]), times(10, 13, 16), 0, 600, 2.0),
        (waits([5] * 10 + [200, 400, 600, 500]), times(10, 13, 14), 0, 600, None),
        (overtaken(), times(10, 12, 16), 400, 600, 4.0),
        (overtaken(), times(10, 12, 16), 0, 600, None),
        (SILENT, times(10, 12, 20), 0, 1, None),
    ],
)
def test_a_backlog_has_its_peak_and_the_time_until_it_was_gone(
    seen: list[Waiting], spans: Times, lost: int, peak: float, drained_s: float | None
) -> None:
    found = backlog(seen, spans, lost=lost)
    assert found is not None
    assert (found.peak, found.drained_s) == (peak, drained_s)


def test_without_any_messages_there_is_no_backlog() -> None:
    assert backlog(waits([0] * 20, came_per_s=0), times(10, 12, 20), lost=0) is None
    assert backlog([], times(10, 12, 20), lost=0) is None


def snapshot(second: int, connected: int, sent: int, received: int, unsent: int) -> Snapshot:
    duplicates = 3 * (second == 30)
    flow = made.flow(
        0, 1, expected_total=2 * sent, received_total=received, duplicate_total=duplicates
    )
    return made.snapshot(
        made.population(
            connected=connected, ready=connected, backlog=unsent, sent_total=sent, acked_total=sent
        ),
        made.population(connected=2 if connected else 0, ready=2 if connected else 0),
        from_ns=START_NS + second * SECOND_NS,
        sequence=second,
        settled=True,
        flows=(flow,),
    )


def outage(from_s: int, to_s: int, then: int = 1000) -> list[Snapshot]:
    """A minute of 1000 messages a second to two receivers, none of them in the outage; what waited
    goes out after it, `then` beside 1000 a second."""
    found: list[Snapshot] = []
    unsent = 0
    for second in range(60):
        if from_s <= second < to_s:
            unsent += 1000
            found.append(snapshot(second, 0, 0, 0, unsent))
            continue
        more = min(then, unsent)
        unsent -= more
        found.append(snapshot(second, 100, 1000 + more, 2 * (1000 + more), unsent))
    return found


def assembly(
    seconds: Sequence[Snapshot], faults: str = KILL, verb: str = "publish", rate: str = "10/s"
) -> Assembly:
    text = SCENARIO.format(faults=faults, verb=verb, rate=rate)
    log = made.run_log(START_NS, START_NS + 60 * SECOND_NS)
    for fault in planned_faults(parse_scenario(text, "s.yaml")):
        began_ns = START_NS + fault.after_ns
        repaired_ns = None if fault.lasts_ns is None else began_ns + fault.lasts_ns
        log.faults.append(AppliedFault(fault, began_ns, repaired_ns))
    return made.assembly(made.compiled(text), log, seconds)


def bridges_up(*steps: tuple[float, float]) -> Tracks:
    return {
        (made.source("up"), "connected"): Track(
            [at for at, _ in steps], [value for _, value in steps]
        )
    }


def test_a_killed_broker_is_reported_with_clients_bridges_and_backlog() -> None:
    run = assembly(outage(20, 26))
    tracks = bridges_up((0.0, 4.0), (20.01, 0.0), (27.5, 1.0), (29.25, 4.0))
    (fault,) = fault_results(run, tracks, ["up"])
    assert (fault.stage, fault.name, fault.kind) == ("load", "kill cloud", "kill")
    assert (fault.at_s, fault.repaired_at_s, fault.victims) == (20.0, 25.0, ("cloud-0",))
    assert fault.clients == Recovery(before=102, lowest=0, first_s=2.0, most_s=2.0, all_s=2.0)
    assert fault.bridges == Recovery(before=4, lowest=0, first_s=2.5, most_s=4.25, all_s=4.25)
    # Each scheduled message has two expected deliveries.
    assert (fault.backlog_peak, fault.drained_s) == (12_000, 6.0)
    assert fault.evidence == (
        "102 of 102 clients were lost, first back after 2.0 s, 99 % back after 2.0 s, all back "
        "after 2.0 s",
        "4 of 4 bridges were lost, first back after 2.5 s, 99 % back after 4.2 s, all back after "
        "4.2 s",
        "up to 12\u202f000 messages waited, gone 6.0 s after it was repaired",
    )


def test_an_outage_shorter_than_the_period_of_the_clients_has_a_recovery() -> None:
    """100 clients send a message in 10 s each. The broker is away for 3 s, then all comes."""
    found, unsent = [], 0
    for second in range(60):
        sent = 0 if 20 <= second < 23 else 10 + unsent
        unsent = unsent + 10 if not sent else 0
        found.append(snapshot(second, 100 if sent else 0, sent, 2 * sent, unsent))
    run = assembly(found, "{at: 20s, kill: cloud, for: 3s}", rate="0.1/s")
    measured = measured_run(phases=phases(run, {}), faults=fault_results(run, {}, []))
    recovery_s = evaluate(measured, parse_expression("recovery@kill cloud"))
    assert isinstance(recovery_s, Found)
    assert 3 <= recovery_s.value <= 5


def test_clients_that_never_come_back_are_reported() -> None:
    run = assembly(outage(20, 60))
    (fault,) = fault_results(run, {}, ["up"])
    assert fault.clients == Recovery(before=102, lowest=0)
    assert fault.bridges is None
    assert (fault.backlog_peak, fault.drained_s) == (80_000, None)
    assert "102 of 102 clients were lost, none back in the stage" in fault.evidence
    assert "up to 80\u202f000 messages waited, not gone in the stage" in fault.evidence


def test_clients_that_were_never_ready_are_in_no_backlog() -> None:
    """20 of 100 devices have wrong passwords, so their messages wait all the time."""
    found = []
    for second, good in enumerate(outage(20, 26)):
        device = good.populations[0]
        sent, connected = device.counters.sent_total * 8 // 10, device.gauges.connected * 8 // 10
        unsent = device.gauges.backlog * 8 // 10 + 200 * (second + 1)
        found.append(snapshot(second, connected, sent, 2 * sent, unsent))
    (fault,) = fault_results(assembly(found), {}, [])
    assert fault.drained_s == 6.0
    assert fault.backlog_peak == pytest.approx(9600, rel=0.05)


def test_only_bridges_that_were_cut_count_for_a_cut() -> None:
    run = assembly(outage(0, 0), "{at: 20s, cut: up, for: ever}")
    tracks = {
        **bridges_up((0.0, 4.0), (21.0, 1.0)),
        (Source.single("bridge", "other"), "connected"): Track([0.0], [9.0]),
    }
    (fault,) = fault_results(run, tracks, ["up", "other"])
    assert fault.bridges == Recovery(before=4, lowest=1)
    assert fault.clients is None
    assert fault.evidence[0] == "3 of 4 bridges were lost"


def test_what_could_not_be_done_is_reported() -> None:
    run = assembly(outage(0, 0))
    run.run_log.faults[0].problems += [f"broker cloud-{n} did not come up" for n in range(5)]
    (fault,) = fault_results(run, {}, [])
    assert fault.evidence[-3:] == (
        "broker cloud-1 did not come up",
        "broker cloud-2 did not come up",
        "and 2 problems more",
    )


def test_a_fault_of_a_hold_stage_has_neither_backlog_nor_phase() -> None:
    run = assembly(outage(20, 26), KILL + ", {at: 40s, freeze: boxes}", verb="hold")
    found = fault_results(run, {}, [])
    assert [fault.backlog_peak for fault in found] == [None, None]
    assert phases(run, {}) == ()
    assert fault_spans(found, run.stages) == [
        Span("kill cloud", 20.0, 40.0),
        Span("freeze boxes", 40.0, 60.0),
    ]


def test_a_fault_begins_a_phase_that_is_evaluated_as_a_whole() -> None:
    before, broken = phases(assembly(outage(20, 26)), {})
    assert (before.name, before.status) == ("load", PhaseStatus.HELD)
    assert (broken.name, broken.status) == ("kill cloud", PhaseStatus.COLLAPSED)
    assert (broken.start_s, broken.duration_s) == (20, 40)
    assert broken.due_per_s == pytest.approx(1000)
    assert broken.recovered_after_s is not None
    _, broken = phases(assembly(outage(20, 60)), {})
    assert (broken.status, broken.recovered_after_s) == (PhaseStatus.COLLAPSED, None)


def phase(name: str, status: PhaseStatus, recovered_after_s: float | None = None) -> Phase:
    return measured_phase(
        stage="load", name=name, status=status, recovered_after_s=recovered_after_s
    )


def fault_result(name: str = "kill cloud", **values: Any) -> FaultResult:
    return FaultResult(
        stage="load", name=name, kind="kill", victims=("cloud-0",), at_s=20, repaired_at_s=25
    ).model_copy(update=values)


@pytest.mark.parametrize(
    ("later", "passes"),
    [
        ([], False),
        ([phase("kill boxes", PhaseStatus.RECOVERED, 3)], True),
        ([phase("kill boxes", PhaseStatus.UNKNOWN)], False),
        ([phase("kill boxes", PhaseStatus.NEVER_RECOVERED)], False),
        (
            [
                phase("kill boxes", PhaseStatus.NEVER_RECOVERED),
                phase("kill boxes (2)", PhaseStatus.RECOVERED, 3),
            ],
            True,
        ),
    ],
)
def test_what_a_fault_broke_has_to_be_made_up_for_before_the_stage_ends(
    later: list[Phase], passes: bool
) -> None:
    names = ("kill cloud", "kill boxes", "kill boxes (2)")
    faults = tuple(map(fault_result, names))
    found = (phase("load", PhaseStatus.HELD), phase("kill cloud", PhaseStatus.COLLAPSED), *later)
    verdict = evaluate_run(measured_run(phases=found, faults=faults), [])
    assert (verdict.status == "pass") is passes
    assert (verdict.limited_by == "none") is passes


BACK = Recovery(before=100, lowest=20, first_s=1.5, most_s=9.0)
UP = BridgeResult(name="up", main="cloud", small="boxes", bridges=4, up=4, up_after_s=1.0)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("clients_lost@kill cloud", 80),
        ("clients_back.first@kill cloud", 1.5),
        ("clients_back.most@kill cloud", 9),
        ("bridges_lost@kill cloud", 0),
        ("bridges_back.all@kill cloud", 0),
        ("backlog_peak@kill cloud", 500),
        ("drained@kill cloud", 4.5),
    ],
)
def test_expressions_find_what_came_of_a_fault(expression: str, value: float) -> None:
    fault = fault_result(clients=BACK, backlog_peak=500, drained_s=4.5)
    found = evaluate(measured_run(faults=(fault,), bridges=(UP,)), parse_expression(expression))
    assert isinstance(found, Found)
    assert found.value == value


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("clients_back.all@kill cloud", "clients were not back in stage load"),
        ("bridges_back.all@kill cloud", "no bridges were counted"),
        ("backlog_peak@kill cloud", "nothing was measured"),
        ("drained@kill boxes", "the backlog was not gone in stage load"),
        ("drained@freeze cloud", "freeze cloud did not happen"),
    ],
)
def test_what_did_not_come_back_has_no_value(expression: str, reason: str) -> None:
    faults = (fault_result(clients=BACK), fault_result("kill boxes", backlog_peak=9))
    found = evaluate(measured_run(faults=faults), parse_expression(expression))
    assert isinstance(found, Missing)
    assert found.reason == reason


def test_stages_of_one_name_are_distinguished_by_their_time() -> None:
    run = assembly(outage(20, 26), KILL, verb="hold")
    (fault,) = fault_results(run, {}, [])
    (first,) = (stage for stage in run.stages if stage.kind == "hold")
    second = first.model_copy(update={"start_s": 100.0})
    assert fault_spans([fault], [first, second]) == [Span("kill cloud", 20.0, 60.0)]


def later(name: str, status: PhaseStatus, at_s: float, **values: Any) -> Phase:
    """A phase that begins at an instant."""
    return phase(name, status).model_copy(update={"start_s": at_s, **values})


def collapsed(**values: Any) -> Phase:
    """The phase of a fault at 20 s, whose load was not carried from 21 s on."""
    return later("kill cloud", PhaseStatus.COLLAPSED, 20, collapsed_at_s=21, **values)


@pytest.mark.parametrize(
    ("found", "value"),
    [
        ([later("kill cloud", PhaseStatus.HELD, 20)], 0),
        ([collapsed(recovered_after_s=6)], 7),
        ([collapsed(), later("kill boxes", PhaseStatus.RECOVERED, 30, recovered_after_s=3)], 13),
        (
            [collapsed(), later("a", PhaseStatus.NEVER_RECOVERED, 30)],
            "the load was not carried again in stage load",
        ),
        ([collapsed()], "the load was not carried again in stage load"),
        (
            [later("kill cloud", PhaseStatus.UNKNOWN, 20, evidence=("the generator was late",))],
            "phase kill cloud was not evaluated: the generator was late",
        ),
        (
            [collapsed(), later("a", PhaseStatus.RECOVERED, 30, stage="b", recovered_after_s=3)],
            "the load was not carried again in stage load",
        ),
        ([], "kill cloud is no phase of this run"),
    ],
)
def test_the_recovery_of_a_phase_is_the_time_until_the_load_was_carried_again(
    found: list[Phase], value: float | str
) -> None:
    played = measured_run(phases=(phase("load", PhaseStatus.HELD), *found))
    read = evaluate(played, parse_expression("recovery@kill cloud"))
    assert (read.reason if isinstance(read, Missing) else read.value) == value


def test_the_recovery_of_an_outage_is_measured_from_the_fault() -> None:
    """6000 messages wait after 6 s, and 1000 go out a second beside the load: the queue is gone,
    with one second's messages left, after 5 s more."""
    run = measured_run(phases=phases(assembly(outage(20, 26)), {}))
    read = evaluate(run, parse_expression("recovery@kill cloud"))
    assert isinstance(read, Found)
    assert read.value == 11
