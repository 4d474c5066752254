"""Publishers of ZeroMQ and their subscribers in a report."""

from __future__ import annotations

from pathlib import Path

import plotly.graph_objects
import pytest

from pubstorm.play.directory import RunDirectory
from pubstorm.report import load_result, write_reports
from pubstorm.report.tables import facts
from pubstorm.report.watched import PROCESSES, PUBLISHERS, SUBSCRIBERS
from pubstorm.result import RunResult
from tests.kit.example_publisher import write_publisher_run
from tests.kit.reading import Page


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("publisher")
    write_publisher_run(path)
    assert list(write_reports(path, RunDirectory(path).write)) == []
    return path


def test_a_publisher_has_a_row_with_what_it_sent_and_needed(folder: Path) -> None:
    table = PUBLISHERS.table(load_result(folder))
    (row,) = table.texts
    cells = dict(zip((column.name for column in table.columns), row, strict=True))
    assert (cells["publisher"], cells["what"]) == ("feed", "libzmq 4.3.5")
    assert (cells["HWM"], cells["late p99"]) == ("1\u202f000", "90.0 µs")
    assert (cells["CPU"], cells["thread"], cells["mem max"]) == ("94 %", "71 %", "12.4 MB")


def test_subscribers_show_what_each_of_them_received(folder: Path) -> None:
    table = SUBSCRIBERS.table(load_result(folder))
    rows = [tuple(cell.replace("\u202f", " ") for cell in row) for row in table.texts]
    assert [row[0] for row in rows] == ["subscriber", "subscriber/rest", "subscriber/slow"]
    assert rows[1][2:6] == ("90", "991", "89 200", "0.90 %")
    assert rows[2][-1] == "500/s at most"
    assert rows[2][5] == "48 %"


def test_a_run_of_mqtt_says_nothing_of_publishers(plain_run: RunResult) -> None:
    assert PUBLISHERS.table(plain_run).texts == () == SUBSCRIBERS.table(plain_run).texts


def test_a_publisher_is_the_target(folder: Path) -> None:
    result = load_result(folder)
    assert facts(result)[0].value == "zmq://127.0.0.1:40001 (libzmq 4.3.5)"
    assert PROCESSES.table(result).title == "Publishers, host and agents under load"


def test_the_page_shows_what_each_received_over_time(folder: Path) -> None:
    page = Page((folder / "report.html").read_text(encoding="utf-8"))
    names = [trace["name"] for trace in page.figures["each"]["data"]]
    assert names == [
        "feed sent",
        "subscriber/rest received by each",
        "subscriber/slow received by each",
    ]
    assert max(page.figures["each"]["data"][2]["y"]) == 500
    assert "feed busiest thread" in [t["name"] for t in page.figures["process-cpu"]["data"]]
    assert "feed all" in [trace["name"] for trace in page.figures["process-cpu"]["data"]]
    for key, figure in page.figures.items():
        assert plotly.graph_objects.Figure(data=figure["data"], layout=figure["layout"]).data, key
