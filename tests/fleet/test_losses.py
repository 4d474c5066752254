"""What becomes of a run that loses an engine, with fake agents as real processes that are killed as
a stage begins."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pubstorm import conduct
from pubstorm.conduct import Conductor, Happening, Interrupt
from pubstorm.course import Course
from pubstorm.errors import FleetError
from pubstorm.fleet import Fleet
from pubstorm.fleet.local import LocalSite, LocalSlot, engine_command
from pubstorm.live import SilentLive
from pubstorm.losses import OnLoss
from pubstorm.plan import (
    AddClients,
    Change,
    ChangeRate,
    ConnectAction,
    DisconnectAction,
    FixedPayload,
    HoldAction,
    OpenPace,
    Plan,
    Publication,
    PublishAction,
    RemoveClients,
    Subscription,
)
from pubstorm.scenario.fleet import OnAgentLoss

PlanMaker = Callable[..., Plan]
SECOND_NS = 10**9
CONNECT = ConnectAction(rate_per_s=None, parallelism=None, timeout_ns=30 * SECOND_NS)
PUBLISH = PublishAction(duration_ns=10**7)
LONG = PublishAction(duration_ns=3 * SECOND_NS)
HOLD = HoldAction(duration_ns=10**7)
LEAVE = DisconnectAction(rate_per_s=None)
PACE = OpenPace(period_ns=10**9, spread=0, jitter=0, phase="aligned", late="send")
PUBLICATION = Publication(
    topic="up", qos=0, retain=False, pace=PACE, window=1, payload=FixedPayload(bytes=32)
)


@dataclass
class Script:
    """What happens while a plan is played."""

    policy: OnAgentLoss
    kills: Sequence[tuple[int, int]] = ()
    """Stage, and agent that is killed as it begins."""
    interrupt_at: int | None = None
    """The user ends the run as this stage begins."""
    refuses: bool = False
    """There is no other place for an agent."""
    dawdles_s: float = 0.0
    """How long it takes to find another place."""
    kills_next: int = 0
    """How many of the engines that come next are killed at once, too."""


@dataclass
class Played:
    """What came of it."""

    course: Course
    conductor: Conductor
    folder: Path
    heard: list[int] = field(default_factory=list)

    def told(self, agent: int, incarnation: int = 0) -> list[dict[str, Any]]:
        """The commands that an engine got."""
        name = f"agent-{agent}-{incarnation}.log" if incarnation else f"agent-{agent}.log"
        return list(map(json.loads, (self.folder / name).read_text().splitlines()))

    def stages_of(self, agent: int, incarnation: int = 0) -> list[int]:
        """The stages that an engine was told to enter."""
        told = self.told(agent, incarnation)
        return [each["index"] for each in told if each["command"] == "stage"]

    @property
    def events(self) -> list[str]:
        return [event.kind for event in self.course.events]


class Player:
    """Plays a plan with three fake agents."""

    def __init__(self, engine: Path, folder: Path) -> None:
        self.engine, self.folder = engine, folder

    def play(self, plan: Plan, script: Script, agents: int = 3) -> Played:
        return asyncio.run(self.playing(plan, script, agents))

    async def playing(self, plan: Plan, script: Script, agents: int) -> Played:
        happenings: asyncio.Queue[Happening] = asyncio.Queue()
        site = LocalSite(self.folder)
        slots = await site.place([engine_command(self.engine, i, agents) for i in range(agents)])
        next_kills = iter([True] * script.kills_next)

        async def replace(agent: int) -> LocalSlot:
            await asyncio.sleep(script.dawdles_s)
            if script.refuses:
                raise FleetError("no host is free", "start one")
            slot = await site.replace(agent)
            if next(next_kills, False):
                asyncio.get_running_loop().call_later(0.3, slot.kill)
            return slot

        fleet = Fleet(slots, happenings.put_nowait, None, replace)
        conductor = Conductor(plan, fleet, happenings, SilentLive())
        played = Played(conductor.course, conductor, self.folder)

        def entered(index: int, at_ns: int) -> None:
            assert at_ns > 0
            for stage, agent in script.kills:
                if stage == index:
                    os.kill(fleet.hellos[agent].pid, signal.SIGKILL)
            if script.interrupt_at == index:
                happenings.put_nowait(Interrupt("SIGINT"))

        on_loss = OnLoss(script.policy, lambda agent, _: played.heard.append(agent))
        await fleet.up(plan.to_line())
        try:
            await conductor.play(lambda _: None, entered, on_loss)
        finally:
            await fleet.close()
            await site.close()
        assert not fleet.alive
        return played


@pytest.fixture
def player(fake_engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Player:
    monkeypatch.setattr(conduct, "JOIN_NS", 10**8)
    return Player(fake_engine, tmp_path)


@pytest.fixture
def plan_of(plan_named: PlanMaker) -> PlanMaker:
    """Makes a plan of 10 clients that publish and subscribe, and one more population of a single
    one that only subscribes."""

    def make(*actions: Any, **changes: Any) -> Plan:
        plan = plan_named("well", *actions)
        devices = plan.populations[0].model_copy(
            update={
                "subscriptions": (Subscription(filter="up", qos=0),),
                "publications": (PUBLICATION,),
                **changes,
            }
        )
        single = plan.populations[0].model_copy(
            update={
                "name": "single",
                "clients": 1,
                "subscriptions": (Subscription(filter="up", qos=0),),
            }
        )
        stages = tuple(
            stage.model_copy(update={"populations": (0, 1)})
            if isinstance(stage.action, ConnectAction | DisconnectAction)
            else stage
            for stage in plan.stages
        )
        return plan.model_copy(update={"populations": (devices, single), "stages": stages})

    return make


def unjudged(told: Sequence[dict[str, Any]]) -> list[list[int]]:
    return [each["populations"] for each in told if each["command"] == "unjudge"]


def test_a_run_that_fails_says_how_many_clients_it_lost(player: Player, plan_of: PlanMaker) -> None:
    played = player.play(plan_of(CONNECT, PUBLISH), Script("fail", [(1, 1)]))
    assert played.course.ended_early
    assert played.course.losses == []
    assert played.events == ["agent"]
    assert played.course.events[0].text.endswith("signal 9: it played 3 of 11 clients")


@pytest.mark.parametrize("stage", range(5))
def test_a_run_goes_on_without_an_engine_that_is_lost_in_any_stage(
    player: Player, plan_of: PlanMaker, stage: int
) -> None:
    plan = plan_of(CONNECT, PUBLISH, HOLD, PUBLISH, LEAVE)
    played = player.play(plan, Script("continue", [(stage, 1)]))
    course = played.course
    assert not course.ended_early
    assert [span.index for span in course.spans] == [0, 1, 2, 3, 4]
    assert all(span.settled for span in course.spans)
    assert [(loss.agent, loss.clients, loss.back_ns) for loss in course.losses] == [(1, 3, None)]
    assert "agent 1 (pid " in course.losses[0].text
    assert played.heard == [1]
    assert played.events == ["agent"]
    assert course.endings[0] == course.endings[2] == "bye"
    # Where it was lost, nobody is judged; later those are not whose clients it played, and in the
    # stage before neither, for which it told nothing of its drain.
    there = [[0, 1]] if stage in {1, 3} else []
    later = [[0] for index in (1, 3) if index > stage]
    assert unjudged(played.told(0)) == there + later
    before = [[0] for index in (1, 3) if index == stage - 1]
    found = [course.unjudged(plan, index) for index in range(5)]
    assert [each for each in found if each] == before + there + later


def test_what_was_connected_falls_by_the_clients_of_the_lost(
    player: Player, plan_of: PlanMaker
) -> None:
    played = player.play(plan_of(CONNECT, PUBLISH), Script("continue", [(1, 1)]))
    totals, (loss,) = played.conductor.progress.totals, played.course.losses
    assert totals.connected_at(loss.at_ns - 1) == 11
    assert totals.connected_at(played.course.ended_ns) == 8


def test_a_run_ends_with_its_last_engine(player: Player, plan_of: PlanMaker) -> None:
    kills = [(1, 0), (1, 1), (1, 2)]
    played = player.play(plan_of(CONNECT, PUBLISH), Script("continue", kills))
    assert played.course.ended_early
    assert played.course.losses
    assert played.course.events[-1].text == "no engine is left"


@pytest.mark.parametrize("stage", [1, 2])
def test_a_run_ends_when_nobody_is_left_that_publishes(
    player: Player, plan_of: PlanMaker, stage: int
) -> None:
    plan = plan_of(CONNECT, HOLD, PUBLISH, clients=1)
    played = player.play(plan, Script("continue", [(stage, 0)]))
    assert played.course.ended_early
    assert played.course.events[-1].text == "no client is left that publishes in stage publish"


@pytest.mark.parametrize(
    ("actions", "stage", "entered"),
    [
        ((CONNECT, PUBLISH), 0, [0, 1]),
        ((CONNECT, LONG, HOLD), 1, [1, 2]),
        ((CONNECT, HoldAction(duration_ns=3 * SECOND_NS), PUBLISH), 1, [0, 1, 2]),
    ],
)
def test_another_engine_comes_to_where_the_run_is(
    player: Player,
    plan_of: PlanMaker,
    actions: tuple[Any, ...],
    stage: int,
    entered: list[int],
) -> None:
    plan = plan_of(*actions)
    # Where it was the only one, the connect stage waits for the next.
    agents = 1 if stage == 0 else 3
    played = player.play(plan, Script("replace", [(stage, agents // 2)]), agents)
    course = played.course
    assert not course.ended_early
    assert all(span.settled for span in course.spans)
    assert played.events == ["agent", "restart"]
    (loss,) = course.losses
    assert loss.replaced_on == ""
    assert loss.back_ns is not None and loss.back_ns > loss.at_ns
    assert course.endings == dict.fromkeys(course.endings, "bye")
    assert played.stages_of(loss.agent, 1) == entered
    assert played.conductor.progress.totals.connected_at(course.ended_ns) == 11


def test_who_comes_too_late_for_a_stage_takes_part_in_the_next(
    player: Player, plan_of: PlanMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conduct, "JOIN_NS", 2 * LONG.duration_ns)
    plan = plan_of(CONNECT, LONG, PUBLISH)
    played = player.play(plan, Script("replace", [(1, 1)]))
    assert played.stages_of(1, 1) == [0, 2]
    assert all(span.settled for span in played.course.spans)
    found = [played.course.unjudged(plan, stage) for stage in (1, 2)]
    assert found == [[0, 1], []]


def test_clients_join_a_publish_stage_as_those_of_a_change(
    player: Player, plan_of: PlanMaker
) -> None:
    connect = CONNECT.model_copy(update={"rate_per_s": 110.0})
    played = player.play(plan_of(connect, LONG, PUBLISH), Script("replace", [(1, 1)]))
    span, told = played.course.spans[1], played.told(1, 1)
    assert [each["command"] for each in told[:4]] == ["stage", "unjudge", "change", "change"]
    assert told[0] == {"command": "stage", "index": 1, "at_ns": span.from_ns}
    actions = [(each["population"], each["action"]) for each in told[2:4]]
    # As fast as the stage that brought them up: 11 clients at 110/s.
    assert actions == [
        (0, {"kind": "add", "clients": 10, "over_ns": 10**8}),
        (1, {"kind": "add", "clients": 1, "over_ns": 10**8}),
    ]
    assert all(each["at_ns"] > span.from_ns for each in told[2:4])
    assert unjudged(played.told(0)) == [[0, 1], [0, 1]]
    assert played.course.owed_received[1] == {0, 1}
    assert 2 not in played.course.owed_received


def test_changes_of_the_stage_are_made_good_for_who_comes_later(
    player: Player, plan_of: PlanMaker
) -> None:
    changes = (
        Change(name="more", after_ns=0, population=0, action=AddClients(clients=4, over_ns=0)),
        Change(name="fast", after_ns=0, population=0, action=ChangeRate(factor=2)),
    )
    connect = CONNECT.model_copy(update={"clients": (5, 1)})
    long = LONG.model_copy(update={"changes": changes})
    script = Script("replace", [(1, 1)], dawdles_s=0.5)
    played = player.play(plan_of(connect, long, HOLD), script)
    added = [each for each in played.told(1, 1) if each["command"] == "change"]
    # It passes over those who joined before it came, and plays the planned rate by itself.
    assert [each["action"]["clients"] for each in added] == [9, 1]


def test_clients_that_no_stage_brought_up_join_the_next_publish_stage(
    player: Player, plan_of: PlanMaker
) -> None:
    fewer = RemoveClients(clients=4, over_ns=0)
    change = Change(name="fewer", after_ns=0, population=0, action=fewer)
    publish = PUBLISH.model_copy(update={"changes": (change,)})
    hold = HoldAction(duration_ns=3 * SECOND_NS)
    plan = plan_of(CONNECT, publish, hold, PUBLISH, PUBLISH)
    played = player.play(plan, Script("replace", [(2, 1)]))
    commands = [each["command"] for each in played.told(1, 1)]
    assert commands == ["stage", "stage", "stage", "change", "unjudge", "stage", "stop"]
    action = next(each["action"] for each in played.told(1, 1) if each["command"] == "change")
    assert action == {"kind": "remove", "clients": 4, "over_ns": 0}
    found = [played.course.unjudged(plan, stage) for stage in (1, 3, 4)]
    assert found == [[0], [0], []]


def test_a_replacement_that_fails_ends_the_run_with_the_reason(
    player: Player, plan_of: PlanMaker
) -> None:
    script = Script("replace", [(1, 1)], refuses=True)
    played = player.play(plan_of(CONNECT, LONG, HOLD), script)
    assert played.course.ended_early
    text = "agent 1 could not be replaced: no host is free (start one)"
    assert played.course.events[-1].text == text


def test_an_engine_that_is_lost_again_is_replaced_again(player: Player, plan_of: PlanMaker) -> None:
    script = Script("replace", [(1, 1)], kills_next=1)
    played = player.play(plan_of(CONNECT, LONG, LONG), script)
    assert not played.course.ended_early
    assert [loss.agent for loss in played.course.losses] == [1, 1]
    assert played.course.losses[-1].back_ns is not None
    assert played.course.endings == {0: "bye", 1: "bye", 2: "bye"}


def test_two_engines_are_replaced_side_by_side(player: Player, plan_of: PlanMaker) -> None:
    script = Script("replace", [(1, 0), (1, 2)])
    played = player.play(plan_of(CONNECT, LONG, HOLD), script)
    assert not played.course.ended_early
    assert {loss.agent for loss in played.course.losses} == {0, 2}
    assert all(loss.back_ns is not None for loss in played.course.losses)
    assert played.stages_of(0, 1) == played.stages_of(2, 1) == [1, 2]


def test_a_run_that_loses_all_waits_for_others(player: Player, plan_of: PlanMaker) -> None:
    script = Script("replace", [(1, 0)])
    played = player.play(plan_of(CONNECT, PUBLISH, HOLD), script, agents=1)
    assert not played.course.ended_early
    assert played.stages_of(0, 1) == [0, 2]


def test_an_interrupt_while_an_engine_is_replaced_ends_the_run(
    player: Player, plan_of: PlanMaker
) -> None:
    script = Script("replace", [(1, 1)], interrupt_at=1)
    played = player.play(plan_of(CONNECT, LONG, HOLD), script)
    assert played.course.interrupted
    assert played.course.ended_early
    assert played.course.endings[0] == played.course.endings[2] == "bye"
