"""Histories of stored runs: finds the runs in folders, in the order of time, by scenario."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pubstorm.errors import StoredRunError, UsageError
from pubstorm.experiment.comparison import scenarios_unlike
from pubstorm.metrics.expressions import Expression
from pubstorm.quantities import Unit
from pubstorm.report import (
    COMPARISON_FILE,
    RESULT_FILE,
    SEARCH_FILE,
    SERIES_FILE,
    holds,
    is_stored,
    load_result,
)
from pubstorm.result import Environment
from pubstorm.result.comparison import unfit, unlike
from pubstorm.result.figures import Found, evaluate
from pubstorm.result.history import History, HistoryChange, HistoryPoint, HistorySeries, history

EXPERIMENTS = {SERIES_FILE: "a series", SEARCH_FILE: "a search", COMPARISON_FILE: "a comparison"}


@dataclass(frozen=True)
class _StoredRun:
    """The part of a run that a history keeps."""

    folder: Path
    started: datetime
    name: str
    environment: Environment
    values: tuple[Found | None, ...]
    """The figures in the order asked for."""
    left_out: str


def stored_history(folders: Sequence[Path], figures: Sequence[Expression]) -> History:
    """Returns the history of all runs in folders. A folder is a run, or contains runs at any
    depth. Raises StoredRunError if there is none, UsageError if no run has a figure."""
    runs: dict[Path, _StoredRun] = {}
    unread: list[str] = []
    for folder in folders:
        for path in _folders(folder):
            try:
                runs.setdefault(path.resolve(), _read(path, figures))
            except StoredRunError as error:
                unread.append(f"{path}: {error.message}")
    if not runs:
        text = f"found no run in {', '.join(map(str, folders))}"
        raise StoredRunError(
            f"{text}: {unread[0]}" if unread else text,
            "name folders that contain run directories, such as runs",
        )
    return _answer(sorted(runs.values(), key=lambda run: run.started), figures, unread)


def _folders(folder: Path) -> Iterator[Path]:
    """Yields the folders with something stored, in a folder or at any depth below it."""
    found = [folder]
    while found:
        folder = found.pop()
        if is_stored(folder):
            yield folder
            continue
        try:
            if not folder.is_dir():
                raise UsageError(f"found no folder {folder}", "name a folder that contains runs")
            inner = sorted(path for path in folder.iterdir() if path.is_dir())
        except OSError:
            yield folder  # what reads it says why it cannot
            continue
        found += (path for path in reversed(inner) if not path.is_symlink())


def _read(folder: Path, figures: Sequence[Expression]) -> _StoredRun:
    """Reads a run. Raises StoredRunError if the folder has none."""
    for file, words in EXPERIMENTS.items():
        if holds(folder, file):
            raise StoredRunError(f"is {words}, whose runs differ from each other")
    result = load_result(folder)
    try:
        started = datetime.fromisoformat(result.started).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        text = f"{folder / RESULT_FILE} has no time of its start: {result.started}"
        raise StoredRunError(text) from error
    found = (evaluate(result, figure) for figure in figures)
    return _StoredRun(
        folder=folder,
        started=started,
        name=result.name,
        environment=result.environment,
        values=tuple(
            each if isinstance(each, Found) and math.isfinite(each.value) else None
            for each in found
        ),
        left_out=unfit(result) or "",
    )


def _answer(
    runs: Sequence[_StoredRun], figures: Sequence[Expression], unread: Sequence[str]
) -> History:
    by_name: dict[str, list[_StoredRun]] = defaultdict(list)
    for run in runs:
        by_name[run.name].append(run)
    series = [
        _series(name, str(figure), place, found)
        for name, found in by_name.items()
        for place, figure in enumerate(figures)
        if any(run.values[place] for run in found)
    ]
    if not series:
        raise UsageError(
            f"found no {' and no '.join(map(str, figures))} in {len(runs)} runs",
            "choose a figure with --figure; the reference lists those of thresholds",
        )
    known = {str(run.folder): run for run in runs}
    answer = history(series, unread)
    named = tuple(
        each.model_copy(update={"changes": tuple(_named(each, known))}) for each in answer.series
    )
    return answer.model_copy(update={"series": named})


def _series(scenario: str, figure: str, place: int, runs: Sequence[_StoredRun]) -> HistorySeries:
    values = [run.values[place] for run in runs]
    unit: Unit = next((found.unit for found in values if found), "")
    points = [
        HistoryPoint(
            run=str(run.folder),
            started=run.started.isoformat(timespec="seconds"),
            value=found.value if found else None,
            left_out=run.left_out or ("" if found else "the run has no such figure"),
        )
        for run, found in zip(runs, values, strict=True)
    ]
    return HistorySeries(scenario=scenario, figure=figure, unit=unit, points=tuple(points))


def _named(series: HistorySeries, runs: dict[str, _StoredRun]) -> Iterator[HistoryChange]:
    """Yields the changes of a series, each with the other differences between both levels."""
    levels = [[runs[point.run] for point in level] for level in series.levels()]
    for change, before, after in zip(series.changes, levels, levels[1:], strict=False):
        environments = [[run.environment for run in level] for level in (before, after)]
        folders = [[run.folder for run in level] for level in (before, after)]
        words = (*unlike(*environments), *scenarios_unlike(folders[0][-1:], folders[1][:1]))
        yield change.model_copy(update={"unlike": words})
