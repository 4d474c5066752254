"""Publishers that a fault stops and starts again, in virtual time: their ends are expected, the
next processes continue their streams, and every other end of a publisher ends the run."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from pubstorm.contract.commands import Sent
from pubstorm.contract.plan import HoldAction, PlannedStage, PublishAction
from pubstorm.plan.stages import PlannedFault
from tests.kit.virtual import Behaviour, Played, Script, run_virtually
from tests.kit.virtual import play as play_virtually
from tests.pure.play.test_faults import MS_NS, Breaker, near
from tests.pure.play.test_publishers import publishing

LOAD = PublishAction(duration_ns=2000 * MS_NS)
PLAN = publishing("publishers-restart").model_copy(
    update={
        "stages": (
            PlannedStage(name="load", action=LOAD, populations=(1,)),
            PlannedStage(name="after", action=LOAD, populations=(1,)),
        )
    }
)
"""One engine, agent 0, and two publishers, agents 1 and 2."""
STOP = PlannedFault(
    stage=0,
    name="stop feed",
    kind="stop",
    after_ns=500 * MS_NS,
    lasts_ns=300 * MS_NS,
    group="feed",
    numbers=(0, 1),
    publishers=2,
)


def script(*faults: PlannedFault, **changes: Any) -> Script:
    return Script(agents=3, faults=faults or (STOP,), breaker=Breaker(), **changes)


def commands(played: Played, agent: int, incarnation: int) -> list[dict[str, Any]]:
    return played.agents[agent, incarnation].commands


def test_stopped_publishers_continue_where_they_ended() -> None:
    played = play_virtually(PLAN, script())
    run_log = played.run_log
    assert not run_log.ended_early
    assert [event.text for event in run_log.events] == [
        "stop feed",
        "stop feed: 2 publishers are up again",
    ]
    assert run_log.endings == dict.fromkeys(range(3), "bye")
    (applied,), (load, after) = run_log.faults, run_log.spans
    assert applied.repaired_ns is not None
    assert applied.began_ns == near(load.from_ns + 500 * MS_NS)
    assert (load.settled, after.settled) == (True, True)
    for agent in (1, 2):
        assert [c["command"] for c in commands(played, agent, 0)] == ["stage", "stop"]
        resume, enter, *others = commands(played, agent, 1)
        assert [c["command"] for c in others] == ["close", "stage", "close", "stop"]
        assert enter == {"command": "stage", "index": 0, "at_ns": load.from_ns}
        start_delay_ns = played.fleet.timeouts.start_delay_ns
        assert resume["from_ns"] == near(applied.repaired_ns + start_delay_ns)
        # The agents of these tests send ten messages for each population as a stage begins.
        assert (resume["sent"], resume["scheduled"]) == (20, 20)


def test_engines_learn_what_all_processes_of_a_publisher_sent() -> None:
    played = play_virtually(PLAN, script())
    closes = [c["sent"] for c in commands(played, 0, 0) if c["command"] == "close"]
    for sent, total in zip(closes, (40, 60), strict=True):
        expected = [Sent(population=1, client=client, total=total) for client in (0, 1)]
        assert sent == [each.model_dump() for each in expected]


@pytest.mark.parametrize("numbers", [(0,), (1,)])
def test_other_publishers_of_a_population_are_not_touched(numbers: tuple[int, ...]) -> None:
    played = play_virtually(PLAN, script(replace(STOP, numbers=numbers)))
    restarted = {agent for agent, incarnation in played.agents if incarnation}
    assert restarted == {1 + number for number in numbers}
    assert not played.run_log.ended_early


def test_publishers_are_restarted_in_a_hold_stage() -> None:
    hold = PlannedStage(name="hold", action=HoldAction(duration_ns=2000 * MS_NS), populations=())
    plan = PLAN.model_copy(update={"stages": (hold, PLAN.stages[1])})
    played = play_virtually(plan, script())
    assert [span.settled for span in played.run_log.spans] == [True, True]
    assert [c["command"] for c in commands(played, 2, 1)] == [
        "resume",
        "stage",
        "stage",
        "close",
        "stop",
    ]


def test_a_change_of_the_rate_by_hand_reaches_the_next_process() -> None:
    async def run() -> Played:
        played = Played(PLAN, script())
        asked: list[str] = []

        def ask() -> None:
            task = asyncio.ensure_future(played.controller.change("rate 2 feed"))
            task.add_done_callback(lambda done: asked.append(done.result()))

        asyncio.get_running_loop().call_later(0.3, ask)
        await played.play()
        assert len(asked) == 1
        return played

    played = run_virtually(run())
    for agent in (1, 2):
        before = next(c for c in commands(played, agent, 0) if c["command"] == "change")
        _, enter, again, *_ = commands(played, agent, 1)
        assert (enter["command"], again) == ("stage", before)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"behaviours": {2: Behaviour(stops_after_s=None)}}, "did not stop in time"),
        ({"kills_at_s": ((1.5, 1),)}, "was killed by signal 9"),
    ],
)
def test_other_ends_of_a_publisher_end_the_run(changes: dict[str, Any], text: str) -> None:
    run_log = play_virtually(PLAN, script(**changes, policy="continue")).run_log
    assert run_log.ended_early
    assert text in run_log.events[-1].text


def test_a_publisher_that_does_not_start_again_stays_down() -> None:
    played = play_virtually(PLAN, script(refuses=True))
    (applied,) = played.run_log.faults
    assert applied.repaired_ns is None
    assert applied.problems[0] == (
        "publisher feed-0 did not start again: no host is free (start one)"
    )
    assert len(applied.problems) == 2
    assert len(played.run_log.spans) == 2
    assert not played.run_log.ended_early


def test_faults_of_several_publishers_overlap() -> None:
    slow = {agent: Behaviour(stops_after_s=0.4) for agent in (1, 2)}
    one = replace(STOP, numbers=(0,))
    other = replace(STOP, name="other", after_ns=600 * MS_NS, numbers=(1,))
    run_log = play_virtually(PLAN, script(one, other, behaviours=slow)).run_log
    assert not run_log.ended_early
    assert all(applied.repaired_ns is not None for applied in run_log.faults)


@pytest.mark.parametrize("at_s", [0.6, 1.205, 1.21, 1.3])
def test_a_run_that_is_interrupted_during_a_restart_ends(at_s: float) -> None:
    slow = {agent: Behaviour(stops_after_s=0.4) for agent in (1, 2)}
    played = play_virtually(PLAN, script(behaviours=slow, interrupt_at=0, interrupts_s=(at_s,)))
    assert played.run_log.interrupted
    assert {event.kind for event in played.run_log.events} <= {"fault", "interrupt", "by_hand"}
    assert played.run_log.endings[0] == "bye"
