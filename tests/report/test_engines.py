"""The tables of many engines: one row for each way they ended, and the busiest one."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubstorm.report.tables import agents, losses
from pubstorm.report.watched import ENGINES_MAX, processes
from pubstorm.result import AgentLoss, Result
from tests.report.example_run import Shape, write_run


@pytest.fixture
def result(tmp_path: Path) -> Result:
    return write_run(tmp_path, Shape(duration_s=20))


def with_engines(result: Result, number: int) -> Result:
    """The same run with so many engines like its first, each busier than the one before."""
    first = result.fleet.agents[0]
    engines = [first.model_copy(update={"agent": n, "busy_share": n / 100}) for n in range(number)]
    tracks = [each for each in result.monitors if each.source == "agent-0"]
    others = [each for each in result.monitors if each.group != "agent"]
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
    fleet = result.fleet.model_copy(update={"agents": tuple(engines)})
    return result.model_copy(update={"fleet": fleet, "monitors": (*watched, *others)})


def test_a_few_engines_have_a_row_each(result: Result) -> None:
    few = with_engines(result, ENGINES_MAX)
    assert [row[0] for row in agents(few).rows] == [str(n) for n in range(ENGINES_MAX)]
    shown = [row[0] for row in processes(few).rows]
    assert [f"agent-{n}" for n in range(ENGINES_MAX)] == [n for n in shown if "agent" in n]


def test_many_engines_are_one_row_and_the_busiest_is_shown(result: Result) -> None:
    first = result.fleet.agents[0]
    many = with_engines(result, 51)
    [row] = agents(many).rows
    assert row[0] == "51 engines"
    assert row[2:4] == ("50 %", f"{51 * first.cpu_s:.1f} s")
    assert row[-1] == first.ending
    shown = [row[0] for row in processes(many).rows]
    assert [name for name in shown if "agent" in name] == ["agent-50, busiest of 51"]


def test_an_engine_that_ended_otherwise_is_a_row_of_its_own(result: Result) -> None:
    many = with_engines(result, 51)
    lost = many.fleet.agents[7].model_copy(update={"ending": "agent 7 was killed by signal 9"})
    engines = (*many.fleet.agents[:7], lost, *many.fleet.agents[8:])
    fleet = many.fleet.model_copy(update={"agents": engines})
    rows = agents(many.model_copy(update={"fleet": fleet})).rows
    assert [(row[0], row[-1]) for row in rows] == [
        ("50 engines", many.fleet.agents[0].ending),
        ("1 engine", "agent 7 was killed by signal 9"),
    ]


def test_engines_on_several_hosts_name_theirs_and_losses_have_a_table(result: Result) -> None:
    assert [column.name for column in agents(result).columns][:2] == ["agent", "clients"]
    assert losses(result).rows == ()
    few = with_engines(result, 2)
    there = few.fleet.agents[1].model_copy(update={"host": "10.77.0.3"})
    lost = AgentLoss(agent=1, at_s=12.3, clients=33, text="agent 1 was killed by signal 9")
    back = lost.model_copy(update={"replaced_on": "", "back_after_s": 4.2})
    parts = {"agents": (few.fleet.agents[0], there), "losses": (lost, back)}
    far = few.model_copy(update={"fleet": few.fleet.model_copy(update=parts)})
    assert [column.name for column in agents(far).columns][:3] == ["agent", "host", "clients"]
    assert [row[1] for row in agents(far).rows] == ["this host", "10.77.0.3"]
    assert losses(far).rows == (
        ("1", "12.3 s", "33", "–", "–", "agent 1 was killed by signal 9"),
        ("1", "12.3 s", "33", "4.2 s", "this host", "agent 1 was killed by signal 9"),
    )
