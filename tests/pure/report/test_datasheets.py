"""The report of data sheets side by side: on the terminal, as Markdown and CSV, and its page."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import plotly.graph_objects
import pytest
from rich.console import Console

from pubstorm.play.directory import RunDirectory
from pubstorm.report import document_of, is_stored, write_reports
from pubstorm.report.files import markdown
from pubstorm.report.text import render
from tests.kit.example_datasheet import compared_sheets, write_datasheets
from tests.kit.golden import agree
from tests.kit.reading import Page

pytestmark = pytest.mark.xdist_group("datasheet-page")
SHEETS = Path(__file__).parent / "sheets"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("compared") / "sheets"
    write_datasheets(path)
    assert is_stored(path)
    assert list(write_reports(path, RunDirectory(path).write)) == []
    return path


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return Page((folder / "report.html").read_text(encoding="utf-8"))


def test_the_sheets_on_the_terminal() -> None:
    console = Console(width=100, file=io.StringIO(), color_system=None, force_terminal=True)
    render(document_of(compared_sheets()), console)
    assert isinstance(console.file, io.StringIO)
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    agree(SHEETS / "datasheets.txt", "\n".join(lines) + "\n")


def test_the_sheets_in_markdown() -> None:
    agree(SHEETS / "datasheets.md", markdown(document_of(compared_sheets())))


def test_the_csv_has_a_row_for_each_figure_of_a_broker(folder: Path) -> None:
    found = compared_sheets()
    text = (folder / "figures.csv").read_text(encoding="utf-8")
    rows = [*csv.DictReader(io.StringIO(text))]
    assert len(rows) == len(found.rows) * len(found.columns)
    of_anchor = [
        (row["broker"], row["is_best"])
        for row in rows
        if row["cell"] == "1:1, QoS 1, 256 B" and row["figure"] == "messages a second"
    ]
    assert of_anchor == [("mosquitto", "true"), ("nanomq", "false"), ("artemis", "false")]


def test_the_page_has_rates_relative_to_the_best(page: Page) -> None:
    grid = page.figures["throughput-grid"]
    (trace,) = grid["data"]
    assert trace["y"] == ["mosquitto", "nanomq", "artemis"]
    loads = [*zip(*trace["z"], strict=True)]
    assert all(max(value for value in load if value is not None) == 100 for load in loads)
    at = trace["x"].index("shared group,<br>QoS 1,<br>256 B")
    assert loads[at][1] is None, "a broker without the feature has a hole"
    assert trace["text"][0][trace["x"].index("fan-out,<br>QoS 0,<br>256 B")].startswith("≥")
    assert grid["layout"]["height"] > 24 * len(trace["y"])


def test_the_page_has_bars_and_lines_for_each_broker(page: Page) -> None:
    assert {"latency-0", "latency-1", "memory-bars", "trouble-bars"} <= set(page.figures)
    names = [trace["name"] for trace in page.figures["memory-bars"]["data"]]
    assert names == ["mosquitto", "nanomq", "artemis"]
    for key, each in page.figures.items():
        assert plotly.graph_objects.Figure(data=each["data"], layout=each["layout"]).data, key


def test_unequal_terms_stand_on_top(page: Page) -> None:
    assert "Not equal are the figures of memory" in page.text
    assert page.text.index("Not equal are") < page.text.index("Messages a second")
