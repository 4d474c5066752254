"""A series of runs: every step of a sweep in turn, each in a folder of its own. The journal stores
the tables over all steps after each step: rows of figures, words and answers of searches, memory by
connections, and a conclusion for each variant. A step without a measurement ends no series;
resuming plays an interrupted step again."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import groupby
from pathlib import Path

from pubstorm.errors import StoredRunError
from pubstorm.experiment.invocation import Invocation
from pubstorm.experiment.player import (
    Journal,
    Player,
    Runs,
    Turn,
    asked_again,
    kept_result,
    warm_up_of,
)
from pubstorm.experiment.search import planned_s, search_of
from pubstorm.host.children import run_loop
from pubstorm.measure.summary.memory import fitted
from pubstorm.metrics import expressions_of
from pubstorm.metrics.expressions import Threshold, parse_expression
from pubstorm.play.directory import new_path
from pubstorm.play.display import Live
from pubstorm.play.one_run import RUNS
from pubstorm.quantities import value_text
from pubstorm.report import SCENARIO_FILE, SERIES_FILE, load_result, load_series
from pubstorm.result import (
    Cell,
    Estimate,
    LimitedBy,
    MemoryModel,
    MemoryPoint,
    RunResult,
    SearchResult,
    Series,
    SeriesCell,
    SeriesStep,
    SeriesTable,
    Status,
    StepFigure,
    Trial,
)
from pubstorm.result.figures import ROUND_TRIP, Missing, evaluate, evaluate_threshold
from pubstorm.result.figures.table import asked_trials, shows_scenario, shows_search, word
from pubstorm.result.figures.table import cells as measured_cells
from pubstorm.result.interval import estimate_of
from pubstorm.result.search import NOT_PASSED
from pubstorm.scenario import Scenario, Sweep
from pubstorm.scenario.flows import MqttPublication
from pubstorm.scenario.load import ALONE, largest
from pubstorm.scenario.series import STEP, TableColumn, shown
from pubstorm.scenario.shares import shares_of

DEFAULT_TABLE = {
    "step": "step",
    **expressions_of("steps"),
    "verdict": "verdict",
    "limited by": "limited_by",
}
"""The table of a scenario that has none of its own."""


def with_table(scenario: Scenario) -> Scenario:
    """The scenario, with the default table where it has none. Only requests have round trips."""
    if scenario.table:
        return scenario
    flows = (flow for each in shares_of(scenario).values() for flow in each.population.flows)
    asks = any(isinstance(flow, MqttPublication) and flow.request for flow in flows)
    columns = DEFAULT_TABLE.items()
    table = {head: text for head, text in columns if asks or not text.startswith(ROUND_TRIP)}
    return scenario.model_copy(update={"table": table})


def cells(table: Mapping[str, str], step: SeriesStep, result: RunResult | None) -> tuple[Cell, ...]:
    """The cells of a step under the headings of a table."""
    measured = {} if result is None else measured_cells(table, result)
    own = (_own(column, step) for column in table.values())
    return tuple(
        measured.get(heading, Cell()) if cell is None else cell
        for heading, cell in zip(table, own, strict=True)
    )


def value_cell(value: str) -> Cell:
    """A value that steps vary, as a cell."""
    is_count = value.isascii() and value.isdigit()
    return Cell(value=int(value)) if is_count else Cell(word=value)


def _own(column: str, step: SeriesStep) -> Cell | None:
    """Returns a cell that needs no result: a word of the step, or a value that the step changes.
    None for other columns."""
    if column in step.values:
        return value_cell(step.values[column])
    if shows_search(column):
        figure = step.figures.get(column)
        return Cell() if figure is None else Cell.of(figure.estimate, figure.word)
    words = {
        "step": step.name,
        "note": step.note,
        "command": step.command,
        "verdict": step.outcome,
        "limited_by": None if step.limited_by is None else str(step.limited_by),
    }
    if column == "number":
        return Cell(value=step.number)
    said = words.get(column)
    return None if said is None else Cell(word=said)


def steady_memory(result: RunResult) -> dict[str, MemoryPoint]:
    """Returns the memory of each subject of a step under steady load."""
    return {model.subject: model.steady for model in result.memory if model.steady is not None}


def memory_of_steps(steps: Iterable[SeriesStep]) -> tuple[MemoryModel, ...]:
    """The lines through the steps of whatever has one."""
    points: dict[str, list[MemoryPoint]] = {}
    for step in steps:
        for subject, point in step.memory.items():
            points.setdefault(subject, []).append(point)
    models = (fitted(subject, each, points_min=STEPS_MIN) for subject, each in points.items())
    return tuple(model for model in models if model.problem is None)


STEPS_MIN = 3
"""Steps with different numbers of connections from which a line is fitted."""


def figures(
    columns: Iterable[str], result: RunResult | None, search: SearchResult | None, folder: Path
) -> dict[str, StepFigure]:
    """Each column's figure of a step that was played, as far as it has one. `folder` is the step's,
    with the trials of its search."""
    found = {column: _figure(column, result, search, folder) for column in columns}
    return {column: figure for column, figure in found.items() if figure is not None}


def _figure(
    column: str, result: RunResult | None, search: SearchResult | None, folder: Path
) -> StepFigure | None:
    trial, asked = asked_trials(column)
    if search is not None and trial is not None:
        return _at_trials(asked, trials_of(search, trial), folder)
    if search is not None and shows_search(column):
        return _of_search(column, search)
    if result is None or shows_scenario(column) or shows_search(column):
        return None
    return _of_result(column, result)


def trials_of(search: SearchResult, word: str) -> list[Trial]:
    """The trials that stand for what a search found. For `search.best` this is the one that shows
    its answer; for `search.most` those that its mean comes from. Where none of those was counted
    they are shown all the same, with who set the limit."""
    by_number = {trial.number: trial for trial in search.trials}
    if word == "search.best":
        shown = by_number.get(search.answer.best_trial or 0)
        return [] if shown is None else [shown]
    measured = [trial for trial in search.trials if trial.figure is not None]
    shown = by_number.get(search.answer.most_trial or 0)
    largest = shown or max(measured, key=lambda trial: trial.figure or 0.0, default=None)
    if largest is None:
        return []
    alike = [p for p in measured if p.value == largest.value and p.counted == largest.counted]
    # A trial that was found as the largest of many is larger than it would be alone.
    return [p for p in alike if p.phase == "most"] or [
        max(alike, key=lambda trial: trial.figure or 0.0)
    ]


def _of_search(column: str, search: SearchResult) -> StepFigure:
    answer = search.answer
    if column == "search.trials":
        return StepFigure(estimate=estimate_of([answer.trials], ""))
    if column == "search.limited_by":
        return StepFigure(word=str(answer.limited_by or ""))
    if column == "search.most":
        return StepFigure(estimate=answer.most, limited_by=_limit(trials_of(search, column)))
    return StepFigure(estimate=answer.best, limited_by=answer.limited_by, remark=search.remark)


def _at_trials(column: str, trials: Sequence[Trial], folder: Path) -> StepFigure | None:
    """The mean of a figure over trials, or what the last of them says."""
    found = []
    for trial in trials:
        with suppress(StoredRunError):
            found.append(_of_result(column, load_result(folder / trial.folder)))
    if not found:
        return None
    estimates = [figure.estimate for figure in found if figure.estimate is not None]
    if not estimates:
        return found[-1]
    mean = estimate_of([estimate.value for estimate in estimates], estimates[0].unit)
    return StepFigure(estimate=mean, limited_by=_limit(trials))


def _of_result(column: str, result: RunResult) -> StepFigure:
    said = word(column, result)
    limited_by = result.verdict.limited_by
    if said is not None:
        estimate = None if said.value is None else estimate_of([said.value], said.unit)
        return StepFigure(estimate=estimate, word=said.word)
    found = evaluate(result, parse_expression(column))
    if isinstance(found, Missing):
        return StepFigure(limited_by=limited_by, remark=found.reason)
    bound = value_text(found.bound, found.unit)
    remark = f"clocks of several hosts made it: ± {bound}" if found.bound else None
    estimate = estimate_of([found.value], found.unit)
    return StepFigure(estimate=estimate, limited_by=limited_by, remark=remark)


def _limit(trials: Sequence[Trial]) -> LimitedBy | None:
    """Returns what set the limit at the last of several trials."""
    return trials[-1].limited_by if trials else None


Columns = Mapping[str, TableColumn]
LIMITS = {
    LimitedBy.GENERATOR: "the load generator set the limit",
    LimitedBy.HOST: "this host set the limit",
}
"""Limits that a figure shows of something other than what is under test."""


def pivoted(
    tables: Mapping[str, Columns], sweep: Sweep, steps: Sequence[SeriesStep]
) -> tuple[SeriesTable, ...]:
    """The tables as far as the steps have been played; columns of variants that are not played are
    left out, and tables of such columns alone."""
    of_played = {title: _of_played(columns, sweep) for title, columns in tables.items()}
    return tuple(
        _table(title, columns, sweep, steps)
        for title, columns in of_played.items()
        if any(column.variant is not None for column in columns.values()) or not sweep.variants
    )


def asked_of(tables: Mapping[str, Columns], step: SeriesStep) -> set[str]:
    """Returns the figures of a step that any table shows."""
    columns = [column for table in tables.values() for column in table.values()]
    return {column.metric for column in columns if column.variant == step.variant}


def _of_played(columns: Columns, sweep: Sweep) -> Columns:
    return {
        heading: column
        for heading, column in columns.items()
        if column.variant is None or column.variant in sweep.played
    }


def _table(title: str, columns: Columns, sweep: Sweep, steps: Sequence[SeriesStep]) -> SeriesTable:
    rows = [list(group) for _, group in groupby(steps, key=lambda step: step.base)]
    return SeriesTable(
        title=title,
        columns=tuple(columns),
        rows=tuple(tuple(_cell(column, sweep, row) for column in columns.values()) for row in rows),
    )


def _cell(column: TableColumn, sweep: Sweep, row: Sequence[SeriesStep]) -> SeriesCell:
    if column.metric == STEP:
        return SeriesCell(word=row[0].base)
    if column.shows_step(sweep.names):
        paths = (path for path, name in sweep.names.items() if column.metric in {path, name})
        cell = value_cell(row[0].values.get(next(paths), ""))
        return SeriesCell(value=cell.value, word=cell.word)
    steps = [step for step in row if step.variant == column.variant]
    figures = [step.figures[column.metric] for step in steps if column.metric in step.figures]
    remarks = [remark for step in steps if (remark := _unmeasured(step)) is not None]
    remarks += [remark for figure in figures for remark in _remarks(figure)]
    estimate = _together([f.estimate for f in figures if f.estimate is not None])
    words = dict.fromkeys(figure.word for figure in figures if figure.word)
    cell = Cell.of(estimate, ", ".join(words))
    return SeriesCell(**dict(cell), remarks=tuple(dict.fromkeys(remarks)))


def _unmeasured(step: SeriesStep) -> str | None:
    if step.unfit is not None:
        return f"not run: {step.unfit}"
    return None if step.problem is None else "it came to no measurement"


def _remarks(figure: StepFigure) -> list[str]:
    limit = LIMITS.get(figure.limited_by) if figure.limited_by is not None else None
    return [remark for remark in (limit, figure.remark) if remark is not None]


def _together(estimates: Sequence[Estimate]) -> Estimate | None:
    """One estimate of all repeats of a step: at least their mean, where one is a lower bound."""
    if len(estimates) < 2:
        return estimates[0] if estimates else None
    mean = estimate_of([estimate.value for estimate in estimates], estimates[0].unit)
    is_bound = any(estimate.bound == "at_least" for estimate in estimates)
    return mean.model_copy(update={"bound": "at_least"}) if is_bound else mean


def text_of(steps: Sequence[SeriesStep], is_ladder: bool) -> str:
    """The line for steps in the order of playing; of a ladder, where a value grows from step to
    step and none is a search, it says how far it passed. With variants a line for each."""
    is_ladder = is_ladder and not any(step.answer for step in steps)
    variants = dict.fromkeys(step.variant for step in steps)
    return "\n".join(_of_variant(variant, steps, is_ladder) for variant in variants)


def _of_variant(variant: str | None, steps: Sequence[SeriesStep], is_ladder: bool) -> str:
    if variant is None:
        return _line(steps, is_ladder)
    own = [s.model_copy(update={"label": s.base}) for s in steps if s.variant == variant]
    return f"{variant}: {_line(own, is_ladder)}"


def _line(steps: Sequence[SeriesStep], is_ladder: bool) -> str:
    unfit = [f"{step.name} not run: {step.unfit}" for step in steps if step.unfit is not None]
    played = [step for step in steps if step.was_played]
    if not played:
        return "; ".join(["no step was played", *unfit])
    parts = [_ladder(played) if is_ladder else _counts(played), _first_failed(played)]
    left = len(steps) - len(played) - len(unfit)
    parts += [f"{left} of {len(steps)} steps not played"] if left else []
    parts += unfit
    return "; ".join(part for part in parts if part)


def _ladder(played: Sequence[SeriesStep]) -> str:
    """Returns the last step up to which every repeat passed."""
    groups = [list(group) for _, group in groupby(played, key=lambda step: step.label)]
    failed = next((n for n, group in enumerate(groups) if not all(map(_passed, group))), None)
    if failed == 0:
        return "not even the first step passed"
    last = groups[-1 if failed is None else failed - 1][0].label
    passed = f"passed up to {last}"
    if failed is None:
        return f"{passed}, the last step played"
    after = groups[failed + 1 :]
    again = sum(all(map(_passed, group)) for group in after)
    return f"{passed}, and in {again} of {len(after)} steps beyond the failure" if again else passed


def _counts(played: Sequence[SeriesStep]) -> str:
    total = len(played)
    noun = "step" if total == 1 else "steps"
    outcomes = [step.outcome for step in played]
    parts = [f"{outcomes.count('pass')} of {total} {noun} passed"]
    parts += [f"{outcomes.count(o)} {word}" for o, word in NOT_PASSED.items() if o in outcomes]
    return ", ".join(parts)


def _first_failed(played: Sequence[SeriesStep]) -> str:
    step = next((step for step in played if not _passed(step)), None)
    if step is None:
        return ""
    if step.status is None:
        problem = (step.problem or "").partition("\n")[0]
        return f"{step.name} came to no measurement: {problem}"
    word = {Status.FAIL: "failed", Status.OPEN: "is open"}.get(step.status, "is invalid")
    is_unlimited = step.limited_by in {None, LimitedBy.NONE}
    limit = "" if is_unlimited else f": limited by {step.limited_by}"
    evidence = f": {step.evidence[0]}" if step.evidence else ""
    return f"{step.name} {word}{limit}{evidence}"


def _passed(step: SeriesStep) -> bool:
    return step.status is Status.PASS


STEPS = "steps"
"""Folder of the steps, in that of the series."""
LABEL_CHARS_MAX = 60
"""Characters of a label in a folder's name."""


