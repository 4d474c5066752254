"""How a run with publishers goes on and ends: programs beside engines, with fake agents as real
processes."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pubstorm import conduct
from pubstorm.assemble import Assembly
from pubstorm.cast import Cast
from pubstorm.conduct import Conductor, Happening, Interrupt
from pubstorm.control import Hello, Sent
from pubstorm.fleet import Fleet, Patience
from pubstorm.fleet.local import LocalSlot, engine_command
from pubstorm.fleet.programs import UserPrograms, program_commands
from pubstorm.live import SilentLive
from pubstorm.plan import (
    Attachment,
    ConnectAction,
    FixedPayload,
    OpenPace,
    Plan,
    Publication,
    PublishAction,
    Subscription,
    Target,
)
from pubstorm.plan.model import Stage, Zmq
from pubstorm.result import ValidityLimits

PlanMaker = Callable[..., Plan]
AGENT = Path(__file__).with_name("fake_agent.py")
CONNECT = ConnectAction(rate_per_s=None, parallelism=None, timeout_ns=10**8)
PUBLISH = PublishAction(duration_ns=10**7)
PACE = OpenPace(period_ns=10**5, spread=0, jitter=0, phase="aligned", late="send", burst=100)
PUBLICATION = Publication(
    topic="", qos=0, retain=False, pace=PACE, window=1, payload=FixedPayload(bytes=32)
)


@pytest.fixture
def publishing(plan_named: PlanMaker) -> Callable[[str], Plan]:
    """Makes a plan of two publishers and ten subscribers whose name says how agents behave."""

    def make(name: str) -> Plan:
        plan = plan_named(name)
        zmq = Zmq(high_water_mark=7, io_threads=2)
        subscriber = plan.populations[0].model_copy(
            update={
                "name": "subscriber",
                "version": "zmtp-3.1",
                "zmq": zmq,
                "subscriptions": (Subscription(filter="", qos=0),),
            }
        )
        at = Attachment(first=0, count=2)
        changes = {"name": "feed", "player": "command", "clients": 2, "at": at}
        feed = subscriber.model_copy(
            update={**changes, "subscriptions": (), "publications": (PUBLICATION,)}
        )
        stages = (
            Stage(name="connect", action=CONNECT, populations=(0, 1)),
            Stage(name="publish", action=PUBLISH, populations=(1,)),
        )
        targets = tuple(Target(host="127.0.0.1", port=port) for port in (5001, 5002))
        parts = {"populations": (subscriber, feed), "stages": stages, "targets": targets}
        return plan.model_copy(update=parts)

    return make


def play(
    plan: Plan, folder: Path, *first: Happening, silence_s: float = 30
) -> tuple[Conductor, tuple[Hello, ...]]:
    """Plays a plan on one engine and the programs that it asks for."""
    words = (sys.executable, "-I", str(AGENT))
    engine = engine_command(Path("unused"), 0, 1)
    engine = type(engine)((*words, "--shard", "0/1"), engine.title, engine.agents)
    users = UserPrograms({"feed": words})
    commands = [engine, *program_commands(plan, Cast.of(plan, 1), folder, users)]
    slots = [LocalSlot(c, folder / f"{agent}.log") for agent, c in enumerate(commands)]

    async def run() -> tuple[Conductor, tuple[Hello, ...]]:
        happenings: asyncio.Queue[Happening] = asyncio.Queue()
        fleet = Fleet(slots, happenings.put_nowait, Patience(silence_s))
        conductor = Conductor(plan, fleet, happenings, SilentLive())
        try:
            hellos = await fleet.up(plan.to_line())
            for happening in first:
                happenings.put_nowait(happening)
            await conductor.play(lambda _: None)
        finally:
            await fleet.close()
        return conductor, hellos

    return asyncio.run(run())


def closes(folder: Path, agent: int) -> list[list[dict[str, int]]]:
    """What was said with each close that an agent got."""
    lines = map(json.loads, (folder / f"{agent}.log").read_text().splitlines())
    return [line["sent"] for line in lines if line["command"] == "close"]


SUMS = [{"population": 1, "client": 0, "total": 10}, {"population": 1, "client": 1, "total": 10}]


def test_a_plan_names_the_programs_beside_its_engines(
    publishing: Callable[[str], Plan], tmp_path: Path
) -> None:
    plan = publishing("publishers-well")
    cast = Cast.of(plan, 3)
    words = ["feeder", "{host}:{port}", "{{}}"]
    commands = list(program_commands(plan, cast, tmp_path, UserPrograms({"feed": words}, ("x",))))
    assert cast.agents == 5
    assert [command.title for command in commands] == ["publisher feed-0", "publisher feed-1"]
    words_of_second = "x feeder 127.0.0.1:5002 {} --agents 5 --agent 4 --population 1 --shard 1/2"
    assert commands[1].words == tuple(words_of_second.split())
    assert all(command.agents == 5 for command in commands)


def test_publishers_settle_and_engines_are_told_what_was_sent(
    publishing: Callable[[str], Plan], tmp_path: Path
) -> None:
    conductor, _ = play(publishing("publishers-well"), tmp_path)
    course = conductor.course
    assert [span.settled for span in course.spans] == [True, True]
    assert course.events == []
    assert course.endings == {0: "bye", 1: "bye", 2: "bye"}
    assert closes(tmp_path, 0) == [SUMS]
    assert conductor.progress.sent()[0] == Sent(population=1, client=0, total=15)


def test_what_engines_publish_beside_them_is_waited_for(
    publishing: Callable[[str], Plan], tmp_path: Path
) -> None:
    plan = publishing("publishers-well")
    subscriber, feed = plan.populations
    device = subscriber.model_copy(
        update={"name": "device", "version": "mqtt-3.1.1", "publications": (PUBLICATION,)}
    )
    stages = (plan.stages[0], plan.stages[1].model_copy(update={"populations": (0, 1)}))
    conductor, _ = play(
        plan.model_copy(update={"populations": (device, feed), "stages": stages}), tmp_path
    )
    load_until_ns = conductor.course.spans[1].load_until_ns
    assert conductor.progress.is_out(load_until_ns)
    assert conductor.course.events == []
    assert closes(tmp_path, 0) == [SUMS]


def test_what_publishers_need_is_none_of_the_generators(
    publishing: Callable[[str], Plan], tmp_path: Path
) -> None:
    plan = publishing("publishers-well")
    conductor, hellos = play(plan, tmp_path)
    limits = ValidityLimits(lateness_p99_us=1, busy=0.9)
    assembly = Assembly(plan, hellos, conductor.course, conductor.progress.totals, limits)
    assert [agent.agent for agent in assembly.fleet().agents] == [0]
    first, second = assembly.publishers()
    assert (first.name, first.population, first.address) == ("feed-0", "feed", "127.0.0.1:5001")
    assert (second.high_water_mark, second.io_threads, second.burst) == (7, 2, 100)
    assert (second.sent_total, second.ending, second.kind) == (15, "bye", "command")
    assert second.pid == hellos[2].pid
    assert assembly.totals.connected_peak() == 10


def test_publishers_that_go_on_are_closed_before_the_sums_are_taken(
    publishing: Callable[[str], Plan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conduct, "PUBLISHER_GRACE_NS", 0)
    conductor, _ = play(publishing("publishers-dawdle"), tmp_path)
    assert all(span.settled for span in conductor.course.spans)
    assert closes(tmp_path, 1)[0] == []
    assert closes(tmp_path, 0) == [[{**sums, "total": 15} for sums in SUMS]]


def test_publishers_that_do_not_settle_are_named(
    publishing: Callable[[str], Plan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conduct, "PUBLISHER_GRACE_NS", 0)
    monkeypatch.setattr(conduct, "CLOSE_TIMEOUT_NS", 10**8)
    conductor, _ = play(publishing("publishers-deaf"), tmp_path)
    texts = [event.text for event in conductor.course.events if event.kind == "stage"]
    assert texts[0].startswith("publisher feed-0, feed-1 did not end its stage")
    assert closes(tmp_path, 0) == [SUMS, SUMS]


def test_an_interrupted_run_closes_publishers_first(
    publishing: Callable[[str], Plan], tmp_path: Path
) -> None:
    plan = publishing("publishers-dawdle")
    publish = plan.stages[1].model_copy(update={"action": PUBLISH})
    plan = plan.model_copy(update={"stages": (publish,)})
    conductor, _ = play(plan, tmp_path, Interrupt("SIGINT"))
    assert conductor.course.interrupted
    assert closes(tmp_path, 1)[0] == []
    assert len(closes(tmp_path, 0)) == 1


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("publishers-die", "was killed by signal 9"),
        ("publishers-fall-silent", "sent no snapshot for 3 s"),
        ("publishers-talk-nonsense", "broke the contract"),
    ],
)
def test_a_publisher_that_is_lost_is_what_was_tested(
    publishing: Callable[[str], Plan], tmp_path: Path, name: str, found: str
) -> None:
    silence_s = 3 if name.endswith("silent") else 30
    conductor, _ = play(publishing(name), tmp_path, silence_s=silence_s)
    course = conductor.course
    assert course.ended_early
    assert {event.kind for event in course.events} == {"publisher"}
    assert course.events[0].text.startswith("publisher feed-")
    assert found in course.events[0].text
    assert course.endings[0] == "bye"
