"""A series of runs: every step of a sweep in turn, each in a folder of its own. The journal stores
one table over all steps after each step. A step without a measurement ends no series; resuming
plays an interrupted step again."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from pubstorm.errors import StoredRunError
from pubstorm.experiment.invocation import Invocation
from pubstorm.experiment.journal import Journal, Player, Runs, Turn, asked_again, kept_result
from pubstorm.experiment.search import planned_s, search_of
from pubstorm.experiment.series.figures import figures
from pubstorm.experiment.series.pivot import asked_of, pivoted
from pubstorm.experiment.series.row import cells, memory_of_steps, steady_memory, with_table
from pubstorm.experiment.series.text import text_of
from pubstorm.host.children import run_loop
from pubstorm.metrics.thresholds import Threshold
from pubstorm.play.directory import new_path
from pubstorm.play.display import Live
from pubstorm.play.one_run import RUNS
from pubstorm.report import SCENARIO_FILE, SERIES_FILE, load_result, load_series
from pubstorm.result import RunResult, SearchResult, Series, SeriesStep, Status
from pubstorm.result.figures import evaluate_threshold
from pubstorm.result.figures.table import shows_search
from pubstorm.scenario import Scenario, Sweep
from pubstorm.scenario.load import ALONE, largest
from pubstorm.scenario.sweep import shown

STEPS = "steps"
"""Folder of the steps, in that of the series."""
LABEL_CHARS_MAX = 60
"""Characters of a label in a folder's name."""


def run_series(scenario: Scenario, asked: Invocation, out: Path | None, live: Live) -> Series:
    """Plays every step of a scenario with a sweep, in a new folder or in `out`, which must be new
    or empty."""
    path = out or new_path(RUNS, scenario.name, datetime.now().astimezone())
    journal = Journal.create(path, STEPS, {SCENARIO_FILE: scenario.source_text}, live)
    return run_loop(Player(_SeriesRuns(scenario, asked, journal), journal).play())


def resume_series(path: Path, live: Live) -> Series:
    """Plays the missing steps of the series in a folder. Steps with a complete result are kept;
    other folders of steps are set aside. Raises StoredRunError if the folder has no series."""
    stored = load_series(path)
    scenario, asked = asked_again(path, stored)
    journal = Journal.open(path, stored.started, live)
    steps = _SeriesRuns(scenario, asked, journal)
    steps.check(stored)
    return run_loop(Player(steps, journal).play())


