"""The stored runs of one folder: their list, their files, and the words that play them again. Names
that come from a browser are only compared with those of the list."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pubstorm.errors import REDACTED, PubstormError, StoredRunError
from pubstorm.files import content_of, is_regular, lies_in
from pubstorm.play.directory import stored_scenario
from pubstorm.report import (
    COMPARISON_FILE,
    DATASHEET_FILE,
    DATASHEETS_FILE,
    RESULT_FILE,
    SCENARIO_FILE,
    SEARCH_FILE,
    SERIES_FILE,
    Stored,
    document_of,
    load_stored,
)
from pubstorm.result import RunResult, SearchResult, Series
from pubstorm.result.samples import START_FILE
from pubstorm.scenario.load import unchanged
from pubstorm.web.watch import REPORT_FILE

LISTED_MAX = 100
"""Runs that the page lists, the newest."""
FILE_BYTES_MAX = 2**26
"""Largest file that is served."""
RESULTS = (
    *(RESULT_FILE, SERIES_FILE, SEARCH_FILE),
    *(COMPARISON_FILE, DATASHEET_FILE, DATASHEETS_FILE),
)
STARTS = (START_FILE, SCENARIO_FILE)
"""Files of a run that has no result."""
PAGES = (f"*/*/{REPORT_FILE}", f"*/*/*/*/{REPORT_FILE}")
"""Reports of the runs of a series or search, in its folder."""
NO_RESULT = (
    "No result is stored: the run is being played, or was killed. pubstorm report makes the result "
    "of a killed run."
)


@dataclass(frozen=True, slots=True)
class StoredCommand:
    """A command line as a stored run, series or search has it."""

    name: str
    """Name of the scenario."""
    scenario: str
    """The file or the name of a ready scenario that was played."""
    overrides: tuple[str, ...]
    """`PATH=VALUE` each, without secrets."""
    target: str
    """Targets in place of the scenario's, separated by spaces."""
    text: str
    """The command line, for a shell."""

    @property
    def loss(self) -> str | None:
        """Reason why the command line alone keeps the run from being played again; None if nothing
        does."""
        lost = next((each for each in self.overrides if REDACTED in each), None)
        if lost is not None:
            return f"the secret given by --set {lost.partition('=')[0]} was not stored"
        return "the login of its target was not stored" if REDACTED in self.target else None

    def words(self, folder: Path) -> list[str]:
        """Returns the words that play it again: the file that the scenario was read from if it is
        unchanged, else the stored one. Raises StoredRunError for a secret that was not stored."""
        if self.loss is not None:
            raise StoredRunError(f"{folder.name} cannot be repeated: {self.loss}", LOST_HINT)
        path = folder / SCENARIO_FILE
        text, scenario, overrides = stored_scenario(path), self.scenario, self.overrides
        if unchanged(scenario, text) is None:
            if REDACTED in text:
                lost = f"its scenario has no secrets, and {scenario} is another one now"
                raise StoredRunError(f"{folder.name} cannot be repeated: {lost}", LOST_HINT)
            scenario = str(path.absolute())
            overrides = (*overrides, f"name={json.dumps(self.name)}")
        return ["run", *_options(self.target, overrides), "--", scenario]


def _options(target: str, overrides: tuple[str, ...]) -> Iterator[str]:
    yield from (f"--target={each}" for each in target.split())
    yield from (f"--set={each}" for each in overrides)


LOST_HINT = "start it in a terminal; ${env:NAME} in place of a secret is stored as it stands"


def command_of(stored: Stored) -> StoredCommand | None:
    """Returns the command line of what is stored; None for what no command of `pubstorm run` or
    `pubstorm bench` has played as a whole."""
    if isinstance(stored, Series | SearchResult):
        target = stored.target or ""
        words = ["pubstorm", "run", stored.scenario, *_options(target, stored.overrides)]
        text = shlex.join(words)
        return StoredCommand(stored.name, stored.scenario, stored.overrides, target, text)
    if not isinstance(stored, RunResult):
        return None
    try:
        program, verb, scenario, *options = shlex.split(stored.command)
    except ValueError:
        return None
    given: dict[str, list[str]] = {"--target": [], "--set": []}
    if (program, verb) != ("pubstorm", "run") or len(options) % 2 or {*options[::2]} - {*given}:
        return None
    for option, value in zip(options[::2], options[1::2], strict=True):
        given[option].append(value)
    overrides, target = tuple(given["--set"]), " ".join(given["--target"])
    return StoredCommand(stored.name, scenario, overrides, target, stored.command)


