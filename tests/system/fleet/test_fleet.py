"""Guarantees of a fleet, with a fake agent as real processes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pubstorm.contract.commands import EnterStage, Stop
from pubstorm.contract.plan import Plan
from pubstorm.errors import FleetError
from pubstorm.fleet import Ended, Fleet, FleetEvent, SnapshotReceived, Timeouts
from pubstorm.fleet.local import LocalSlot
from tests.kit.agents import PlanMaker, SlotMaker

Events = asyncio.Queue[FleetEvent]


def play(
    slots: list[LocalSlot],
    plan: Plan,
    script: Callable[[Fleet, Events], Awaitable[None]],
    silence_s: float = 30,
) -> list[FleetEvent]:
    """Brings a fleet up, runs a script on it, closes it twice; the events in order."""

    async def run() -> list[FleetEvent]:
        events: Events = asyncio.Queue()
        seen: list[FleetEvent] = []

        def emit(event: FleetEvent) -> None:
            seen.append(event)
            events.put_nowait(event)

        fleet = Fleet(slots, emit, Timeouts(silence_s))
        try:
            await fleet.up(plan.to_line())
            await script(fleet, events)
        finally:
            await fleet.close()
            await fleet.close()
        return seen

    return asyncio.run(run())


def endings(events: list[FleetEvent]) -> dict[int, Ended]:
    """The last event of each agent, checked to be the only one and the last."""
    found: dict[int, Ended] = {}
    for event in events:
        agent = event.agent if isinstance(event, Ended) else event.snapshot.agent
        assert agent not in found, f"{event} came after {found.get(agent)}"
        if isinstance(event, Ended):
            found[agent] = event
    return found


async def wait_for_endings(_fleet: Fleet, events: Events) -> None:
    while not isinstance(await events.get(), Ended):
        pass


def test_every_agent_plays_and_says_bye(slots: SlotMaker, plan_named: PlanMaker) -> None:
    async def script(fleet: Fleet, events: Events) -> None:
        await fleet.command(EnterStage(index=0, at_ns=0))
        for _ in range(3):
            assert isinstance(await events.get(), SnapshotReceived)
        await fleet.command(Stop())
        for _ in range(3):
            assert isinstance(await events.get(), Ended)

    events = play(slots(3), plan_named("well"), script)
    assert {agent: ended.how for agent, ended in endings(events).items()} == {
        0: "bye",
        1: "bye",
        2: "bye",
    }


def test_a_killed_agent_ends_once_and_is_named(slots: SlotMaker, plan_named: PlanMaker) -> None:
    async def script(fleet: Fleet, events: Events) -> None:
        await fleet.command(EnterStage(index=0, at_ns=0))
        await wait_for_endings(fleet, events)

    events = play(slots(2), plan_named("crashes-alone"), script)
    ended = endings(events)
    assert set(ended) == {0, 1}
    assert ended[1].how == "exited"
    assert ended[1].text.startswith("agent 1 (pid ")
    assert "killed by signal 9" in ended[1].text


def test_what_came_before_a_crash_is_kept(slots: SlotMaker, plan_named: PlanMaker) -> None:
    async def script(fleet: Fleet, events: Events) -> None:
        await fleet.command(EnterStage(index=0, at_ns=0))
        await wait_for_endings(fleet, events)

    events = play(slots(1), plan_named("crashes"), script)
    assert [type(event) for event in events] == [SnapshotReceived, Ended]


@pytest.mark.parametrize(
    ("behaviour", "how", "text"),
    [
        ("talks-nonsense", "broken", "broke the contract"),
        ("leaves-a-gap", "broken", "snapshot number 2 after 1 snapshots"),
        ("falls-silent", "silent", "sent no snapshot for"),
    ],
)
def test_a_misbehaving_agent_is_ended(
    behaviour: str, how: str, text: str, slots: SlotMaker, plan_named: PlanMaker
) -> None:
    silence_s = 0.2 if how == "silent" else 30
    events = play(slots(1), plan_named(behaviour), wait_for_endings, silence_s)
    ended = endings(events)[0]
    assert ended.how == how
    assert text in ended.text


def test_an_agent_may_be_silent_while_its_clients_leave(
    slots: SlotMaker, plan_named: PlanMaker
) -> None:
    async def script(fleet: Fleet, events: Events) -> None:
        await fleet.command(Stop())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await events.get()
        await fleet.command(Stop())
        await wait_for_endings(fleet, events)

    events = play(slots(1), plan_named("leaves-slowly"), script, 0.2)
    assert endings(events)[0].how == "bye"


@pytest.mark.parametrize(
    ("behaviour", "message", "hint"),
    [
        ("never-says-hello", "exited with code 7", "cannot think of a greeting"),
        ("fails", "gave up: no such seed", "choose another"),
        ("is-another-shard", "says that it is agent 1 of 1", None),
    ],
)
def test_a_fleet_that_does_not_come_up_says_why(
    behaviour: str, message: str, hint: str | None, slots: SlotMaker, plan_named: PlanMaker
) -> None:
    async def script(_fleet: Fleet, _events: Events) -> None:
        pytest.fail("the fleet is up")

    with pytest.raises(FleetError) as caught:
        play(slots(1), plan_named(behaviour), script)
    assert message in caught.value.message
    assert caught.value.hint == hint


def test_a_missing_engine_is_an_error(slots: SlotMaker, plan_named: PlanMaker) -> None:
    async def script(_fleet: Fleet, _events: Events) -> None:
        pytest.fail("the fleet is up")

    made = slots(1)
    Path(made[0].command.words[0]).unlink()
    with pytest.raises(FleetError, match="cannot start"):
        play(made, plan_named("well"), script)


def test_closing_leaves_no_process(slots: SlotMaker, plan_named: PlanMaker) -> None:
    pids: list[int] = []

    async def run() -> None:
        fleet = Fleet(slots(2), lambda _: None)
        pids.extend(hello.pid for hello in await fleet.up(plan_named("falls-silent").to_line()))
        await fleet.close()

    asyncio.run(run())
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
