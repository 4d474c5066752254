"""A series of runs: every step of a sweep in turn, each in a folder of its own. The journal stores
one table over all steps after each step. A step without a measurement ends no series; resuming
plays an interrupted step again."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from pubstorm.errors import PubstormError, StoredRunError
from pubstorm.experiment.invocation import Invocation
from pubstorm.experiment.journal import Journal, asked_again, kept_result
from pubstorm.experiment.outlook import Outlook, run_s
from pubstorm.experiment.search import play_search, settings_of
from pubstorm.experiment.search.strategy import trials_left
from pubstorm.experiment.series.figures import figures
from pubstorm.experiment.series.pivot import asked_of, pivoted
from pubstorm.experiment.series.row import cells, memory_of_steps, steady_memory, with_table
from pubstorm.experiment.series.text import text_of
from pubstorm.host.children import run_loop
from pubstorm.host.fit import unfit_here
from pubstorm.host.signals import INTERRUPTED
from pubstorm.metrics.thresholds import Threshold
from pubstorm.play.directory import new_path
from pubstorm.play.display import Live
from pubstorm.play.one_run import RUNS, RunOptions, play_scenario
from pubstorm.report import (
    SEARCH_FILE,
    SERIES_FILE,
    load_result,
    load_search,
    load_series,
)
from pubstorm.result import Result, SearchResult, Series, SeriesStep, Status
from pubstorm.result.figures import evaluate_threshold
from pubstorm.result.figures.table import shows_search
from pubstorm.scenario import Scenario, Step, Sweep
from pubstorm.scenario.load import ALONE, largest
from pubstorm.scenario.sweep import shown
from pubstorm.topology import Topology
from pubstorm.topology.adapters import broker_kinds

STEPS = "steps"
"""Folder of the steps, in that of the series."""
LABEL_CHARS_MAX = 60
"""Characters of a label in a folder's name."""


def run_series(scenario: Scenario, asked: Invocation, out: Path | None, live: Live) -> Series:
    """Plays every step of a scenario with a sweep, in a new folder or in `out`, which must be new
    or empty."""
    path = out or new_path(RUNS, scenario.name, datetime.now().astimezone())
    journal = Journal.create(path, STEPS, scenario, asked, live)
    return run_loop(_Series(scenario, journal).play())


def resume_series(path: Path, live: Live) -> Series:
    """Plays the missing steps of the series in a folder. Steps with a complete result are kept;
    other folders of steps are set aside. Raises StoredRunError if the folder has no series."""
    stored = load_series(path)
    scenario, asked = asked_again(path, stored)
    series = _Series(scenario, Journal.open(path, stored, asked, live))
    series.check(stored)
    return run_loop(series.play())


@dataclass(frozen=True, slots=True)
class _Turn:
    """One playing of a step."""

    step: Step
    row: SeriesStep
    """Row of the step before it is played."""


