"""Files of a run directory, and errors while they are written."""

from __future__ import annotations

import errno
import os
from datetime import datetime
from pathlib import Path
from typing import NoReturn

import pytest
from rich.console import Console

from pubstorm.contract import Sample
from pubstorm.errors import StoredRunError
from pubstorm.play.directory import MOVED, RESERVE_BYTES, RunDirectory, new_path, player_of
from pubstorm.report import load_result, render_directory
from pubstorm.result import RunResult
from pubstorm.result.samples import Track, read_samples
from pubstorm.result.verdict import evaluate_run
from tests.kit import made
from tests.kit.measured import measured_run

NOON = datetime(2026, 11, 21, 12, 0, 0)


def test_the_path_contains_time_and_name_and_is_new(tmp_path: Path) -> None:
    first = new_path(tmp_path, "my run/1", NOON)
    assert first.name == "20261121-120000-my-run-1"
    first.mkdir()
    assert new_path(tmp_path, "my run/1", NOON).name == "20261121-120000-my-run-1-2"


def test_a_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(StoredRunError, match="is not empty"):
        RunDirectory.create(tmp_path)


def test_a_folder_that_cannot_be_made_is_an_error_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoredRunError, match="cannot make the run directory") as caught:
        RunDirectory.create(tmp_path / "file" / "run")
    assert caught.value.hint == "choose another place with --out"


def test_snapshots_are_appended_as_they_come(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path / "run")
    directory.append_snapshot(b"one\n")
    directory.append_snapshot(b"two\n")
    assert (directory.path / "snapshots.jsonl").read_bytes() == b"one\ntwo\n"
    directory.close()
    directory.close()


def test_a_file_is_replaced_as_a_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = RunDirectory.create(tmp_path / "run")
    directory.release()
    assert directory.write("result.json", "old") is None

    def refuse(_descriptor: int) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", refuse)
    assert directory.write("result.json", "new and longer") == "No space left on device"
    assert (directory.path / "result.json").read_text() == "old"
    assert sorted(path.name for path in directory.path.iterdir()) == ["logs", "result.json"]
    assert directory.failure is not None
    assert directory.failure.endswith("result.json: No space left on device")


def test_a_folder_that_is_gone_is_named_as_that(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path / "run")
    directory.path.rename(tmp_path / "renamed")
    assert directory.write("result.json", "") == "the folder of the run was removed or renamed"


def test_one_player_at_a_time_has_a_folder(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path / "run") as directory:
        for _ in range(2):
            with pytest.raises(StoredRunError) as caught, RunDirectory(directory.path):
                pass
            assert str(caught.value).endswith(f"is being played by pubstorm with pid {os.getpid()}")
        assert player_of(directory.path) == os.getpid()
    assert player_of(directory.path) == 0
    with RunDirectory(directory.path):
        pass


def test_a_lock_of_another_file_system_is_none_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of the same number of a file is not named, and thus never ended."""
    inode = tmp_path.stat().st_ino
    locks = tmp_path / "locks"
    locks.write_text(f"1: FLOCK  ADVISORY  WRITE {os.getpid()} 00:01:{inode} 0 EOF\n")
    monkeypatch.setattr("pubstorm.play.directory.LOCKS", locks)
    assert player_of(tmp_path) == 0
    with RunDirectory(tmp_path):
        assert player_of(tmp_path) == os.getpid()


def test_a_file_system_without_locks_keeps_no_player_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_descriptor: int, _operation: int) -> NoReturn:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with RunDirectory.create(tmp_path / "run") as directory:
        assert directory.write("result.json", "") is None


def test_nothing_is_written_into_a_folder_that_has_taken_the_place_of_the_run(
    tmp_path: Path,
) -> None:
    with RunDirectory.create(tmp_path / "run") as directory:
        directory.append_snapshot(b"one\n")
        directory.path.rename(tmp_path / "renamed")
        directory.path.mkdir()
        assert directory.write("result.json", "") == MOVED
        directory.append_event("event")
        directory.append_snapshot(b"two\n")
        with pytest.raises(StoredRunError, match="another one has its place") as caught:
            directory.check()
    assert caught.value.exit_code == 3
    assert list(directory.path.iterdir()) == []
    assert str(directory.failure).endswith(MOVED)


@pytest.mark.parametrize("file", ["snapshots.jsonl", "samples.csv"])
def test_after_a_failure_nothing_more_is_appended(tmp_path: Path, file: str) -> None:
    directory = RunDirectory.create(tmp_path / "run")
    (directory.path / file).mkdir()
    for _ in range(2):
        directory.append_samples(
            [Sample(made.source("broker-0"), "cpu", 0.5, 0.25)] * (file == "samples.csv")
        )
        directory.append_snapshot(b"one\n")
        assert str(directory.failure).endswith(f"{file}: Is a directory")
    assert not any(path.is_file() and path.suffix for path in directory.path.iterdir())


def test_samples_are_appended_under_one_header(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path / "run")
    directory.append_samples([])
    assert not (directory.path / "samples.csv").exists()
    directory.append_samples([Sample(made.source("broker-0"), "cpu", 0.5, 0.25)])
    held = Sample(made.source("host"), "cpu", 2, 0, held=True)
    directory.append_samples([Sample(made.source("redis"), 'up{a="b,c"}', 1, 1), held])
    directory.close()
    lines = (directory.path / "samples.csv").read_text().splitlines()
    assert lines[:2] == ["at_s,kind,source,metric,value,held", "0.500,broker,broker-0,cpu,0.25,"]
    tracks = read_samples(directory.path)
    assert tracks[made.source("redis"), 'up{a="b,c"}'] == Track([1.0], [1.0])
    assert tracks[made.source("host"), "cpu"] == Track([2.0], [0.0], held={0})
    places = [(source.name, metric) for source, metric in tracks]
    assert places == [("broker-0", "cpu"), ("redis", 'up{a="b,c"}'), ("host", "cpu")]


def test_a_stored_result_is_read_back_unchanged(tmp_path: Path) -> None:
    result = RunResult.of(measured_run(), evaluate_run(measured_run(), []))
    (tmp_path / "result.json").write_text(result.to_json())
    assert load_result(tmp_path) == result


def test_the_verdict_stands_first_in_a_stored_result() -> None:
    text = RunResult.of(measured_run(), evaluate_run(measured_run(), [])).to_json()
    assert text.startswith('{\n  "verdict": {\n    "headline": "')
    assert text.splitlines()[3:5] == ['    "status": "pass",', '    "limited_by": "none",']


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read"),
        (b"", "is broken: Invalid JSON"),
        (b"{}", "is not a result of this version"),
        (b"\xff\xfe", "is not text"),
    ],
)
def test_a_folder_without_a_result_is_an_error(
    content: bytes | None, message: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "result.json").write_bytes(content)
    with pytest.raises(StoredRunError, match=message):
        render_directory(tmp_path, Console(quiet=True))


def test_room_for_the_result_is_kept_until_it_is_needed(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path / "run")
    kept = sum(path.stat().st_size for path in directory.path.iterdir() if path.is_file())
    assert kept >= RESERVE_BYTES
    directory.release()
    assert [path.name for path in directory.path.iterdir()] == ["logs"]
