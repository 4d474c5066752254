"""Processes that this host does not let start: an error with its fix, no traceback."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from pubstorm.host.children import start_failure
from pubstorm.host.machine import last_lines

START = """
import asyncio, os, resource, sys
from pathlib import Path
from pubstorm.errors import PubstormError
from pubstorm.fleet.local import LocalSlot, engine_command
from pubstorm.topology.adapters.embedded import EmbeddedBroker
from pubstorm.topology.broker import Place

def start_engine(folder):
    return LocalSlot(engine_command(Path("/bin/true"), 0, 1), folder / "log").spawn()

async def start():
    folder = Path("/nonexistent")
    for name, begin in (
        ("engine", lambda: start_engine(folder)),
        ("broker", lambda: EmbeddedBroker(Place("b-0", folder)).spawn(["/bin/true"])),
    ):
        try:
            await begin()
            print(name, "started")
        except PubstormError as error:
            print(name, error.message, "|", error.hint)

async def run():
    await asyncio.sleep(0)
    {limit}
    await start()

asyncio.run(run())
"""
NO_PROCESSES = """
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    os.geteuid() == 0 and os.setresuid(65534, 65534, 65534)
"""
NO_FILES = """
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used, used))
"""


PANIC = """\
thread 'main' panicked at /build/tokio/src/runtime/blocking/pool.rs:317:9:
{message}
stack backtrace:
   0: __rustc::rust_begin_unwind
   1: core::panicking::panic_fmt
   2: tokio::runtime::blocking::pool::Spawner::spawn_task
   3: tokio::runtime::scheduler::multi_thread::worker::Launch::launch
   4: pubstorm_broker::main
note: Some details are omitted, run with `RUST_BACKTRACE=full` for a verbose backtrace.
"""


def test_a_panic_is_quoted_without_its_backtrace(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    reason = "Resource temporarily unavailable (os error 11)"
    log.write_text(PANIC.format(message=f"OS can't spawn worker thread: {reason}"))
    found = last_lines(log)
    assert found.startswith("cannot start a thread: this host met its limit of processes")
    assert "ulimit -u unlimited" in found
    log.write_text(PANIC.format(message="index out of bounds"))
    assert last_lines(log) == "internal error: index out of bounds"
    log.write_text("one\n\ntwo\n")
    assert last_lines(log) == "one\ntwo"


def start_under(limit: str) -> list[str]:
    """Starts an engine and a broker in a process that is held short."""
    program = START.replace("{limit}", limit.strip())
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


def test_a_user_without_processes_left_is_reported() -> None:
    said = start_under(NO_PROCESSES)
    assert len(said) == 2
    for line in said:
        assert "cannot start /bin/true: " in line
        assert "this host met its limit of processes and threads | ulimit -u" in line


def test_a_process_without_files_left_is_reported() -> None:
    said = start_under(NO_FILES)
    assert len(said) == 2
    for line in said:
        assert "this host met the limit of open files of this process | ulimit -n" in line


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "a lack of memory"),
        (OSError(errno.ENFILE, "Too many open files"), "the limit of open files of the system"),
        (RuntimeError("can't start new thread"), "its limit of processes and threads"),
    ],
)
def test_the_limit_that_was_met_is_named(error: OSError | RuntimeError, words: str) -> None:
    text, hint = start_failure("engine", error)
    assert text.startswith("cannot start engine: ")
    assert text.endswith(f": this host met {words}")
    assert hint is not None


def test_another_reason_is_reported_without_a_limit() -> None:
    text, hint = start_failure("engine", OSError(errno.EACCES, "Permission denied"))
    assert (text, hint) == ("cannot start engine: Permission denied", None)
