"""Waits of a close. Each has a limit, so that a close returns whatever a peer, a task or the kernel
does: a process that waits for a broken disk stays after SIGKILL."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Protocol

CLOSE_S = 10.0
"""Longest wait for the end of a task that was cancelled, or of a process that was killed."""


class Ending(Protocol):
    """A process whose end can be awaited."""

    async def wait(self) -> int:
        """Returns the exit code after the end."""


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels tasks, and waits for their ends."""
    left = set(tasks)
    for task in left:
        task.cancel()
    if not left:
        return
    ended, _ = await asyncio.wait(left, timeout=CLOSE_S)
    for task in ended:
        if not task.cancelled():
            # asyncio would print an exception that is not read.
            task.exception()


async def killed(process: Ending) -> None:
    """Waits for the end of a process that was killed. One that stays is left to the kernel."""
    await asyncio.wait({asyncio.ensure_future(process.wait())}, timeout=CLOSE_S)
