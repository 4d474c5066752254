"""The page of a series."""

from __future__ import annotations

from pathlib import Path

import plotly.graph_objects
import pytest

from pubstorm.play.directory import RunDirectory
from pubstorm.report import write_reports
from tests.kit.example_series import write_series
from tests.kit.reading import Page

pytestmark = pytest.mark.xdist_group("series-page")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("series")
    write_series(path)
    for directory in (*sorted((path / "steps").iterdir()), path):
        assert list(write_reports(directory, RunDirectory(directory).write)) == []
    return path


@pytest.fixture(scope="session")
def page(folder: Path) -> Page:
    return Page((folder / "report.html").read_text(encoding="utf-8"))


def test_the_overview_says_what_held_and_what_broke(page: Page) -> None:
    assert "It passed up to 3000 clients." in page.text
    assert "Stopped early: verdict is fail" in page.text
    assert "3: clients 4000 ✗ FAIL" in page.text


def test_the_tables_over_the_steps_have_their_intervals_and_notes(page: Page) -> None:
    assert "Most of all Client Count msg/s (< 0.5 % lost)" in page.text
    assert "332/s ± 2.00/s" in page.text
    assert "≥ 498/s ¹" in page.text
    assert "¹ this host set the limit" in page.text


def test_plots_over_the_steps_show_the_verdict_as_a_sign(page: Page) -> None:
    trace = page.figures["throughput"]["data"][0]
    assert trace["x"] == ["clients 2000", "clients 3000", "clients 4000"]
    assert trace["y"] == [332, 498, 664]
    assert trace["marker"]["symbol"] == ["circle", "circle", "x"]
    colours = [each["marker"]["color"] for each in page.figures["throughput"]["data"]]
    assert len({*colours}) == len(colours) > 1, "sent, acked and received have different colours"
    assert colours == [each["line"]["color"] for each in page.figures["throughput"]["data"]]
    assert page.figures["cpu"]["data"][0]["name"] == "broker (of one core)"


def test_every_step_has_its_chart_command_and_own_report(page: Page) -> None:
    assert [key for key in page.figures if key.startswith("step-")] == [
        f"step-{number}-{panel}" for number in (1, 2, 3) for panel in ("load", "process-cpu")
    ]
    assert "--set populations.device-0.clients=5000" in page.text
    links = [each for each in page.attributes("href") if each.endswith(".html")]
    assert links == [f"steps/0{number}/report.html" for number in (1, 2, 3)]
    assert "After a restart of the broker." in page.text
    assert "the host has too few descriptors" in page.text


def test_every_plot_is_one_that_plotly_takes(page: Page) -> None:
    for key, figure in page.figures.items():
        assert plotly.graph_objects.Figure(data=figure["data"], layout=figure["layout"]).data, key


def test_a_series_whose_steps_are_gone_still_has_its_table(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "series.json").write_text((folder / "series.json").read_text())
    assert list(write_reports(tmp_path, RunDirectory(tmp_path).write)) == []
    page = Page((tmp_path / "report.html").read_text())
    assert "No step has a result yet." in page.text
    assert "There is no plot over time: cannot read" in page.text
    assert page.figures == {}


def test_a_step_outside_the_series_is_not_read(tmp_path: Path) -> None:
    series = write_series(tmp_path / "series")
    stray = series.steps[0].model_copy(update={"folder": "../elsewhere"})
    changed = series.model_copy(update={"steps": (stray,), "complete": False})
    (tmp_path / "series" / "series.json").write_text(changed.model_dump_json())
    directory = RunDirectory(tmp_path / "series")
    assert list(write_reports(directory.path, directory.write)) == []
    text = Page((directory.path / "report.html").read_text()).text
    assert "../elsewhere lies outside the series" in text
    assert "This series is not complete" in text
