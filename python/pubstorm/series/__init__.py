"""A series of runs: every step of a sweep in turn, each in a folder of its own, with one table over
all that is stored after each step. A step that comes to no measurement ends no series; one that was
cut short is played again on resume. It knows the order of steps, not what a run is made of."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from pubstorm.binaries import engine_path
from pubstorm.errors import PubstormError, StoredRunError
from pubstorm.fit import unfit_here
from pubstorm.invocation import Invocation, again
from pubstorm.live import Live
from pubstorm.metrics.columns import shows_search
from pubstorm.report import (
    SCENARIO_FILE,
    SEARCH_FILE,
    SERIES_FILE,
    load_result,
    load_search,
    load_series,
    write_reports,
)
from pubstorm.result import Result, SearchResult, Series, SeriesStep, Status
from pubstorm.run import RUNS, RunOptions, caught_signals, play_scenario
from pubstorm.run_directory import RunDirectory, new_path, set_aside
from pubstorm.scenario import Scenario, Step, Sweep, Threshold
from pubstorm.scenario.load import ALONE, largest
from pubstorm.scenario.sweep import shown
from pubstorm.search import SearchOptions, play_search
from pubstorm.series.figures import figures
from pubstorm.series.memory import memory_of_steps, steady_memory
from pubstorm.series.pivot import asked_of, pivoted
from pubstorm.series.row import cells, with_table
from pubstorm.series.text import text_of
from pubstorm.shared_brokers import shared_brokers
from pubstorm.signals import INTERRUPTED
from pubstorm.topology import Topology
from pubstorm.units import write_duration
from pubstorm.verdict import judge_threshold

STEPS = "steps"
"""Folder of the steps, in that of the series."""
LABEL_CHARS_MAX = 60
"""Characters of a label in a folder's name."""


def run_series(scenario: Scenario, asked: Invocation, out: Path | None, live: Live) -> Series:
    """Plays every step of a scenario with a sweep; the series is stored in a new folder, or in
    `out`, which must be new or empty."""
    engine_path()
    started = _now()
    directory = RunDirectory.create(out or new_path(RUNS, scenario.name, started), STEPS)
    directory.write(SCENARIO_FILE, scenario.source_text)
    with contextlib.closing(directory):
        return asyncio.run(_Series(scenario, asked, directory, live).play(_iso(started)))


def resume_series(path: Path, live: Live) -> Series:
    """Plays what is missing of the series in a folder: steps that have a complete result are kept,
    a folder without one is set aside. Raises StoredRunError where that is no series."""
    stored = load_series(path)
    asked = Invocation(stored.scenario, stored.overrides, stored.target)
    scenario = again(asked, path / SCENARIO_FILE)
    series = _Series(scenario, asked, RunDirectory(path), live)
    if not series.continues(stored):
        raise StoredRunError(
            f"the steps of {path / SCENARIO_FILE} are not those of the series",
            "put the file back as it was, or start a new series",
        )
    engine_path()
    return asyncio.run(series.play(stored.started))


@dataclass(frozen=True, slots=True)
class _Turn:
    """One playing of a step."""

    step: Step
    row: SeriesStep
    """Its row before it is played."""


