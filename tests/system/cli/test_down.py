"""`pubstorm down` as its user sees it."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pubstorm import cli
from pubstorm.contract.target import Target
from pubstorm.play.directory import RunDirectory
from pubstorm.topology.started import STARTED_FILE, StartRecord

Shell = Callable[..., tuple[int, str, str]]
NOTHING = "nothing is left of this run\n"


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    """Runs a command line beside a run directory `run`; exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    Path("run").mkdir()
    Path("run/scenario.yaml").touch()

    def call(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(arguments)
        return (code, *capsys.readouterr())

    return call


@contextmanager
def recording(folder: Path) -> Iterator[StartRecord]:
    """The record of a run that has ended, open for more."""
    record = StartRecord(folder)
    record.open()
    path = folder / STARTED_FILE
    path.write_text(path.read_text().replace(f'"pid":{os.getpid()},', '"pid":4194305,'))
    yield record
    record.close()


def test_a_folder_without_a_run_is_an_error(shell: Shell) -> None:
    hint = "  hint: name a folder that `pubstorm run` has made\n"
    assert shell("down", ".") == (2, "", f"error: found no run in .\n{hint}")


def test_a_run_that_left_nothing_has_nothing_left(shell: Shell) -> None:
    assert shell("down", "run") == (0, NOTHING, "")
    with recording(Path("run/topology")):
        pass
    assert shell("down", "run") == (0, NOTHING, "")


def test_a_run_that_goes_on_is_left_alone(shell: Shell) -> None:
    record = StartRecord(Path("run/topology"))
    record.open()
    record.close()
    pid = os.getpid()
    assert shell("down", "run") == (
        2,
        "",
        f"error: the run in run is active: pubstorm has pid {pid}\n"
        f"  hint: end it with Ctrl-C or kill {pid}, or give --force\n",
    )


def test_a_series_between_two_runs_is_left_alone(shell: Shell) -> None:
    with RunDirectory(Path("run")):
        code, _, errors = shell("down", "run")
        assert (code, f"pubstorm has pid {os.getpid()}" in errors) == (2, True)
    assert shell("down", "run") == (0, NOTHING, "")


@pytest.mark.parametrize(
    "folder",
    [
        "run/topology",
        "run/steps/01-a/topology",
        "run/trials/001-a/topology",
        "run/steps/01-a/trials/001-a/topology",
        "run/runs/01-baseline/topology",
        "run/runs/01-baseline/trials/001-a/topology",
    ],
)
def test_what_a_run_a_series_or_a_search_left_is_taken_down(shell: Shell, folder: str) -> None:
    path = Path(folder, "keys")
    path.mkdir(parents=True)
    (path / "psk.txt").touch()
    with recording(Path(folder)) as record:
        left = subprocess.Popen(["sleep", "60"], env={**os.environ, **record.mark})
        record.note_process("main-0", left.pid, ("sleep", "60"))
    try:
        assert shell("down", "run") == (
            0,
            f"ended 1 process: main-0 (pid {left.pid})\n"
            f"deleted keys and passwords, in 1 file of {folder}\n{NOTHING}",
            "",
        )
        assert left.wait(10) == -15
    finally:
        left.kill()
        left.wait()
    assert shell("down", "run") == (0, NOTHING, "")


def test_what_a_run_needs_only_while_it_goes_on_is_deleted(shell: Shell) -> None:
    for folder in ("run", "run/steps/01-a", "run/trials/001-a"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, ".reserve").touch()
        Path(folder, "control.sock").touch()
    code, text, _ = shell("down", "run")
    assert code == 0
    assert "deleted run/.reserve\ndeleted run/control.sock\n" in text
    assert not [*Path("run").rglob(".reserve"), *Path("run").rglob("control.sock")]


def test_a_network_that_is_left_is_removed(shell: Shell) -> None:
    name = f"pubstorm-{secrets.token_hex(4)}-uplink"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    if made.returncode != 0:
        pytest.skip("making a network namespace needs root and iproute2")
    with recording(Path("run/topology")) as record:
        record.note_namespace(name)
    assert shell("down", "run") == (0, f"removed the network namespace {name}\n{NOTHING}", "")
    assert not Path("/run/netns", name).exists()
    assert shell("down", "run") == (0, NOTHING, "")


def test_what_bridges_published_elsewhere_is_left_to_the_user(shell: Shell) -> None:
    with recording(Path("run/topology")) as record:
        record.note_bridged(Target(host="h", port=1), "pubstorm/bridge/up/+")
    code, text, _ = shell("down", "run")
    assert code == 0
    command = "mosquitto_sub -h h -p 1 -t pubstorm/bridge/up/+ --retained-only --remove-retained"
    assert command in text