def run_series(scenario: Scenario, asked: Invocation, out: Path | None, live: Live) -> Series:
    """Plays every step of a scenario with a sweep, in a new folder or in `out`, which must be new
    or empty."""
    path = out or new_path(RUNS, scenario.name, datetime.now().astimezone())
    return run_loop(play_series(scenario, path, asked, live))


def resume_series(path: Path, live: Live) -> Series:
    """Plays the missing steps of the series in a folder. Steps with a complete result are kept;
    other folders of steps are set aside. Raises StoredRunError if the folder has no series."""
    scenario, asked = asked_again(path, load_series(path))
    return run_loop(play_series(scenario, path, asked, live))


async def play_series(scenario: Scenario, path: Path, asked: Invocation, live: Live) -> Series:
    """Plays a series, or continues the one in the folder."""
    if (path / SERIES_FILE).exists():
        stored = load_series(path)
        journal = Journal.open(path, stored.started, live)
        steps = _SeriesRuns(scenario, asked, journal)
        steps.check(stored)
    else:
        journal = Journal.create(path, STEPS, {SCENARIO_FILE: scenario.source_text}, live)
        steps = _SeriesRuns(scenario, asked, journal)
    return await Player(steps, journal).play()


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
            warming = scenario.steps[0].scenario
            self.warm_up, self.warm_up_runs = warm_up_of(warming, self._sweep.warm_up)

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
                    "duration_s": round(sum(trial.duration_s for trial in search.played), 3),
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
            return turn.result if isinstance(turn.result, RunResult) else None
        best = turn.result.answer.best_trial
        for trial in (each for each in turn.result.trials if each.number == best):
            with suppress(StoredRunError):
                return load_result(self._path / turn.folder / trial.folder)
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
                experiment=search_of(step.scenario, asked),
            ),
        )


def _identity(step: SeriesStep) -> tuple[object, ...]:
    return step.number, step.values, step.repetition, step.folder
