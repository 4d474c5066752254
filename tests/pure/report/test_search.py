"""The report of a search: on the terminal, as Markdown, for CI systems, and its page."""

from __future__ import annotations

import io
from itertools import product
from pathlib import Path

import plotly.graph_objects
import pytest
from rich.console import Console

from pubstorm.play.directory import RunDirectory
from pubstorm.report import render_directory, write_reports
from pubstorm.report.of_experiments import trials_table
from pubstorm.result import (
    Cell,
    Estimate,
    LimitedBy,
    SearchAnswer,
    Series,
    SeriesStep,
    Status,
    ThresholdOutcome,
)
from tests.kit.example_search import trials, write_search
from tests.kit.reading import Page

pytestmark = pytest.mark.xdist_group("search-page")


def printed(folder: Path) -> str:
    stream = io.StringIO()
    render_directory(folder, Console(file=stream, width=150))
    return "\n".join(line.rstrip() for line in stream.getvalue().replace("\u202f", " ").split("\n"))


def written(folder: Path) -> None:
    assert list(write_reports(folder, RunDirectory(folder).write)) == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("search")
    write_search(path)
    (path / "trials" / "001-10000").mkdir(parents=True)
    (path / "trials" / "001-10000" / "report.html").write_text("its own page")
    written(path)
    return path


def test_a_search_that_found_less_says_so(tmp_path: Path) -> None:
    at_least = Estimate(value=80_000, low=80_000, high=80_000, bound="at_least", unit="per_s")
    answer = SearchAnswer(best=at_least, limited_by=LimitedBy.HOST, text="At least 80 000/s.")
    write_search(tmp_path, answer=answer, complete=False, figure=None, trials=trials()[:4])
    text = printed(tmp_path)
    assert "≥ 80 000/s: no larger value could be counted" in text
    assert f"continue with  pubstorm run --resume {tmp_path}" in text
    written(tmp_path)
    page = Page((tmp_path / "report.html").read_text())
    assert "This search is not complete" in page.text
    assert list(page.figures) == ["c0"]


def test_a_search_without_a_trial_has_a_report_all_the_same(tmp_path: Path) -> None:
    answer = SearchAnswer(text="No trial could be counted.")
    write_search(tmp_path, trials=(), answer=answer)
    written(tmp_path)
    assert "INVALID  No trial could be counted." in printed(tmp_path)
    assert "No trial has a figure or a condition to show." in (tmp_path / "report.html").read_text()
    assert '<failure message="No trial could be counted.">' in (tmp_path / "junit.xml").read_text()


def test_trials_are_drawn_by_what_they_are_worth(folder: Path) -> None:
    page = Page((folder / "report.html").read_text(encoding="utf-8"))
    figure = page.figures["figure"]
    passed, failed, uncounted, most, answer = figure["data"]
    assert (passed["name"], passed["x"][0], passed["y"][0]) == ("passed", 10_000, 10_000)
    assert (failed["name"], failed["marker"]["symbol"]) == ("failed", "x")
    assert (uncounted["name"], uncounted["x"]) == ("not counted", [320_000])
    assert most["y"] == [134_000, 134_000]
    assert answer["x"] == [97_400, 97_400]
    assert (figure["layout"]["shapes"][0]["x0"], figure["layout"]["xaxis"]["type"]) == (
        95_900,
        "log",
    )
    limit = page.figures["c0"]["data"][3]
    assert (limit["name"], limit["y"]) == ("limit 0.50 %", [0.5, 0.5])
    for key, each in page.figures.items():
        assert plotly.graph_objects.Figure(data=each["data"], layout=each["layout"]).data, key


def test_the_page_leads_to_the_trials(folder: Path) -> None:
    page = Page((folder / "report.html").read_text(encoding="utf-8"))
    links = [each for each in page.attributes("href") if each.endswith(".html")]
    assert links == ["trials/001-10000/report.html"]
    assert "trials/002-20000 makes its page" in page.text
    assert "not counted: the host was the limit" in page.text


def test_a_series_of_searches_shows_what_each_found(tmp_path: Path) -> None:
    steps = tuple(
        _step(tmp_path, number, clients, variant)
        for number, (clients, variant) in enumerate(product((30, 60), ("cpp", "python")), 1)
    )
    series = Series(
        name="scale",
        scenario="scale.yaml",
        run_directory=str(tmp_path),
        started="2026-11-21T12:00:00+00:00",
        ended="2026-11-21T12:20:00+00:00",
        columns=("clients",),
        steps=steps,
        complete=True,
        text="cpp\npython",
    )
    (tmp_path / "series.json").write_text(series.to_json())
    written(tmp_path)
    page = Page((tmp_path / "report.html").read_text())
    cpp, python = page.figures["answer-best"]["data"]
    assert (cpp["name"], cpp["x"], cpp["y"]) == ("cpp", ["clients 30", "clients 60"], [9e4, 8e4])
    assert (cpp["error_y"]["array"], cpp["error_y"]["arrayminus"]) == ([2000, 2000], [1000, 1000])
    assert python["marker"]["symbol"] == ["triangle-up", "triangle-up"]
    assert "answer-most" not in page.figures
    assert [key for key in page.figures if key.startswith("step-1-")] == [
        "step-1-figure",
        "step-1-c0",
    ]
    for key, each in page.figures.items():
        assert plotly.graph_objects.Figure(data=each["data"], layout=each["layout"]).data, key


def _step(folder: Path, number: int, clients: int, variant: str) -> SeriesStep:
    value = {1: 9e4, 3: 8e4}.get(number, 5e4)
    best = Estimate(
        value=value,
        low=value - 1000,
        high=value + 2000,
        repeats=3,
        bound="exact" if variant == "cpp" else "at_least",
        unit="per_s",
    )
    answer = SearchAnswer(best=best, limited_by=LimitedBy.PUBLISHER, text="so much")
    path = f"steps/{number}"
    write_search(folder / path, answer=answer)
    return SeriesStep(
        number=number,
        label=f"clients {clients}, {variant}",
        base=f"clients {clients}",
        variant=variant,
        values={"populations.subscriber.clients": str(clients)},
        folder=path,
        command="pubstorm run scale.yaml",
        note="",
        status=Status.PASS,
        limited_by=LimitedBy.PUBLISHER,
        cells=(Cell(value=clients),),
        answer=answer,
    )


def test_a_condition_in_the_table_of_trials_is_its_figure_and_no_text(tmp_path: Path) -> None:
    outcome = ThresholdOutcome(
        expression="took < 5min", found=62.0, unit="s", passed=True, text="found: whatever"
    )
    trial = trials()[0].model_copy(update={"thresholds": (outcome,)})
    search = write_search(tmp_path, trials=(trial,), thresholds=("took < 5min",))
    assert "1:02 ✓" in trials_table(search).texts[0]
    nothing = outcome.model_copy(update={"found": None, "passed": False, "text": "not played"})
    trial = trial.model_copy(update={"thresholds": (nothing,)})
    search = search.model_copy(update={"trials": (trial,)})
    assert "not played ✗" in trials_table(search).texts[0]