@dataclass(frozen=True, slots=True)
class _Mark:
    """A folder with something stored."""

    path: Path
    file: str
    """The file that shows it."""
    stamp: tuple[str, int, int]
    """The file, the time of its last change in nanoseconds, and its size in bytes."""


class RunList:
    """The runs, series, searches, comparisons and data sheets of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[str, tuple[_Mark, dict[str, Any]]] = {}
        """Rows that were read, by name."""

    def folders(self) -> dict[str, Path]:
        """Returns the folders in the folder, by name. Links are left out, and names that no page
        can show."""
        with contextlib.suppress(OSError), os.scandir(self.folder) as entries:
            return {
                each.name: self.folder / each.name
                for each in entries
                if each.name.isprintable() and each.is_dir(follow_symlinks=False)
            }
        return {}

    def folder_of(self, name: object) -> Path:
        """Returns the folder of a run. Raises StoredRunError if the list has no such name."""
        found = self.folders().get(name) if isinstance(name, str) else None
        if found is None or _mark(found) is None:
            raise StoredRunError(f"found no such run in {self.folder}", "choose one of the list")
        return found

    def again(self, name: object) -> tuple[StoredCommand, list[str]]:
        """Returns the command line of a run and the words that play it again. Raises
        StoredRunError."""
        folder = self.folder_of(name)
        command = command_of(load_stored(folder))
        if command is None:
            raise StoredRunError(f"{folder.name} was not played by pubstorm run or bench")
        return command, command.words(folder)

    def file(self, name: str, inner: str) -> bytes | None:
        """Returns the content of a file of a run, or of a report of its runs. None if the list has
        no such run or the run no such file; links are none."""
        path = self.folders().get(name)
        if path is None:
            return None
        with contextlib.suppress(OSError):
            known = {each.name: each for each in path.iterdir()}
            for pattern in PAGES:
                known |= {str(each.relative_to(path)): each for each in path.glob(pattern)}
            found = known.get(inner)
            if found is not None and lies_in(found, path):
                return content_of(found, FILE_BYTES_MAX)
        return None

    def listed(self) -> tuple[list[dict[str, Any]], int]:
        """Returns the rows of the newest runs, the newest first, and the number of the others."""
        marks = [mark for path in self.folders().values() if (mark := _mark(path)) is not None]
        marks.sort(key=lambda mark: mark.stamp[1], reverse=True)
        rows = [self._row(mark) for mark in marks[:LISTED_MAX]]
        self._read = {row["name"]: self._read[row["name"]] for row in rows}
        rows.sort(key=_started_s, reverse=True)
        return rows, len(marks) - len(rows)

    def _row(self, mark: _Mark) -> dict[str, Any]:
        name = mark.path.name
        known = self._read.get(name)
        if known is None or known[0] != mark:
            known = self._read[name] = mark, _row_of(mark)
        return known[1] | {"report": is_regular(mark.path / REPORT_FILE)}


def _mark(path: Path) -> _Mark | None:
    for file in (*RESULTS, *STARTS):
        with contextlib.suppress(OSError):
            status = (path / file).lstat()
            return _Mark(path, file, (file, status.st_mtime_ns, status.st_size))
    return None


def _row_of(mark: _Mark) -> dict[str, Any]:
    """Returns everything that the page shows of a folder."""
    changed = datetime.fromtimestamp(mark.stamp[1] / 1e9).astimezone()
    row = {
        "name": mark.path.name,
        "kind": "run",
        "title": mark.path.name,
        "started": changed.isoformat(timespec="seconds"),
        "status": "",
        "word": "",
        "headline": "",
        "compares": False,
        "command": "",
        "problem": "",
    }
    if mark.file in STARTS:
        return row | {"headline": NO_RESULT}
    try:
        return row | _shown(load_stored(mark.path))
    except PubstormError as error:
        return row | {"headline": error.message}
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        return row | {"headline": f"it cannot be shown: {type(error).__name__}: {error}"}


def _shown(stored: Stored) -> dict[str, Any]:
    document = document_of(stored)
    command = command_of(stored)
    return {
        "kind": document.kind,
        "title": document.title,
        "started": document.started,
        "status": str(document.status or ""),
        "word": document.status_word,
        "headline": document.headline or " ".join(document.statements),
        "compares": isinstance(stored, RunResult | Series | SearchResult),
        "command": "" if command is None else command.text,
        "problem": (command and command.loss) or "",
    }


def _started_s(row: dict[str, Any]) -> float:
    with contextlib.suppress(ValueError, OverflowError):
        return datetime.fromisoformat(row["started"]).timestamp()
    return 0.0
