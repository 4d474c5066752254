"""Folders of runs that are broken, cut off, closed to the user or named twice: compare, history
and export say so, and count nothing wrong."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Callable
from functools import reduce
from operator import getitem
from pathlib import Path

import pytest

from pubstorm import cli
from pubstorm.play.directory import RunDirectory
from pubstorm.report import load_result
from pubstorm.result import Status
from pubstorm.result.samples import read_samples
from tests.kit import made, program
from tests.kit.example_run import Shape, write_run
from tests.kit.example_search import write_search
from tests.kit.example_series import write_series

pytestmark = pytest.mark.xdist_group("stored-trouble")

WITHOUT_RIGHTS = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
"""Takes from root the right to read everything."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs `a` and `b`, which both pass."""
    folder = tmp_path_factory.mktemp("stored")
    for name in ("a", "b"):
        (folder / name).mkdir()
        write_run(folder / name, Shape(duration_s=20))
        result = load_result(folder / name)
        verdict = result.verdict.model_copy(update={"status": Status.PASS})
        passed = result.model_copy(update={"verdict": verdict})
        (folder / name / "result.json").write_text(passed.to_json())
    return folder


def failed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(words) == 2
    return capsys.readouterr().err


def as_a_person(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    prefix = WITHOUT_RIGHTS if os.geteuid() == 0 else ()
    return program.run(
        words, prefix=prefix, cwd=folder, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("compare", "closed", "closed"), "cannot read closed/result.json: Permission denied"),
        (("compare", "closed/run", "x"), "cannot read closed/run/result.json: Permission denied"),
        (("history", "closed"), "'closed' is not "),
        (("history", "closed/run"), "cannot read closed/run/result.json: Permission denied"),
        (("export", "closed/run", "--to", "csv"), "cannot read closed/run/result.json: Perm"),
        (("view", "closed/run"), "cannot read closed/run: Permission denied"),
    ],
)
def test_a_closed_folder_is_an_error(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o000)
    done = as_a_person(tmp_path, *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_closed_folder_among_others_is_named(runs: Path) -> None:
    closed = runs / "closed"
    closed.mkdir(mode=0o000)
    done = as_a_person(runs, "history", ".", "--figure", "received_per_s")
    closed.rmdir()
    assert done.returncode == 0, done.stderr
    assert "cannot read closed/result.json: Permission denied" in " ".join(done.stdout.split())


def test_a_run_that_has_not_begun_its_first_stage_has_not_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "scenario.yaml").touch()
    with RunDirectory(tmp_path):
        assert "is being played" in failed(capsys, "report", str(tmp_path))
    assert "ended before its first stage" in failed(capsys, "report", str(tmp_path))


