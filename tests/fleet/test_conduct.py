"""How a run goes on and ends, with a fake agent as real processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from pubstorm import conduct
from pubstorm.conduct import Conductor, Happening, Interrupt
from pubstorm.fleet import Fleet, Frame
from pubstorm.fleet.local import LocalSlot
from pubstorm.live import SilentLive
from pubstorm.plan import ConnectAction, DisconnectAction, HoldAction, Plan, PublishAction
from pubstorm.topology import BrokerDied

SlotMaker = Callable[[int], list[LocalSlot]]
PlanMaker = Callable[..., Plan]
CONNECT = ConnectAction(rate_per_s=None, parallelism=None, timeout_ns=10**8)
PUBLISH = PublishAction(duration_ns=10**7)
HOLD = HoldAction(duration_ns=10**7)
LEAVE = DisconnectAction(rate_per_s=None)


def play(slots: list[LocalSlot], plan: Plan, *first: Happening) -> tuple[Conductor, list[Frame]]:
    """Plays a plan; `first` are happenings that come before anything else."""

    async def run() -> tuple[Conductor, list[Frame]]:
        happenings: asyncio.Queue[Happening] = asyncio.Queue()
        kept: list[Frame] = []
        fleet = Fleet(slots, happenings.put_nowait)
        conductor = Conductor(plan, fleet, happenings, SilentLive())
        await fleet.up(plan.to_line())
        for happening in first:
            happenings.put_nowait(happening)
        await conductor.play(kept.append)
        assert not fleet.alive
        return conductor, kept

    return asyncio.run(run())


def test_every_stage_is_played_in_order(slots: SlotMaker, plan_named: PlanMaker) -> None:
    conductor, kept = play(slots(2), plan_named("well", CONNECT, PUBLISH, HOLD, LEAVE))
    course = conductor.course
    assert [span.index for span in course.spans] == [0, 1, 2, 3]
    assert all(span.settled for span in course.spans)
    assert all(a.to_ns <= b.from_ns for a, b in zip(course.spans, course.spans[1:], strict=False))
    assert course.endings == {0: "bye", 1: "bye"}
    assert course.events == []
    assert not course.ended_early
    assert len(kept) == 8


def test_a_lost_agent_ends_the_run_and_is_named(slots: SlotMaker, plan_named: PlanMaker) -> None:
    conductor, _ = play(slots(2), plan_named("crashes-alone", CONNECT, PUBLISH))
    course = conductor.course
    assert course.ended_early
    assert [event.kind for event in course.events] == ["agent"]
    assert "agent 1 (pid " in course.events[0].text
    assert course.endings[0] == "bye"


def test_nothing_connected_ends_the_run(
    slots: SlotMaker, plan_named: PlanMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conduct, "HOPELESS_NS", 0)
    conductor, _ = play(slots(1), plan_named("refused", CONNECT, PUBLISH))
    assert conductor.course.ended_early
    assert conductor.course.events[0].kind == "target"
    assert len(conductor.course.spans) == 1


def test_a_barrier_that_does_not_fill_is_passed_after_its_timeout(
    slots: SlotMaker, plan_named: PlanMaker
) -> None:
    conductor, _ = play(slots(1), plan_named("never-settles", CONNECT, LEAVE_SOON))
    course = conductor.course
    assert [span.settled for span in course.spans] == [False, False]
    assert [event.kind for event in course.events] == ["stage", "stage"]
    assert not course.ended_early


def test_an_interrupt_ends_the_run_and_keeps_it(slots: SlotMaker, plan_named: PlanMaker) -> None:
    conductor, _ = play(slots(1), plan_named("well", CONNECT, PUBLISH), Interrupt("SIGINT"))
    course = conductor.course
    assert course.interrupted
    assert course.ended_early
    assert course.endings == {0: "bye"}
    assert [event.text for event in course.events] == ["interrupted by SIGINT"]


def test_a_broker_that_dies_is_told_and_ends_nothing(
    slots: SlotMaker, plan_named: PlanMaker
) -> None:
    died = BrokerDied("main-0", "broker main-0 (pid 1) was killed by signal 9")
    conductor, _ = play(slots(1), plan_named("well", CONNECT, PUBLISH), died)
    assert [(e.kind, e.text) for e in conductor.course.events] == [("broker", died.text)]
    assert not conductor.course.ended_early


LEAVE_SOON = HoldAction(duration_ns=0)
