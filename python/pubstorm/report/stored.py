"""A stored run, experiment or data sheet, with the files beside the result. Missing and broken
files are problems in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import from_json

from pubstorm.errors import OtherFormatError, StoredRunError
from pubstorm.files import content_of, lies_in, text_of
from pubstorm.result import RunResult, SearchResult, Series
from pubstorm.result.comparison import Comparison
from pubstorm.result.datasheet import Datasheet
from pubstorm.result.datasheet_comparison import SheetComparison
from pubstorm.result.samples import (
    RUN_FORMAT,
    SAMPLES_FILE,
    START_FILE,
    Tracks,
    read_samples,
)

RESULT_FILE = "result.json"
SERIES_FILE = "series.json"
SEARCH_FILE = "search.json"
COMPARISON_FILE = "comparison.json"
DATASHEET_FILE = "datasheet.json"
DATASHEETS_FILE = "datasheets.json"
ASKED_FILE = "asked.json"
"""The question of a comparison that is played."""
SCENARIO_FILE = "scenario.yaml"
FOLDED_FILE = "profile/folded.txt"

Stored = RunResult | Series | SearchResult | Comparison | Datasheet | SheetComparison
"""Everything that a folder can store."""
V = TypeVar("V", RunResult, Series, SearchResult, Comparison, Datasheet, SheetComparison)

Write = Callable[[str, str], str | None]
"""Puts a file with this name and text in place. Returns why it could not; None if it could."""


@dataclass(frozen=True)
class Text:
    """A text file of the run, or why there is none."""

    text: str = ""
    problem: str | None = None
    """Why it cannot be shown; None: it can."""


@dataclass(frozen=True)
class StoredRun:
    """Everything that a report shows."""

    path: Path
    """The run directory."""
    result: RunResult
    """The result with its verdict."""
    tracks: Tracks
    """The samples; empty where there are none."""
    tracks_problem: str | None
    """Why there are no samples; None: there are."""
    scenario: Text
    """The scenario as it was written."""
    folded: Text
    """The folded stacks of the profile."""


def holds(folder: Path, file: str) -> bool:
    """Returns True if a folder has a file. Returns False for a folder that cannot be read: the
    caller that reads the folder raises the reason."""
    try:
        return (folder / file).exists()
    except (OSError, ValueError):
        return False


def load_result(run_directory: Path) -> RunResult:
    """The result in a run directory, or StoredRunError."""
    hint = "name a folder that `pubstorm run` has made"
    if holds(run_directory, SCENARIO_FILE):
        hint = "the run is active, or was killed: pubstorm report RUN_DIR makes its result then"
    elif holds(run_directory, ASKED_FILE):
        hint = "the comparison is active, or was killed: pubstorm run --resume continues it then"
    check_format(run_directory)
    return _load(run_directory / RESULT_FILE, RunResult, hint)


def check_format(run_directory: Path) -> None:
    """Raises StoredRunError if a run is stored in another format than that of this version. A
    start that is missing or broken is for the readers that need it."""
    with suppress(OSError, ValueError, AttributeError):
        start = from_json(content_of(run_directory / START_FILE))
        if (found := start.get("format", 1)) != RUN_FORMAT:
            raise _of_other_format(run_directory, found, RUN_FORMAT)


def _of_other_format(path: Path, found: object, read: int) -> OtherFormatError:
    text = f"{path} is stored in format {found}, this version reads {read}"
    return OtherFormatError(text, "read it with the version of Pubstorm that wrote it")


def load_series(series_directory: Path) -> Series:
    """The series in its folder, or StoredRunError."""
    if holds(series_directory, RESULT_FILE):
        hint = "a single run is played again with pubstorm run"
    else:
        hint = "name a folder that `pubstorm run` has made of a scenario with a sweep"
    return _load(series_directory / SERIES_FILE, Series, hint)


def load_search(search_directory: Path) -> SearchResult:
    """The search in its folder, or StoredRunError."""
    hint = "name a folder that `pubstorm run` has made of a scenario with a search"
    return _load(search_directory / SEARCH_FILE, SearchResult, hint)


def load_comparison(directory: Path) -> Comparison:
    """The comparison in its folder, or StoredRunError."""
    hint = "name a folder that `pubstorm compare` has made"
    return _load(directory / COMPARISON_FILE, Comparison, hint)


def load_datasheet(directory: Path) -> Datasheet:
    """The data sheet in its folder, or StoredRunError."""
    hint = "name a folder that `pubstorm datasheet` has made"
    return _load(directory / DATASHEET_FILE, Datasheet, hint)


def load_datasheets(directory: Path) -> SheetComparison:
    """The comparison of data sheets in its folder, or StoredRunError."""
    hint = "name a folder that `pubstorm datasheet compare` has made"
    return _load(directory / DATASHEETS_FILE, SheetComparison, hint)


def load_stored(directory: Path) -> Stored:
    """The data sheets, series, search, comparison or run in a folder. Raises StoredRunError if the
    folder has none."""
    for file, load in _LOADERS.items():
        if holds(directory, file):
            return load(directory)
    return load_result(directory)


_LOADERS: Mapping[str, Callable[[Path], Stored]] = {
    DATASHEETS_FILE: load_datasheets,
    DATASHEET_FILE: load_datasheet,
    SERIES_FILE: load_series,
    SEARCH_FILE: load_search,
    COMPARISON_FILE: load_comparison,
}
"""Loaders of experiments, by the file that their folders have."""


def load_run(run_directory: Path) -> StoredRun:
    """The result and all that belongs to it; StoredRunError only where there is no result."""
    result = load_result(run_directory).model_copy(update={"run_directory": str(run_directory)})
    tracks, problem = load_tracks(run_directory)
    folded_file = result.profile.folded_file if result.profile else None
    return StoredRun(
        path=run_directory,
        result=result,
        tracks=tracks,
        tracks_problem=problem,
        scenario=_text(run_directory, SCENARIO_FILE),
        folded=_text(run_directory, folded_file or FOLDED_FILE),
    )


def load_tracks(run_directory: Path) -> tuple[Tracks, str | None]:
    """The samples of a run, and why there are none."""
    try:
        tracks = read_samples(run_directory)
    except OSError as error:
        return {}, f"{SAMPLES_FILE} cannot be read: {error.strerror}"
    except ValueError:
        return {}, f"{SAMPLES_FILE} is not text"
    return tracks, None if tracks else f"{SAMPLES_FILE} holds no reading"


def _load(path: Path, model: type[V], hint: str) -> V:
    try:
        text = text_of(path)
    except OSError as error:
        raise StoredRunError(f"cannot read {path}: {error.strerror}", hint) from error
    except UnicodeDecodeError as error:
        raise StoredRunError(f"{path} is not text") from error
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        if first["loc"] == ("format",):
            raise _of_other_format(path, first["input"], model.FORMAT) from error
        place = ".".join(str(step) for step in first["loc"])
        if not place:  # no JSON object
            raise StoredRunError(f"{path} is broken: {first['msg']}") from error
        raise StoredRunError(
            f"{path} is not a {path.stem} of this version: {place}: {first['msg']}",
            "was it written by another version of Pubstorm?",
        ) from error


def _text(run_directory: Path, file: str) -> Text:
    path = run_directory / file
    try:
        if not lies_in(path, run_directory):
            return Text(problem=f"{file} lies outside the run directory")
        return Text(text_of(path))
    except OSError as error:
        return Text(problem=f"{file} cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        return Text(problem=f"{file} is not text")
