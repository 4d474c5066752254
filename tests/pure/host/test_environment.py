"""The environment that a run makes for itself."""

from __future__ import annotations

import os
import subprocess
import sys

from pubstorm.host.children import RAISED_NICE

CODE = """
import os, subprocess, threading
from pubstorm.host.children import raised_priority

with raised_priority():
    child = subprocess.run(["nice"], capture_output=True, text=True, check=True)
    print(os.getpriority(os.PRIO_PROCESS, 0), int(child.stdout))
print(os.getpriority(os.PRIO_PROCESS, 0))
"""


def nice_values(*before: str) -> list[int]:
    """Returns the nice values of a controller, of a process that it starts, and of the controller
    after its run."""
    words = [*before, sys.executable, "-c", CODE]
    run = subprocess.run(words, capture_output=True, text=True, check=True)
    return [int(word) for word in run.stdout.split()]


def test_the_controller_comes_first_and_what_it_starts_does_not() -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    may_raise = os.geteuid() == 0 and own == 0
    assert nice_values() == [RAISED_NICE if may_raise else own, own, own]


def test_a_priority_that_the_user_has_chosen_stays() -> None:
    lower = os.getpriority(os.PRIO_PROCESS, 0) + 3
    assert nice_values("nice", "-n", "3") == [lower, lower, lower]


def test_without_the_right_the_priority_stays() -> None:
    dropped = ("setpriv", "--bounding-set", "-sys_nice", "--inh-caps", "-sys_nice")
    own = os.getpriority(os.PRIO_PROCESS, 0)
    if os.geteuid() == 0:
        assert nice_values(*dropped) == [own, own, own]
