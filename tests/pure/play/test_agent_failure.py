"""Runs in which agents fail, in virtual time: the transitions of one agent, scripted failures, and
failures drawn by chance."""

from __future__ import annotations

from itertools import product
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pubstorm.contract.plan import (
    AddClients,
    ChangeRate,
    ConnectAction,
    DisconnectAction,
    HoldAction,
    Plan,
    PlannedChange,
    PublishAction,
    RemoveClients,
)
from pubstorm.contract.protocol import (
    FixedPayload,
    OpenPace,
    PlannedPublication,
    PlannedSubscription,
)
from pubstorm.play import stages
from pubstorm.play.agent_failure import FailureStep, Signal, State, transition
from pubstorm.play.display import Live
from pubstorm.play.stages import Controller
from pubstorm.scenario.fleet import OnAgentFailure
from tests.kit.agents import planned
from tests.kit.made import SECOND_NS
from tests.kit.virtual import Played, Script, play, run_virtually

CONNECT = ConnectAction(rate_per_s=None, parallelism=None, timeout_ns=30 * SECOND_NS)
PUBLISH = PublishAction(duration_ns=10**7)
LONG = PublishAction(duration_ns=3 * SECOND_NS)
HOLD = HoldAction(duration_ns=10**7)
LEAVE = DisconnectAction(rate_per_s=None)
PACE = OpenPace(period_ns=10**9, spread=0, jitter=0, phase="aligned", late="send")
PUBLICATION = PlannedPublication(
    topic="up", qos=0, retain=False, pace=PACE, window=1, payload=FixedPayload(bytes=32)
)


def plan_of(*actions: Any, **changes: Any) -> Plan:
    """A plan of 10 clients that publish and subscribe, and one more population of a single one that
    only subscribes."""
    plan, subscriptions = planned("well", *actions), (PlannedSubscription(filter="up", qos=0),)
    devices = plan.populations[0].model_copy(
        update={"subscriptions": subscriptions, "publications": (PUBLICATION,), **changes}
    )
    single = plan.populations[0].model_copy(
        update={"name": "single", "clients": 1, "subscriptions": subscriptions}
    )
    both = tuple(
        stage.model_copy(update={"populations": (0, 1)})
        if isinstance(stage.action, ConnectAction | DisconnectAction)
        else stage
        for stage in plan.stages
    )
    return plan.model_copy(update={"populations": (devices, single), "stages": both})


POLICIES: tuple[OnAgentFailure, ...] = get_args(OnAgentFailure)
ENDED: dict[str, tuple[State, FailureStep]] = {
    "fail": (State.LOST, FailureStep.END_RUN),
    "continue": (State.LOST, FailureStep.CONTINUE),
    "replace": (State.REPLACING, FailureStep.REPLACE),
}
MOVES = {
    (State.REPLACING, Signal.REPLACED): (State.WAITING, FailureStep.NOTHING),
    (State.REPLACING, Signal.NOT_REPLACED): (State.LOST, FailureStep.END_RUN),
    (State.WAITING, Signal.ADMITTED): (State.REJOINING, FailureStep.REJOIN),
    (State.REJOINING, Signal.REJOINED): (State.PLAYING, FailureStep.NOTHING),
}


@pytest.mark.parametrize(("state", "signal", "policy"), [*product(State, Signal, POLICIES)])
def test_each_signal_moves_an_agent_or_changes_nothing(
    state: State, signal: Signal, policy: OnAgentFailure
) -> None:
    """The whole table: what is not in it comes from an earlier incarnation."""
    expected = MOVES.get((state, signal), (state, FailureStep.NOTHING))
    if signal is Signal.ENDED and state is not State.LOST:
        expected = ENDED[policy]
    assert transition(state, signal, policy) == expected


@given(st.lists(st.sampled_from(Signal)), st.sampled_from(POLICIES))
def test_an_agent_plays_again_only_after_it_was_replaced_and_rejoined(
    signals: list[Signal], policy: OnAgentFailure
) -> None:
    state, way = State.PLAYING, [Signal.REPLACED, Signal.ADMITTED, Signal.REJOINED]
    gone: list[Signal] = []
    for signal in signals:
        before = state
        state, _ = transition(state, signal, policy)
        if signal is Signal.ENDED:
            gone = []
        elif state is not before:
            gone.append(signal)
        if state is State.PLAYING and before is not State.PLAYING:
            assert (gone, policy) == (way, "replace")