class _SeriesRuns(Runs[Series]):
    """The steps of a series that is being played."""

    def __init__(self, scenario: Scenario, asked: Invocation, journal: Journal) -> None:
        assert scenario.sweep is not None, "only a scenario with a sweep makes a series"
        self._sweep: Sweep = scenario.sweep
        self._scenario = with_table(scenario)
        self._asked = asked
        self._journal = journal
        self._path = journal.directory.path
        self._rows, self._turns = map(list, zip(*_turns(self._scenario, asked), strict=True))
        self._stopped: dict[str | None, str] = {}
        """The condition that ended each variant; the key is None in a series without variants."""
        if self._sweep.broker == "same":
            self.shared = [largest(turn.scenario) for turn in self._turns]

    def check(self, stored: Series) -> None:
        """Raises StoredRunError unless the series has the steps of the stored one."""
        self._journal.check(list(map(_identity, self._rows)), list(map(_identity, stored.steps)))

    @property
    def pause_ns(self) -> int:
        """The pause of the sweep; none before the first step."""
        is_first = all(row.outcome == "not played" for row in self._rows)
        return 0 if is_first else self._sweep.pause

    def turns(self) -> Iterator[Turn]:
        """Yields every step whose variant has not stopped. What was played before is kept, also
        should the series end before its turn."""
        for turn in self._turns:
            turn.result = kept_result(self._path / turn.folder)
            if turn.result is not None:
                self._finish(turn)
        for turn in self._turns:
            variant = self._rows[turn.number - 1].variant
            if variant in self._stopped:
                continue
            yield turn
            condition = self._condition_met(turn)
            if condition is not None:
                self._stopped[variant] = condition
            turn.result = None  # of many steps they take memory

    def take(self, turn: Turn) -> str:
        """Puts the row of a step, unless it was put before."""
        if self._rows[turn.number - 1].outcome == "not played":
            self._finish(turn)
        return turn.words

    def later_s(self, turn: Turn) -> Sequence[float]:
        later = zip(self._turns[turn.number :], self._rows[turn.number :], strict=True)
        return [each.planned_s for each, row in later if row.outcome == "not played"]

    def _finish(self, turn: Turn) -> None:
        """Puts the row of a step with its outcome. The figures of a search are those at its
        answer."""
        row, result = self._rows[turn.number - 1], self._measured(turn)
        search = turn.result if isinstance(turn.result, SearchResult) else None
        if search is not None:
            if search.interrupted:
                return
            row = row.model_copy(
                update={
                    "status": search.status,
                    "limited_by": search.answer.limited_by,
                    "evidence": (search.answer.text,),
                    "duration_s": round(sum(trial.duration_s for trial in search.trials), 3),
                    "answer": search.answer,
                }
            )
        elif result is not None:
            row = row.of_run(result, memory=steady_memory(result))
        elif turn.problem is not None:
            words = (turn.problem.message, turn.problem.hint)
            row = row.model_copy(update={"problem": "\n".join(filter(None, words))})
        else:
            row = row.model_copy(update={"unfit": turn.unfit})
        table = self._scenario.table
        asked = asked_of(self._scenario.tables, row) | {*filter(shows_search, table.values())}
        found = figures(asked, result, search, self._path / turn.folder)
        row = row.model_copy(update={"figures": found})
        self._rows[turn.number - 1] = row.model_copy(update={"cells": cells(table, row, result)})

    def _measured(self, turn: Turn) -> RunResult | None:
        """Returns the result of a step; of a search, that of the trial that shows its answer."""
        if not isinstance(turn.result, SearchResult):
            return turn.result
        best = turn.result.answer.best_trial
        shown = next((each for each in turn.result.trials if each.number == best), None)
        if shown is None:
            return None
        with contextlib.suppress(StoredRunError):
            return load_result(self._path / turn.folder / shown.folder)
        return None

    def _condition_met(self, turn: Turn) -> str | None:
        """The first of the sweep's conditions that a step fulfils."""
        row = self._rows[turn.number - 1]
        if row.unfit is not None:
            return None
        words = {Status.FAIL: "failed", Status.INVALID: "invalid", None: "invalid"}
        for line in self._sweep.stop_when:
            if not isinstance(line, Threshold):
                if line == words.get(row.status):
                    return line
            else:
                result = self._measured(turn)
                if result is not None and evaluate_threshold(result, line).passed:
                    return line.source
        return None

    def _stopped_in_words(self) -> str | None:
        ended = [
            condition if variant is None else f"{variant}: {condition}"
            for variant, condition in self._stopped.items()
        ]
        return "; ".join(ended) or None

    def store(self) -> None:
        self.finish()

    def finish(self) -> Series:
        rows = tuple(self._rows)
        left = [row for row in rows if row.outcome == "not played"]
        over = all(row.variant in self._stopped for row in left)
        series = Series(
            **self._journal.record(self._asked),
            name=self._scenario.name,
            columns=tuple(self._scenario.table),
            steps=rows,
            complete=over and not self._journal.interrupted.is_set(),
            stopped=self._stopped_in_words(),
            memory=memory_of_steps(rows),
            tables=pivoted(self._scenario.tables, self._sweep, rows),
            text=text_of(rows, self._sweep.is_ladder),
        )
        self._journal.directory.write(SERIES_FILE, series.to_json())
        if self._asked.reports:
            self._journal.write_reports()
        return series


def _turns(scenario: Scenario, asked: Invocation) -> Iterator[tuple[SeriesStep, Turn]]:
    """Yields every step with its repetitions: its row before it is played, and its turn."""
    assert scenario.sweep is not None, "only a scenario with a sweep makes a series"
    notes, repeat = scenario.sweep.notes, scenario.sweep.repeat
    total = len(scenario.steps) * repeat
    digits = max(2, len(str(total)))
    steps = itertools.product(enumerate(scenario.steps, 1), range(1, repeat + 1))
    for number, ((place, step), repetition) in enumerate(steps, 1):
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
        row = row.model_copy(update={"cells": cells(scenario.table, row, None)})
        yield (
            row,
            Turn(
                number=number,
                title=f"step {number} of {total}: {row.name}",
                scenario=step.scenario,
                folder=row.folder,
                command=row.command,
                planned_s=planned_s(step.scenario),
                reports=asked.reports,
                search=search_of(step.scenario, asked),
            ),
        )


def _identity(step: SeriesStep) -> tuple[object, ...]:
    return step.number, step.values, step.repetition, step.folder
