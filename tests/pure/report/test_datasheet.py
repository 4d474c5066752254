"""The report of a data sheet: on the terminal, as Markdown and CSV, for CI systems, and its
page."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from xml.etree import ElementTree

import plotly.graph_objects
import pytest
from rich.console import Console

from pubstorm.play.directory import RunDirectory
from pubstorm.report import document_of, is_stored, load_datasheet, write_reports
from pubstorm.report.files import markdown
from pubstorm.report.of_datasheet import datasheet_document
from pubstorm.report.sheet_plots import sheet_plots
from pubstorm.report.text import render, render_screen
from pubstorm.result import Estimate, LimitedBy
from pubstorm.result.datasheet import Datasheet, SheetFigure
from tests.kit.example_datasheet import ARTEMIS, sheet_of, write_datasheet
from tests.kit.golden import agree
from tests.kit.reading import Page

pytestmark = pytest.mark.xdist_group("datasheet-page")
SHEETS = Path(__file__).parent / "sheets"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sheets") / "sheet"
    write_datasheet(path)
    assert list(write_reports(path, RunDirectory(path).write)) == []
    return path


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return Page((folder / "report.html").read_text(encoding="utf-8"))


def printed(sheet: Datasheet, *, is_screen: bool = False, width: int = 100) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None, force_terminal=True)
    (render_screen if is_screen else render)(document_of(sheet), console)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


def test_the_sheet_on_the_terminal() -> None:
    text = printed(sheet_of())
    agree(SHEETS / "datasheet.txt", text)
    assert max(map(len, printed(sheet_of(), is_screen=True).splitlines())) <= 100


def test_the_sheet_in_markdown() -> None:
    agree(SHEETS / "datasheet.md", markdown(document_of(sheet_of(ARTEMIS))))


@pytest.mark.parametrize(
    ("limited_by", "better", "shown"),
    [
        (LimitedBy.HOST, "more", "≥ 100/s"),
        (LimitedBy.GENERATOR, "less", "≤ 100/s"),
        (LimitedBy.BROKER, "more", "100/s ± 5.0 %"),
        (LimitedBy.HOST, "", "100/s ± 5.0 %"),
    ],
)
def test_a_limit_of_ours_makes_a_bound_of_a_figure(
    limited_by: LimitedBy, better: str, shown: str
) -> None:
    estimate = Estimate(value=100, low=95, high=105, repeats=3, unit="per_s")
    fields = {"name": "rate", "estimate": estimate, "better": better, "limited_by": limited_by}
    assert SheetFigure.model_validate(fields).text == shown


def test_a_sheet_opens_with_what_its_cells_say(folder: Path) -> None:
    sheet = load_datasheet(folder)
    first, *others = (cell for cell in sheet.cells if cell.section == "throughput")
    said = first.model_copy(update={"says": "holds {} at most"})
    without = others[0].model_copy(update={"says": "never said {}", "figures": ()})
    opened = sheet.model_copy(update={"cells": (said, without)})
    figure = first.figures[0]
    words = f"holds {figure.text} at most, limited by {figure.limited_by}"
    assert datasheet_document(opened).headline == f"{sheet.name_of_broker} {words}."


def test_every_figure_and_every_cell_without_one_has_a_row_in_the_csv(folder: Path) -> None:
    sheet = load_datasheet(folder)
    text = (folder / "figures.csv").read_text(encoding="utf-8")
    rows = [*csv.DictReader(io.StringIO(text))]
    assert len(rows) == sum(max(len(cell.figures), 1) for cell in sheet.cells)
    assert {row["cell"] for row in rows} == {cell.title for cell in sheet.cells}
    first = next(row for row in rows if row["cell"] == "1:1, QoS 1, 256 B")
    figure = next(c for c in sheet.cells if c.title == first["cell"]).figures[0]
    assert figure.estimate is not None
    assert float(first["value"]) == figure.estimate.value
    assert (first["unit"], first["bound"], first["limited_by"]) == ("per_s", "exact", "broker")
    withheld = next(row for row in rows if "stamp" in row["remarks"])
    assert (withheld["value"], withheld["figure"]) == ("", "p99.9")


def test_a_cell_is_a_test_case(folder: Path) -> None:
    (suite,) = ElementTree.fromstring((folder / "junit.xml").read_text(encoding="utf-8"))
    sheet = load_datasheet(folder)
    states = [cell.state for cell in sheet.cells]
    assert int(suite.attrib["tests"]) == len(states)
    assert int(suite.attrib["failures"]) == states.count("without figures") == 1
    skipped = states.count("left out") + states.count("not played")
    assert int(suite.attrib["skipped"]) == skipped > 0


def test_the_page_has_plots_of_rates_latency_memory_and_recovery(page: Page) -> None:
    assert [*page.figures] == [
        "throughput-grid",
        "throughput-lines",
        "latency-lines",
        "connections-bars",
        "memory-bars",
        "trouble-bars",
    ]
    grid = page.figures["throughput-grid"]["data"][0]
    assert grid["x"] == ["16 B", "256 B", "4 kB", "64 kB"]
    fan_out = page.figures["throughput-lines"]["data"][3]
    assert fan_out["name"] == "fan-out, QoS 0"
    assert set(fan_out["marker"]["symbol"]) == {"triangle-up"}
    assert set(fan_out["error_y"]["array"]) == {0}, "a bound has no interval"
    for key, each in page.figures.items():
        assert plotly.graph_objects.Figure(data=each["data"], layout=each["layout"]).data, key


def test_a_short_sheet_has_bars_where_a_line_would_be_a_point(folder: Path) -> None:
    sheet = load_datasheet(folder)
    kept = [c for c in sheet.cells if c.section == "latency" or c.title == "1:1, QoS 1, 256 B"]
    short = sheet.model_copy(update={"cells": tuple(kept[-1:] + kept[:1])})
    plots = {plot.key: plot for section in sheet_plots(short) for plot in section.plots}
    assert [*plots] == ["throughput-bars", "latency-bars"]
    assert plots["latency-bars"].figure["data"][0]["y"][:2] == ["p50", "p99"]


def test_a_row_leads_to_its_cell_and_the_cell_to_its_run(page: Page) -> None:
    ids = page.attributes("id")
    links = [each.removeprefix("#") for each in page.attributes("href") if "#part-" in each]
    assert links and set(links) <= set(ids)
    runs = [each for each in page.attributes("href") if each.endswith("report.html")]
    assert runs == ["cells/connect-tcp/report.html"]


def test_the_page_has_the_settings_in_full(page: Page) -> None:
    assert "max_queued_messages: 0" in page.text
    assert "one thread serves all clients" in page.text


def test_a_sheet_without_a_figure_has_a_report_all_the_same(tmp_path: Path) -> None:
    cells = tuple(
        cell.model_copy(update={"state": "not played", "figures": (), "folder": ""})
        for cell in sheet_of().cells
    )
    sheet = sheet_of(cells=cells, drift=None, complete=False, spent_s=0.0)
    (tmp_path / "datasheet.json").write_text(sheet.to_json(), encoding="utf-8")
    assert is_stored(tmp_path)
    assert list(write_reports(tmp_path, RunDirectory(tmp_path).write)) == []
    document = datasheet_document(sheet, tmp_path)
    assert document.headline == f"mosquitto 2.0.18: 0 of {len(cells)} cells measured."
    assert "This data sheet is not complete" in (tmp_path / "report.html").read_text()


def test_a_section_of_which_no_cell_has_a_figure_says_why() -> None:
    cells = tuple(
        cell.model_copy(update={"state": "without figures", "why": "it froze", "figures": ()})
        if cell.section == "memory"
        else cell
        for cell in sheet_of().cells
    )
    tables = {table.title: table for table in document_of(sheet_of(cells=cells)).tables}
    memory = tables["Memory of an object"]
    assert [row[0] for row in memory.texts] == [c.title for c in cells if c.section == "memory"]
    assert memory.notes == "¹ it froze"
