"""The head of a Ray cluster, watched: without it Ray goes on for a minute and then ends the program
that called it, with all that this has measured. It knows no agent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

LOOK_S = 1.0
"""How often it is looked at, and how long it may take to take a connection."""
GONE_S = 10.0
"""How long it may take none until it counts as gone."""


class HeadWatch:
    """Looks whether the head still takes connections."""

    def __init__(self, address: str, gone: Callable[[str], None]) -> None:
        """`address` is `HOST:PORT` of its GCS. `gone` is called once, with words."""
        host, _, port = address.rpartition(":")
        self._place = host.strip("[]"), int(port)
        self._gone = gone
        self._task = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Looks no longer."""
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _watch(self) -> None:
        there_s = time.monotonic()
        while time.monotonic() - there_s < GONE_S:
            if await self._is_there():
                there_s = time.monotonic()
            await asyncio.sleep(LOOK_S)
        host, port = self._place
        self._gone(f"the head of the Ray cluster, {host}:{port}, is gone")

    async def _is_there(self) -> bool:
        with suppress(OSError, TimeoutError):
            _, writer = await asyncio.wait_for(asyncio.open_connection(*self._place), LOOK_S)
            writer.close()
            return True
        return False
