"""What a result says of engines that were lost: in sums, on the time axis, in rates, phases and the
verdict."""

from __future__ import annotations

import pytest

from pubstorm.assemble import Assembly
from pubstorm.cast import Cast
from pubstorm.course import Course, Loss, StageSpan
from pubstorm.merge import Totals, merge
from pubstorm.phases import phases
from pubstorm.progress import Progress
from pubstorm.result import AgentLoss, Event, PhaseStatus, ValidityLimits
from pubstorm.timeline import LoadTimeline
from tests.result import test_assemble as made
from tests.result import test_phases, test_timeline
from tests.result.conftest import MeasuredMaker
from tests.result.test_verdict import judged, summary

SECOND_NS = 10**9
PUBLISHING_NS = made.PUBLISHING_NS
TEXT = "agent 1 on 10.77.0.3 (pid 71) was killed by signal 9"
EVENT = Event(at_s=12.3, kind="agent", text=TEXT)
LOST = AgentLoss(agent=1, at_s=12.3, clients=33, text=TEXT)


def totals_of(second: int, *, back: bool) -> Totals:
    """Two agents with 500 clients each; one of them is lost in the third second of a stage, and
    another engine in its place counts its snapshots from 0 again."""
    told = [made.snapshot(agent, n, n, sent=100) for agent in (0, 1) for n in range(2)]
    totals = merge(told)
    totals.lose(1, PUBLISHING_NS + second * SECOND_NS, 1)
    if back:
        totals.add_snapshot(made.snapshot(1, 0, second + 1, sent=100))
    return totals


def test_who_is_lost_is_connected_no_more() -> None:
    totals = totals_of(3, back=False)
    seconds = [PUBLISHING_NS + n * SECOND_NS for n in (2, 3, 4)]
    assert [totals.connected_at(instant_ns) for instant_ns in seconds] == [1000, 500, 500]
    assert totals.connected_peak() == 1000
    assert totals.at_end(1, seconds[-1], (0,), "ready") == 499


def test_another_engine_in_its_place_adds_up_with_it() -> None:
    totals = totals_of(3, back=True)
    assert totals.connected_at(PUBLISHING_NS + 5 * SECOND_NS) == 1000
    assert totals.connected_peak() == 1000
    assert totals.agents[1].snapshots == 3
    assert len([i for i in totals.time_line() if i.agent == 1]) == 4


def test_an_agent_that_told_nothing_is_lost_without_a_trace() -> None:
    totals = Totals()
    totals.lose(1, PUBLISHING_NS, 0)
    assert totals.time_line() == []


def test_what_came_is_owed_where_nobody_can_say_what_ought_to_have_come() -> None:
    before = made.snapshot(0, 0, -1, 0, made.flow(expected=9, received=9))
    early = made.snapshot(0, 1, -0.5, 0, made.flow(expected=0, received=2))
    later = made.snapshot(0, 3, 1, 0, made.flow(expected=0, received=3))
    load = made.snapshot(0, 2, 0, 100, made.flow(expected=90, received=70))
    totals = merge([before, early, load, later])
    totals.note_early(early)
    totals.note_early(later)

    def expected() -> list[int]:
        return [totals.stage(n).flow(0, 1).counters["expected_total"] for n in (0, 1)]

    totals.owe_received(1, {0})
    assert expected() == [9, 90]
    # What came before its agent had entered the stage is owed where it was counted, and what it had
    # of the next one there.
    totals.owe_received(1, {1})
    assert expected() == [11, 70]


def test_what_came_before_its_agent_had_entered_a_publish_stage_is_early() -> None:
    progress = Progress(made.plan())
    progress.enter(1, PUBLISHING_NS)
    for second in (-1, -0.5, 0):
        received = made.flow(expected=9, received=round(9 + second))
        progress.take(made.snapshot(0, round(9 + second), second, 100, received))
    assert dict(progress.totals.early) == {(0, 0, 1): 8}


def test_barriers_ask_for_who_is_lost_no_more_and_for_who_takes_part_again() -> None:
    progress = Progress(made.plan(), Cast(engines=2))
    progress.enter(1, PUBLISHING_NS)
    progress.take(made.snapshot(0, 0, 0, sent=1))
    assert not progress.settled()
    assert progress.lose(1, PUBLISHING_NS) is None
    assert progress.settled()
    progress.bring_back(1)
    # What it does on its way is done now, and settles nothing of this stage.
    progress.take(made.snapshot(1, 0, -1, sent=5))
    assert progress.has_settled(1, 0)
    assert progress.totals.stage(1).sum_of("sent_total") == 6
    progress.await_again(1, PUBLISHING_NS)
    assert not progress.settled()
    progress.take(made.snapshot(1, 1, 0, sent=1))
    assert progress.settled()
    assert progress.lose(1, PUBLISHING_NS + SECOND_NS) == PUBLISHING_NS + SECOND_NS