@pytest.mark.parametrize("path", ["x" * 300, "y/" * 3000 + "z", f"{'x' * 300}/s.yaml"])
@pytest.mark.parametrize("words", ["check", "run", "report", "down", "run --resume", "view"])
def test_a_path_that_is_too_long_is_an_error(
    words: str, path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.chdir(tmp_path):
        assert cli.main([*words.split(), path]) == 2
    assert ("File name too long" in (said := capsys.readouterr().err)) or "found" in said


def test_a_value_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "samples.csv"
    head = "at_s,kind,source,metric,value,held"
    whole = f"{head}\n1.0,host,host,cpu,0.25,\n2.0,host,host,cpu,0.5"
    file.write_text(whole)
    assert [*read_samples(tmp_path)[made.source("host"), "cpu"].values] == [0.25]
    file.write_text(f"{whole},")
    assert [*read_samples(tmp_path)[made.source("host"), "cpu"].values] == [0.25, 0.5]


@pytest.mark.parametrize("stored", [("{}", 1), ('{"format": 1}', 1), ('{"format": 3}', 3)])
@pytest.mark.parametrize("words", ["report RUN", "view RUN", "export RUN --to csv", "history RUN"])
def test_a_run_in_another_format_is_refused(
    stored: tuple[str, int],
    words: str,
    runs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    start, found = stored
    (tmp_path / "result.json").write_bytes((runs / "a" / "result.json").read_bytes())
    (tmp_path / "start.json").write_text(start)
    said = failed(capsys, *words.replace("RUN", str(tmp_path)).split())
    assert f"is stored in format {found}, this version reads 2" in said


def test_a_result_in_another_format_is_refused(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (runs / "a" / "result.json").read_text()
    (tmp_path / "result.json").write_text(text.replace('"format": 4', '"format": 3', 1))
    said = failed(capsys, "report", str(tmp_path))
    assert "result.json is stored in format 3, this version reads 4" in said


def test_a_run_that_was_killed_in_another_format_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "scenario.yaml").write_text("")
    (tmp_path / "start.json").write_text("{}")
    said = failed(capsys, "report", str(tmp_path))
    assert "is stored in format 1, this version reads 2" in said


@pytest.mark.parametrize(
    ("write", "file", "place"),
    [
        (write_search, "search.json", ("trials", 0, "cells")),
        (write_series, "series.json", ("steps", 0, "cells")),
        (write_series, "series.json", ("tables", 0, "rows", 0)),
    ],
)
def test_a_row_without_its_last_cell_is_an_error(
    write: Callable[[Path], object],
    file: str,
    place: tuple[str | int, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(tmp_path)
    stored = json.loads((tmp_path / file).read_text())
    row = reduce(getitem, place, stored)
    cells = len(row)
    row.pop()
    (tmp_path / file).write_text(json.dumps(stored))
    assert cli.main(("report", str(tmp_path))) == 2
    found = f"found a row of {cells - 1} cells, needed are {cells}"
    assert found in " ".join(capsys.readouterr().err.split())


def test_samples_without_populations_are_a_warning(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "result.json").write_bytes((runs / "a" / "result.json").read_bytes())
    head = "at_s,kind,source,metric,value,held"
    (tmp_path / "samples.csv").write_text(f"{head}\n1.0,host,host,cpu,0.25,\n")
    assert cli.main(["export", str(tmp_path), "--to", "csv"]) == 0
    warning = "warning: there is no table intervals: samples.csv has no sample of a population\n"
    assert capsys.readouterr().err == warning


def test_a_figure_that_no_run_has_is_an_error(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = str(runs / "a"), str(runs / "b")
    condition = "missing.latency.p99 worse by 5%"
    found = failed(capsys, "compare", a, b, "--fail-if", condition)
    assert "error: found no missing.latency.p99 in the runs of either side" in found
    assert "found no cache.cpu" in failed(capsys, "compare", a, b, "--figure", "cache.cpu")


def test_conditions_that_are_open_are_not_called_invalid(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("compare", str(runs / "a"), str(runs / "b"), "--fail-if", "received_per_s worse by 5%")
    assert cli.main(words) == 3
    printed = capsys.readouterr().out
    assert "NOT DECIDED" in printed and "INVALID" not in printed


def test_output_that_is_lost_is_a_failure(runs: Path) -> None:
    """The shell's `> FILE` on a full disk."""
    for words in (
        ("export", "a", "--to", "csv", "--table", "samples", "--out", "-"),
        ("history", "a", "--figure", "received_per_s", "--json"),
        ("init", "-"),
        ("import", "emqtt-bench", "emqtt_bench conn"),
        ("completion", "bash"),
        ("bench", "conn", "--print"),
    ):
        with Path("/dev/full").open("w") as full:
            done = program.run(
                words, cwd=runs, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120
            )
        assert done.returncode == 2, words
        assert done.stderr == "warning: standard output is not complete: No space left on device\n"


def test_what_is_not_stored_has_no_run_directory(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["compare", str(runs / "a"), str(runs / "b")]) == 0
    assert "run directory" not in capsys.readouterr().out
    assert cli.main(["history", str(runs), "--figure", "received_per_s"]) == 0
    assert "run directory" not in capsys.readouterr().out


def test_a_comparison_that_is_not_stored_says_so(
    runs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refused(_: RunDirectory, file: str, __: str | bytes) -> str | None:
        return f"{file}: No space left on device"

    monkeypatch.setattr(RunDirectory, "write", refused)
    words = ("compare", str(runs / "a"), str(runs / "b"), "--out", str(tmp_path / "out"))
    assert cli.main([*words, "--fail-if", "received_per_s worse by 500%"]) == 3
    printed = " ".join(capsys.readouterr().out.split())
    assert "Invalid: the comparison is not stored: found no comparison.json" in printed
    assert "PASS" not in printed
