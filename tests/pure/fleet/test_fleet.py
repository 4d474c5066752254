"""Agents that misbehave and places that answer nothing any more, in virtual time: every wait of the
fleet ends, and each agent has exactly one last event."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pubstorm.contract.commands import Bye, EnterStage, Failure, Hello
from pubstorm.contract.snapshot import Snapshot
from pubstorm.errors import FleetError
from pubstorm.fleet import Ended, Fleet, FleetEvent, SlotLostError, Timeouts
from pubstorm.fleet.incarnation import BEAT
from tests.kit import made
from tests.kit.made import SECOND_NS
from tests.kit.virtual import VirtualLoop, run_virtually

SHORT = Timeouts(silence_s=60, beat_s=0.05, lost_s=0.4, hello_s=0.4, answer_s=0.2, replace_s=0.4)
NO_BEATS = Timeouts(silence_s=60, hello_s=0.4, answer_s=0.2)
MUTE = ("line", "wait", "kill")
DIED = SlotLostError("host 10.0.0.9 died")


class Place:
    """A place whose agent says hello; from then on calls named in `stuck` never return."""

    host = "10.0.0.9"
    agents = 1

    def __init__(self, *stuck: str, agent: int = 0, agents: int = 1) -> None:
        self.stuck = set(stuck)
        self.agents = agents
        self.name = f"agent {agent} on {self.host}"
        self.sent: list[str] = []
        self.lines: asyncio.Queue[bytes | SlotLostError] = asyncio.Queue()
        self.is_spawned = False
        self.code = -9
        self.say(made.hello(agent, agents, clients=(1,)))

    def say(self, line: Hello | Snapshot | Failure | Bye) -> None:
        self.lines.put_nowait(line.model_dump_json().encode())

    async def spawn(self) -> None:
        await self.answer("spawn")
        self.is_spawned = True

    async def send(self, line: str) -> None:
        await self.answer("send")
        self.sent.append(line)

    async def line(self) -> bytes:
        if "line" in self.stuck and self.lines.empty():
            await self.answer("line")
        line = await self.lines.get()
        if isinstance(line, SlotLostError):
            raise line
        return line

    async def wait(self) -> int:
        await self.answer("wait")
        return self.code

    def kill(self) -> None:
        if "kill" not in self.stuck:
            self.lines.put_nowait(b"")

    def last_words(self) -> str:
        return "cannot think of a greeting"

    async def answer(self, call: str) -> None:
        while call in self.stuck:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if "cancel" not in self.stuck:
                    raise
                self.stuck.discard("cancel")


Search = Callable[[int], Awaitable[Place]]


def play(
    places: list[Place],
    script: Callable[[Fleet, asyncio.Queue[FleetEvent]], Awaitable[None]],
    timeouts: Timeouts = SHORT,
    replace: Search | None = None,
) -> list[FleetEvent]:
    """Brings a fleet up there and closes it; every event that came."""

    async def run() -> list[FleetEvent]:
        events: asyncio.Queue[FleetEvent] = asyncio.Queue()
        seen: list[FleetEvent] = []

        def emit(event: FleetEvent) -> None:
            seen.append(event)
            events.put_nowait(event)

        fleet = Fleet(places, emit, timeouts, replace)
        try:
            await fleet.up("plan\n")
            await script(fleet, events)
        finally:
            await fleet.close()
        await asyncio.sleep(0.1)
        assert not fleet.alive
        return seen

    return run_virtually(run())


async def nothing(_fleet: Fleet, _events: asyncio.Queue[FleetEvent]) -> None:
    """A run that is over at once."""


async def ending(_fleet: Fleet, events: asyncio.Queue[FleetEvent]) -> None:
    """A run that waits for the first event."""
    await events.get()


def only(events: list[FleetEvent]) -> Ended:
    (ended,) = events
    assert isinstance(ended, Ended)
    return ended


FAILURE = Failure(message="no such seed", hint="choose another")


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        (None, "exited with code 7", "cannot think of a greeting"),
        (FAILURE, "gave up: no such seed", "choose another"),
    ],
)
def test_a_fleet_that_does_not_come_up_says_why(
    line: Hello | Failure | None, message: str, hint: str | None
) -> None:
    place = Place()
    place.lines.get_nowait()
    if line is not None:
        place.say(line)
    place.lines.put_nowait(b"")
    place.code = 7
    with pytest.raises(FleetError, match=message) as caught:
        play([place], nothing)
    assert caught.value.hint == hint


class Quiet(Place):
    """A place whose agent answers beats and shows nothing."""

    async def send(self, line: str) -> None:
        await super().send(line)
        if line == BEAT:
            self.lines.put_nowait(b'{"kind": "beat"}')


def test_one_that_answers_beats_and_shows_nothing_is_silent() -> None:
    place = Quiet()
    ended = only(play([place], ending, Timeouts(silence_s=10, beat_s=1, lost_s=3.5)))
    assert ended.how == "silent"
    assert "sent no snapshot for 10 s" in ended.text
    assert place.sent.count(BEAT) == 9


def test_one_that_leaves_slowly_has_the_time_that_it_is_given() -> None:
    place = Quiet()

    async def script(fleet: Fleet, events: asyncio.Queue[FleetEvent]) -> None:
        await fleet.stop(200)
        await asyncio.sleep(100)
        assert events.empty()
        place.code = 0
        place.say(Bye(snapshots=0))
        place.lines.put_nowait(b"")
        await events.get()

    assert only(play([place], script, Timeouts(silence_s=10, beat_s=1, lost_s=3.5))).how == "bye"


@pytest.mark.parametrize(("leave", "how"), [(100, "bye"), (0, "silent")])
def test_one_that_stops_may_take_any_time_while_its_clients_leave(leave: int, how: str) -> None:
    """It sends a snapshot every eight seconds, and has ten without progress."""
    place = Place()

    async def script(fleet: Fleet, _events: asyncio.Queue[FleetEvent]) -> None:
        await fleet.stop(10)
        for number in range(10):
            population = made.population(connected=1000 - leave * number)
            place.say(made.snapshot(population, from_ns=number, sequence=number))
            await asyncio.sleep(8)
        place.code = 0
        place.say(Bye(snapshots=10))
        place.lines.put_nowait(b"")
        await asyncio.sleep(1)

    *_, last = play([place], script, Timeouts(silence_s=10))
    assert isinstance(last, Ended)
    assert last.how == how


def test_the_time_to_stop_is_that_in_which_its_lines_are_read() -> None:
    place = Place()

    async def script(fleet: Fleet, _events: asyncio.Queue[FleetEvent]) -> None:
        await fleet.stop(5)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.now_ns += 60 * SECOND_NS
        await asyncio.sleep(4)
        place.code = 0
        place.say(Bye(snapshots=0))
        place.lines.put_nowait(b"")
        await asyncio.sleep(1)

    assert only(play([place], script, NO_BEATS)).how == "bye"


@pytest.mark.parametrize("last", [None, b"", DIED])
def test_one_that_has_said_bye_has_ended_well_even_if_it_stays(
    last: bytes | SlotLostError | None,
) -> None:
    place = Place("wait")

    async def script(fleet: Fleet, events: asyncio.Queue[FleetEvent]) -> None:
        await fleet.stop(5)
        place.say(Bye(snapshots=0))
        if last is not None:
            place.lines.put_nowait(last)
        await events.get()

    assert only(play([place], script, NO_BEATS)).how == "bye"


def test_a_spawn_that_hangs_is_an_error() -> None:
    with pytest.raises(FleetError, match=r"agent 0 on 10\.0\.0\.9 could not be started within 0"):
        play([Place("spawn")], nothing)


def test_a_place_that_is_lost_while_it_starts_says_so() -> None:
    class Lost(Place):
        async def spawn(self) -> None:
            raise SlotLostError("host 10.0.0.9 died", "look at it")

    with pytest.raises(SlotLostError, match=r"host 10\.0\.0\.9 died"):
        play([Lost()], nothing)


@pytest.mark.parametrize("stuck", [(), ("line",), ("line", "send", "wait", "kill")])
def test_an_agent_that_does_not_answer_is_lost_once(stuck: tuple[str, ...]) -> None:
    ended = only(play([Place(*stuck)], ending, SHORT))
    assert ended.how == "lost"
    assert ended.text == "agent 0 on 10.0.0.9 has not answered for 0.4 s"


@pytest.mark.parametrize(
    ("stuck", "lines", "how", "words"),
    [
        (("wait", "kill"), (DIED, b""), "lost", "agent 0 on 10.0.0.9 was lost: host 10.0.0.9 died"),
        (("wait",), (b"", DIED), "silent", "did not exit for 0.2 s"),
    ],
)
def test_one_that_ends_and_whose_place_is_lost_ends_once(
    stuck: tuple[str, ...], lines: tuple[bytes | SlotLostError, ...], how: str, words: str
) -> None:
    place = Place(*stuck)

    async def script(_fleet: Fleet, events: asyncio.Queue[FleetEvent]) -> None:
        for line in lines:
            place.lines.put_nowait(line)
        await events.get()

    ended = only(play([place], script))
    assert (ended.how, words in ended.text) == (how, True)


@pytest.mark.parametrize("stuck", [MUTE, (*MUTE, "send"), (*MUTE, "cancel")])
def test_closing_ends_where_nothing_answers(stuck: tuple[str, ...]) -> None:
    ended = only(play([Place(*stuck)], nothing, NO_BEATS))
    assert ended.text.startswith("agent 0 on 10.0.0.9 was given up")


def test_a_command_reaches_the_others_and_does_not_wait_for_ever() -> None:
    places = [Place(agent=0, agents=2), Place(agent=1, agents=2)]

    async def script(fleet: Fleet, _events: asyncio.Queue[FleetEvent]) -> None:
        places[1].stuck = {"send", "line"}
        await fleet.command(EnterStage(index=0, at_ns=7))
        assert '"at_ns":7' in places[0].sent[-1]

    events = play(places, script, NO_BEATS)
    assert len(places[1].sent) == 1
    assert len(events) == 2


async def no_end(_agent: int) -> Place:
    """A search for another place that never ends."""
    return await asyncio.Future()


@pytest.mark.parametrize(
    ("search", "message"),
    [(no_end, r"no other place for agent 0 within 0\.4 s"), (None, "no other place for agent 0")],
)
def test_without_another_place_no_agent_is_replaced(search: Search | None, message: str) -> None:
    async def script(fleet: Fleet, events: asyncio.Queue[FleetEvent]) -> None:
        await events.get()
        with pytest.raises(FleetError, match=message):
            await fleet.replace(0)

    only(play([Place()], script, SHORT, search))


def always(place: Place) -> Search:
    """A search that finds one place."""

    async def search(_agent: int) -> Place:
        return place

    return search


def test_closing_while_another_place_starts_leaves_nothing_there() -> None:
    second = Place("spawn")

    async def script(fleet: Fleet, events: asyncio.Queue[FleetEvent]) -> None:
        await events.get()
        replacing = asyncio.create_task(fleet.replace(0))
        while fleet.hosts[0] != "10.0.0.10":
            await asyncio.sleep(0.01)
        await fleet.close()
        with pytest.raises(FleetError, match=r"was given up|could not be started"):
            await replacing

    second.host = "10.0.0.10"
    only(play([Place()], script, SHORT, always(second)))
    assert not second.is_spawned


def test_killing_all_while_one_is_replaced_ends_all() -> None:
    second = Place()

    async def script(fleet: Fleet, events: asyncio.Queue[FleetEvent]) -> None:
        await events.get()
        await fleet.replace(0)
        fleet.kill()
        fleet.kill()
        await events.get()

    events = play([Place()], script, SHORT, always(second))
    ended = [(event.how, event.incarnation) for event in events if isinstance(event, Ended)]
    assert ended == [("lost", 0), ("exited", 1)]


def test_a_replacement_that_is_no_longer_awaited_is_ended() -> None:
    second = Place("spawn")

    async def script(fleet: Fleet, events: asyncio.Queue[FleetEvent]) -> None:
        await events.get()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await fleet.replace(0)
        second.stuck.clear()

    only(play([Place()], script, SHORT, always(second)))


BYE = Bye(snapshots=0).model_dump_json().encode()
HAPPENINGS: dict[str, Callable[[Place, Fleet], None]] = {
    "ends": lambda place, _: place.lines.put_nowait(b""),
    "is lost": lambda place, _: place.lines.put_nowait(SlotLostError("host 10.0.0.9 died")),
    "says bye": lambda place, _: place.lines.put_nowait(BYE),
    "talks nonsense": lambda place, _: place.lines.put_nowait(b"{}"),
    "answers": lambda place, _: place.lines.put_nowait(b'{"kind": "beat"}'),
    "is killed": lambda _, fleet: fleet.kill(),
    "gets stuck": lambda place, _: place.stuck.update(MUTE),
}


@given(
    st.lists(
        st.tuples(st.sampled_from([*HAPPENINGS]), st.sampled_from([0, 0.001, 0.01])), max_size=6
    )
)
@settings(deadline=None, max_examples=300)
def test_whatever_comes_together_there_is_one_last_event(run_log: list[tuple[str, float]]) -> None:
    place = Place()

    async def script(fleet: Fleet, _events: asyncio.Queue[FleetEvent]) -> None:
        for name, after_s in run_log:
            HAPPENINGS[name](place, fleet)
            await asyncio.sleep(after_s)

    ended = only(play([place], script, Timeouts(beat_s=0.005, lost_s=0.02, answer_s=0.02)))
    assert ended.agent == 0
