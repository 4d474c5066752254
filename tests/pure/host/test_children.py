"""Signals to child processes, their exit codes, what they leave behind, and the end of a process
tree."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from pubstorm.host.children import close_stdin, run_loop, signal_child
from pubstorm.host.members import ProcessTree


@pytest.mark.parametrize("run", [run_loop, asyncio.run])
def test_a_signal_to_a_child_that_has_just_ended_keeps_its_exit_code(
    run: Callable[[Coroutine[Any, Any, int]], int],
) -> None:
    async def play() -> int:
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", "raise SystemExit(7)")
        # The child has ended, and the loop does not know yet. A thread that waits for it may have
        # been first, and has handed the exit code to the loop.
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        signal_child(child, signal.SIGTERM)
        return await child.wait()

    assert run(play()) == 7


def test_a_loop_of_another_thread_waits_for_children_after_a_run() -> None:
    async def play() -> int:
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", "raise SystemExit(7)")
        return await child.wait()

    assert run_loop(play()) == 7
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(asyncio.run(play())))
    thread.start()
    thread.join()
    assert codes == [7]


def test_a_child_that_is_there_gets_the_signal() -> None:
    async def play() -> int:
        program = "import signal; signal.pause()"
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
        signal_child(child, signal.SIGKILL)
        code = await child.wait()
        signal_child(child, signal.SIGKILL)
        return code

    assert asyncio.run(play()) == -signal.SIGKILL


CLOSES_ITS_STDIN = "import os; os.close(0)"
MORE_THAN_A_PIPE_HOLDS = b"x" * (4 << 20)


def test_a_child_that_reads_nothing_leaves_no_complaint() -> None:
    complaints: list[dict[str, Any]] = []

    async def ask() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, what: complaints.append(what))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CLOSES_ITS_STDIN, stdin=PIPE, stdout=DEVNULL
        )
        await process.communicate(MORE_THAN_A_PIPE_HOLDS)
        await close_stdin(process)
        await close_stdin(process)
        del process
        gc.collect()

    asyncio.run(ask())
    gc.collect()
    assert complaints == []


LEADING_THREAD_ENDS = """\
import ctypes, socket, sys, threading, time
listener = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print(listener.getsockname()[1], flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_without_its_leading_thread_is_still_ended(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(LEADING_THREAD_ENDS)
    leader = subprocess.Popen(
        ["sh", "-c", '"$@" & wait', "sh", sys.executable, str(program)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert leader.stdout is not None
    port = int(leader.stdout.readline())
    process_tree = ProcessTree(leader.pid)
    process_tree.look()
    leader.kill()
    leader.wait()
    asyncio.run(process_tree.end())
    leader.stdout.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 1)