class _Series:
    """One series on its way."""

    def __init__(
        self, scenario: Scenario, asked: Invocation, directory: RunDirectory, live: Live
    ) -> None:
        assert scenario.sweep is not None, "only a scenario with a sweep makes a series"
        self._sweep: Sweep = scenario.sweep
        self._scenario = with_table(scenario)
        self._asked = asked
        self._directory = directory
        self._live = live
        self._turns = tuple(_turns(self._scenario, asked))
        self._rows = [turn.row for turn in self._turns]
        self._interrupted = asyncio.Event()
        self._stopped: dict[str | None, str] = {}
        """By variant, or None where there are none, the condition that ended it."""

    def continues(self, stored: Series) -> bool:
        """Whether its steps are those of the stored series."""
        return [_identity(row) for row in self._rows] == [_identity(s) for s in stored.steps]

    async def play(self, started: str) -> Series:
        """Plays every turn that has no result yet, until the end or what ends the series."""
        # Signals stay caught until the series is stored.
        with caught_signals(lambda _: self._interrupted.set()):
            await self._play(started)
            self._directory.release()
            if self._directory.failure is not None:
                self._live.warn(f"{self._directory.failure}: what is stored is not complete")
            return self._store(started)

    async def _play(self, started: str) -> None:
        kept = [self._kept(turn) for turn in self._turns]
        self._store(started)
        async with contextlib.AsyncExitStack() as stack:
            topology: Topology | None = None
            if self._sweep.broker == "same":
                scenarios = [largest(turn.step.scenario) for turn in self._turns]
                brokers = shared_brokers(scenarios, self._directory.topology, self._live.note)
                topology = await stack.enter_async_context(brokers)
            for turn, result in zip(self._turns, kept, strict=True):
                if turn.row.variant in self._stopped:
                    continue
                if result is None:
                    result = await self._played(turn, topology)
                if self._interrupted.is_set():
                    break
                condition = self._condition_met(turn, result)
                if condition is not None:
                    self._stopped[turn.row.variant] = condition
                self._store(started)

    def _kept(self, turn: _Turn) -> Result | None:
        """The result of a step that was played to its end before."""
        folder = self._directory.path / turn.row.folder
        if not folder.exists():
            return None
        if (folder / SEARCH_FILE).exists():
            return self._kept_search(turn, folder)
        with contextlib.suppress(StoredRunError):
            result = load_result(folder)
            if not result.interrupted:
                self._finish(turn, result)
                self._live.step(f"{self._title(turn)}: {result.verdict.status}, played before")
                return result
        set_aside(folder)
        return None

    def _kept_search(self, turn: _Turn, folder: Path) -> Result | None:
        """What the search of a step showed that came to its end before; another goes on."""
        search = load_search(folder)
        if not search.complete:
            return None
        result = self._finish_search(turn, search)
        self._live.step(f"{self._title(turn)}: {search.status}, played before")
        return result

    async def _played(self, turn: _Turn, topology: Topology | None) -> Result | None:
        """Plays a step, after the pause; None where it came to no measurement or does not fit."""
        if any(row.outcome != "not played" for row in self._rows):
            await self._pause()
        if self._interrupted.is_set():
            return None
        self._live.step(self._title(turn))
        if turn.step.scenario.search is not None:
            return await self._searched(turn, topology)
        if (unfit := unfit_here(turn.step.scenario)) is not None:
            self._put(turn.row.model_copy(update={"unfit": unfit}), None)
            self._live.step(f"  not run: {unfit}")
            return None
        folder = self._directory.path / turn.row.folder
        options = RunOptions(folder, turn.row.command, topology, self._asked.reports)
        try:
            result = await play_scenario(turn.step.scenario, options, self._live)
        except PubstormError as error:
            if error.exit_code == INTERRUPTED:
                self._interrupted.set()
            else:
                self._fail(turn, error)
            return None
        if result.interrupted:
            self._interrupted.set()
        self._finish(turn, result)
        self._live.step(f"  {result.verdict.status}, limited by {result.verdict.limited_by}")
        return result

    async def _searched(self, turn: _Turn, topology: Topology | None) -> Result | None:
        """Plays a step that is a search; what its answer showed, None where there is none."""
        source = turn.step.scenario.source
        asked = replace(self._asked, overrides=source.overrides, target=source.target)
        options = SearchOptions(self._directory.path / turn.row.folder, asked, topology)
        try:
            search = await play_search(turn.step.scenario, options, self._live)
        except PubstormError as error:
            self._fail(turn, error)
            return None
        if search.interrupted:
            self._interrupted.set()
            return None
        return self._finish_search(turn, search)

    async def _pause(self) -> None:
        if self._sweep.pause:
            self._live.step(f"pause of {write_duration(self._sweep.pause)}")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._interrupted.wait(), self._sweep.pause / 1e9)

    def _title(self, turn: _Turn) -> str:
        return f"step {turn.row.number} of {len(self._turns)}: {turn.row.name}"

    def _finish(self, turn: _Turn, result: Result) -> None:
        verdict = result.verdict
        judged = {
            "status": verdict.status,
            "limited_by": verdict.limited_by,
            "evidence": verdict.facts,
            "duration_s": result.duration_s,
            "memory": steady_memory(result),
        }
        self._put(turn.row.model_copy(update=judged), result)

    def _finish_search(self, turn: _Turn, search: SearchResult) -> Result | None:
        """Puts the row of a step that is a search; its figures are those at the answer."""
        folder, result = self._directory.path / turn.row.folder, None
        shown = next((p for p in search.points if p.number == search.answer.best_point), None)
        if shown is not None:
            with contextlib.suppress(StoredRunError):
                result = load_result(folder / shown.folder)
        judged = {
            "status": search.status,
            "limited_by": search.answer.limited_by,
            "evidence": (search.answer.text,),
            "duration_s": round(sum(point.duration_s for point in search.points), 3),
            "answer": search.answer,
        }
        self._put(turn.row.model_copy(update=judged), result, search)
        return result

    def _fail(self, turn: _Turn, error: PubstormError) -> None:
        words = error.message if error.hint is None else f"{error.message}\n{error.hint}"
        self._put(turn.row.model_copy(update={"problem": words}), None)
        self._live.step(f"  no measurement: {error.message}")

    def _put(
        self, row: SeriesStep, result: Result | None, search: SearchResult | None = None
    ) -> None:
        table = self._scenario.table
        asked = asked_of(self._scenario.tables, row) | {*filter(shows_search, table.values())}
        found = figures(asked, result, search, self._directory.path / row.folder)
        row = row.model_copy(update={"figures": found})
        filled = row.model_copy(update={"cells": cells(table, row, result)})
        self._rows[row.number - 1] = filled

    def _condition_met(self, turn: _Turn, result: Result | None) -> str | None:
        """The first of the sweep's conditions that a step fulfils."""
        row = self._rows[turn.row.number - 1]
        if row.unfit is not None:
            return None
        words = {Status.FAIL: "failed", Status.INVALID: "invalid", None: "invalid"}
        for line in self._sweep.stop_when:
            if not isinstance(line, Threshold):
                if line == words.get(row.status):
                    return line
            elif result is not None and judge_threshold(result, line).passed:
                return line.source
        return None

    def _stopped_in_words(self) -> str | None:
        ended = [
            condition if variant is None else f"{variant}: {condition}"
            for variant, condition in self._stopped.items()
        ]
        return "; ".join(ended) or None

    def _store(self, started: str) -> Series:
        rows = tuple(self._rows)
        left = [row for row in rows if row.outcome == "not played"]
        over = all(row.variant in self._stopped for row in left)
        series = Series(
            name=self._scenario.name,
            scenario=self._asked.scenario,
            target=self._asked.target,
            overrides=self._asked.stored_overrides,
            run_directory=str(self._directory.path),
            started=started,
            ended=_iso(_now()),
            columns=tuple(self._scenario.table),
            steps=rows,
            complete=over and not self._interrupted.is_set(),
            interrupted=self._interrupted.is_set(),
            stopped=self._stopped_in_words(),
            memory=memory_of_steps(rows),
            tables=pivoted(self._scenario.tables, self._sweep, rows),
            text=text_of(rows, self._sweep.is_ladder),
        )
        self._directory.write(SERIES_FILE, series.to_json())
        if self._asked.reports:
            for problem in write_reports(self._directory.path, self._directory.write):
                self._live.warn(problem)
        return series


