"""`pubstorm export`: each format holds what the result holds, as other programs read it."""

from __future__ import annotations

import csv
import errno
import json
import os
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pandas
import pyarrow.parquet
import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

import pubstorm
from pubstorm import cli
from pubstorm.contract.histogram import MAX_NS
from pubstorm.report import load_result
from pubstorm.report.data import STORED
from pubstorm.result import Event
from tests.kit.example_run import Shape, write_run
from tests.kit.example_search import write_search
from tests.kit.example_series import write_series

pytestmark = pytest.mark.xdist_group("export")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "run"
    write_run(path, Shape(duration_s=20, carries=False))
    return path


def exported(run: Path, *words: str) -> Path:
    assert cli.main(["export", str(run), *words]) == 0
    return run / "export"


def read_csv(path: Path) -> list[dict[str, str]]:
    return [*csv.DictReader(StringIO(path.read_text(), newline=""))]


def test_every_table_with_rows_has_a_file_and_stdout_its_path(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = exported(run, "--to", "csv")
    paths = capsys.readouterr().out.splitlines()
    missing = {"stalls", "problems", "samplers", "stage_flows"}
    assert [Path(path).stem for path in paths] == [each for each in STORED if each not in missing]
    assert all(Path(path).parent == folder and Path(path).exists() for path in paths)


def test_the_samples_are_those_of_the_run(run: Path) -> None:
    def rows(path: Path) -> list[tuple[str, str, str, float, float, bool]]:
        found = pandas.read_csv(path).itertuples(index=False)
        return sorted((k, s, m, at_s, v, held == 1) for at_s, k, s, m, v, held in found)

    folder = exported(run, "--to", "csv", "--table", "samples")
    assert rows(folder / "samples.csv") == rows(run / "samples.csv")


def test_intervals_have_a_row_for_each_second_and_population(run: Path) -> None:
    rows = read_csv(exported(run, "--to", "csv") / "intervals.csv")
    assert [row["population"] for row in rows] == ["backend", "device-0"] * 20
    assert {row["stage"] for row in rows} == {"", "load"}
    samples = read_csv(run / "samples.csv")
    for row in rows:
        here = {
            each["metric"]: float(each["value"])
            for each in samples
            if (each["source"], float(each["at_s"])) == (row["population"], float(row["at_s"]))
        }
        own = {name: float(cell) for name, cell in row.items() if cell and name in here}
        assert own == here


def test_populations_stages_and_flows_have_the_figures_of_the_result(run: Path) -> None:
    folder, result = exported(run, "--to", "json"), load_result(run)
    populations = {row["population"]: row for row in json_of(folder / "populations.json")}
    for name, population in result.populations.items():
        assert populations[name]["sent_total"] == population.sent_total
        p99 = population.latency_us.intended.p99
        assert populations[name]["latency_us.intended.p99"] == p99
        assert not any("histogram" in column for column in populations[name])
    (flow,) = json_of(folder / "flows.json")
    assert (flow["source"], flow["lost_total"]) == ("device-0", 412)
    by_stage = {
        (row["stage"], row["population"]) for row in json_of(folder / "stage_populations.json")
    }
    assert by_stage == {(s.name, p) for s in result.stages for p in s.populations}
    (row,) = json_of(folder / "run.json")
    assert (row["status"], row["started_unix_ns"]) == ("fail", result.started_unix_ns)


def json_of(path: Path) -> list[dict[str, Any]]:
    found = json.loads(path.read_text())
    assert isinstance(found, list)
    return found


def test_parquet_csv_json_and_frames_have_the_same_cells(run: Path) -> None:
    result = pubstorm.load(run)
    for name in ("intervals", "events", "thresholds", "phases", "monitors", "latency"):
        frame = result.frame(name)
        for form in ("csv", "json", "parquet"):
            exported(run, "--to", form, "--table", name)
        path = run / "export" / name
        arrow = pyarrow.parquet.read_table(path.with_suffix(".parquet")).to_pylist()
        assert arrow == json_of(path.with_suffix(".json"))
        assert [*arrow[0]] == [*frame.columns] == [*read_csv(path.with_suffix(".csv"))[0]]
        columns = frame.select_dtypes("number").columns
        for found in (pandas.DataFrame(arrow), pandas.read_csv(path.with_suffix(".csv"))):
            pandas.testing.assert_frame_equal(found[columns], frame[columns], check_dtype=False)


def test_text_with_commas_quotes_and_lines_stays_a_cell(tmp_path: Path) -> None:
    text = 'a, "b"\nc – d'
    write_run(tmp_path, Shape(duration_s=20), events=(Event(at_s=1.0, kind="stage", text=text),))
    exported(tmp_path, "--to", "csv", "--table", "events")
    (row,) = read_csv(tmp_path / "export" / "events.csv")
    assert row == {"at_s": "1.0", "kind": "stage", "text": text}


def test_stdout_has_a_table_an_object_or_the_log(
    run: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    def printed(*words: str) -> bytes:
        exported(run, *words, "--out", "-")
        return capfdbinary.readouterr().out

    folder = exported(run, "--to", "csv")
    exported(run, "--to", "parquet")
    capfdbinary.readouterr()
    assert printed("--to", "csv", "--table", "flows") == (folder / "flows.csv").read_bytes()
    parquet = printed("--to", "parquet", "--table", "flows")
    assert parquet == (folder / "flows.parquet").read_bytes()
    every = json.loads(printed("--to", "json"))
    assert {"intervals", "samples", "run", "flows"} <= set(every) <= set(STORED)
    two = json.loads(printed("--to", "json", "--table", "flows", "--table", "run"))
    assert [*two] == ["flows", "run"]
    assert printed("--to", "hdr").startswith(b"#[Latencies of 3000 clients")


def test_the_log_of_hdr_histogram_has_every_interval(run: Path) -> None:
    exported(run, "--to", "hdr")
    log = str(run / "export" / "latencies.hlog")
    reader, count = HistogramLogReader(log, HdrHistogram(1, MAX_NS, 2)), 0
    while (histogram := reader.get_next_interval_histogram()) is not None:
        count += histogram.get_total_count()
    reader.close()
    assert count == 4 * 20_000


def test_series_and_searches_have_one_table(tmp_path: Path) -> None:
    write_series(tmp_path / "series")
    write_search(tmp_path / "search")
    assert len(read_csv(exported(tmp_path / "series", "--to", "csv") / "steps.csv")) == 4
    assert len(read_csv(exported(tmp_path / "search", "--to", "csv") / "trials.csv")) == 13


def failed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(["export", *words]) == 2
    return capsys.readouterr().err


def test_without_samples_the_other_tables_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path, Shape(duration_s=20))
    (tmp_path / "samples.csv").unlink()
    folder = exported(tmp_path, "--to", "csv")
    assert capsys.readouterr().err.count("warning: there is no table ") == 2
    assert (folder / "flows.csv").exists() and not (folder / "samples.csv").exists()
    assert "there is no table samples" in failed(
        capsys, str(tmp_path), "--to", "csv", "--table", "samples"
    )


def test_parquet_without_its_library_names_the_extra(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert failed(capsys, str(run), "--to", "parquet") == (
        "error: Parquet needs pyarrow, which is not installed\n"
        "  hint: install the wheel of Pubstorm with its extra: pip install 'WHEEL[parquet]'\n"
    )


def test_a_full_disk_is_an_error_and_leaves_nothing(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (str(run), "--to", "csv", "--table", "flows")

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    message = failed(capsys, *words, "--out", str(tmp_path / "full"))
    assert message.startswith(f"error: cannot write {tmp_path}/full/flows.csv: No space left")
    assert [*(tmp_path / "full").iterdir()] == []
