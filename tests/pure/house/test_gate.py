"""The gate: its lanes, its budget, and the choice of the world's cases."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit import spent, world
from tests.kit.spent import Spent

ROOT = Path(__file__).parents[3]
LANES = ROOT / "scripts" / "lanes.py"
MAKEFILE = """
first: ; @echo one >> order
second: ; @echo two >> order
third: ; @echo three >> order
fails: ; @echo the last words; exit 3
waits: ; @sleep 600
"""


def lanes(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "Makefile").write_text(MAKEFILE)
    # Those of a make that plays this test, and of cargo, are not for the lanes.
    foreign = ("CARGO_TARGET_DIR", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    environment = {name: value for name, value in os.environ.items() if name not in foreign}
    return subprocess.run(
        [sys.executable, str(LANES), *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_lane_waits_for_a_target_of_another(tmp_path: Path) -> None:
    done = lanes(tmp_path, "first third", "+first +third second")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "order").read_text().split() == ["one", "three", "two"]
    steps = json.loads((tmp_path / "target" / "tests" / "lanes.json").read_text())
    assert {(step["lane"], step["target"], step["code"]) for step in steps} == {
        (0, "first", 0),
        (0, "third", 0),
        (1, "second", 0),
    }


def test_the_first_failure_ends_all_lanes_and_its_output_comes_last(tmp_path: Path) -> None:
    done = lanes(tmp_path, "waits first", "second fails third", "+third first")
    assert done.returncode == 2, "what make answers"
    assert [line.split(":")[0] for line in done.stdout.splitlines()[-3:]] == [
        "the last words",
        "make",
        "error",
    ]
    assert (tmp_path / "order").read_text() == "two\n"


def spending(name: str, seconds: float = 1.0, **started: int) -> Spent:
    return Spent(name, "passed", seconds, 2.0, "gw0", None, started)


TESTS = (
    spending("tests/system/runs/test_a.py::test_b", pubstorm=2, mosquitto=1),
    spending("tests/system/runs/test_c.py::test_d", **{"pubstorm-broker": 1}),
    spending("tests/pure/plan/test_e.py::test_f"),
)


@pytest.mark.parametrize(
    ("changes", "count"),
    [({}, 0), ({"cpu_s": 3.9}, 1), ({"runs": 1}, 1), ({"brokers": 1, "runs": 1}, 2)],
)
def test_a_folder_that_spends_more_than_its_budget_is_named(
    changes: dict[str, float], count: int
) -> None:
    budget = {
        "tests/system/runs": {"cpu_s": 4.0, "runs": 2, "brokers": 2} | changes,
        "tests/pure/plan": {"cpu_s": 2.0, "runs": 0, "brokers": 0},
    }
    over = list(spent.overspent(spent.by_folder(TESTS), budget))
    assert len(over) == count
    assert all(words.startswith("tests/system/runs spent ") for words in over)
    del budget["tests/pure/plan"]
    assert "tests/pure/plan has no budget" in spent.overspent(spent.by_folder(TESTS), budget)


FEW, ENOUGH = spent.PACES - 1, spent.PACES


@pytest.mark.parametrize(
    ("own_s", "other_s", "cpu_s"),
    [
        ([None], None, 2.0),
        ([None], 0.04, 1.0),
        ([0.01, 0.03] * ENOUGH, 0.08, 2.0),
        ([0.01] * ENOUGH, 0.08, 4.0),
        ([0.04] * FEW, 0.01, 1.04),
    ],
)
def test_cpu_seconds_of_a_folder_are_compared_at_its_own_pace(
    own_s: list[float | None], other_s: float | None, cpu_s: float
) -> None:
    own = [replace(TESTS[0], cpu_s=2.0 / len(own_s), pace_s=pace_s) for pace_s in own_s]
    found = spent.by_folder([*own, replace(TESTS[2], pace_s=other_s)], 0.02)
    assert found["tests/system/runs"][0] == pytest.approx(cpu_s, rel=0.01)


def test_every_folder_of_the_gate_has_a_budget() -> None:
    budget = tomllib.loads(spent.BUDGET.read_text())
    parts = (ROOT / "tests" / name for name in ("pure", "system"))
    folders = {str(path.relative_to(ROOT)) for part in parts for path in part.iterdir()}
    own = {folder for folder in folders if "__pycache__" not in folder}
    assert own | {spent.MACHINE} == set(budget)


def test_the_shortest_cases_of_the_world_come_first_and_keep_their_order() -> None:
    lengths = {"long": 50.0, "short": 5.0, "middle": 20.0}
    for bound_s, chosen in ((100, ["long", "short", "middle"]), (30, ["short", "middle"]), (4, [])):
        assert world.fitting(list(lengths), bound_s, lengths.__getitem__) == chosen