def _turns(scenario: Scenario, asked: Invocation) -> Iterator[_Turn]:
    """Every step as often as it is repeated."""
    assert scenario.sweep is not None, "only a scenario with a sweep makes a series"
    notes, repeat = scenario.sweep.notes, scenario.sweep.repeat
    repeats = range(1, repeat + 1)
    digits = max(2, len(str(len(scenario.steps) * repeat)))
    turns = itertools.product(enumerate(scenario.steps, 1), repeats)
    for number, ((place, step), repetition) in enumerate(turns, 1):
        label, values = step.variation.label, step.variation.values
        stem = re.sub(r"[^A-Za-z0-9._]+", "-", label)[:LABEL_CHARS_MAX].strip("-")
        suffix = f"-{repetition}" if repeat > 1 else ""
        row = SeriesStep(
            number=number,
            label=label,
            base=step.variation.base,
            variant=step.variation.variant,
            values={path: shown(path, value) for path, value in values.items()},
            repetition=repetition,
            repetitions=repeat,
            folder=f"{STEPS}/{number:0{digits}}-{stem}{suffix}",
            command=asked.step_command(ALONE, step.variation.overrides.values()),
            note=notes.get(label, notes.get(str(place), "")),
        )
        yield _Turn(step, row.model_copy(update={"cells": cells(scenario.table, row, None)}))


def _identity(step: SeriesStep) -> tuple[object, ...]:
    return step.number, step.values, step.repetition, step.folder


def _now() -> datetime:
    return datetime.now().astimezone()


def _iso(time: datetime) -> str:
    return time.isoformat(timespec="seconds")
