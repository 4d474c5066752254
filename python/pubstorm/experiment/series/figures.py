"""Cells of one step in the tables over a series: a figure of its result, a word, the answer of its
search, or a figure at a trial of that search."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from pubstorm.errors import StoredRunError
from pubstorm.metrics.expressions import parse_expression
from pubstorm.quantities import value_text
from pubstorm.report import load_result
from pubstorm.result import LimitedBy, RunResult, SearchResult, StepFigure, Trial
from pubstorm.result.figures import Missing, evaluate
from pubstorm.result.figures.table import asked_trials, shows_scenario, shows_search, word
from pubstorm.result.interval import estimate_of


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
    remark = None
    if answer.best is None:
        remark = "no value passed"
    elif not answer.confirmed:
        did = "failed" if answer.confirmed is False else "was not counted"
        remark = f"it {did} when it was played again"
    return StepFigure(estimate=answer.best, limited_by=answer.limited_by, remark=remark)


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
