"""Renders stored results. It reads the `result.json` of a run directory, or the `series.json` of a
series, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError
from rich.console import Console

from pubstorm.errors import StoredRunError
from pubstorm.report.series import render_series
from pubstorm.report.text import render
from pubstorm.result import Result, Series

RESULT_FILE = "result.json"
SERIES_FILE = "series.json"
SCENARIO_FILE = "scenario.yaml"

Stored = TypeVar("Stored", Result, Series)


def load_result(run_directory: Path) -> Result:
    """The result in a run directory, or StoredRunError."""
    hint = "name a folder that `pubstorm run` has made"
    return _load(run_directory / RESULT_FILE, Result, hint)


def load_series(directory: Path) -> Series:
    """The series in the directory of one, or StoredRunError."""
    if (directory / RESULT_FILE).exists():
        hint = "a single run is played again with pubstorm run"
    else:
        hint = "name a folder that `pubstorm run` has made of a scenario with a sweep"
    return _load(directory / SERIES_FILE, Series, hint)


def render_directory(directory: Path, console: Console) -> Result | Series:
    """Renders what is stored in a directory again, and returns it."""
    where = {"run_directory": str(directory)}
    if (directory / SERIES_FILE).exists():
        series = load_series(directory).model_copy(update=where)
        render_series(series, console)
        return series
    result = load_result(directory).model_copy(update=where)
    render(result, console)
    return result


def _load(path: Path, kind: type[Stored], hint: str) -> Stored:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise StoredRunError(f"cannot read {path}: {error.strerror}", hint) from error
    except UnicodeDecodeError as error:
        raise StoredRunError(f"{path} is not text") from error
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(step) for step in first["loc"])
        raise StoredRunError(
            f"{path} is not a {kind.__name__.lower()} of this version: {place}: {first['msg']}",
            "was it written by another version of Pubstorm?",
        ) from error
