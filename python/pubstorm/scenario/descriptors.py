"""Open files of a process: the limit, and the processes that a number of clients needs."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from math import ceil

UNLIMITED = 2**63
"""A limit that is none."""
DESCRIPTORS_KEPT = 200
"""Left to a process for everything that is no client."""


def allowed_descriptors() -> int:
    """Open files that a process of this user may have: the hard limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return UNLIMITED if hard == resource.RLIM_INFINITY else hard


def most_in_one(populations: Sequence[int], processes: int) -> int:
    """Clients of the process that has the most, where each population is dealt out evenly and from
    the same process on."""
    return sum(ceil(clients / processes) for clients in populations)


def processes_needed(populations: Sequence[int], descriptors: int) -> int | None:
    """The fewest processes that hold the clients of all populations, each with so many
    descriptors; None where these are too few for any number."""
    room = descriptors - DESCRIPTORS_KEPT
    if room < len(populations):
        return None
    processes = max(1, ceil(sum(populations) / room))
    while most_in_one(populations, processes) > room:
        processes += 1
    return processes
