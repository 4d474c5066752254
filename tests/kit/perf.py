"""Recordings by perf, which the product starts below a process."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psutil


def is_recording(parent: int) -> bool:
    """Returns True if a perf below a process has opened what it records. A probe of perf opens
    events, too."""
    for child in psutil.Process(parent).children(recursive=True):
        # A child may end while it is looked at.
        with contextlib.suppress(OSError, psutil.Error):
            files = map(os.readlink, Path(f"/proc/{child.pid}/fd").iterdir())
            if "record" in child.cmdline() and any("perf_event" in each for each in files):
                return True
    return False
