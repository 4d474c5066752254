"""The stages of a run and its end, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

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
from pubstorm.contract.protocol import PlannedSubscription
from pubstorm.errors import UsageError
from pubstorm.fleet import Timeouts
from pubstorm.host.environment import MemoryLow
from pubstorm.play.display import Live, Summary
from pubstorm.play.stages import Controller, Interrupt, RunEvent
from pubstorm.topology import BrokerDied, ServiceDied
from tests.kit.agents import planned
from tests.kit.made import SECOND_NS
from tests.kit.virtual import Behaviour, Played, Script, play, run_virtually

CONNECT = ConnectAction(rate_per_s=None, parallelism=None, timeout_ns=10**8)
PUBLISH = PublishAction(duration_ns=10**7)
HOLD = HoldAction(duration_ns=10**7)
LEAVE = DisconnectAction(rate_per_s=None)


def test_every_stage_is_played_in_order() -> None:
    played = play(planned("well", CONNECT, PUBLISH, HOLD, LEAVE), Script(agents=2))
    run_log = played.run_log
    assert [span.index for span in run_log.spans] == [0, 1, 2, 3]
    assert all(span.settled for span in run_log.spans)
    assert all(a.to_ns <= b.from_ns for a, b in zip(run_log.spans, run_log.spans[1:], strict=False))
    assert run_log.endings == {0: "bye", 1: "bye"}
    assert run_log.events == []
    assert not run_log.ended_early
    assert {agent.stages == [0, 1, 2, 3] for agent in played.agents.values()} == {True}
    assert played.run.recorder.sums.agent([1]).snapshots == len(played.received) / 2


@pytest.mark.parametrize(
    ("stops_after_s", "events"),
    [
        (9.0, []),
        (None, [("agent", "agent 1 did not stop in time and was killed")]),
    ],
)
def test_an_agent_that_stops_slowly_is_no_failure(
    stops_after_s: float | None, events: list[tuple[str, str]]
) -> None:
    script = Script(agents=2, behaviours={1: Behaviour(stops_after_s=stops_after_s)})
    run_log = play(planned("well", CONNECT, PUBLISH, LEAVE), script).run_log
    assert [(event.kind, event.text) for event in run_log.events] == events
    assert (run_log.endings[0], run_log.endings[1] == "bye") == ("bye", not events)


def test_a_connect_stage_begins_sooner_than_one_with_messages() -> None:
    timeouts = Timeouts(start_delay_s=2)
    played = play(planned("well", CONNECT, PUBLISH), Script(timeouts=timeouts))
    assert played.entered == [(0, timeouts.connect_delay_ns), (1, timeouts.start_delay_ns)]


def test_nothing_connected_ends_the_run() -> None:
    refused = Behaviour(settles=False, failed=10)
    connect = CONNECT.model_copy(update={"timeout_ns": 60 * SECOND_NS})
    played = play(planned("refused", connect, PUBLISH), Script(behaviour=refused))
    assert played.run_log.ended_early
    (event,) = played.run_log.events
    ended = "no client is connected after 3 s of failing attempts: the run ends here"
    assert (event.kind, event.text) == ("target", ended)
    assert len(played.run_log.spans) == 1


def test_a_barrier_that_does_not_fill_is_passed_after_its_timeout() -> None:
    script = Script(behaviour=Behaviour(settles=False))
    run_log = play(planned("well", CONNECT, HoldAction(duration_ns=0)), script).run_log
    assert [span.settled for span in run_log.spans] == [False, False]
    assert [event.kind for event in run_log.events] == ["stage", "stage"]
    assert not run_log.ended_early


OFTEN_S = 0.01
STAGE_ENDED = "stage connect ended before every agent was done"


@pytest.mark.parametrize(
    ("behaviour", "says", "stage", "lasts_s"),
    [
        # Attempts or new clients may hold up a connect stage for 3 timeouts and 0.1 s a client.
        (Behaviour(OFTEN_S, OFTEN_S, settles=False, ready=lambda n: n % 2), STAGE_ENDED, 0, 0.1),
        (Behaviour(OFTEN_S, OFTEN_S, settles=False, ready=lambda n: n), STAGE_ENDED, 0, 1.3),
        # Duplicates are no progress, and no unexpected wills. Deliveries hold up a stage for
        # 20 times its drain.
        (Behaviour(OFTEN_S, OFTEN_S, flow=("duplicate_total",)), None, 1, 1.0),
        (
            Behaviour(OFTEN_S, OFTEN_S, flow=("received_total", "wills_received_total")),
            None,
            1,
            1.0,
        ),
        (
            Behaviour(OFTEN_S, OFTEN_S, flow=("received_total",)),
            "stage publish ended: messages still came after 20.0 s, the longest time of its drain",
            1,
            20.0,
        ),
    ],
)
def test_a_stage_ends_whatever_moves_in_it(
    behaviour: Behaviour, says: str | None, stage: int, lasts_s: float
) -> None:
    changes = {"snapshot_interval_ns": 10**7, "drain_ns": SECOND_NS}
    plan = planned("well", CONNECT, PUBLISH).model_copy(update=changes)
    run_log = play(plan, Script(behaviour=behaviour)).run_log
    assert [span.index for span in run_log.spans] == [0, 1]
    assert [event.text for event in run_log.events][:1] == [says] * bool(says)
    span = run_log.spans[stage]
    assert (span.to_ns - span.load_until_ns) / SECOND_NS == pytest.approx(lasts_s, abs=0.05)
    assert not run_log.ended_early


@pytest.mark.parametrize(
    ("event", "kind", "text", "is_interrupted", "is_ended"),
    [
        (Interrupt("SIGINT"), "interrupt", "interrupted by SIGINT", True, True),
        (
            MemoryLow("memory runs out"),
            "memory",
            "memory runs out; 0 clients are connected",
            False,
            True,
        ),
        (BrokerDied("main-0", "broker main-0 died"), "broker", "broker main-0 died", False, False),
        (ServiceDied("users", "service users died"), "service", "service users died", False, False),
    ],
)
def test_an_event_is_noted_and_may_end_the_run(
    event: RunEvent, kind: str, text: str, *, is_interrupted: bool, is_ended: bool
) -> None:
    run_log = play(planned("well", CONNECT, PUBLISH), Script(first=(event,))).run_log
    assert [(e.kind, e.text) for e in run_log.events] == [(kind, text)]
    assert (run_log.interrupted, run_log.ended_early) == (is_interrupted, is_ended)
    assert run_log.endings == {0: "bye"}


HALF_MINUTE = PublishAction(duration_ns=30 * SECOND_NS)


@pytest.mark.parametrize("action", [HALF_MINUTE, HoldAction(duration_ns=30 * SECOND_NS)])
def test_a_first_interrupt_ends_the_stage_which_counts(action: PublishAction | HoldAction) -> None:
    script = Script(interrupt_at=1, interrupts_s=(15.1,))
    run_log = play(planned("well", CONNECT, action, PUBLISH, LEAVE), script).run_log
    assert (run_log.interrupted, run_log.ended_early) == (True, False)
    assert [span.index for span in run_log.spans] == [0, 1]
    (event,) = run_log.events
    words = "stage publish is ended by the user after 15.0 s of 30.0 s, and the run"
    assert (event.kind, event.text.replace("hold", "publish")) == ("by_hand", words)
    assert run_log.endings == {0: "bye"}


def test_a_second_interrupt_ends_the_run_at_once() -> None:
    waits = Behaviour(OFTEN_S, OFTEN_S, flow=("received_total",))
    script = Script(behaviour=waits, interrupt_at=1, interrupts_s=(15.1, 16.1))
    run_log = play(planned("well", CONNECT, HALF_MINUTE, LEAVE), script).run_log
    assert (run_log.interrupted, run_log.ended_early) == (True, True)
    assert [event.kind for event in run_log.events] == ["by_hand", "interrupt"]
    span = run_log.spans[1]
    assert (span.to_ns - span.from_ns) / SECOND_NS == pytest.approx(16.1, abs=1.5)


def test_planned_changes_are_noted_when_they_take_effect() -> None:
    played = play(planned("well", CONNECT, CHANGING))
    run_log = played.run_log
    assert [(e.kind, e.text) for e in run_log.events] == [("change", "fewer"), ("change", "faster")]
    start_ns = run_log.spans[1].from_ns
    assert [(c.stage, c.at_ns - start_ns, c.name) for c in run_log.changes] == [
        (1, 10**7, "fewer"),
        (1, 3 * 10**7, "faster"),
    ]
    at_s = [round((c.at_ns - run_log.started_ns) / 10**9, 3) for c in run_log.changes]
    assert [event.at_s for event in run_log.events] == at_s


class Asking(Live):
    """Asks for changes as soon as the run has noted that a planned one took effect."""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.answers: list[str] = []
        self.asked: asyncio.Task[None] | None = None
        self.controller: Controller | None = None

    def note(self, text: str) -> None:
        """Asks after the planned change."""
        if text == "fewer":
            self.asked = asyncio.get_running_loop().create_task(self.ask())

    async def ask(self) -> None:
        assert self.controller is not None
        for words in self.words:
            try:
                self.answers.append(await self.controller.change(words))
            except UsageError as error:
                self.answers.append(error.message)


def play_with(live: Asking | Ending, plan: Plan, **script: Any) -> Played:
    """Plays a plan under a display that steers the run."""

    async def run() -> Played:
        played = Played(plan, Script(live=live, **script))
        live.controller = played.controller
        return await played.play()

    return run_virtually(run())


def test_a_change_by_control_reaches_every_agent_and_is_noted() -> None:
    live = Asking("add 3 device", "remove 2 device over 100ms")
    played = play_with(live, planned("well", CONNECT, LONG), agents=2)
    assert [answer.split(" at ")[0] for answer in live.answers] == ["+3 device", "-2 device"]
    changed = [change.action for change in played.run_log.changes]
    assert changed == [
        RemoveClients(clients=4, over_ns=0),
        AddClients(clients=3, over_ns=0),
        RemoveClients(clients=2, over_ns=10**8),
    ]
    events = played.run_log.events
    assert [e.text for e in events if e.kind == "change"] == ["fewer", "+3 device", "-2 device"]
    assert [e.text for e in events if e.kind == "by_hand"] == [
        "the user made the change +3 device",
        "the user made the change -2 device",
    ]
    for agent in played.agents.values():
        asked = [each["action"] for each in agent.commands if each["command"] == "change"]
        assert [action["clients"] for action in asked] == [3, 2]


def test_a_pause_by_the_user_is_named() -> None:
    live = Asking("rate 0 device", "rate 1 device", "rate 2 device")
    events = play_with(live, planned("well", CONNECT, LONG)).run_log.events
    assert [event.text for event in events if event.kind == "by_hand"] == [
        "the user paused device",
        "the user resumed device",
        "the user made the change 2 × device",
    ]
    assert [event.text for event in events if event.kind == "change"] == [
        "fewer",
        "pause device",
        "1 × device: resumed",
        "2 × device",
    ]


def test_a_change_that_cannot_be_is_refused_with_the_reason() -> None:
    live = Asking("add 5 device", "remove 7 device", "add 1 late", "add 1 device over 1min", "no")
    played = play_with(live, planned("well", CONNECT, LONG))
    assert live.answers[:3] == [
        "not so many clients: 6 of 10 clients of device are active",
        "not so many clients: 6 of 10 clients of device are active",
        "found population late, allowed are device in this stage",
    ]
    assert "too short for the change" in live.answers[3]
    assert live.answers[4] == "found 'no', which is no change"
    assert [event.text for event in played.run_log.events] == ["fewer"]


def test_a_change_outside_a_publish_stage_is_refused() -> None:
    async def run() -> None:
        played = await Played(planned("well", CONNECT, PUBLISH), Script()).play()
        with pytest.raises(UsageError, match="no publish stage is on"):
            await played.controller.change("rate 2 device")

    run_virtually(run())


def test_only_rates_change_in_a_stage_with_a_number_of_messages() -> None:
    live = Asking("add 1 device", "rate 2 device")
    counting = LONG.model_copy(update={"messages": (10**6,)})
    unsettled = Behaviour(settles=False)
    played = play_with(live, planned("well", CONNECT, counting), behaviour=unsettled)
    assert live.answers[0] == "the stage has a number of messages: only its rates can change"
    assert live.answers[1].startswith("2 × device at ")
    (event,) = (event for event in played.run_log.events if event.kind == "check")
    assert "sent 10 of 1\u202f000\u202f000 messages in its time, needed are all: " in event.text


def test_a_stage_with_a_number_of_messages_ends_as_all_agents_have_sent_theirs() -> None:
    counting = PublishAction(duration_ns=10**12, messages=(10,))
    played = play(planned("well", CONNECT, counting), Script(agents=2))
    span = played.run_log.spans[1]
    assert span.load_until_ns - span.from_ns < 10**10
    assert span.settled
    assert not span.by_user


def fewer(after_ns: int) -> PlannedChange:
    action = RemoveClients(clients=4, over_ns=0)
    return PlannedChange(name="fewer", after_ns=after_ns, population=0, action=action)


FASTER = PlannedChange(name="faster", after_ns=3 * 10**7, population=0, action=ChangeRate(factor=2))
CHANGING = PublishAction(duration_ns=5 * 10**7, changes=(fewer(10**7), FASTER))
LONG = PublishAction(duration_ns=10**9, changes=(fewer(0),))


class Ending(Live):
    """Ends each stage as soon as it is shown for the second time."""

    def __init__(self) -> None:
        self.controller: Controller | None = None
        self.shown: list[str] = []
        self.refusals: list[str] = []

    def show(self, summary: Summary) -> None:
        """Ends the stage."""
        self.shown.append(summary.time.name)
        if self.shown.count(summary.time.name) == 2 and self.controller is not None:
            try:
                self.controller.end_stage()
            except UsageError as error:
                self.refusals.append(error.message)


def test_a_user_ends_stages_before_their_time() -> None:
    live, long_ns = Ending(), 600 * SECOND_NS
    publish, hold = PublishAction(duration_ns=long_ns), HoldAction(duration_ns=long_ns)
    played = play_with(live, planned("well", CONNECT, publish, hold, LEAVE))
    spans = played.run_log.spans
    assert [span.index for span in spans] == [0, 1, 2, 3]
    assert all(span.to_ns - span.from_ns < 60 * SECOND_NS for span in spans)
    assert spans[1].load_until_ns - spans[1].from_ns < 60 * SECOND_NS
    texts = [event.text for event in played.run_log.events]
    assert [text.rpartition(" is ended")[2] for text in texts] == [" by the user"] * 2
    assert {event.kind for event in played.run_log.events} == {"by_hand"}
    (agent,) = played.agents.values()
    assert "close" in agent.kinds.split()
    assert not played.run_log.ended_early


SLOW = Behaviour(settles=False, ready=lambda n: min(n, 3))
ADDING = AddClients(clients=1, over_ns=10**12)
JOINING = PublishAction(
    duration_ns=600 * SECOND_NS,
    changes=(PlannedChange(name="more", after_ns=0, population=0, action=ADDING),),
)


@pytest.mark.parametrize(
    ("actions", "behaviour", "excluded"),
    [
        ((CONNECT, PUBLISH), SLOW, {1: {0}}),
        ((CONNECT, HOLD, PUBLISH, PUBLISH), SLOW, {2: {0}, 3: {0}}),
        # They join in a later connect stage, or all leave.
        ((CONNECT, LEAVE, PUBLISH), SLOW, {}),
        ((CONNECT, PUBLISH), Behaviour(), {}),
        # A change that adds clients is a ramp, too.
        ((CONNECT, JOINING, PUBLISH), Behaviour(), {2: {0}}),
    ],
)
def test_what_clients_miss_that_had_not_joined_when_the_user_ended_a_stage_is_not_lost(
    actions: tuple[Any, ...], behaviour: Behaviour, excluded: dict[int, set[int]]
) -> None:
    patient = CONNECT.model_copy(update={"timeout_ns": 60 * SECOND_NS})
    plan = planned("well", *(patient if each is CONNECT else each for each in actions))
    (device,) = plan.populations
    device = device.model_copy(update={"subscriptions": (PlannedSubscription(filter="t", qos=0),)})
    plan = plan.model_copy(update={"populations": (device,)})
    played = play_with(Ending(), plan, behaviour=behaviour)
    assert played.run_log.expect_received == excluded
    (agent,) = played.agents.values()
    commands = [each for each in agent.commands if each["command"] == "exclude_from_loss"]
    assert [each["populations"] for each in commands] == [[*each] for each in excluded.values()]


def test_a_stage_that_waits_for_its_clients_is_not_ended() -> None:
    live = Ending()
    play_with(live, planned("well", CONNECT, LEAVE), behaviour=Behaviour(settles=False))
    assert [text.partition(" ends ")[2] for text in live.refusals] == ["once its clients have left"]
