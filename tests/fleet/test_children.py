"""Signals to child processes, and what becomes of their exit codes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys

import pytest

from pubstorm.children import signal_child, watch_children_by_descriptor


@pytest.mark.parametrize("by_descriptor", [True, False])
def test_a_signal_to_a_child_that_has_just_ended_takes_nobody_its_exit_code(
    by_descriptor: bool,
) -> None:
    async def play() -> int:
        if by_descriptor:
            watch_children_by_descriptor()
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", "raise SystemExit(7)")
        # The child has ended, and the loop does not know yet. A thread that waits for it may have
        # been first, and has handed the exit code to the loop.
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        signal_child(child, signal.SIGTERM)
        return await child.wait()

    assert asyncio.run(play()) == 7


def test_a_child_that_is_there_gets_the_signal() -> None:
    async def play() -> int:
        program = "import signal; signal.pause()"
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
        signal_child(child, signal.SIGKILL)
        code = await child.wait()
        signal_child(child, signal.SIGKILL)
        return code

    assert asyncio.run(play()) == -signal.SIGKILL
