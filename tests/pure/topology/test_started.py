"""The record of what a run has started, and how what is left of a run is found and ended by it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pubstorm.topology import started
from pubstorm.topology.credentials import forget_secrets
from pubstorm.topology.started import (
    MARK,
    STARTED_FILE,
    StartRecord,
    boot_id,
    end,
    is_alive,
    is_own,
    leftovers,
    read_record,
)

Spawn = Callable[..., "subprocess.Popen[bytes]"]
STUBBORN = "import signal; signal.signal(15, signal.SIG_IGN); print(1, flush=True); "


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Starts processes that wait, and leaves none."""
    started: list[subprocess.Popen[bytes]] = []

    def start(code: str = "", **variables: str) -> subprocess.Popen[bytes]:
        text = f"{code or 'print(1, flush=True); import signal; '}signal.pause()"
        process = subprocess.Popen(
            [sys.executable, "-c", text], stdout=subprocess.PIPE, env={**os.environ, **variables}
        )
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_record_is_read_as_it_was_written_even_if_it_was_cut_off(
    tmp_path: Path, spawn: Spawn
) -> None:
    process = spawn()
    record = StartRecord(tmp_path)
    record.note_process("never", process.pid, ())
    record.open()
    record.note_process("main-0", process.pid, ("broker", "-v"))
    record.note_namespace("pubstorm-1")
    record.close()
    with (tmp_path / STARTED_FILE).open("a") as file:
        file.write('{"kind":"process","name":"ma')
    run, main, namespace = read_record(tmp_path / STARTED_FILE)
    assert (run.kind, run.pid, is_alive(run)) == ("run", os.getpid(), True)
    assert (main.name, main.pid, main.command) == ("main-0", process.pid, ("broker", "-v"))
    assert (namespace.kind, namespace.name) == ("namespace", "pubstorm-1")
    assert is_alive(main)
    assert not is_alive(main.model_copy(update={"ticks": main.ticks + 1}))
    assert not is_alive(main.model_copy(update={"boot": "another"}))
    process.kill()
    process.wait()
    assert not is_alive(main)


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_guard_does_nothing_after_a_run_that_has_ended(
    tmp_path: Path, is_frozen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = StartRecord(tmp_path / "run" / "topology")
    record.open()
    record.guard()
    guard = record._guard
    assert guard is not None
    if is_frozen:
        guard.send_signal(signal.SIGSTOP)
        monkeypatch.setattr(started, "GUARD_END_S", 0.1)
    record.close()
    record.close()
    assert guard.returncode == (-signal.SIGKILL if is_frozen else 0)


def test_only_what_is_surely_of_the_run_is_ended(tmp_path: Path, spawn: Spawn) -> None:
    record = StartRecord(tmp_path)
    record.open()
    broker, child = spawn(**record.mark), spawn(**record.mark)
    other, reused = spawn(), spawn(STUBBORN, **{MARK: "another run"})
    record.note_process("main-0", broker.pid, ())
    record.note_process("main-1", reused.pid, ())
    record.close()
    found = [
        entry.model_copy(update={"ticks": 1}) if entry.name == "main-1" else entry
        for entry in read_record(tmp_path / STARTED_FILE)
    ]
    left = leftovers(tmp_path, found)
    assert {process.pid for process in left} == {broker.pid, child.pid}
    assert left[0].name == "main-0"
    end(left)
    assert (broker.wait(10), child.wait(10)) == (-15, -15)
    assert (other.poll(), reused.poll()) == (None, None)
    assert leftovers(tmp_path, found) == []


def test_a_record_alone_makes_no_process_one_of_the_run(tmp_path: Path, spawn: Spawn) -> None:
    """Anybody can write a record with ids and start times of other processes."""
    record = StartRecord(tmp_path)
    record.open()
    unrelated, renamed = spawn(), spawn()
    record.note_process("main-0", unrelated.pid, ("sleep", "60"))
    record.note_process("main-1", renamed.pid, (sys.executable, "redis.py"))
    record.close()
    run, *entries = read_record(tmp_path / STARTED_FILE)
    assert [is_own(each, tmp_path) for each in entries] == [False, True], "by its program"
    assert {each.pid for each in leftovers(tmp_path, entries)} == {renamed.pid}
    assert is_own(run.model_copy(update={"pid": 0}), tmp_path) is False
    other = entries[0].model_copy(update={"kind": "run"})
    assert is_own(other, tmp_path) is False, "it has no record open, and is no pubstorm"


def test_a_run_is_known_by_the_record_that_it_has_open(tmp_path: Path, spawn: Spawn) -> None:
    path = tmp_path / STARTED_FILE
    holding = f"file = open({str(path)!r}, 'a'); print(1, flush=True); import signal; "
    record = StartRecord(tmp_path)
    record.open()
    process = spawn(holding)
    record.note_process("p", process.pid, ())
    record.close()
    _, noted = read_record(path)
    assert is_own(noted.model_copy(update={"kind": "run"}), tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_the_record_of_another_user_ends_no_process_of_this_one(
    tmp_path: Path, spawn: Spawn
) -> None:
    record = StartRecord(tmp_path)
    record.open()
    process = spawn()
    record.note_process("main-0", process.pid, (sys.executable,))
    record.close()
    assert leftovers(tmp_path, read_record(tmp_path / STARTED_FILE)) != []
    os.chown(tmp_path / STARTED_FILE, 4711, 4711)
    assert leftovers(tmp_path, read_record(tmp_path / STARTED_FILE)) == []


def test_secrets_are_forgotten_in_files_of_the_run_only(tmp_path: Path) -> None:
    text = "remote_password secret\n"
    outside = tmp_path / "etc" / "mosquitto"
    outside.mkdir(parents=True)
    (outside / "mosquitto.conf").write_text(text)
    folder = tmp_path / "topology"
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "mosquitto.conf").symlink_to(outside / "mosquitto.conf")
    (folder / "b").symlink_to(outside)
    (folder / "keys").symlink_to(outside)
    assert forget_secrets(folder) == 0
    assert (outside / "mosquitto.conf").read_text() == text


def test_what_ignores_the_end_is_killed(tmp_path: Path, spawn: Spawn) -> None:
    record = StartRecord(tmp_path)
    stubborn = spawn(STUBBORN, **record.mark)
    end(leftovers(tmp_path, ()), grace_s=0.2)
    assert stubborn.wait(10) == -9


def test_a_boot_has_a_name() -> None:
    assert boot_id() == boot_id() != ""


def test_secrets_are_forgotten_and_the_rest_is_kept(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "psk.txt").write_text("a:b\n")
    (tmp_path / "boxes-0").mkdir()
    conf = tmp_path / "boxes-0" / "mosquitto.conf"
    conf.write_text("listener 1\nremote_password secret\nbridge_psk 00ff\nremote_username me\n")
    assert forget_secrets(tmp_path) == 2
    assert "secret" not in conf.read_text() and "00ff" not in conf.read_text()
    assert "listener 1\n" in conf.read_text() and "remote_username me\n" in conf.read_text()
    assert not (tmp_path / "keys").exists()
    assert forget_secrets(tmp_path) == 0