def test_a_run_that_fails_says_how_many_clients_it_lost() -> None:
    played = play(plan_of(CONNECT, PUBLISH), Script("fail", 3, kills=[(1, 1)]))
    assert played.run_log.ended_early
    assert played.run_log.failures == []
    assert played.run_log.endings[0] == played.run_log.endings[2] == "bye"
    assert played.events == ["agent"]
    assert played.run_log.events[0].text.endswith("signal 9: it played 3 of 11 clients")


@pytest.mark.parametrize("stage", range(5))
def test_a_run_goes_on_without_an_engine_that_is_lost_in_any_stage(stage: int) -> None:
    plan = plan_of(CONNECT, PUBLISH, HOLD, PUBLISH, LEAVE)
    played = play(plan, Script("continue", 3, kills=[(stage, 1)]))
    run_log = played.run_log
    assert not run_log.ended_early
    assert [span.index for span in run_log.spans] == [0, 1, 2, 3, 4]
    assert all(span.settled for span in run_log.spans)
    (failure,) = run_log.failures
    assert (failure.agent, failure.clients, failure.rejoined_ns) == (1, 3, None)
    assert failure.text == "agent 1 was killed by signal 9"
    assert played.events == ["failure"]
    assert run_log.endings[0] == run_log.endings[2] == "bye"
    # The stage of the loss excludes all populations. Later stages exclude the populations of the
    # lost clients. So does the stage before, because the agent did not report its drain.
    there = [[0, 1]] if stage in {1, 3} else []
    later = [[0] for index in (1, 3) if index > stage]
    assert played.agents[0, 0].excluded == there + later
    before = [[0] for index in (1, 3) if index == stage - 1]
    found = [run_log.excluded_from_loss(plan, index) for index in range(5)]
    assert [each for each in found if each] == before + there + later


def test_a_run_ends_with_its_last_engine() -> None:
    kills = [(1, 0), (1, 1), (1, 2)]
    played = play(plan_of(CONNECT, PUBLISH), Script("continue", 3, kills=kills))
    assert played.run_log.ended_early
    assert played.run_log.failures
    assert played.run_log.events[-1].text == "no agent is left"


@pytest.mark.parametrize("stage", [1, 2])
def test_a_run_ends_when_no_publisher_is_left(stage: int) -> None:
    plan = plan_of(CONNECT, HOLD, PUBLISH, clients=1)
    played = play(plan, Script("continue", 3, kills=[(stage, 0)]))
    assert played.run_log.ended_early
    assert played.run_log.events[-1].text == "no client is left that publishes in stage publish"


