"""Faults by command: lines that a shell runs, with a limit, a log, and words for what failed."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path

import psutil
import pytest

from pubstorm.plan.stages import Commands, PlannedFault
from pubstorm.topology.faults import CommandFaults
from tests.kit.ports import free_port

MS_NS = 10**6
LONG_NS = 600 * 10**9
LIMIT_S = 120
"""Limit of a command that exceeds it by a clock that is moved. A test has more time."""


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


async def until_started(folder: Path) -> None:
    """Waits until a command has written the process id of what it has started."""
    while not (folder / "started").exists():
        await asyncio.sleep(0.01)


async def test_a_command_runs_in_its_folder_and_its_output_is_kept(
    made: CommandFaults, tmp_path: Path
) -> None:
    assert await made.begin(fault("pwd; echo $0 $((6*7)) >&2")) == ()
    assert log(tmp_path) == f"$ pwd; echo $0 $((6*7)) >&2\n{tmp_path}\n/bin/sh 42\n"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("false", "false ended with exit code 1"),
        (
            "echo no such unit >&2; exit 5",
            "echo no such unit >&2; exit 5 ended with exit code 5: no such unit",
        ),
        ("kill -9 $$", "kill -9 $$ was ended by signal 9"),
        (
            "echo http://me:pass@broker; false",
            "echo http://***@broker; false ended with exit code 1: http://***@broker",
        ),
    ],
)
async def test_a_command_that_fails_is_reported_with_its_last_line(
    made: CommandFaults, line: str, problem: str
) -> None:
    assert await made.begin(fault(line)) == (f"{problem}; see logs/fault-slow-restart.log",)


async def test_a_command_that_takes_too_long_is_killed_with_all_that_it_started(
    made: CommandFaults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "sleep 600 & echo $! > pid; mv pid started; wait"
    task = asyncio.create_task(made.begin(fault(line, timeout_ns=LIMIT_S * 10**9)))
    await until_started(tmp_path)
    loop = asyncio.get_running_loop()
    time_s = loop.time
    monkeypatch.setattr(loop, "time", lambda: time_s() + LIMIT_S)
    (problem,) = await task
    assert problem.startswith(f"{line} did not end within 2min and was killed")
    # A killed process runs on until the kernel gives it a processor. Its parent has ended.
    with contextlib.suppress(psutil.NoSuchProcess):
        started = psutil.Process(int((tmp_path / "started").read_text()))
        while started.status() != psutil.STATUS_ZOMBIE:
            await asyncio.sleep(0.01)


async def test_a_command_that_is_cancelled_is_killed(made: CommandFaults, tmp_path: Path) -> None:
    line = "echo $$ > pid; mv pid started; exec sleep 600"
    task = asyncio.create_task(made.begin(fault(line)))
    await until_started(tmp_path)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not psutil.pid_exists(int((tmp_path / "started").read_text()))


async def test_a_repair_ends_when_its_line_and_its_condition_have_ended(
    made: CommandFaults, tmp_path: Path
) -> None:
    assert await made.repair(fault("true", "touch repaired")) == ()
    assert (tmp_path / "repaired").exists()
    (problem,) = await made.repair(fault("true", "exit 3", "touch looked"))
    assert problem.startswith("exit 3 ended")
    assert not (tmp_path / "looked").exists()
    line = "echo x >> tries; test $(wc -l < tries) = 3"
    assert await made.repair(fault("true", when=line)) == ()
    assert (tmp_path / "tries").read_text() == "x\n" * 3
    # To undo a fault is to wait for no condition.
    assert await made.undo(fault("true", "touch undone", "false")) == ()
    assert (tmp_path / "undone").exists()
    assert await made.undo(fault("true", when="false")) == ()


async def test_an_address_shows_the_end_of_a_fault_once_it_accepts(made: CommandFaults) -> None:
    port = free_port()
    waiting = asyncio.create_task(made.repair(fault("true", when=f"tcp 127.0.0.1:{port}")))
    await asyncio.wait({waiting}, timeout=0.3)
    assert not waiting.done()
    with socket.create_server(("127.0.0.1", port)):
        assert await waiting == ()


async def test_a_fault_whose_end_does_not_show_is_reported(made: CommandFaults) -> None:
    with socket.socket() as bound:
        # Bound and not listening: every connection is refused.
        bound.bind(("127.0.0.1", free_port()))
        port = bound.getsockname()[1]
        for when, text in (
            (f"tcp 127.0.0.1:{port}", f"127.0.0.1 port {port} accepted no connection"),
            ("echo not yet; false", "echo not yet; false did not exit with 0"),
        ):
            (problem,) = await made.repair(fault("true", when=when, timeout_ns=300 * MS_NS))
            assert problem.startswith(f"{text} within 300ms")


async def test_a_log_that_cannot_be_written_stops_no_command_and_a_long_line_is_shortened(
    tmp_path: Path,
) -> None:
    made = CommandFaults(tmp_path, tmp_path / "missing")
    line = f"touch done; false {'x' * 200}"
    (problem,) = await made.begin(fault(line))
    assert (tmp_path / "done").exists()
    assert problem.startswith(f"{line[:79]}… ended with exit code 1")
