"""The tables of many engines: one row for each way they ended, and the busiest one."""

from __future__ import annotations

import pytest

from pubstorm.report.tables import AGENTS, EVERY_AGENT, FAILURES, PHASES
from pubstorm.report.watched import AGENTS_MAX, PROCESSES
from pubstorm.result import FailureResult, RunResult, Statistics, Watched
from tests.kit import made


def with_engines(plain_run: RunResult, number: int) -> RunResult:
    """The same run with so many engines like its first, each busier than the one before."""
    first = plain_run.fleet.agents[0]
    engines = [first.model_copy(update={"agent": n, "busy_share": n / 100}) for n in range(number)]
    tracks = [each for each in plain_run.monitors if each.source == "agent-0"]
    others = [each for each in plain_run.monitors if each.group != "agent"]
    watched = [
        each.model_copy(
            update={
                "source": f"agent-{n}",
                "load": each.load.model_copy(update={"mean": each.load.mean * (1 + n)}),
            }
        )
        for n in range(number)
        for each in tracks
    ]
    fleet = plain_run.fleet.model_copy(update={"agents": tuple(engines)})
    return plain_run.model_copy(update={"fleet": fleet, "monitors": (*watched, *others)})


def test_a_few_engines_have_a_row_each(plain_run: RunResult) -> None:
    few = with_engines(plain_run, AGENTS_MAX)
    assert [row[0] for row in AGENTS.table(few).texts] == [str(n) for n in range(AGENTS_MAX)]
    shown = [row[0] for row in PROCESSES.table(few).texts]
    assert [f"agent-{n}" for n in range(AGENTS_MAX)] == [n for n in shown if "agent" in n]


def test_many_engines_are_one_row_and_the_busiest_is_shown(plain_run: RunResult) -> None:
    first = plain_run.fleet.agents[0]
    many = with_engines(plain_run, 51)
    [row] = AGENTS.table(many).texts
    assert row[0] == "51 agents"
    assert row[-4:-2] == ("50 %", f"{51 * first.cpu_s:.1f} s")
    assert row[-1] == first.ending
    shown = [row[0] for row in PROCESSES.table(many).texts]
    assert [name for name in shown if "agent" in name] == ["agent-50, busiest of 51"]


def test_every_agent_shows_what_it_sent_and_received(plain_run: RunResult) -> None:
    few = with_engines(plain_run, 2)
    own = {"sent_total": 1200, "acked_total": 1190, "expected_total": 2400, "received_total": 2390}
    engines = [
        few.fleet.agents[0].model_copy(update=own),
        few.fleet.agents[1].model_copy(update={**own, "sent_total": 800, "abandoned_total": 10}),
    ]
    few = few.model_copy(update={"fleet": few.fleet.model_copy(update={"agents": tuple(engines)})})
    table = AGENTS.table(few)
    names = [column.name for column in table.columns]
    assert names[1:7] == ["clients", "sent", "acked", "given up", "expected", "received"]
    assert [row[2:7] for row in table.rows] == [
        (1200, 1190, None, 2400, 2390),
        (800, 1190, 10, 2400, 2390),
    ]
    assert "loss shows only in the sums" in table.notes
    assert EVERY_AGENT.table(few).rows == []
    many = EVERY_AGENT.table(with_engines(plain_run, 51))
    assert [row[0] for row in many.texts] == [str(n) for n in range(51)]


def test_an_engine_that_ended_otherwise_is_a_row_of_its_own(plain_run: RunResult) -> None:
    many = with_engines(plain_run, 51)
    lost = many.fleet.agents[7].model_copy(update={"ending": "agent 7 was killed by signal 9"})
    engines = (*many.fleet.agents[:7], lost, *many.fleet.agents[8:])
    fleet = many.fleet.model_copy(update={"agents": engines})
    rows = AGENTS.table(many.model_copy(update={"fleet": fleet})).texts
    assert [(row[0], row[-1]) for row in rows] == [
        ("50 agents", many.fleet.agents[0].ending),
        ("1 agent", "agent 7 was killed by signal 9"),
    ]
    halves = [
        e.model_copy(update={"ending": f"ending {n % 2}"}) for n, e in enumerate(engines[:50])
    ]
    even = many.fleet.model_copy(update={"agents": tuple(halves)})
    rows = AGENTS.table(many.model_copy(update={"fleet": even})).texts
    assert [(row[0], row[-1]) for row in rows] == [
        ("25 agents", "ending 0"),
        ("25 agents", "ending 1"),
    ]


def test_engines_on_several_hosts_name_theirs_and_failures_have_a_table(
    plain_run: RunResult,
) -> None:
    assert [column.name for column in AGENTS.table(plain_run).columns][:2] == ["agent", "clients"]
    assert FAILURES.table(plain_run).texts == ()
    few = with_engines(plain_run, 2)
    there = few.fleet.agents[1].model_copy(update={"host": "10.77.0.3"})
    lost = FailureResult(agent=1, at_s=12.3, clients=33, text="agent 1 was killed by signal 9")
    back = lost.model_copy(update={"replaced_on": "", "rejoined_after_s": 4.2})
    parts = {"agents": (few.fleet.agents[0], there), "failures": (lost, back)}
    far = few.model_copy(update={"fleet": few.fleet.model_copy(update=parts)})
    assert [column.name for column in AGENTS.table(far).columns][:3] == ["agent", "host", "clients"]
    assert [row[1] for row in AGENTS.table(far).texts] == ["this host", "10.77.0.3"]
    assert FAILURES.table(far).texts == (
        ("1", "12.3 s", "33", "–", "–", "agent 1 was killed by signal 9"),
        ("1", "12.3 s", "33", "4.20 s", "this host", "agent 1 was killed by signal 9"),
    )


def test_phases_show_the_processor_time_of_brokers_and_of_the_host(plain_run: RunResult) -> None:
    names = [phase.name for phase in plain_run.phases]

    def watched(source: str, step: float) -> Watched:
        spans = {name: Statistics(count=5, mean=step * n) for n, name in enumerate(names, 1)}
        empty = Statistics()
        return Watched(
            source=source,
            kind=made.source(source).kind,
            group=source,
            metric="cpu",
            whole=empty,
            load=empty,
            spans=spans,
        )

    def cpu(*found: Watched) -> dict[str, list[object]]:
        table = PHASES.table(plain_run.model_copy(update={"monitors": found}))
        places = {c.name: n for n, c in enumerate(table.columns) if c.name.endswith("CPU")}
        return {name: [row[place] for row in table.rows] for name, place in places.items()}

    broker = plain_run.brokers[0].name
    steps = [n * 0.1 for n in range(1, len(names) + 1)]
    assert cpu(watched(broker, 0.1), watched("host", 0.2)) == {
        f"{broker} CPU": pytest.approx(steps),
        "host CPU": pytest.approx([2 * step for step in steps]),
    }
    started = [broker, "x-1", "x-2"]
    every = [plain_run.brokers[0].model_copy(update={"name": name}) for name in started]
    plain_run = plain_run.model_copy(update={"brokers": tuple(every)})
    many = cpu(*(watched(name, 0.1 * n) for n, name in enumerate(started, 1)))
    assert many == {"busiest of 3 CPU": pytest.approx([3 * step for step in steps])}