@pytest.mark.parametrize(
    ("actions", "stage", "entered"),
    [
        ((CONNECT, PUBLISH), 0, [0, 1]),
        ((CONNECT, LONG, HOLD), 1, [1, 2]),
        ((CONNECT, HoldAction(duration_ns=3 * SECOND_NS), PUBLISH), 1, [0, 1, 2]),
    ],
)
def test_another_engine_comes_to_where_the_run_is(
    actions: tuple[Any, ...], stage: int, entered: list[int]
) -> None:
    plan = plan_of(*actions)
    # The connect stage waits for the replacement of an only agent.
    agents = 1 if stage == 0 else 3
    played = play(plan, Script("replace", agents, kills=[(stage, agents // 2)]))
    run_log = played.run_log
    assert not run_log.ended_early
    assert all(span.settled for span in run_log.spans)
    assert played.events == ["failure", "restart"]
    (failure,) = run_log.failures
    assert failure.replaced_on == ""
    assert failure.rejoined_ns is not None and failure.rejoined_ns > failure.at_ns
    assert run_log.endings == dict.fromkeys(run_log.endings, "bye")
    assert played.agents[failure.agent, 1].stages == entered
    assert played.run.recorder.timeline.connected_at(run_log.ended_ns) == 11


def test_who_comes_too_late_for_a_stage_takes_part_in_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stages, "JOIN_NS", 2 * LONG.duration_ns)
    plan = plan_of(CONNECT, LONG, PUBLISH)
    played = play(plan, Script("replace", 3, kills=[(1, 1)]))
    assert played.agents[1, 1].stages == [0, 2]
    assert all(span.settled for span in played.run_log.spans)
    found = [played.run_log.excluded_from_loss(plan, stage) for stage in (1, 2)]
    assert found == [[0, 1], []]


def test_clients_join_a_publish_stage_as_those_of_a_change() -> None:
    connect = CONNECT.model_copy(update={"rate_per_s": 110.0})
    played = play(plan_of(connect, LONG, PUBLISH), Script("replace", 3, kills=[(1, 1)]))
    span, commands = played.run_log.spans[1], played.agents[1, 1].commands
    assert played.agents[1, 1].kinds.startswith("stage exclude_from_loss change change ")
    assert commands[0] == {"command": "stage", "index": 1, "at_ns": span.from_ns}
    actions = [(each["population"], each["action"]) for each in commands[2:4]]
    # As fast as the stage that brought them up: 11 clients at 110/s.
    assert actions == [
        (0, {"kind": "add", "clients": 10, "over_ns": 10**8}),
        (1, {"kind": "add", "clients": 1, "over_ns": 10**8}),
    ]
    assert all(each["at_ns"] > span.from_ns for each in commands[2:4])
    assert played.agents[0, 0].excluded == [[0, 1], [0, 1]]
    assert played.run_log.expect_received[1] == {0, 1}
    assert 2 not in played.run_log.expect_received


class Ending(Live):
    """Ends the stage as soon as another agent plays the clients of a lost one."""

    controller: Controller

    def note(self, text: str) -> None:
        """Ends the stage."""
        if text.startswith("another agent"):
            self.controller.end_stage()


def test_a_stage_that_the_user_ends_waits_for_clients_that_join_it() -> None:
    async def run() -> Played:
        played = Played(plan, Script("replace", 3, kills=[(1, 1)], live=live))
        live.controller = played.controller
        return await played.play()

    live, plan = Ending(), plan_of(CONNECT.model_copy(update={"rate_per_s": 11.0}), LONG, PUBLISH)
    played = run_virtually(run())
    commands = played.agents[1, 1].commands
    kinds = [each["command"] for each in commands]
    assert kinds[:5] == ["stage", "exclude_from_loss", "change", "change", "close"]
    complete_ns = max(each["at_ns"] + each["action"]["over_ns"] for each in commands[2:4])
    # 11 clients at 11/s.
    assert played.run_log.spans[1].load_until_ns >= complete_ns
    assert complete_ns >= commands[2]["at_ns"] + SECOND_NS


def test_changes_of_the_stage_are_made_good_for_who_comes_later() -> None:
    changes = (
        PlannedChange(
            name="more", after_ns=0, population=0, action=AddClients(clients=4, over_ns=0)
        ),
        PlannedChange(name="fast", after_ns=0, population=0, action=ChangeRate(factor=2)),
    )
    connect = CONNECT.model_copy(update={"clients": (5, 1)})
    long = LONG.model_copy(update={"changes": changes})
    script = Script("replace", 3, kills=[(1, 1)], finds_after_s=0.5)
    played = play(plan_of(connect, long, HOLD), script)
    added = [each for each in played.agents[1, 1].commands if each["command"] == "change"]
    # It passes over those who joined before it came, and plays the planned rate by itself.
    assert [each["action"]["clients"] for each in added] == [9, 1]


def test_clients_that_no_stage_brought_up_join_the_next_publish_stage() -> None:
    fewer = RemoveClients(clients=4, over_ns=0)
    change = PlannedChange(name="fewer", after_ns=0, population=0, action=fewer)
    publish = PUBLISH.model_copy(update={"changes": (change,)})
    hold = HoldAction(duration_ns=3 * SECOND_NS)
    plan = plan_of(CONNECT, publish, hold, PUBLISH, PUBLISH)
    played = play(plan, Script("replace", 3, kills=[(2, 1)]))
    agent = played.agents[1, 1]
    assert agent.kinds == "stage stage stage change exclude_from_loss stage stop"
    action = agent.commands[3]["action"]
    assert action == {"kind": "remove", "clients": 4, "over_ns": 0}
    found = [played.run_log.excluded_from_loss(plan, stage) for stage in (1, 3, 4)]
    assert found == [[0], [0], []]


def test_a_replacement_that_fails_ends_the_run_with_the_reason() -> None:
    script = Script("replace", 3, kills=[(1, 1)], refuses=True)
    played = play(plan_of(CONNECT, LONG, HOLD), script)
    assert played.run_log.ended_early
    text = "agent 1 could not be replaced: no host is free (start one)"
    assert played.run_log.events[-1].text == text


@pytest.mark.parametrize(
    ("actions", "script", "failed", "stages_of_last"),
    [
        # The replacement is lost, too.
        ((LONG, LONG), Script("replace", 3, kills=[(1, 1)], kills_next=1), [1, 1], [1, 2]),
        ((LONG, HOLD), Script("replace", 3, kills=[(1, 0), (1, 2)]), [0, 2], [1, 2]),
        # The run has lost all of its agents, and waits for others.
        ((PUBLISH, HOLD), Script("replace", kills=[(1, 0)]), [0], [0, 2]),
    ],
)
def test_each_engine_that_is_lost_is_replaced(
    actions: tuple[Any, ...], script: Script, failed: list[int], stages_of_last: list[int]
) -> None:
    played = play(plan_of(CONNECT, *actions), script)
    run_log = played.run_log
    assert not run_log.ended_early
    assert [failure.agent for failure in run_log.failures] == failed
    assert run_log.endings == dict.fromkeys(range(script.agents), "bye")
    last = {failure.agent: failure for failure in run_log.failures}
    for agent, failure in last.items():
        assert failure.rejoined_ns is not None
        assert played.agents[agent, failed.count(agent)].stages == stages_of_last


def test_an_interrupt_while_an_engine_is_replaced_ends_the_run() -> None:
    script = Script("replace", 3, kills=[(1, 1)], interrupt_at=1)
    played = play(plan_of(CONNECT, LONG, HOLD), script)
    assert played.run_log.interrupted
    assert played.run_log.ended_early
    assert played.run_log.endings[0] == played.run_log.endings[2] == "bye"


RANDOM = (CONNECT, LONG, HoldAction(duration_ns=2 * SECOND_NS), LONG, LONG)
"""Connected within milliseconds, then 11 s."""
LONGEST_S = 60
KILLS = st.lists(st.tuples(st.floats(0, 12), st.integers(0, 2)), max_size=5)


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(["continue", "replace"]), KILLS, st.floats(0, 3))
def test_whenever_agents_fail_the_run_ends_and_its_log_is_whole(
    policy: OnAgentFailure, kills: list[tuple[float, int]], finds_after_s: float
) -> None:
    script = Script(policy, 3, kills_at_s=kills, finds_after_s=finds_after_s)
    played = play(plan_of(*RANDOM), script)
    run_log = played.run_log
    assert (run_log.ended_ns - run_log.started_ns) / SECOND_NS < LONGEST_S
    # Each failure is written down once, and each rejoin belongs to one of them.
    rejoined = [each for each in run_log.failures if each.rejoined_ns is not None]
    assert played.events.count("failure") == len(run_log.failures)
    assert played.events.count("restart") == len(rejoined)
    assert all(each.at_ns <= (each.rejoined_ns or each.at_ns) for each in run_log.failures)
    # An incarnation goes through stages in their order, and none twice.
    for agent in played.agents.values():
        assert agent.stages == sorted(set(agent.stages))
    if run_log.ended_early:
        assert policy == "continue"
        assert played.run_log.events[-1].text.startswith(("no agent", "no client"))
        return
    # All receivers are excluded from loss where an agent failed while messages were sent.
    for failure in run_log.failures:
        for span in run_log.spans:
            sends = span.index in {1, 3, 4} and span.from_ns <= failure.at_ns < span.load_until_ns
            assert not sends or run_log.excluded_from_loss(played.plan, span.index) == [0, 1]
    assert [span.index for span in run_log.spans] == [0, 1, 2, 3, 4]
    # A publish stage is closed before its end to agents that join, and the last one for good.
    late_ns = run_log.spans[-1].load_until_ns - 5 * SECOND_NS
    latest = {each.agent: each for each in run_log.failures}
    lost = {agent: each for agent, each in latest.items() if each.rejoined_ns is None}
    assert policy == "continue" or all(each.at_ns >= late_ns for each in lost.values())
    clients = sum(sum(played.agents[agent, 0].clients) for agent in {0, 1, 2} - lost.keys())
    assert played.run.recorder.timeline.connected_at(run_log.ended_ns) == clients
