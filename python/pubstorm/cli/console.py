"""Standard output as commands write tables and verdicts to it."""

from __future__ import annotations

import sys

from rich.console import Console

WIDE_COLUMNS = 140


def standard_output() -> Console:
    """Standard output; where it is no terminal, wide enough for every table."""
    return Console(width=None if sys.stdout.isatty() else WIDE_COLUMNS)
