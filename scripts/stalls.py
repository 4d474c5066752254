"""Takes processors away from all other programs for moments, as a shared host does, until it is
killed: `scripts/stalls.py`. Needs the right to real-time priority, which root has."""

from __future__ import annotations

import os
import random
import sys
import time

APART_S = 6.0
"""Mean time between two stalls."""
SHORTEST_S, LONGEST_S = 0.3, 2.5
PRIORITY = 50
"""Real-time priority: above all programs without one."""


def main() -> int:
    """Plays stalls of all processors, and of single ones."""
    processors = sorted(os.sched_getaffinity(0))
    while True:
        time.sleep(random.expovariate(1 / APART_S))
        length_s = random.uniform(SHORTEST_S, LONGEST_S)
        taken = random.choice([processors, random.sample(processors, 1)])
        for child in [occupy(each, length_s) for each in taken]:
            if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
                return 1


def occupy(processor: int, length_s: float) -> int:
    """Keeps a processor busy in a process of its own. Returns its pid."""
    child = os.fork()
    if child:
        return child
    os.sched_setaffinity(0, {processor})
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    except PermissionError:
        print("error: no right to real-time priority\n  hint: stalls need root", file=sys.stderr)
        os._exit(1)
    end_s = time.monotonic() + length_s
    while time.monotonic() < end_s:
        pass
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
