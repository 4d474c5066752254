"""The program of a broker: its path and the version that it states."""

from __future__ import annotations

import re

from pubstorm.errors import TopologyError
from pubstorm.host.machine import Machine
from pubstorm.topology.broker import ServerProcess


def installed(found: str | None, broker: ServerProcess, name: str, *, instead: str) -> str:
    """Path of a program of the system's package of its name; TopologyError where it is not."""
    if found is None:
        raise TopologyError(
            f"broker {broker.name}: {name} is not installed{broker.where}",
            f"apt-get install {name}, or use kind: {instead}",
            exit_code=2,
        )
    return found


async def stated_version(machine: Machine, program: str, option: str, pattern: str) -> str:
    """The version that a program states when it is started with an option, as the first group of
    the pattern; empty if it states none or does not start: the start of the broker reports why."""
    found = re.search(pattern, await machine.output(program, option))
    return found[1] if found else ""
