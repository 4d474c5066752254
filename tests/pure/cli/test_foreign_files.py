"""Files that others have written: what is no regular file is not read, nor waited for, and no
control character of a file reaches a report."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pubstorm import cli, files
from pubstorm.files import content_of, lies_in, lines_of, opened, rewrite, text_of
from pubstorm.play.directory import RunDirectory
from pubstorm.report.stored import load_run
from pubstorm.web.watch import Surroundings, Watch
from tests.kit.bounded import CONTROL, called
from tests.kit.example_run import Shape, write_run
from tests.kit.example_series import write_series

REPLACED: dict[str, Callable[[Path], object]] = {
    "FIFO": os.mkfifo,
    "folder": Path.mkdir,
    "link to a file": lambda path: path.symlink_to("/etc/hostname"),
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
    "link to itself": lambda path: path.symlink_to(path),
}
HOSTILE = "a\x1b[2Jb\x9b31m\u202ec\x00d"
FREE = {"text", "headline", "metric", "label"}
"""Fields of results that hold any text."""
SCENARIO = """\
target: mqtt://h
populations: {{d: {{clients: 1, username: u, password: "${{file:{file}}}"}}}}
stages: [connect]
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_run(tmp_path / "run", Shape(duration_s=5))
    return tmp_path / "run"


@pytest.mark.parametrize("replace", REPLACED.values(), ids=REPLACED)
@pytest.mark.parametrize(
    "file", ["result.json", "samples.csv", "snapshots.jsonl", "events.jsonl", "scenario.yaml"]
)
def test_what_is_no_file_of_a_run_is_not_read(
    run: Path, file: str, replace: Callable[[Path], object]
) -> None:
    (run / file).unlink(missing_ok=True)
    replace(run / file)
    for words in ("report RUN", "export RUN --to csv", "export RUN --to hdr", "history RUN"):
        called(*words.replace("RUN", str(run)).split())
    Watch(run, Surroundings()).poll()


@pytest.mark.parametrize("replace", REPLACED.values(), ids=REPLACED)
def test_a_secret_is_read_from_a_file_only(
    replace: Callable[[Path], object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replace(tmp_path / "secret")
    (tmp_path / "s.yaml").write_text(SCENARIO.format(file="secret"))
    code = cli.main(["check", str(tmp_path / "s.yaml")])
    is_refused = "this file cannot be read" in capsys.readouterr().err
    is_file = (tmp_path / "secret").is_file()
    assert is_refused is not is_file, "users may name links, as those of Kubernetes"
    assert code == 2 or is_file


def test_a_file_is_read_up_to_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"ab\r\ncd\n" + b"x" * 100 + b"\nef")
    assert text_of(path, 200).startswith("ab\ncd\n")
    with pytest.raises(OSError, match="it has more than 20 bytes"):
        content_of(path, 20)
    monkeypatch.setattr(files, "LINE_BYTES_MAX", 10)
    assert [*lines_of(path)] == [b"ab\r\n", b"cd\n", b"ef"]
    with pytest.raises(OSError, match="it is no path"):
        opened(tmp_path / "a\0b")
    assert not lies_in(tmp_path / "a\0b", tmp_path)


def test_no_link_leads_a_writer_to_a_file_of_others(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("as it was")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".report.md.new").symlink_to(other)
    (folder / "report.md").symlink_to(other)
    assert RunDirectory(folder).write("report.md", "text") is None
    assert (folder / "report.md").read_text() == "text"
    assert not (folder / "report.md").is_symlink()
    (folder / "link").symlink_to(other)
    with pytest.raises(OSError):
        rewrite(folder / "link", "text")
    assert other.read_text() == "as it was"


@pytest.mark.parametrize("place", ["x" * 300, "a\0b", "../other", "\ud800", "loop"])
def test_a_step_of_a_series_lies_in_its_folder(place: str, tmp_path: Path) -> None:
    folder = tmp_path / "series"
    folder.mkdir()
    (folder / "loop").symlink_to("loop")
    series = write_series(folder)
    steps = tuple(step.model_copy(update={"folder": place}) for step in series.steps)
    (folder / "series.json").write_text(
        json.dumps(series.model_copy(update={"steps": steps}).model_dump(mode="json"))
    )
    assert "warning: there is no report.html" not in called("report", str(folder))


def test_folders_may_be_nested_deeply(tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path):
        for _ in range(1200):
            Path("d").mkdir()
            os.chdir("d")
    assert "found no run in" in called("history", str(tmp_path))
    subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)


def test_tables_are_not_written_through_a_link(run: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (run / "export").symlink_to(tmp_path / "elsewhere")
    assert "is a link out of the run directory" in called("export", str(run), "--to", "csv")
    assert [*(tmp_path / "elsewhere").iterdir()] == []


def hostile(value: object) -> object:
    """Puts hostile characters into each text that may hold any."""
    match value:
        case dict():
            return {
                key: inner + HOSTILE if key in FREE and isinstance(inner, str) else hostile(inner)
                for key, inner in value.items()
            }
        case list():
            return [hostile(inner) for inner in value]
    return value


def outputs(run: Path) -> Iterator[tuple[str, str]]:
    for path in (run / "report.md", run / "report.html", run / "junit.xml", *run.glob("export/*")):
        yield path.name, path.read_text(encoding="utf-8")


def test_no_control_character_reaches_a_report(run: Path) -> None:
    stored = hostile(json.loads((run / "result.json").read_text()))
    (run / "result.json").write_text(json.dumps(stored))
    (run / "scenario.yaml").write_text(f"# {HOSTILE}\r\n")
    assert HOSTILE in load_run(run).result.verdict.headline
    for words in ("report", "export --to csv", "export --to json"):
        command, *options = words.split()
        called(command, str(run), *options)
    found = {name: CONTROL.search(text) for name, text in outputs(run)}
    assert len(found) > 6
    assert set(found.values()) == {None}
