"""`pubstorm.load`: verdict, figures, thresholds and frames of stored results."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import pubstorm
from pubstorm.errors import StoredRunError, UsageError
from pubstorm.report.stored import load_tracks
from pubstorm.result import Status
from tests.kit import made
from tests.kit.example_run import Shape, write_run
from tests.kit.example_search import write_search
from tests.kit.example_series import write_series


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> pubstorm.Result:
    path = tmp_path_factory.mktemp("run")
    write_run(path, Shape(duration_s=20, carries=False))
    return pubstorm.load(path)


def test_a_run_has_verdict_thresholds_and_path(run: pubstorm.Result) -> None:
    assert (run.status, run.passed) == (Status.FAIL, False)
    missed = [each.expression for each in run.thresholds if not each.passed]
    assert missed == ["backend.lost == 0"]
    assert "98.9 %" in run.evidence[0]
    assert (run.path / "result.json").exists()
    assert run.runs == ()


def test_a_figure_is_a_number_with_a_unit(run: pubstorm.Result) -> None:
    lost, cpu = run.figure("backend.lost"), run.figure("broker-0.cpu.max")
    assert lost == 412
    assert lost.unit == ""
    assert cpu.unit == "share"
    assert cpu.text.endswith(" %")
    assert run.meets("backend.lost < 500") and not run.meets("backend.lost == 0")
    assert {lost: 1}[lost] == 1


@pytest.mark.parametrize("wrong", ["backend.latency", "backend.lots", "no one", "unknown.cpu.max"])
def test_a_figure_that_is_not_is_an_error(run: pubstorm.Result, wrong: str) -> None:
    with pytest.raises(UsageError, match="figure"):
        run.figure(wrong)
    with pytest.raises(UsageError):
        run.meets(f"{wrong} < 5")


def test_a_threshold_that_is_none_is_an_error(run: pubstorm.Result) -> None:
    with pytest.raises(UsageError, match=r"threshold 'backend\.lost'"):
        run.meets("backend.lost")


def test_frames_over_time_have_a_row_for_each_second_and_source(run: pubstorm.Result) -> None:
    latency = run.frame("latency")
    assert {"at_s", "source", "latency_p50_us", "latency_p99_us"} <= {*latency.columns}
    assert not latency.duplicated(["at_s", "source"]).any()
    backend = latency[latency.source == "backend"]
    read = load_tracks(run.path)[0][made.source("backend"), "latency_p99_us"]
    assert [*backend.latency_p99_us] == [*read.values]
    samples = run.frame()
    assert [*samples.columns] == ["at_s", "kind", "source", "metric", "value", "held"]
    lines = (run.path / "samples.csv").read_text().splitlines()
    assert len(samples) == len(lines) - 1


@pytest.mark.parametrize("name", ["populations", "stages", "flows", "phases", "thresholds"])
def test_frames_of_parts_have_a_row_for_each(run: pubstorm.Result, name: str) -> None:
    part = getattr(run.stored, name, run.thresholds)
    assert len(run.frame(name)) == len(part) > 0


def test_a_frame_that_is_not_is_an_error(run: pubstorm.Result) -> None:
    with pytest.raises(
        UsageError, match="found the table 'latencies', allowed are intervals, samples"
    ):
        run.frame("latencies")


def test_frames_without_pandas_name_the_extra(
    run: pubstorm.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match="frames need pandas") as caught:
        run.frame("latency")
    assert "pip install 'WHEEL[pandas]'" in (caught.value.hint or "")


def test_frames_of_a_run_without_samples_are_an_error(tmp_path: Path) -> None:
    write_run(tmp_path, Shape(duration_s=20))
    (tmp_path / "samples.csv").unlink()
    with pytest.raises(UsageError, match=r"no table latency: samples\.csv cannot be read"):
        pubstorm.load(tmp_path).frame("latency")


def test_a_series_passes_if_every_step_does(tmp_path: Path) -> None:
    write_series(tmp_path)
    series = pubstorm.load(tmp_path)
    assert series.status is Status.FAIL
    assert [each.passed for each in series.runs] == [True, True, False]
    assert len(series.frame("steps")) == 4
    with pytest.raises(UsageError, match="this is a series"):
        series.figure("lost")


def test_a_search_passes_if_it_has_an_answer(tmp_path: Path) -> None:
    write_search(tmp_path)
    search = pubstorm.load(tmp_path)
    assert search.passed
    assert len(search.frame("trials")) == 13
    assert search.thresholds == () == search.evidence


def test_the_report_is_made_again(run: pubstorm.Result) -> None:
    page = run.report()
    assert page == run.path / "report.html"
    assert page.exists()


def test_a_folder_without_a_result_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoredRunError, match=r"result\.json"):
        pubstorm.load(tmp_path)