class _Series:
    """A series that is being played."""

    def __init__(self, scenario: Scenario, journal: Journal) -> None:
        assert scenario.sweep is not None, "only a scenario with a sweep makes a series"
        self._sweep: Sweep = scenario.sweep
        self._scenario = with_table(scenario)
        self._journal = journal
        self._live = journal.live
        self._path = journal.directory.path
        self._interrupted = journal.interrupted
        self._turns = tuple(_turns(self._scenario, journal.asked))
        self._rows = [turn.row for turn in self._turns]
        self._stopped: dict[str | None, str] = {}
        """The condition that ended each variant; the key is None in a series without variants."""
        self._outlook = Outlook()

    def check(self, stored: Series) -> None:
        """Raises StoredRunError unless the series has the steps of the stored one."""
        self._journal.check(list(map(_identity, self._rows)), list(map(_identity, stored.steps)))

    async def play(self) -> Series:
        """Plays every step that has no result yet, until the end or a stop condition."""
        return await self._journal.keep(self._play, self._store)

    async def _play(self) -> None:
        kept = [self._kept(turn) for turn in self._turns]
        self._store()
        async with contextlib.AsyncExitStack() as stack:
            topology: Topology | None = None
            if self._sweep.broker == "same":
                scenarios = [largest(turn.step.scenario) for turn in self._turns]
                brokers = self._journal.shared_brokers(scenarios)
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
                self._store()

    def _kept(self, turn: _Turn) -> Result | None:
        """Returns the result of a step that was played to its end before. Raises
        OtherFormatError."""
        folder = self._path / turn.row.folder
        if (folder / SEARCH_FILE).exists():
            return self._kept_search(turn, folder)
        result = kept_result(folder)
        if result is not None:
            self._finish(turn, result)
            self._live.step(f"{self._title(turn)}: {result.verdict.status}, played before")
        return result

    def _kept_search(self, turn: _Turn, folder: Path) -> Result | None:
        """Returns the result at the answer of a complete search; None if the search continues."""
        search = load_search(folder)
        if not search.complete:
            return None
        result = self._finish_search(turn, search)
        self._live.step(f"{self._title(turn)}: {search.status}, played before")
        return result

    async def _played(self, turn: _Turn, topology: Topology | None) -> Result | None:
        """Plays a step after the pause. Returns None without a measurement, or if the host lacks
        resources."""
        if any(row.outcome != "not played" for row in self._rows):
            await self._journal.pause(self._sweep.pause)
        if self._interrupted.is_set():
            return None
        self._live.step(self._title(turn))
        self._look_ahead(turn)
        folder = self._journal.folder(turn.row.folder)
        if turn.step.scenario.search is not None:
            return await self._searched(turn, folder, topology)
        scenario = turn.step.scenario
        if (unfit := unfit_here(scenario, broker_kinds(scenario.topology))) is not None:
            self._put(turn.row.model_copy(update={"unfit": unfit}), None)
            self._live.step(f"  not run: {unfit}")
            return None
        options = RunOptions(folder, turn.row.command, topology, self._journal.asked.reports)
        try:
            result = await play_scenario(turn.step.scenario, options, self._live)
        except PubstormError as error:
            if error.exit_code == INTERRUPTED:
                self._interrupted.set()
            else:
                self._fail(turn, error)
            return None
        self._outlook.end()
        if result.interrupted:
            self._interrupted.set()
        self._finish(turn, result)
        self._live.step(f"  {result.verdict.status}, limited by {result.verdict.limited_by}")
        return result

    def _look_ahead(self, turn: _Turn) -> None:
        """Gives the display the time of the steps after the one that begins."""
        later = [
            _turn_s(each)
            for each in self._turns[turn.row.number :]
            if self._rows[each.row.number - 1].outcome == "not played"
        ]
        self._outlook.begin(_turn_s(turn))
        self._live.after_s = self._outlook.of(sum(later), len(later))

    async def _searched(
        self, turn: _Turn, folder: Path, topology: Topology | None
    ) -> Result | None:
        """Plays a step that is a search; what its answer showed, None where there is none."""
        source = turn.step.scenario.source
        asked = replace(self._journal.asked, overrides=source.overrides, target=source.target)
        try:
            search = await play_search(turn.step.scenario, folder, asked, self._live, topology)
        except PubstormError as error:
            self._fail(turn, error)
            return None
        self._outlook.end()
        if search.interrupted:
            self._interrupted.set()
            return None
        return self._finish_search(turn, search)

    def _title(self, turn: _Turn) -> str:
        return f"step {turn.row.number} of {len(self._turns)}: {turn.row.name}"

    def _finish(self, turn: _Turn, result: Result) -> None:
        verdict = result.verdict
        evaluated = {
            "status": verdict.status,
            "limited_by": verdict.limited_by,
            "evidence": verdict.facts,
            "duration_s": result.duration_s,
            "memory": steady_memory(result),
        }
        self._put(turn.row.model_copy(update=evaluated), result)

    def _finish_search(self, turn: _Turn, search: SearchResult) -> Result | None:
        """Puts the row of a step that is a search; its figures are those at the answer."""
        folder, result = self._path / turn.row.folder, None
        shown = next((p for p in search.trials if p.number == search.answer.best_trial), None)
        if shown is not None:
            with contextlib.suppress(StoredRunError):
                result = load_result(folder / shown.folder)
        evaluated = {
            "status": search.status,
            "limited_by": search.answer.limited_by,
            "evidence": (search.answer.text,),
            "duration_s": round(sum(trial.duration_s for trial in search.trials), 3),
            "answer": search.answer,
        }
        self._put(turn.row.model_copy(update=evaluated), result, search)
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
        found = figures(asked, result, search, self._path / row.folder)
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
            elif result is not None and evaluate_threshold(result, line).passed:
                return line.source
        return None

    def _stopped_in_words(self) -> str | None:
        ended = [
            condition if variant is None else f"{variant}: {condition}"
            for variant, condition in self._stopped.items()
        ]
        return "; ".join(ended) or None

    def _store(self) -> Series:
        rows = tuple(self._rows)
        left = [row for row in rows if row.outcome == "not played"]
        over = all(row.variant in self._stopped for row in left)
        series = Series(
            **self._journal.record,
            name=self._scenario.name,
            columns=tuple(self._scenario.table),
            steps=rows,
            complete=over and not self._interrupted.is_set(),
            stopped=self._stopped_in_words(),
            memory=memory_of_steps(rows),
            tables=pivoted(self._scenario.tables, self._sweep, rows),
            text=text_of(rows, self._sweep.is_ladder),
        )
        self._journal.directory.write(SERIES_FILE, series.to_json())
        self._journal.write_reports()
        return series


def _turns(scenario: Scenario, asked: Invocation) -> Iterator[_Turn]:
    """Yields every step, with its repetitions."""
    assert scenario.sweep is not None, "only a scenario with a sweep makes a series"
    notes, repeat = scenario.sweep.notes, scenario.sweep.repeat
    repeats = range(1, repeat + 1)
    digits = max(2, len(str(len(scenario.steps) * repeat)))
    turns = itertools.product(enumerate(scenario.steps, 1), repeats)
    for number, ((place, step), repetition) in enumerate(turns, 1):
        label, values = step.played.label, step.played.values
        stem = re.sub(r"[^A-Za-z0-9._]+", "-", label)[:LABEL_CHARS_MAX].strip("-")
        suffix = f"-{repetition}" if repeat > 1 else ""
        row = SeriesStep(
            number=number,
            label=label,
            base=step.played.base,
            variant=step.variation.variant,
            values={path: shown(path, value) for path, value in values.items()},
            repetition=repetition,
            repetitions=repeat,
            folder=f"{STEPS}/{number:0{digits}}-{stem}{suffix}",
            command=asked.step_command(ALONE, step.variation.overrides.values()),
            note=notes.get(step.variation.label, notes.get(str(place), "")),
        )
        yield _Turn(step, row.model_copy(update={"cells": cells(scenario.table, row, None)}))


def _turn_s(turn: _Turn) -> float:
    """Returns the seconds of a step by its plan; of a search those of the trials to expect."""
    search = turn.step.scenario.search
    trials = 1 if search is None else trials_left(settings_of(search), ())
    return trials * run_s(turn.step.scenario)


def _identity(step: SeriesStep) -> tuple[object, ...]:
    return step.number, step.values, step.repetition, step.folder
