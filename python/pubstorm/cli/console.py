"""Standard output as commands write tables and verdicts to it."""

from __future__ import annotations

import sys

from pubstorm.report.console import PlainConsole

WIDE_COLUMNS = 140


def standard_output() -> PlainConsole:
    """Standard output; where it is no terminal, wide enough for every table."""
    return PlainConsole(width=None if sys.stdout.isatty() else WIDE_COLUMNS)
