"""The page and the files of a run with shares, nodes and a tear-down, and of a series of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubstorm.report import document_of
from pubstorm.report.files import junit, markdown, run_files
from pubstorm.report.of_experiments import series_document
from pubstorm.report.page import page
from pubstorm.report.stored import load_run
from pubstorm.report.summary import BALANCE
from pubstorm.report.timeline import marks
from pubstorm.report.watched import BY_STAGE
from pubstorm.result import MemoryModel, RunResult, Series, Statistics, Watched
from tests.kit.example_fleet import fleet_parts
from tests.kit.example_run import Shape, write_run
from tests.kit.example_series import write_series
from tests.kit.reading import Page


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    parts = fleet_parts()
    del parts["monitors"]
    return write_run(tmp_path_factory.mktemp("fleet"), Shape(duration_s=20), **parts)


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Series:
    return write_series(tmp_path_factory.mktemp("series"))


def test_samplers_problems_and_stalls_stand_in_their_sections(result: RunResult) -> None:
    text = Page(run_files(load_run(Path(result.run_directory)))["report.html"]()).text
    happened, load, tables = (
        text[text.index(start) : text.index(end, text.index(start))]
        for start, end in (
            ("fault: ", "Messages a second"),
            ("Messages a second", "Latency over time"),
            ("Balance of the targets", "Load of the agents"),
        )
    )
    assert "device pub QoS 0 – – – 1 999 959 2 000 000 99.997 %" in load
    assert "Messages of QoS 0 get no answer" in load
    assert "30 connect refused, 11 connect timeout" in happened
    assert "device 17 publish from 12.0 s on 34" in happened
    assert "node-0 62 100 62.1 % 50 %" in tables
    assert "node-0 45.0 MB 9.87 kB 9.92 GB 0.999 14" in tables
    assert "host: memory did not grow with connections." in tables
    assert "Samplers" not in tables


def test_a_run_without_them_shows_no_table_of_them(plain_page: Page) -> None:
    for title in ("Samplers", "Problems", "Stalled subscribers", "Balance of", "Memory by"):
        assert title not in plain_page.text


def test_stalls_of_one_second_are_one_line_in_the_plots(result: RunResult) -> None:
    stalls = [(mark.at_s, mark.text) for mark in marks(result) if mark.kind == "stall"]
    assert stalls == [(12.0, "device 17 and 1 more got nothing from here on")]


def test_problems_are_in_the_output_of_ci(result: RunResult) -> None:
    assert "connections failed: 41 of 2 000 000 connection attempts failed" in junit(
        document_of(result)
    )


def memory(series: Series, r_squared: float) -> Series:
    line = MemoryModel(
        subject="engines", base_bytes=5e6, bytes_per_connection=86.4, r_squared=r_squared, points=3
    )
    return series.model_copy(update={"memory": (line,)})


def test_memory_over_the_steps_stands_below_the_table_of_a_series(series: Series) -> None:
    document = series_document(memory(series, 0.999), Path(series.run_directory))
    assert "engines 5.00 MB 86.4 B 91.4 MB 0.999 3" in Page(page(document)).text
    assert "Memory by connections" not in markdown(document_of(series))


@pytest.mark.parametrize(("r_squared", "is_rough"), [(0.52, True), (0.95, False)])
def test_memory_that_follows_no_line_is_marked_and_no_key_figure(
    series: Series, r_squared: float, is_rough: bool
) -> None:
    document = document_of(memory(series, r_squared))
    names = {each.name for each in document.key_figures}
    assert ("memory per connection" in names) is not is_rough
    assert ("engines: rough figures" in markdown(document)) is is_rough


def test_the_steady_part_is_the_last_of_several_publish_stages(result: RunResult) -> None:
    def of(mean: float) -> Statistics:
        return Statistics(count=1, mean=mean, max=mean)

    load, *others = (stage for stage in result.stages if stage.kind == "publish")
    assert not others
    spans = {"load": of(0.1), "later": of(0.2), "disconnect": of(0.3)}
    cpu = Watched(
        source="broker-0",
        kind="broker",
        group="broker",
        metric="cpu",
        whole=of(0.15),
        load=of(0.15),
        spans=spans,
    )
    later = load.model_copy(update={"name": "later"})
    once = result.model_copy(update={"monitors": (cpu,)})
    twice = once.model_copy(update={"stages": (*once.stages[:-1], later, once.stages[-1])})
    assert BY_STAGE.table(once).texts == (("broker-0", "15 %", "30 %"),)
    assert BY_STAGE.table(twice).texts == (("broker-0", "20 %", "30 %"),)


def test_unwatched_metrics_have_no_column_in_the_balance(result: RunResult) -> None:
    names = [column.name for column in BALANCE.table(result).columns]
    assert names == ["target", "connected max", "share", "by plan", "accepted", "failed"]
