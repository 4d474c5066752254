"""Renders stored runs and series: on the terminal, and as files beside what was stored. It reads
their folders and nothing else."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from pubstorm.report.files import Write, write_reports
from pubstorm.report.stored import load_result, load_series
from pubstorm.report.text import render
from pubstorm.result import Result

__all__ = ["Write", "load_result", "load_series", "render_directory", "write_reports"]


def render_directory(run_directory: Path, console: Console) -> Result:
    """Renders the stored result of a run directory on the terminal again, and returns it."""
    result = load_result(run_directory).model_copy(update={"run_directory": str(run_directory)})
    render(result, console)
    return result
