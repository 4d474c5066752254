"""Faults by command: lines that a shell runs, with a limit, a log, and words for what failed."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import psutil
import pytest

from pubstorm.plan.faults import Commands, PlannedFault
from pubstorm.topology.commands import CommandFaults
from tests.kit.ports import free_port

MS_NS = 10**6
LONG_NS = 600 * 10**9


def fault(
    begin: str, repair: str | None = None, when: str | None = None, timeout_ns: int = LONG_NS
) -> PlannedFault:
    commands = Commands(begin, repair, when, timeout_ns)
    return PlannedFault(0, "slow / restart", "command", 0, 0, commands=commands)


@pytest.fixture
def made(tmp_path: Path) -> CommandFaults:
    (tmp_path / "logs").mkdir()
    return CommandFaults(tmp_path, tmp_path / "logs")


def log(folder: Path) -> str:
    return (folder / "logs" / "fault-slow-restart.log").read_text()


def play(step: Coroutine[Any, Any, tuple[str, ...]]) -> tuple[str, ...]:
    return asyncio.run(step)


def test_a_command_runs_in_its_folder_and_its_output_is_kept(
    made: CommandFaults, tmp_path: Path
) -> None:
    assert play(made.begin(fault("pwd; echo $0 $((6*7)) >&2"))) == ()
    assert log(tmp_path) == f"$ pwd; echo $0 $((6*7)) >&2\n{tmp_path}\n/bin/sh 42\n"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("false", "false ended with exit code 1; see logs/fault-slow-restart.log"),
        (
            "echo no such unit >&2; exit 5",
            "echo no such unit >&2; exit 5 ended with exit code 5: no such unit; see "
            "logs/fault-slow-restart.log",
        ),
        ("kill -9 $$", "kill -9 $$ was ended by signal 9; see logs/fault-slow-restart.log"),
        (
            "echo http://me:pass@broker; false",
            "echo http://***@broker; false ended with exit code 1: http://***@broker; see "
            "logs/fault-slow-restart.log",
        ),
    ],
)
def test_a_command_that_fails_is_reported_with_its_last_line(
    made: CommandFaults, line: str, problem: str
) -> None:
    assert play(made.begin(fault(line))) == (problem,)


def test_a_command_that_takes_too_long_is_killed_with_all_that_it_started(
    made: CommandFaults, tmp_path: Path
) -> None:
    line = "sleep 600 & echo $!; wait"
    (problem,) = play(made.begin(fault(line, timeout_ns=500 * MS_NS)))
    assert problem.startswith(f"{line} did not end within 500ms and was killed")
    # A killed process runs on until the kernel gives it a processor. Its parent has ended.
    with contextlib.suppress(psutil.NoSuchProcess):
        started = psutil.Process(int(log(tmp_path).splitlines()[-1]))
        deadline_s = time.monotonic() + 10
        while started.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline_s, f"{started} runs"
            time.sleep(0.01)


def test_a_command_that_is_cancelled_is_killed(made: CommandFaults, tmp_path: Path) -> None:
    async def cancel() -> None:
        task = asyncio.create_task(made.begin(fault("echo $$; exec sleep 600")))
        while not (tmp_path / "logs").glob("*.log") or "\n" not in _said(tmp_path):
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(cancel())
    assert not psutil.pid_exists(int(_said(tmp_path)))


def _said(folder: Path) -> str:
    """The output of a command so far."""
    files = [*(folder / "logs").glob("*.log")]
    return "".join(file.read_text().partition("600\n")[2] for file in files)


def test_a_repair_ends_when_its_line_and_its_condition_have_ended(
    made: CommandFaults, tmp_path: Path
) -> None:
    assert play(made.repair(fault("true", "touch repaired"))) == ()
    assert (tmp_path / "repaired").exists()
    assert play(made.repair(fault("true", "exit 3", "touch looked")))[0].startswith("exit 3 ended")
    assert not (tmp_path / "looked").exists()
    line = "echo x >> tries; test $(wc -l < tries) = 3"
    assert play(made.repair(fault("true", when=line))) == ()
    assert (tmp_path / "tries").read_text() == "x\n" * 3
    # To undo a fault is to wait for no condition.
    assert play(made.undo(fault("true", "touch undone", "false"))) == ()
    assert (tmp_path / "undone").exists()
    assert play(made.undo(fault("true", when="false"))) == ()


def test_an_address_shows_the_end_of_a_fault_once_it_accepts(made: CommandFaults) -> None:
    port = free_port()

    async def listen_later() -> tuple[str, ...]:
        waiting = asyncio.create_task(made.repair(fault("true", when=f"tcp 127.0.0.1:{port}")))
        await asyncio.wait({waiting}, timeout=0.3)
        assert not waiting.done()
        with socket.create_server(("127.0.0.1", port)):
            return await waiting

    assert play(listen_later()) == ()


@pytest.mark.parametrize("condition", ["address", "line"])
def test_a_fault_whose_end_does_not_show_is_reported(made: CommandFaults, condition: str) -> None:
    with socket.socket() as bound:
        # Bound and not listening: every connection is refused.
        bound.bind(("127.0.0.1", free_port()))
        port = bound.getsockname()[1]
        words: dict[str, tuple[str, str]] = {
            "address": (f"tcp 127.0.0.1:{port}", f"127.0.0.1 port {port} accepted no connection"),
            "line": ("echo not yet; false", "echo not yet; false did not exit with 0"),
        }
        when, text = words[condition]
        (problem,) = play(made.repair(fault("true", when=when, timeout_ns=300 * MS_NS)))
    assert problem.startswith(f"{text} within 300ms")


def test_a_log_that_cannot_be_written_stops_no_command_and_a_long_line_is_shortened(
    tmp_path: Path,
) -> None:
    made = CommandFaults(tmp_path, tmp_path / "missing")
    line = f"touch done; false {'x' * 200}"
    (problem,) = play(made.begin(fault(line)))
    assert (tmp_path / "done").exists()
    assert problem.startswith(f"{line[:79]}… ended with exit code 1")