def test_samples_of_what_is_connected_fall_at_the_instant_of_the_loss() -> None:
    line = LoadTimeline(test_timeline.plan(), 2, test_timeline.START_NS)
    samples = []
    for n in range(2):
        for agent in (0, 1):
            samples += line.take(test_timeline.snapshot(agent, n, n + 1, connected=5))
    line.lose(1, test_timeline.START_NS + 5 * SECOND_NS // 2)
    for n in range(2, 5):
        # Nobody waits for who tells nothing more.
        samples += line.take(test_timeline.snapshot(0, n, n + 1, connected=5))
    samples += line.take(test_timeline.snapshot(1, 5, 6, connected=5))
    samples += line.take(test_timeline.snapshot(0, 5, 6, connected=5))
    found = [s.value for s in samples if (s.source, s.metric) == ("device", "connected")]
    assert found == [10, 10, 5, 5, 5, 10]


def loss(heard_s: int, back_s: int | None = None) -> Loss:
    heard_ns = PUBLISHING_NS + heard_s * SECOND_NS
    back_ns = None if back_s is None else PUBLISHING_NS + back_s * SECOND_NS
    return Loss(1, heard_ns + 10**8, heard_ns, 501, TEXT, None if back_s is None else "", back_ns)


def assembly(*losses: Loss) -> Assembly:
    """Three seconds of publishing, of which agent 1 played the first one only."""
    first = [made.snapshot(agent, 0, 0, sent=100) for agent in (0, 1)]
    run = made.assembly(*first, *(made.snapshot(0, n, n, sent=100) for n in (1, 2)))
    run.course.losses.extend(losses)
    return run


def test_rates_count_the_time_in_which_nobody_played_the_clients() -> None:
    rates = [
        run.stages()[1].populations["device"].sent_per_s
        for run in (assembly(), assembly(loss(1)), assembly(loss(1, back_s=2)))
    ]
    assert rates == pytest.approx([200, 100 + 100 / 3, 150])
    assert assembly(loss(1)).fleet().load_intervals_total == 4


def test_the_fleet_of_a_result_names_losses_and_hosts() -> None:
    run = assembly(loss(1), loss(2, back_s=4))
    hosts = Assembly(
        run.plan, run.hellos, run.course, run.totals, run.limits, "ray", {0: "", 1: "10.77.0.3"}
    )
    fleet = hosts.fleet()
    assert (fleet.on, [agent.host for agent in fleet.agents]) == ("ray", ["", "10.77.0.3"])
    assert [(each.at_s, each.clients, each.back_after_s) for each in fleet.losses] == [
        (11.1, 501, None),
        (12.1, 501, 1.9),
    ]


def test_a_stage_says_who_is_not_judged_since_an_engine_was_away() -> None:
    run = assembly(loss(1))
    run.course.owe_received(0, [1])
    run.course.owe_received(1, [1])
    assert [stage.unjudged for stage in run.stages()] == [(), ("backend",)]


def test_a_phase_that_lost_clients_tells_nothing_of_the_target() -> None:
    start_ns = test_phases.START_NS
    end_ns = start_ns + 20 * SECOND_NS
    course = Course(start_ns, end_ns)
    course.spans = [StageSpan(1, start_ns, end_ns, end_ns, settled=True)]
    lost_ns = start_ns + 5 * SECOND_NS
    course.losses = [Loss(1, lost_ns, lost_ns, 75, TEXT)]
    limits = ValidityLimits(lateness_p99_us=10_000, busy=0.9)
    kept = [
        each
        for each in test_phases.snapshots([test_phases.GOOD] * 20)
        if each.agent == 0 or each.to_ns <= lost_ns
    ]
    (phase,) = phases(Assembly(test_phases.plan(), [], course, merge(kept), limits), {})
    assert phase.status is PhaseStatus.UNKNOWN
    assert phase.evidence[0].startswith("agent 1 was lost")


def test_a_loss_that_ends_the_run_makes_it_invalid(measured: MeasuredMaker) -> None:
    assert summary(judged(measured(events=(EVENT,)))) == ("invalid", "generator")


@pytest.mark.parametrize(
    ("back", "words"),
    [
        ({}, "its 33 of 101 clients were away from then on"),
        (
            {"replaced_on": "", "back_after_s": 4.2},
            "its 33 of 101 clients were away until another engine brought them back, which began "
            "4.20 s later",
        ),
    ],
)
def test_a_loss_with_which_the_run_went_on_is_a_fact_with_its_numbers(
    measured: MeasuredMaker, back: dict[str, object], words: str
) -> None:
    lost = LOST.model_copy(update=back)
    verdict = judged(measured(fleet={"losses": (lost,)}, events=(EVENT,)))
    assert summary(verdict) == ("pass", "none")
    assert f"at 12.3 s: {TEXT}: {words}" in verdict.evidence


def test_a_run_without_a_replacement_is_invalid(measured: MeasuredMaker) -> None:
    text = "agent 1 could not be replaced: no host is free"
    events = (EVENT, Event(at_s=16.0, kind="agent", text=text))
    verdict = judged(measured(fleet={"losses": (LOST,)}, events=events))
    assert summary(verdict) == ("invalid", "generator")
    assert verdict.evidence[0] == f"at 16.0 s: {text}"
