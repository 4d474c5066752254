"""The looks of the pages: legends, scales, links, and nothing that is said twice."""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pubstorm.play.directory import RunDirectory
from pubstorm.report import write_reports
from pubstorm.report.plot import LEGEND_MAX, Plot, figure, value_axis
from pubstorm.report.search_plots import search_plots
from pubstorm.report.timeline import timeline
from pubstorm.result import LimitedBy, RunResult, Status
from pubstorm.result.samples import Track, Tracks
from tests.kit import made
from tests.kit.example_comparison import write_comparison
from tests.kit.example_history import write_history
from tests.kit.example_search import search_of, write_search
from tests.kit.example_series import write_series
from tests.kit.reading import Page

pytestmark = pytest.mark.xdist_group("looks")

RATES = ("due_per_s", "sent_per_s", "acked_per_s")


def entries(plot: Plot) -> list[str]:
    """The names in the legend of a plot."""
    return [each["name"] for each in plot.figure["data"] if each.get("showlegend", True)]


def drawn(plot: Plot) -> list[str]:
    """The names of the lines of a plot."""
    return [each["name"] for each in plot.figure["data"] if each["x"] != [None]]


def load(*names: str, metrics: tuple[str, ...] = RATES) -> Tracks:
    """Tracks of populations, the later ones with larger values."""
    return {
        (made.source(name), metric): Track([1.0, 2.0], [n + 1.0, n + 2.0])
        for n, name in enumerate(names)
        for metric in metrics
    }


def written(folder: Path) -> Page:
    """The page of a folder."""
    assert list(write_reports(folder, RunDirectory(folder).write)) == []
    return Page((folder / "report.html").read_text(encoding="utf-8"))


def test_a_legend_has_the_shares_of_a_population_or_their_sum(plain_run: RunResult) -> None:
    names = ("device/rest", "device/brief", "device")
    (few,) = timeline(plain_run, load(*names, metrics=("sent_per_s",)))
    assert drawn(few) == ["device/rest sent", "device/brief sent"]
    (many,) = timeline(plain_run, load("device/one", "device/two", *names, "backend"))
    assert {each.partition(" ")[0] for each in drawn(many)} == {"device", "backend"}
    assert many.caption.endswith("All shares of device are drawn together.")


def test_a_legend_names_sources_and_metrics_once_instead_of_every_pair(
    plain_run: RunResult,
) -> None:
    (plot,) = timeline(plain_run, load("one", "two", "three", "four"))
    assert len(drawn(plot)) == 12
    assert entries(plot) == ["one", "two", "three", "four", "sent", "scheduled", "acked"]
    lines = {each["name"]: each for each in plot.figure["data"]}
    assert lines["one sent"]["legendgroup"] == "one", "a click on a name hides its lines"
    assert lines["one sent"]["line"]["color"] == lines["one"]["line"]["color"]
    assert lines["one sent"]["line"]["dash"] == lines["sent"]["line"]["dash"]


def test_a_legend_has_eight_entries_at_most(plain_run: RunResult) -> None:
    (plot,) = timeline(plain_run, load(*(f"p{n}" for n in range(20))))
    assert len(entries(plot)) == LEGEND_MAX
    assert {each.partition(" ")[0] for each in drawn(plot)} == {"p15", "p16", "p17", "p18", "p19"}
    assert "Shown are the 15 of 60 tracks with the largest values." in plot.caption


def latencies(queued: list[float]) -> Tracks:
    at_s = [float(n) for n in range(1, 41)]
    usual = [1000.0] * (len(at_s) - len(queued))
    return {
        (made.source("backend"), f"latency_{statistic}_us"): Track(at_s, [*usual, *queued])
        for statistic in ("p50", "p99")
    }


def with_queued(result: RunResult, queued: int, **changes: object) -> RunResult:
    backend = result.populations["backend"].model_copy(update={"queued_received_total": queued})
    populations = {**result.populations, "backend": backend}
    return result.model_copy(update={"populations": populations, **changes})


def test_messages_that_waited_for_their_clients_do_not_spoil_the_scale(
    plain_run: RunResult,
) -> None:
    tracks = latencies([40_000_000.0])
    result = with_queued(plain_run, 7722, faults=())
    plots = {plot.key: plot for plot in timeline(result, tracks)}
    axis = plots["latency"].figure["layout"]["yaxis"]
    assert axis["range"] == pytest.approx([0.0, 1.0]), "from 1 ms to 10 ms, as logarithms"
    caption = plots["latency"].caption.replace("\u202f", " ")
    assert "Values up to 40.0 s lie above the axis, since 7 722 messages waited" in caption
    for whole in (with_queued(plain_run, 0, faults=()), plain_run):
        (plot,) = timeline(whole, tracks)
        assert "range" not in plot.figure["layout"]["yaxis"]


