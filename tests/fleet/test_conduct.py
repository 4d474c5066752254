"""How a run goes on and ends, with a fake agent as real processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from pubstorm import conduct
from pubstorm.conduct import Conductor, Happening, Interrupt
from pubstorm.errors import UsageError
from pubstorm.fleet import Fleet, Frame
from pubstorm.fleet.local import LocalSlot
from pubstorm.fleet.patience import Patience
from pubstorm.live import SilentLive
from pubstorm.memory import MemoryLow
from pubstorm.plan import (
    AddClients,
    Change,
    ChangeRate,
    ConnectAction,
    DisconnectAction,
    HoldAction,
    Plan,
    PublishAction,
    RemoveClients,
)
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


def test_a_connect_stage_begins_sooner_than_one_with_messages(
    slots: SlotMaker, plan_named: PlanMaker
) -> None:
    """An hour stands for the delay of stages that schedule messages."""
    patience = Patience(start_delay_s=3600)
    plan = plan_named("well", CONNECT, PUBLISH)

    async def run() -> list[int]:
        happenings: asyncio.Queue[Happening] = asyncio.Queue()
        fleet = Fleet(slots(1), happenings.put_nowait, patience)
        conductor, entered = Conductor(plan, fleet, happenings, SilentLive()), list[int]()

        def enter(index: int, at_ns: int) -> None:
            entered.append(at_ns - time.monotonic_ns())
            if index == 1:
                happenings.put_nowait(Interrupt("SIGINT"))

        await fleet.up(plan.to_line())
        await conductor.play(lambda _: None, enter)
        return entered

    connect_ns, publish_ns = asyncio.run(run())
    assert connect_ns <= patience.connect_delay_ns < publish_ns


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


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("reconnects-for-ever", "stage connect ended before every agent was done"),
        ("grows-for-ever", "stage connect ended before every agent was done"),
        ("duplicates-for-ever", None),
        ("delivers-for-ever", "stage publish ended: messages still came after 2.0 s"),
    ],
)
def test_a_stage_ends_whatever_moves_in_it(
    slots: SlotMaker,
    plan_named: PlanMaker,
    how: str,
    says: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # An agent that a busy host holds up for less than the drain still moves.
    monkeypatch.setattr(conduct, "DRAINS_MAX", 2)
    changes = {"snapshot_interval_ns": 10**7, "drain_ns": 10**9}
    plan = plan_named(how, CONNECT, PUBLISH).model_copy(update=changes)
    conductor, _ = play(slots(1), plan)
    course = conductor.course
    assert [span.index for span in course.spans] == [0, 1]
    assert [event.text.startswith(says or "?") for event in course.events] == [True] * bool(says)
    assert not course.ended_early


def test_an_interrupt_ends_the_run_and_keeps_it(slots: SlotMaker, plan_named: PlanMaker) -> None:
    conductor, _ = play(slots(1), plan_named("well", CONNECT, PUBLISH), Interrupt("SIGINT"))
    course = conductor.course
    assert course.interrupted
    assert course.ended_early
    assert course.endings == {0: "bye"}
    assert [event.text for event in course.events] == ["interrupted by SIGINT"]


def test_memory_that_runs_out_ends_the_run_in_words(
    slots: SlotMaker, plan_named: PlanMaker
) -> None:
    low = MemoryLow("memory runs out")
    conductor, _ = play(slots(1), plan_named("well", CONNECT, PUBLISH), low)
    course = conductor.course
    assert course.ended_early
    assert not course.interrupted
    assert course.endings == {0: "bye"}
    assert [(e.kind, e.text) for e in course.events] == [
        ("memory", "memory runs out; 0 clients are connected")
    ]


def test_a_broker_that_dies_is_told_and_ends_nothing(
    slots: SlotMaker, plan_named: PlanMaker
) -> None:
    died = BrokerDied("main-0", "broker main-0 (pid 1) was killed by signal 9")
    conductor, _ = play(slots(1), plan_named("well", CONNECT, PUBLISH), died)
    assert [(e.kind, e.text) for e in conductor.course.events] == [("broker", died.text)]
    assert not conductor.course.ended_early


def test_planned_changes_are_noted_when_they_take_effect(
    slots: SlotMaker, plan_named: PlanMaker
) -> None:
    conductor, _ = play(slots(1), plan_named("well", CONNECT, CHANGING))
    course = conductor.course
    assert [(e.kind, e.text) for e in course.events] == [("change", "fewer"), ("change", "faster")]
    start_ns = course.spans[1].from_ns
    assert [(c.stage, c.at_ns - start_ns, c.name) for c in course.changes] == [
        (1, 10**7, "fewer"),
        (1, 3 * 10**7, "faster"),
    ]
    at_s = [round((c.at_ns - course.started_ns) / 10**9, 3) for c in course.changes]
    assert [event.at_s for event in course.events] == at_s


class Asking(SilentLive):
    """Asks for changes as soon as the run has said that a planned one took effect."""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.answers: list[str] = []
        self.asked: asyncio.Task[None] | None = None
        self.conductor: Conductor | None = None

    def note(self, text: str) -> None:
        """Asks after the planned change."""
        if text == "fewer":
            self.asked = asyncio.get_running_loop().create_task(self.ask())

    async def ask(self) -> None:
        assert self.conductor is not None
        for words in self.words:
            try:
                self.answers.append(await self.conductor.change(words))
            except UsageError as error:
                self.answers.append(error.message)


def play_asking(slots: list[LocalSlot], plan: Plan, live: Asking) -> tuple[Conductor, list[Frame]]:
    async def run() -> tuple[Conductor, list[Frame]]:
        happenings: asyncio.Queue[Happening] = asyncio.Queue()
        kept: list[Frame] = []
        fleet = Fleet(slots, happenings.put_nowait)
        live.conductor = conductor = Conductor(plan, fleet, happenings, live)
        await fleet.up(plan.to_line())
        await conductor.play(kept.append)
        return conductor, kept

    return asyncio.run(run())


def test_a_change_by_control_reaches_every_agent_and_is_noted(
    slots: SlotMaker, plan_named: PlanMaker
) -> None:
    live = Asking("add 3 device", "remove 2 device over 100ms")
    conductor, kept = play_asking(slots(2), plan_named("well", CONNECT, LONG), live)
    assert [answer.split(" at ")[0] for answer in live.answers] == ["+3 device", "-2 device"]
    told = [change.action for change in conductor.course.changes]
    assert told == [
        RemoveClients(clients=4, over_ns=0),
        AddClients(clients=3, over_ns=0),
        RemoveClients(clients=2, over_ns=10**8),
    ]
    assert [event.text for event in conductor.course.events] == ["fewer", "+3 device", "-2 device"]
    sent = [frame.snapshot.populations[0].counters.sent_total for frame in kept]
    assert (sent.count(3), sent.count(2)) == (2, 2)


def test_a_change_that_cannot_be_is_refused_with_the_reason(
    slots: SlotMaker, plan_named: PlanMaker
) -> None:
    live = Asking("add 5 device", "remove 7 device", "add 1 late", "add 1 device over 1min", "no")
    conductor, _ = play_asking(slots(1), plan_named("well", CONNECT, LONG), live)
    assert live.answers[:3] == [
        "not so many clients: 6 of 10 clients of device are there",
        "not so many clients: 6 of 10 clients of device are there",
        "found population late, allowed are device in this stage",
    ]
    assert "too short for the change" in live.answers[3]
    assert live.answers[4] == "found 'no', which is no change"
    assert [event.text for event in conductor.course.events] == ["fewer"]


def test_a_change_outside_a_publish_stage_is_refused(
    slots: SlotMaker, plan_named: PlanMaker
) -> None:
    conductor, _ = play(slots(1), plan_named("well", CONNECT, PUBLISH))
    with pytest.raises(UsageError, match="no publish stage is on"):
        asyncio.run(conductor.change("rate 2 device"))


def fewer(after_ns: int) -> Change:
    action = RemoveClients(clients=4, over_ns=0)
    return Change(name="fewer", after_ns=after_ns, population=0, action=action)


FASTER = Change(name="faster", after_ns=3 * 10**7, population=0, action=ChangeRate(factor=2))
CHANGING = PublishAction(duration_ns=5 * 10**7, changes=(fewer(10**7), FASTER))
LONG = PublishAction(duration_ns=10**9, changes=(fewer(0),))
LEAVE_SOON = HoldAction(duration_ns=0)
