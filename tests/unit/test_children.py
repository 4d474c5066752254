"""What children leave behind when they end: nothing that asyncio complains of."""

from __future__ import annotations

import asyncio
import gc
import sys
from asyncio.subprocess import DEVNULL, PIPE
from typing import Any

from pubstorm.children import close_stdin

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
