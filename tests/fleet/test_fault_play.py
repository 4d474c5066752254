"""When faults are played: at their instants, beside the stage, and mended before it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from pubstorm.conduct import Conductor, Happening, Interrupt
from pubstorm.faults.play import FaultPlay
from pubstorm.fleet import Fleet
from pubstorm.fleet.local import LocalSlot
from pubstorm.live import SilentLive
from pubstorm.plan import HoldAction, Plan, PublishAction
from pubstorm.plan.faults import PlannedFault

SlotMaker = Callable[[int], list[LocalSlot]]
PlanMaker = Callable[..., Plan]
MS_NS = 10**6
LONG_S = 60.0


def fault(
    stage: int, after_ms: int, lasts_ms: int | None, name: str = "kill cloud"
) -> PlannedFault:
    return PlannedFault(
        stage=stage,
        name=name,
        kind="kill",
        after_ns=after_ms * MS_NS,
        lasts_ns=None if lasts_ms is None else lasts_ms * MS_NS,
        group="cloud",
        numbers=(0,),
    )


class Breaker:
    """Breaks nothing, and notes what it was asked for."""

    def __init__(self, problems: Sequence[str] = (), mending: asyncio.Event | None = None) -> None:
        self.asked: list[str] = []
        self._problems = tuple(problems)
        self._mending = mending

    async def begin(self, fault: PlannedFault) -> tuple[str, ...]:
        self.asked.append(f"begin {fault.name}")
        return ()

    async def mend(self, fault: PlannedFault) -> tuple[str, ...]:
        self.asked.append(f"mend {fault.name}")
        if self._mending is not None:
            await self._mending.wait()
        return self._problems


def play(
    slots: list[LocalSlot],
    plan: Plan,
    breaker: Breaker,
    faults: Sequence[PlannedFault],
    beside: Callable[[asyncio.Queue[Happening]], None] = lambda _: None,
) -> Conductor:
    async def run() -> Conductor:
        happenings: asyncio.Queue[Happening] = asyncio.Queue()
        fleet = Fleet(slots, happenings.put_nowait)
        faulty = FaultPlay(faults, breaker, happenings.put_nowait)
        conductor = Conductor(plan, fleet, happenings, SilentLive(), faulty)
        await fleet.up(plan.to_line())
        beside(happenings)
        await asyncio.wait_for(conductor.play(lambda _: None), LONG_S)
        return conductor

    return asyncio.run(run())


@pytest.mark.parametrize("action", [PublishAction, HoldAction])
def test_a_fault_begins_and_is_mended_at_its_instants(
    slots: SlotMaker, plan_named: PlanMaker, action: type[PublishAction | HoldAction]
) -> None:
    breaker = Breaker()
    plan = plan_named("well", action(duration_ns=400 * MS_NS))
    faults = [fault(0, 200, 100, "late"), fault(0, 50, 100, "early"), fault(1, 0, 1, "never")]
    course = play(slots(1), plan, breaker, faults).course
    assert breaker.asked == ["begin early", "mend early", "begin late", "mend late"]
    (span,) = course.spans
    early, late = course.faults
    for applied in (early, late):
        planned = applied.planned
        assert planned.lasts_ns is not None
        assert applied.began_ns >= span.from_ns + planned.after_ns
        assert applied.mended_ns is not None
        assert applied.mended_ns >= applied.began_ns + planned.lasts_ns
    assert [event.kind for event in course.events] == ["fault"] * 4
    assert [event.text for event in course.events] == [
        "early",
        "early: 1 broker is up again",
        "late",
        "late: 1 broker is up again",
    ]


def test_the_end_of_a_stage_waits_for_a_mending(slots: SlotMaker, plan_named: PlanMaker) -> None:
    mending = asyncio.Event()

    def beside(happenings: asyncio.Queue[Happening]) -> None:
        del happenings
        asyncio.get_running_loop().call_later(0.6, mending.set)

    plan = plan_named("well", PublishAction(duration_ns=100 * MS_NS))
    conductor = play(slots(1), plan, Breaker(mending=mending), [fault(0, 10, 10)], beside)
    (span,), (applied,) = conductor.course.spans, conductor.course.faults
    assert applied.mended_ns is not None
    assert span.load_until_ns < applied.mended_ns <= span.to_ns


def test_what_lasts_for_ever_is_waited_for_by_nobody(
    slots: SlotMaker, plan_named: PlanMaker
) -> None:
    breaker = Breaker()
    plan = plan_named("well", PublishAction(duration_ns=100 * MS_NS))
    course = play(slots(1), plan, breaker, [fault(0, 10, None)]).course
    assert breaker.asked == ["begin kill cloud"]
    assert [applied.mended_ns for applied in course.faults] == [None]
    assert not course.ended_early


def test_what_cannot_be_mended_is_an_event_and_ends_nothing(
    slots: SlotMaker, plan_named: PlanMaker
) -> None:
    plan = plan_named("well", PublishAction(duration_ns=100 * MS_NS), HoldAction(duration_ns=1))
    breaker = Breaker(problems=["broker cloud-0 did not come up"])
    course = play(slots(1), plan, breaker, [fault(0, 10, 10)]).course
    (applied,) = course.faults
    assert applied.mended_ns is None
    assert applied.problems == ["broker cloud-0 did not come up"]
    assert course.events[-1].text == "kill cloud: broker cloud-0 did not come up"
    assert len(course.spans) == 2


def test_many_problems_are_told_in_short(slots: SlotMaker, plan_named: PlanMaker) -> None:
    plan = plan_named("well", PublishAction(duration_ns=100 * MS_NS))
    breaker = Breaker(problems=[f"broker cloud-{n} is gone" for n in range(9)])
    course = play(slots(1), plan, breaker, [fault(0, 10, 10)]).course
    assert [event.text for event in course.events[-2:]] == [
        "kill cloud: broker cloud-4 is gone",
        "kill cloud: 4 problems more",
    ]


def test_an_interrupt_leaves_no_fault_to_begin(slots: SlotMaker, plan_named: PlanMaker) -> None:
    breaker = Breaker()
    plan = plan_named("well", PublishAction(duration_ns=3600 * 10**9))
    conductor = play(
        slots(1),
        plan,
        breaker,
        [fault(0, 60_000, 10)],
        lambda happenings: happenings.put_nowait(Interrupt("SIGINT")),
    )
    assert conductor.course.interrupted
    assert breaker.asked == []
    assert conductor.course.faults == []