def test_the_caption_says_which_latencies_are_those_of_acknowledgements(
    plain_run: RunResult,
) -> None:
    (plot,) = timeline(plain_run, load("device-0", "backend", metrics=("latency_p50_us",)))
    assert plot.caption.endswith(" Acknowledgements: device-0.")


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.31, 0.36, [0.31, 0.32, 0.33, 0.34, 0.35, 0.36]),
        (2.0, 9.0, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        (2.0, 90.0, [1, 2, 5, 10, 20, 50, 100]),
        (2.0, 90_000.0, [1, 10, 100, 1000, 10_000, 100_000]),
    ],
)
def test_a_logarithmic_axis_has_ticks_at_any_distance(
    low: float, high: float, ticks: list[float]
) -> None:
    traces = [{"name": "p99", "x": [1, 2, 3], "y": [low, None, high]}]
    axis = figure(traces, {}, value_axis("ms", log=True))["layout"]["yaxis"]
    assert axis["tickvals"] == pytest.approx(ticks)
    assert len(axis["ticktext"]) == len(ticks)


def test_trials_far_apart_have_a_logarithmic_axis_with_a_place_for_zero() -> None:
    plots = {plot.key: plot for plot in search_plots(search_of())}
    axis = plots["c0"].figure["layout"]["yaxis"]
    assert axis["type"] == "log" and axis["ticktext"][0] == "0"
    passed = plots["c0"].figure["data"][0]
    assert passed["customdata"][:4] == [0, 0, 0, 0.08]
    assert passed["y"][:4] == [axis["tickvals"][0]] * 3 + [0.08]
    assert plots["figure"].figure["layout"]["yaxis"]["type"] == "log"
    for plot in plots.values():
        for trace in plot.figure["data"]:
            assert all(value > 0 and math.isfinite(value) for value in trace["y"])


def test_words_break_between_their_parts(tmp_path: Path) -> None:
    write_search(tmp_path)
    assert list(write_reports(tmp_path, RunDirectory(tmp_path).write)) == []
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert '<span class="note">of populations.<wbr>feed.<wbr>publications.<wbr>0.<wbr>rate' in text
    assert "<wbr>" not in text[text.index("<table>") :], "tables scroll"


def test_a_limit_is_said_once(tmp_path: Path) -> None:
    series = write_series(tmp_path)
    steps = [
        step.model_copy(update={"limited_by": LimitedBy.HOST, "status": Status.INVALID})
        for step in series.steps[:3]
    ]
    (tmp_path / "series.json").write_text(
        series.model_copy(update={"steps": tuple(steps)}).model_dump_json()
    )
    assert "limited by host in 3 of 3 steps" in (text := written(tmp_path).text)
    assert text.count("limited by host") == 1
    assert "limited by none" not in text


def test_lines_that_lie_on_each_other_are_drawn_once(tmp_path: Path) -> None:
    write_series(tmp_path)
    page = written(tmp_path)
    names = [trace["name"] for trace in page.figures["throughput"]["data"]]
    assert names == ["sent, received", "acked"]
    assert "Lines that lie on each other are drawn once." in page.text


def headings(text: str) -> list[str]:
    return re.findall(r"<h[23][^>]*>([^<]*)</h[23]>", text)


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("comparison")
    write_comparison(folder)
    assert list(write_reports(folder, RunDirectory(folder).write)) == []
    return (folder / "report.html").read_text(encoding="utf-8")


def test_every_heading_of_a_comparison_is_there_once(comparison: str) -> None:
    found = Counter(headings(comparison))
    assert found["Differences"] == found["The candidate against the baseline"] == 1
    assert max(found.values()) == 1


def test_the_cards_of_a_comparison_have_figures(comparison: str) -> None:
    values = re.findall(
        r'<span class="value">(?:<span class="sign"[^>]*>.</span> )?([^<]*)<', comparison
    )
    assert len(values) == 6
    assert all(re.match(r"[+-]?\d", value) for value in values)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_history(tmp_path_factory.mktemp("history"))


def test_a_history_begins_with_its_plots(history: Path) -> None:
    page = Page(history.read_text(encoding="utf-8"))
    assert page.attributes("data-section") == ["Overview", "Plots", "Tables", "Start"]
    assert "✗ 1.40 ms fail worse by +40.0 % since 2026-11-13" in page.text


def test_rows_and_points_of_a_history_lead_to_their_runs(history: Path, tmp_path: Path) -> None:
    from pubstorm import cli

    runs = history.parent / "runs"
    for name in ("03", "12"):
        (runs / name / "report.html").write_text("a page")
    path = tmp_path / "all.html"
    assert cli.main(["history", str(runs), "--html", str(path)]) == 0
    page = Page(path.read_text(encoding="utf-8"))
    found = [each for each in page.attributes("href") if each.endswith("report.html")]
    assert [(tmp_path / each).resolve() for each in found] == [
        runs / name / "report.html" for name in ("03", "12")
    ]
    trace: dict[str, Any] = page.figures["history-0"]["data"][0]
    assert [each for each in trace["customdata"] if each] == found
    assert trace["text"][0] == "00", "the folder that all runs share is left out"
