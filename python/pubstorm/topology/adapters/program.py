"""The program of a broker: that there is one, and which version it states. It starts no broker."""

from __future__ import annotations

import asyncio
import re
from asyncio.subprocess import DEVNULL, PIPE

from pubstorm.errors import TopologyError
from pubstorm.shortage import CANNOT_START


def installed(found: str | None, broker: str, name: str, *, instead: str) -> str:
    """Path of a program of the system's package of its name; TopologyError where it is not."""
    if found is None:
        raise TopologyError(
            f"broker {broker}: {name} is not installed",
            f"apt-get install {name}, or use kind: {instead}",
            exit_code=2,
        )
    return found


async def stated_version(program: str, option: str, pattern: str) -> str:
    """The version that a program states when it is started with an option, as the first group of
    the pattern; empty if it states none or does not start: the start of the broker tells why."""
    try:
        process = await asyncio.create_subprocess_exec(
            program, option, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL
        )
    except CANNOT_START:
        return ""
    output, _ = await process.communicate()
    found = re.search(pattern, output.decode(errors="replace"))
    return found[1] if found else ""
