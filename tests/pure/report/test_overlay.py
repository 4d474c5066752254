"""The page of a comparison: both sides over time, their percentiles, and the key figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import plotly.graph_objects
import pytest

from pubstorm.report.document import KEY_FIGURES_MAX, Document
from pubstorm.report.of_comparison import comparison_document
from pubstorm.report.overlay import LOOKS, MEASURES, Played, lanes, overlaid
from pubstorm.report.plot import START_MS, Plot
from pubstorm.result import RunResult, Status
from pubstorm.result.comparison import Comparison
from pubstorm.result.samples import Track, Tracks
from tests.kit import made
from tests.kit.example_comparison import INVALID, write_comparison
from tests.kit.example_run import Shape, write_run

SHOWN = [measure for measure in MEASURES if measure.chart.key != "over-round-trip"]
"""Plots of the example, whose clients ask for nothing."""

pytestmark = pytest.mark.xdist_group("overlay")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("comparison")


@pytest.fixture(scope="module")
def compared(folder: Path) -> Comparison:
    return write_comparison(folder)


@pytest.fixture(scope="module")
def document(folder: Path, compared: Comparison) -> Document:
    return comparison_document(compared, folder)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return write_run(tmp_path_factory.mktemp("run"), Shape(duration_s=40))


def plots(document: Document) -> dict[str, Plot]:
    return {plot.key: plot for section in document.plots for plot in section.plots}


def line(plot: Plot, name: str) -> dict[str, Any]:
    named = [each for each in plot.figure["data"] if each["name"] == name]
    found: dict[str, Any]
    (found,) = (each for each in named if each.get("showlegend", True))
    return found


def points(plot: Plot, name: str) -> list[tuple[float, float]]:
    found = line(plot, name)
    return [
        ((x - START_MS) / 1000, y)
        for x, y in zip(found["x"], found["y"], strict=True)
        if y is not None
    ]


def played(result: RunResult, tracks: Tracks, **starts: float) -> Played:
    """A run whose stages start later by so many seconds, with its readings at the same places of
    the stages."""
    stages = tuple(
        stage.model_copy(update={"start_s": stage.start_s + starts.get(stage.name, 0.0)})
        for stage in result.stages
    )
    return Played(result.model_copy(update={"stages": stages}), tracks)


def start_of(result: RunResult, name: str) -> float:
    return next(stage.start_s for stage in result.stages if stage.name == name)


def test_a_comparison_shows_both_sides_over_time(document: Document) -> None:
    found = plots(document)
    assert {measure.chart.key for measure in SHOWN} < found.keys()
    assert "over-round-trip" not in found
    for measure in SHOWN:
        figure = found[measure.chart.key].figure
        drawn = plotly.graph_objects.Figure({k: figure[k] for k in ("data", "layout")}).data
        lines = [each for each in drawn if each.showlegend is not False]
        assert [(each.name, each.line.dash) for each in lines] == [
            ("baseline", "solid"),
            ("candidate", "dash"),
        ]
        assert found[measure.chart.key].linked
        labels = [note["text"] for note in figure["layout"]["annotations"]]
        assert "load" in labels, "the stage is named"


def test_an_interval_that_says_nothing_hides_no_difference(compared: Comparison) -> None:
    """Two runs of a side can have an interval to 10^11 %."""
    first, *others = (each for each in compared.figures if each.relative)
    wide = first.model_copy(update={"difference": 0.1, "low": -1.0, "high": 1e9})
    found = compared.model_copy(update={"figures": (wide, *others)})
    plot = comparison_document(found, Path("none")).plots[0].plots[0]
    low, high = plot.figure["layout"]["xaxis"]["range"]
    largest = max(abs(each.difference or 0) for each in found.figures if each.relative)
    assert low == -100 and high < 1000
    assert high == pytest.approx(100 * max(1.0, 1.5 * largest))
    assert "cut off" in plot.caption
    usual = comparison_document(compared, Path("none")).plots[0].plots[0]
    assert "range" not in usual.figure["layout"]["xaxis"] and not usual.caption


def test_sides_differ_without_colours(document: Document) -> None:
    for key in ("percentiles", *(measure.chart.key for measure in SHOWN)):
        lines = [line(plots(document)[key], name)["line"] for name in ("baseline", "candidate")]
        assert [(each["color"], each["dash"]) for each in lines] == list(LOOKS)
    (worse,) = (
        each for each in plots(document)["differences"].figure["data"] if "latency.p99" in each["y"]
    )
    assert worse["marker"]["symbol"] == "x"


def test_each_stage_begins_at_the_same_place(result: RunResult) -> None:
    source, metric = "backend", "received_per_s"
    load_s = start_of(result, "load")
    ends_s = [load_s + 1, load_s + 2, load_s + 3]
    early = played(result, {(made.source(source), metric): Track(ends_s, [10.0, 20.0, 30.0])})
    moved = {
        (made.source(source), metric): Track([at_s + 7 for at_s in ends_s], [11.0, 21.0, 31.0])
    }
    late = played(result, moved, load=7.0)
    (plot,) = overlaid({"baseline": [early], "candidate": [late]})
    before, after = points(plot, "baseline"), points(plot, "candidate")
    assert [at_s for at_s, _ in before] == [at_s for at_s, _ in after]
    assert [value for _, value in after] == [11, 21, 31]


def test_a_line_is_the_median_and_the_ground_reaches_to_the_extremes(result: RunResult) -> None:
    at_s = [start_of(result, "load") + 1, start_of(result, "load") + 2]
    runs = [
        Played(result, {(made.source("backend"), "received_per_s"): Track(at_s, [value, value])})
        for value in (10.0, 40.0, 20.0)
    ]
    (plot,) = overlaid({"baseline": runs, "candidate": runs[:1]})
    assert {value for _, value in points(plot, "baseline")} == {20}
    (ground,) = (each for each in plot.figure["data"] if each.get("fill"))
    assert {value for value in ground["y"] if value is not None} == {10, 40}
    assert ground["name"] == "baseline", "one run has no ground"


def test_rates_are_added_up_and_latencies_are_the_slowest(result: RunResult) -> None:
    at_s = [start_of(result, "load") + 1]
    tracks = {
        (made.source("backend"), "received_per_s"): Track(at_s, [10.0]),
        (made.source("device-0"), "received_per_s"): Track(at_s, [5.0]),
        (made.source("backend"), "latency_p99_us"): Track(at_s, [9000.0]),
        (made.source("device-0"), "latency_p99_us"): Track(at_s, [4000.0]),
        (made.source("broker-0"), "cpu"): Track(at_s, [0.5]),
        (made.source("host"), "cpu"): Track(at_s, [0.9]),
    }
    run = Played(result, tracks)
    found = {plot.key: plot for plot in overlaid({"baseline": [run], "candidate": [run]})}
    values = {key: points(plot, "baseline")[0][1] for key, plot in found.items()}
    assert values == {"over-received": 15, "over-p99": 9, "over-cpu": 50}


def test_stages_of_one_side_alone_are_named_and_not_shown(result: RunResult) -> None:
    at_s = [start_of(result, "load") + 1]
    tracks = {(made.source("backend"), "received_per_s"): Track(at_s, [10.0])}
    renamed = [
        stage.model_copy(update={"name": "warm-up"}) if stage.name == "connect" else stage
        for stage in result.stages
    ]
    other = result.model_copy(update={"stages": tuple(renamed)})
    assert [lane.name for lane in lanes([result, other])] == ["load", "disconnect"]
    (plot,) = overlaid({"baseline": [Played(result, tracks)], "candidate": [Played(other, tracks)]})
    assert plot.caption.endswith("not shown: connect, warm-up.")


def test_sides_that_share_no_stage_have_no_plot(result: RunResult) -> None:
    at_s = [start_of(result, "load") + 1]
    run = Played(result, {(made.source("backend"), "received_per_s"): Track(at_s, [10.0])})
    bare = Played(result.model_copy(update={"stages": ()}), run.tracks)
    assert overlaid({"baseline": [run], "candidate": [bare]}) == ()
    assert overlaid({"baseline": [run], "candidate": []}) == ()


def test_runs_that_are_left_out_are_in_no_plot(folder: Path, compared: Comparison) -> None:
    """A run that was invalid stays in the list of runs, but says nothing about its target."""
    out = f"{INVALID:02}-baseline"
    every = comparison_document(compared, folder)
    assert any(out in item.name for item in every.items)
    kept = tuple(run for run in compared.baseline.runs if out not in run)
    side = compared.baseline.model_copy(update={"runs": kept})
    without = comparison_document(compared.model_copy(update={"baseline": side}), folder)
    figures = [{k: plot.figure for k, plot in plots(d).items()} for d in (every, without)]
    assert figures[0] == figures[1]


def test_a_comparison_opens_with_its_headline_and_at_most_six_figures(document: Document) -> None:
    assert document.headline.startswith("Worse: latency.p50, latency.p99")
    assert len(document.key_figures) <= KEY_FIGURES_MAX
    first = document.key_figures[0]
    assert (first.name, first.status) == ("latency.p50", Status.FAIL)
    assert first.value.startswith("+3")
    assert "→" in first.note and "interval +" in first.note
    others = document.key_figures[2:]
    assert {each.name: each.value for each in others}["loss"] == "0 %"
    words = ("equal in every run", "no difference detectable: ")
    assert all(each.note.startswith(words) and each.status is None for each in others)
