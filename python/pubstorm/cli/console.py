"""Standard output and standard error as commands draw on them."""

from __future__ import annotations

import sys

from pubstorm.report.text import PlainConsole

WIDE_COLUMNS = 140


def standard_output() -> PlainConsole:
    """Standard output; where it is no terminal, wide enough for every table."""
    return PlainConsole(width=None if sys.stdout.isatty() else WIDE_COLUMNS)


def standard_error() -> PlainConsole:
    """Standard error, for the display of a run."""
    return PlainConsole(stderr=True)
