"""The page of a run: what it shows, what it costs, and that it is one file."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import plotly.graph_objects
import pytest
from pydantic import ValidationError

from pubstorm.contract import Sample
from pubstorm.play.directory import RunDirectory
from pubstorm.report import write_reports
from pubstorm.report.files import run_files
from pubstorm.report.plot import POINTS_MAX
from pubstorm.report.stored import load_run
from pubstorm.result import Cell, Event, RunResult, Statistics
from pubstorm.result.samples import HEADER, csv_lines
from tests.kit import made
from tests.kit.example_run import Shape, write_run
from tests.kit.reading import Page

pytestmark = pytest.mark.xdist_group("browser")

BYTES_MAX = 8_000_000
"""Of the page of a run at 1 Hz with 5 populations and 100 monitor series."""
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&amp;{{7*7}}"


@pytest.fixture(scope="session")
def text(failed_run: Path) -> str:
    return (failed_run / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def page(text: str) -> Page:
    return Page(text)


def test_the_sections_stand_in_the_order_in_which_they_are_read(page: Page) -> None:
    assert page.attributes("data-section") == [
        "Verdict",
        "What happened",
        "Load",
        "Latency",
        "Broker",
        "Generator",
        "Details",
    ]


def test_verdict_evidence_and_thresholds_come_first(page: Page) -> None:
    start = page.text[: page.text.index("45.0 s fault")]
    assert "FAIL limited by broker" in start
    assert "broker-0 used 98.9 % of one core" in start
    assert "failed backend.lost == 0 found 412" in start


def test_the_headline_and_six_figures_come_first(failed_run: Path, tmp_path: Path) -> None:
    page = Page(_evaluated(failed_run, tmp_path, headline="Failed: 412 were lost."))
    (headline,) = (each for _, each in page.elements if "headline" in each.get("class", ""))
    assert headline["class"] == "headline fail"
    start = page.text[: page.text.index("Thresholds")]
    places = [start.index(name) for name in ("Failed: ", "messages lost", "broker-0 used 98.9 %")]
    assert places == sorted(places)
    assert "✗ 412 fail" in start, "a figure has a sign and a word beside its colour"


def test_everything_but_the_first_plot_of_a_section_is_folded(text: str) -> None:
    unfolded = re.sub(r"<details.*?</details>", "", text, flags=re.DOTALL)
    keys = re.findall(r'data-figure="([^"]*)"', unfolded)
    assert keys == ["load", "latency", "process-cpu", "agent-load"]
    assert "Samplers" not in unfolded
    assert re.search("<summary>Tables: .*Connections, Messages", text)


def test_of_many_thresholds_those_that_passed_are_folded(failed_run: Path, tmp_path: Path) -> None:
    found = load_run(failed_run).result.verdict.thresholds
    missed = next(each for each in found if each.missed)
    passed = next(each for each in found if each.passed)
    text = _evaluated(failed_run, tmp_path, thresholds=(*(passed,) * 12, missed))
    unfolded = re.sub(r"<details.*?</details>", "", text, flags=re.DOTALL)
    assert unfolded.count('class="mark"') == 8
    assert unfolded.index('class="fail">\n<span') < unfolded.index('class="pass">\n<span')
    assert "5 more that passed" in text


def _evaluated(failed_run: Path, folder: Path, **changes: object) -> str:
    """The page of the failed run with changes of its verdict."""
    run = load_run(failed_run)
    verdict = run.result.verdict.model_copy(update=changes)
    result = run.result.model_copy(update={"verdict": verdict})
    return run_files(replace(run, path=folder, result=result))["report.html"]()


def test_the_scenario_and_every_file_are_named(page: Page) -> None:
    assert "device-0: {clients: 3k" in page.text
    files = [each for each in page.attributes("href") if not each.startswith(("#", "data:"))]
    assert files == [
        "result.json",
        "report.md",
        "junit.xml",
        "samples.csv",
        "latencies.hlog",
        "snapshots.jsonl",
        "scenario.yaml",
        "profile",
    ]


def test_nothing_is_fetched(text: str, page: Page) -> None:
    for name in ("src", "href", "srcset", "data", "action", "poster"):
        assert not [each for each in page.attributes(name) if "//" in each]
    assert not re.search(r"@import|url\(|\bfetch\(|XMLHttpRequest|sendBeacon|\bimport\(", text)


def test_every_plot_is_one_that_plotly_takes(page: Page) -> None:
    assert len(page.figures) > 15
    for key, figure in page.figures.items():
        del figure["linked"]
        assert plotly.graph_objects.Figure(figure).data, key


def test_every_plot_has_its_place_and_names_axes_with_units(page: Page) -> None:
    assert sorted(page.attributes("data-figure")) == sorted(page.figures)
    for key, figure in page.figures.items():
        x_title = figure["layout"]["xaxis"]["title"]["text"]
        assert x_title.startswith(("time since the start", "percentile")), key
        assert figure["layout"]["yaxis"]["title"]["text"], key


def test_stages_are_bands_and_happenings_are_numbered_lines(page: Page) -> None:
    layout = page.figures["load"]["layout"]
    assert [shape["type"] for shape in layout["shapes"]] == ["rect"] * 3 + ["line"] * 5
    assert "load" in [note["text"] for note in layout["annotations"]]
    words = (
        "What happened 45.0 s fault: kill 50 boxes 1:45 change: +1000 clients of device-0 1:57 "
        "collapse:"
    )
    assert words in page.text


def test_tables_name_their_columns_and_rows(page: Page) -> None:
    scopes = {attributes.get("scope") for tag, attributes in page.elements if tag == "th"}
    assert scopes == {"col", "row"}
    headings = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h\d", tag)]
    assert headings[0] == 1
    assert headings.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(headings))


def test_whatever_a_user_puts_in_stays_text(tmp_path: Path) -> None:
    result = write_run(tmp_path, Shape(duration_s=20))
    renamed = _with_evil_names(result)
    (tmp_path / "result.json").write_text(renamed.to_json())
    (tmp_path / "scenario.yaml").write_text(f"description: {EVIL}")
    (tmp_path / "profile" / "folded.txt").write_text(f"main;{EVIL} 5\n")
    samples = [
        Sample(made.source(EVIL), metric, at_s, 1.0)
        for at_s in (1, 2)
        for metric in ("sent_per_s", EVIL)
    ]
    lines = (",".join(HEADER) + "\n", *csv_lines(samples))
    (tmp_path / "samples.csv").write_text("".join(lines))
    page = Page(run_files(load_run(tmp_path))["report.html"]())
    assert [tag for tag, _ in page.elements].count("script") == 4
    assert "img" not in [tag for tag, _ in page.elements]
    assert not page.attributes("onerror")
    assert page.text.count(EVIL) >= 10
    for figure in page.figures.values():
        assert all("<" not in trace["name"] for trace in figure["data"])


def _with_evil_names(result: RunResult) -> RunResult:
    stages = tuple(stage.model_copy(update={"name": EVIL}) for stage in result.stages)
    flows = tuple(flow.model_copy(update={"source": EVIL}) for flow in result.flows)
    verdict = result.verdict.model_copy(update={"evidence": (EVIL,)})
    return result.model_copy(
        update={
            "name": EVIL,
            "command": EVIL,
            "table": {EVIL: Cell(word=EVIL)},
            "events": (Event(at_s=3, kind="change", text=EVIL),),
            "populations": {EVIL: result.populations["device-0"]},
            "stages": stages,
            "flows": flows,
            "verdict": verdict,
        }
    )


def test_a_run_of_which_only_the_result_is_left_says_what_is_missing(tmp_path: Path) -> None:
    result = write_run(tmp_path / "whole", Shape(duration_s=20))
    (tmp_path / "result.json").write_text(result.to_json())
    text = Page(run_files(load_run(tmp_path))["report.html"]()).text
    assert "There are no plots over time: samples.csv cannot be read: No such file" in text
    assert "There is no flame graph: profile/folded.txt cannot be read: No such file" in text
    assert "scenario.yaml cannot be read: No such file" in text


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"", b"at_s,source\nnonsense\n"])
def test_broken_files_are_named_and_cost_no_other_part(tmp_path: Path, content: bytes) -> None:
    write_run(tmp_path, Shape(duration_s=20))
    for file in ("samples.csv", "profile/folded.txt"):
        (tmp_path / file).write_bytes(content)
    text = Page(run_files(load_run(tmp_path))["report.html"]()).text
    assert "There are no plots over time: samples.csv" in text
    assert "There is no flame graph: " in text
    assert "Latency by percentile" in text


def test_what_is_no_number_is_left_out(tmp_path: Path) -> None:
    result = write_run(tmp_path, Shape(duration_s=20))
    with (tmp_path / "samples.csv").open("a") as stream:
        stream.write("19.0,host,host,cpu,nan,\n19.5,endpoint,redis,endless,inf,\n")
        stream.write("nan,host,host,cpu,0.5,\n19.7,host,host,cpu,1e18,\n19.9,host,host,c")
    changed = replace(load_run(tmp_path), result=result)
    page = Page(run_files(changed)["report.html"]())
    assert "endless" not in page.text
    assert len(page.figures["host-cpu"]["data"][0]["y"]) == 20
    with pytest.raises(ValidationError):
        Statistics(count=1, last=float("inf"))


def test_a_profile_outside_the_run_directory_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("main;secret 5\n")
    result = write_run(tmp_path / "run", Shape(duration_s=20))
    assert result.profile is not None
    outside = result.profile.model_copy(update={"folded_file": "../secret"})
    changed = result.model_copy(update={"profile": outside})
    (tmp_path / "run" / "result.json").write_text(changed.to_json())
    page = Page(run_files(load_run(tmp_path / "run"))["report.html"]())
    assert "../secret lies outside the run directory" in page.text
    assert page.scripts["flame-tree"] == "null"


def test_a_run_that_measured_nothing_has_a_page(tmp_path: Path) -> None:
    lists = dict.fromkeys(("flows", "stages", "phases", "monitors", "events"), ())
    write_run(tmp_path, Shape(duration_s=20), **lists, populations={}, table={}, profile=None)
    (tmp_path / "samples.csv").unlink()
    page = Page(run_files(load_run(tmp_path))["report.html"]())
    assert "No latency was measured." in page.text
    assert page.figures == {}
    assert page.scripts.get("library", "") == ""


def test_the_page_of_a_long_run_is_not_too_large(tmp_path: Path) -> None:
    # Longer tracks are thinned to as many points.
    write_run(tmp_path, Shape(duration_s=POINTS_MAX + 200, populations=5, other_series=100))
    assert list(write_reports(tmp_path, RunDirectory(tmp_path).write)) == []
    assert (tmp_path / "report.html").stat().st_size < BYTES_MAX
