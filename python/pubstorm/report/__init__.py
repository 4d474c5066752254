"""Renders stored results. It reads a run directory's `result.json` and nothing else."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError
from rich.console import Console

from pubstorm.errors import StoredRunError
from pubstorm.report.text import render
from pubstorm.result import Result

RESULT_FILE = "result.json"


def load_result(run_directory: Path) -> Result:
    """The result in a run directory, or StoredRunError."""
    path = run_directory / RESULT_FILE
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise StoredRunError(
            f"cannot read {path}: {error.strerror}", "name a folder that `pubstorm run` has made"
        ) from error
    except UnicodeDecodeError as error:
        raise StoredRunError(f"{path} is not text") from error
    try:
        return Result.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(step) for step in first["loc"])
        raise StoredRunError(
            f"{path} is not a result of this version: {place}: {first['msg']}",
            "was it written by another version of Pubstorm?",
        ) from error


def render_directory(run_directory: Path, console: Console) -> Result:
    """Renders the stored result of a run directory again, and returns it."""
    result = load_result(run_directory).model_copy(update={"run_directory": str(run_directory)})
    render(result, console)
    return result
