"""Course and end of a run with publishers: programs beside engines, with fake agents as real
processes."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

import pytest

from pubstorm.contract.commands import Hello, Sent
from pubstorm.contract.plan import (
    ConnectAction,
    Plan,
    PlannedAttachment,
    PlannedStage,
    PublishAction,
)
from pubstorm.contract.protocol import (
    FixedPayload,
    Mqtt,
    OpenPace,
    PlannedPublication,
    PlannedSubscription,
    Zmtp,
)
from pubstorm.contract.target import Target
from pubstorm.fleet import Fleet, Timeouts
from pubstorm.fleet.local import LocalSlot, engine_command
from pubstorm.fleet.programs import Assignment, UserPrograms, program_commands
from pubstorm.measure.assemble import Assembly
from pubstorm.measure.recorder import Recorder
from pubstorm.measure.run_log import RunLog
from pubstorm.play import stages
from pubstorm.play.context import RunContext
from pubstorm.play.display import Live
from pubstorm.play.stages import Controller, Interrupt, RunEvent
from pubstorm.result import ValidityLimits
from tests.kit.agents import planned

AGENT = Path(__file__).parents[2] / "kit" / "fake_agent.py"
CONNECT = ConnectAction(rate_per_s=None, parallelism=None, timeout_ns=10**8)
PUBLISH = PublishAction(duration_ns=10**7)
PACE = OpenPace(period_ns=10**5, spread=0, jitter=0, phase="aligned", late="send", burst=100)
PUBLICATION = PlannedPublication(
    topic="", qos=0, retain=False, pace=PACE, window=1, payload=FixedPayload(bytes=32)
)


def publishing(name: str) -> Plan:
    """A plan of two publishers and ten subscribers whose name says how agents behave."""
    plan = planned(name)
    sockets = Zmtp(high_water_mark=7, io_threads=2)
    update = {"name": "subscriber", "protocol": sockets}
    subscriber = plan.populations[0].model_copy(
        update={**update, "subscriptions": (PlannedSubscription(filter="", qos=0),)}
    )
    feed = plan.populations[0].model_copy(
        update={
            "name": "feed",
            "protocol": sockets.model_copy(update={"player": "command"}),
            "clients": 2,
            "at": PlannedAttachment(first=0, count=2),
            "publications": (PUBLICATION,),
        }
    )
    stages = (
        PlannedStage(name="connect", action=CONNECT, populations=(0, 1)),
        PlannedStage(name="publish", action=PUBLISH, populations=(1,)),
    )
    targets = tuple(Target(host="127.0.0.1", port=port) for port in (5001, 5002))
    parts = {"populations": (subscriber, feed), "stages": stages, "targets": targets}
    return plan.model_copy(update=parts)


def play(
    plan: Plan, folder: Path, *first: RunEvent, silence_s: float = 30
) -> tuple[RunContext, tuple[Hello, ...]]:
    """Plays a plan on one engine and the programs that it asks for."""
    words = (sys.executable, "-I", str(AGENT))
    engine = engine_command(Path("unused"), 0, 1)
    engine = type(engine)((*words, "--shard", "0/1"), engine.title, engine.agents)
    users = UserPrograms({"feed": words})
    commands = [engine, *program_commands(plan, Assignment.of(plan, 1), folder, users)]
    slots = [LocalSlot(c, folder / f"{agent}.log") for agent, c in enumerate(commands)]

    async def playing() -> tuple[RunContext, tuple[Hello, ...]]:
        queue: asyncio.Queue[RunEvent] = asyncio.Queue()
        fleet = Fleet(slots, queue.put_nowait, Timeouts(silence_s))
        recorder = Recorder(plan, Assignment.among(plan, fleet.agents), RunLog(time.monotonic_ns()))
        run = RunContext(plan, fleet, recorder, Live())
        try:
            hellos = await fleet.up(plan.to_line())
            for event in first:
                queue.put_nowait(event)
            await Controller(run, queue).play()
        finally:
            await fleet.close()
        return run, hellos

    return asyncio.run(playing())


def closes(folder: Path, agent: int) -> list[list[dict[str, int]]]:
    """Sums of each close command that an agent received."""
    lines = map(json.loads, (folder / f"{agent}.log").read_text().splitlines())
    return [line["sent"] for line in lines if line["command"] == "close"]


SUMS = [{"population": 1, "client": 0, "total": 10}, {"population": 1, "client": 1, "total": 10}]


def test_a_plan_names_the_programs_beside_its_engines(tmp_path: Path) -> None:
    plan = publishing("publishers-well")
    assignment = Assignment.of(plan, 3)
    words = ["feeder", "{host}:{port}", "{{}}"]
    commands = list(
        program_commands(plan, assignment, tmp_path, UserPrograms({"feed": words}, ("x",)))
    )
    assert assignment.agents == 5
    assert [command.title for command in commands] == ["publisher feed-0", "publisher feed-1"]
    words_of_second = "x feeder 127.0.0.1:5002 {} --agents 5 --agent 4 --population 1 --shard 1/2"
    assert commands[1].words == tuple(words_of_second.split())
    assert all(command.agents == 5 for command in commands)


def test_publishers_settle_agents_learn_the_sums_and_no_publisher_is_a_generator(
    tmp_path: Path,
) -> None:
    plan = publishing("publishers-well")
    run, hellos = play(plan, tmp_path)
    run_log = run.recorder.run_log
    assert [span.settled for span in run_log.spans] == [True, True]
    assert run_log.events == []
    assert run_log.endings == {0: "bye", 1: "bye", 2: "bye"}
    assert closes(tmp_path, 0) == [SUMS]
    assert run.progress.sent()[0] == Sent(population=1, client=0, total=15)
    limits = ValidityLimits(lateness_p99_us=1, busy=0.9)
    recorder = run.recorder
    assembly = Assembly(plan, hellos, run_log, recorder.sums, recorder.timeline, limits)
    assert [agent.agent for agent in assembly.fleet().agents] == [0]
    first, second = assembly.publishers()
    assert (first.name, first.population, first.address) == ("feed-0", "feed", "127.0.0.1:5001")
    assert (second.high_water_mark, second.io_threads, second.burst) == (7, 2, 100)
    assert (second.sent_total, second.ending, second.kind) == (15, "bye", "command")
    assert second.pid == hellos[2].pid
    assert assembly.timeline.peaks().connected == 10


def test_what_engines_publish_beside_them_is_waited_for(tmp_path: Path) -> None:
    plan = publishing("publishers-well")
    subscriber, feed = plan.populations
    device = subscriber.model_copy(
        update={
            "name": "device",
            "protocol": Mqtt(client_id="device", clean_session=True),
            "publications": (PUBLICATION,),
        }
    )
    stages = (plan.stages[0], plan.stages[1].model_copy(update={"populations": (0, 1)}))
    run, _ = play(
        plan.model_copy(update={"populations": (device, feed), "stages": stages}), tmp_path
    )
    load_until_ns = run.recorder.run_log.spans[1].load_until_ns
    assert run.progress.is_out(load_until_ns)
    assert run.recorder.run_log.events == []
    assert closes(tmp_path, 0) == [SUMS]


def test_publishers_that_go_on_are_closed_before_the_sums_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "PUBLISHER_GRACE_NS", 0)
    run, _ = play(publishing("publishers-dawdle"), tmp_path)
    assert all(span.settled for span in run.recorder.run_log.spans)
    assert closes(tmp_path, 1)[0] == []
    assert closes(tmp_path, 0) == [[{**sums, "total": 15} for sums in SUMS]]


def test_publishers_that_do_not_settle_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "PUBLISHER_GRACE_NS", 0)
    monkeypatch.setattr(stages, "CLOSE_TIMEOUT_NS", 10**8)
    run, _ = play(publishing("publishers-deaf"), tmp_path)
    texts = [event.text for event in run.recorder.run_log.events if event.kind == "stage"]
    assert texts[0].startswith("publisher feed-0, feed-1 did not end its stage")
    assert closes(tmp_path, 0) == [SUMS, SUMS]


def test_an_interrupted_run_closes_publishers_first(tmp_path: Path) -> None:
    plan = publishing("publishers-dawdle")
    alone = plan.model_copy(update={"stages": plan.stages[1:]})
    run, _ = play(alone, tmp_path, Interrupt("SIGINT"))
    assert run.recorder.run_log.interrupted
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
def test_a_publisher_that_is_lost_is_what_was_tested(tmp_path: Path, name: str, found: str) -> None:
    silence_s = 3 if name.endswith("silent") else 30
    run, _ = play(publishing(name), tmp_path, silence_s=silence_s)
    run_log = run.recorder.run_log
    assert run_log.ended_early
    assert {event.kind for event in run_log.events} == {"publisher"}
    assert run_log.events[0].text.startswith("publisher feed-")
    assert found in run_log.events[0].text
    assert run_log.endings[0] == "bye"
