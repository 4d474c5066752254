"""`pubstorm history`: runs in folders over time, what is left out, and the page."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import plotly.graph_objects
import pytest

from pubstorm import cli
from pubstorm.report import load_result
from pubstorm.result import RunResult, Status
from tests.kit.example_run import write_run
from tests.kit.example_series import write_series
from tests.kit.reading import Page

pytestmark = pytest.mark.xdist_group("history")

FIRST = datetime(2026, 11, 1, 2, 30, tzinfo=UTC)
STEP = 12
"""Number of the first slow run."""


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    folder = tmp_path_factory.mktemp("history")
    write_run(folder)
    result = load_result(folder)
    verdict = result.verdict.model_copy(update={"status": Status.PASS})
    return result.model_copy(update={"verdict": verdict})


@pytest.fixture
def store(good: RunResult, tmp_path: Path) -> Callable[..., Path]:
    """Stores a run of a night, with connect times of its own."""

    def stored(night: int, connect_us: float, **changes: Any) -> Path:
        populations = {
            name: each.model_copy(
                update={
                    "connect_time_us": each.connect_time_us.model_copy(update={"p99": connect_us})
                }
            )
            for name, each in good.populations.items()
        }
        started = (FIRST + timedelta(days=night)).isoformat()
        fields = {"populations": populations, "started": started, **changes}
        folder = tmp_path / "runs" / f"{night:02}"
        folder.mkdir(parents=True)
        result = good.model_copy(update=fields)
        (folder / "result.json").write_text(result.to_json())
        return folder

    return stored


@pytest.fixture
def nights(store: Callable[..., Path], good: RunResult, tmp_path: Path) -> Path:
    """Twenty nights; since the twelfth another version connects 30 % slower."""
    chance = random.Random(1)
    newer = good.environment.model_copy(update={"pubstorm": "9.9"})
    for night in range(20):
        slow = night >= STEP
        changes = {"environment": newer} if slow else {}
        store(night, chance.gauss(1000, 20) * (1.3 if slow else 1), **changes)
    return tmp_path / "runs"


FIGURE = ("--figure", "device-0.connect_time.p99")


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert cli.main(["history", *words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_planted_step_is_found_with_the_other_difference(
    nights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (series,) = shown(capsys, str(nights), *FIGURE)["series"]
    assert len(series["points"]) == 20
    (change,) = series["changes"]
    assert Path(change["run"]).name == f"{STEP:02}"
    assert change["outcome"] == "worse"
    assert change["after"] / change["before"] == pytest.approx(1.3, abs=0.05)
    assert any("9.9" in each for each in change["unlike"])


def test_the_table_and_the_page_show_the_change(
    nights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "history.html"
    assert cli.main(["history", str(nights), *FIGURE, "--html", str(page)]) == 0
    out = capsys.readouterr().out
    assert "changed by +3" in out and "2026-11-13" in out
    assert "Changes" in out and "9.9" in out
    read = Page(page.read_text(encoding="utf-8"))
    assert "Over time" in read.text and "worse" in read.text
    (plot,) = read.figures.values()
    assert plotly.graph_objects.Figure(data=plot["data"], layout=plot["layout"]).data
    runs, level = plot["data"]
    assert len(runs["x"]) == 20 and runs["x"][0] == "2026-11-01 02:30:00"
    assert [each is None for each in level["x"]] == [False, False, True] * 2


def test_invalid_runs_are_marked_and_left_out(
    nights: Path,
    store: Callable[..., Path],
    good: RunResult,
    capsys: pytest.CaptureFixture[str],
) -> None:
    verdict = good.verdict.model_copy(update={"status": Status.INVALID})
    for night in range(20, 26):
        store(night, 9_000.0, verdict=verdict)
    store(26, 9_000.0, interrupted=True)
    (series,) = shown(capsys, str(nights), *FIGURE)["series"]
    out = [point["left_out"] for point in series["points"] if point["left_out"]]
    assert ["invalid" in each for each in out] == [True] * 6 + [False]
    assert "interrupted" in out[-1]
    assert [Path(each["run"]).name for each in series["changes"]] == [f"{STEP:02}"]
    assert cli.main(["history", str(nights), *FIGURE]) == 0
    assert "left out: the run is invalid" in capsys.readouterr().out


def test_scenarios_are_apart_and_runs_are_in_the_order_of_time(
    store: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store(3, 1000.0, name="other")
    store(1, 2000.0)
    store(2, 1000.0, name="other")
    early = (FIRST - timedelta(days=9)).isoformat()
    store(4, 1500.0, started=early)
    found = shown(capsys, str(tmp_path / "runs"), *FIGURE, "--figure", "loss")["series"]
    assert [(each["scenario"], each["figure"]) for each in found] == [
        (found[0]["scenario"], "device-0.connect_time.p99"),
        (found[0]["scenario"], "loss"),
        ("other", "device-0.connect_time.p99"),
        ("other", "loss"),
    ]
    assert [point["value"] for point in found[0]["points"]] == [1500.0, 2000.0]
    assert [Path(point["run"]).name for point in found[2]["points"]] == ["02", "03"]


def test_folders_that_are_no_runs_are_named(
    store: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store(1, 1000.0)
    write_series(tmp_path / "runs" / "swept")
    broken = tmp_path / "runs" / "broken"
    broken.mkdir()
    (broken / "result.json").write_text("{")
    found = shown(capsys, str(tmp_path / "runs"), *FIGURE)
    assert len(found["series"]) == 1
    first, second = found["unread"]
    assert "is broken: Invalid JSON" in first
    assert "swept: is a series" in second
