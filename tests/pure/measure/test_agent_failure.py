"""Lost agents in a result: in sums, on the time axis, in rates and phases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pubstorm.contract.sums import RunSum
from pubstorm.fleet.programs import Assignment
from pubstorm.measure.assemble import Assembly
from pubstorm.measure.ledger import Ledger
from pubstorm.measure.phases import phases
from pubstorm.measure.run_log import AgentFailure, RunLog
from pubstorm.play.progress import Progress
from pubstorm.result import PhaseStatus
from pubstorm.result.timeline import Timeline
from tests.kit import made
from tests.kit.made import SECOND_NS, START_NS
from tests.pure.measure import test_assemble, test_load_samples, test_phases
from tests.pure.measure.test_assemble import PUBLISHING_NS, flow, plan, snapshot

TEXT = "agent 1 on 10.77.0.3 (pid 71) was killed by signal 9"


def line_of(second: int, *, back: bool) -> Timeline:
    """Two agents with 500 clients each; one of them is lost in the third second of a stage, and
    another agent in its place counts its snapshots from 0 again."""
    snapshots = [snapshot(agent, n, n, sent=100) for agent in (0, 1) for n in range(2)]
    line = made.timeline(plan(), snapshots)
    line.fail(1, PUBLISHING_NS + second * SECOND_NS, 1)
    if back:
        line.take(snapshot(1, 0, second + 1, sent=100))
    return line


def test_who_is_lost_is_connected_no_more() -> None:
    line = line_of(3, back=False)
    seconds = [PUBLISHING_NS + n * SECOND_NS for n in (2, 3, 4)]
    assert [line.connected_at(instant_ns) for instant_ns in seconds] == [1000, 500, 500]
    assert line.peaks().connected == 1000
    assert line.at_end(1, seconds[-1], (0,), "ready") == 499


def test_another_engine_in_its_place_adds_up_with_it() -> None:
    line = line_of(3, back=True)
    assert line.connected_at(PUBLISHING_NS + 5 * SECOND_NS) == 1000
    assert line.peaks().connected == 1000
    assert len(list(line.rows_of(1))) == 4


def test_an_agent_that_reported_nothing_is_lost_without_a_trace() -> None:
    line = Timeline(plan(), START_NS)
    line.fail(1, PUBLISHING_NS, 0)
    assert list(line.rows()) == []


def test_expected_is_received_where_the_expected_deliveries_are_unknown() -> None:
    before = snapshot(0, 0, -1, 0, flow(expected=9, received=9))
    early = snapshot(0, 1, -0.5, 0, flow(expected=0, received=2))
    later = snapshot(0, 3, 1, 0, flow(expected=0, received=3))
    load = snapshot(0, 2, 0, 100, flow(expected=90, received=70))
    sums = RunSum()
    for each in (before, early, load, later):
        sums.take(each, early=each in (early, later))

    def expected(**excluded: set[int]) -> list[int]:
        log = RunLog(0, expect_received={int(n[-1]): found for n, found in excluded.items()})
        ledger = Ledger(sums, plan(), log)
        flows = (ledger.flows([0]), ledger.flows([1]), ledger.flows())
        return [each[0, 1].counters.expected_total for each in flows]

    assert expected() == expected(stage_1={0}) == [9, 90, 99]
    # The 2 early deliveries are expected in stage 0, which counted them. The 3 early deliveries of
    # stage 2 are not expected yet.
    assert expected(stage_1={1}) == [11, 70, 81]
    assert expected(stage_0={1}) == [9, 90, 99]
    assert expected(stage_1={1}, stage_0={1}) == [11, 70, 81]


def progress(agents: int = 1) -> Progress:
    """The progress of a run that enters its publish stage."""
    made_progress = Progress(plan(), Assignment(engines=agents), RunSum())
    made_progress.enter(1, PUBLISHING_NS)
    return made_progress


def test_what_came_before_its_agent_had_entered_a_publish_stage_is_early() -> None:
    run = progress()
    found = []
    for second in (-1, -0.5, 0):
        received = snapshot(0, round(9 + second), second, 100)
        assert run.take(received) == received.stage
        found.append(run.is_early(received))
    assert found == [False, True, False]


def test_barriers_leave_a_failed_agent_out_until_it_takes_part_again() -> None:
    run = progress(agents=2)
    run.take(snapshot(0, 0, 0, sent=1))
    assert not run.settled()
    assert run.fail(1) is None
    assert run.settled()
    run.begin_rejoin(1)
    # A replacement that goes through earlier stages counts for this one, and settles nothing of it.
    assert run.take(snapshot(1, 0, -1, sent=5)) == 1
    assert run.has_settled(1, 0)
    run.include(1, PUBLISHING_NS)
    assert not run.settled()
    run.take(snapshot(1, 1, 0, sent=1))
    assert run.settled()
    assert run.fail(1) == PUBLISHING_NS + SECOND_NS


def test_samples_of_what_is_connected_fall_at_the_instant_of_the_loss() -> None:
    line = made.Sampled(test_load_samples.plan(), agents=2)
    samples = []
    for n in range(2):
        for agent in (0, 1):
            samples += line.take(test_load_samples.snapshot(agent, n, n + 1, connected=5))
    line.fail(1, START_NS + 5 * SECOND_NS // 2)
    for n in range(2, 5):
        # The samples do not wait for an agent that reports nothing more.
        samples += line.take(test_load_samples.snapshot(0, n, n + 1, connected=5))
    samples += line.take(test_load_samples.snapshot(1, 5, 6, connected=5))
    samples += line.take(test_load_samples.snapshot(0, 5, 6, connected=5))
    found = [s.value for s in samples if (s.source.name, s.metric) == ("device", "connected")]
    assert found == [10, 10, 5, 5, 5, 10]


def failure(received_s: int, back_s: int | None = None) -> AgentFailure:
    received_ns = PUBLISHING_NS + received_s * SECOND_NS
    back_ns = None if back_s is None else PUBLISHING_NS + back_s * SECOND_NS
    host = None if back_s is None else ""
    return AgentFailure(1, received_ns + 10**8, received_ns, 501, TEXT, host, back_ns)


def assembly(*failures: AgentFailure) -> Assembly:
    """Three seconds of publishing, of which agent 1 played the first one only."""
    first = [snapshot(agent, 0, 0, sent=100) for agent in (0, 1)]
    run = test_assemble.assembly(*first, *(snapshot(0, n, n, sent=100) for n in (1, 2)))
    run.run_log.failures.extend(failures)
    return run


def test_rates_count_the_time_in_which_no_agent_played_the_clients() -> None:
    rates = [
        run.stages[1].populations["device"].sent_per_s
        for run in (assembly(), assembly(failure(1)), assembly(failure(1, back_s=2)))
    ]
    assert rates == pytest.approx([200, 100 + 100 / 3, 150])
    assert assembly(failure(1)).fleet().load_intervals_total == 4


def test_the_fleet_of_a_result_names_losses_and_hosts() -> None:
    run = assembly(failure(1), failure(2, back_s=4))
    hosts = replace(run, on="ray", hosts={0: "", 1: "10.77.0.3"})
    fleet = hosts.fleet()
    assert (fleet.on, [agent.host for agent in fleet.agents]) == ("ray", ["", "10.77.0.3"])
    assert [(each.at_s, each.clients, each.rejoined_after_s) for each in fleet.failures] == [
        (11.1, 501, None),
        (12.1, 501, 1.9),
    ]


def test_a_stage_names_populations_excluded_since_an_agent_was_away() -> None:
    run = assembly(failure(1))
    run.run_log.exclude_from_loss(0, [1])
    run.run_log.exclude_from_loss(1, [1])
    contested = run.plan.contested
    assert [run.plan.populations[n].name for n in contested if n != 1] == ["device"]
    assert [stage.excluded for stage in run.stages] == [(), ("device", "backend")]


def test_a_phase_that_lost_clients_says_nothing_of_the_target() -> None:
    lost_ns = START_NS + 5 * SECOND_NS
    log = made.run_log(START_NS, START_NS + 20 * SECOND_NS)
    log.failures = [AgentFailure(1, lost_ns, lost_ns, 75, TEXT)]
    kept = [
        each
        for each in test_phases.snapshots([test_phases.GOOD] * 20)
        if each.agent == 0 or each.to_ns <= lost_ns
    ]
    (phase,) = phases(made.assembly(test_phases.plan(), log, kept), {})
    assert phase.status is PhaseStatus.UNKNOWN
    assert phase.evidence[0].startswith("agent 1 failed")
