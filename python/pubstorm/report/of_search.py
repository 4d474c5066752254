"""The report of a search: every trial, the reasons of those that are not counted, and the answer
with its interval."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pubstorm.errors import StoredRunError
from pubstorm.files import lies_in
from pubstorm.quantities import counted, share_text, span_text, value_text
from pubstorm.report.courses import HOW_COURSES, Course, compared, course
from pubstorm.report.document import Case, Document, Fact, Item, Plots, mark, sentence
from pubstorm.report.experiment_figures import AGAIN, experiment_settings, search_figures
from pubstorm.report.layout import Table, Value, cell_columns, columns
from pubstorm.report.search_plots import search_plots
from pubstorm.report.stored import holds, load_result, load_tracks
from pubstorm.result import (
    Cell,
    Estimate,
    SearchResult,
    Status,
    ThresholdOutcome,
    Trial,
)
from pubstorm.result.search import ended_by_host

FACTS_MAX = 3
"""Facts that are shown of a trial."""
TRIALS_COMPARED = 6
"""Values with a line over time."""
HOW_TRIALS = (
    "Each point is a trial: a green circle passed, a red cross failed, an open orange triangle is "
    "not counted, since it says nothing about what is under test. The vertical line is the answer, "
    "the ground beside the line the interval of the answer."
)


@dataclass(frozen=True)
class TrialCondition:
    """A threshold in a table: the figure found, and a mark."""

    outcome: ThresholdOutcome

    @property
    def text(self) -> str:
        """The figure with its mark; the reason if there is no figure."""
        outcome, found = self.outcome, self.outcome.text
        if outcome.found is not None:
            found = Cell(value=outcome.found, unit=outcome.unit, bound=outcome.bound).text
        return f"{found} {mark(outcome)}"


def search_document(search: SearchResult, directory: Path | None = None) -> Document:
    """Builds the report of a search. `directory` is its folder; without one no trial has a page."""
    failed = [trial for trial in search.trials if trial.failed]
    first = min(failed, key=lambda trial: trial.value, default=None)
    facts = tuple(_facts(search))
    return Document(
        kind="search",
        title=search.name,
        started=search.started,
        run_directory=search.run_directory,
        status=search.status,
        limited_by=search.answer.limited_by,
        headline=sentence(search.answer.headline or search.answer.text),
        key_figures=search_figures(search),
        statements=(search.answer.text,),
        facts=facts,
        settings=experiment_settings(search),
        tables=tuple(_tables(search)),
        items=tuple(
            _trial_item(search, trial, trial is first, directory) for trial in search.trials
        ),
        plots=(
            Plots(
                "Plots",
                "Over the values",
                () if directory is None else tuple(search_plots(search)),
                HOW_TRIALS,
                "No trial has a figure or a condition to show.",
            ),
            Plots(
                "Compare",
                "The trials over time",
                () if directory is None else tuple(compared(list(_courses(search, directory)))),
                f"Shown are the last trials of the values nearest to the answer. {HOW_COURSES}",
            ),
        ),
        cases=_cases(search, facts),
        output=(*search.answer.statements, *(f"{fact.name}: {fact.value}" for fact in facts)),
        is_complete=search.complete,
    )


def _facts(search: SearchResult) -> Iterator[Fact]:
    answer = search.answer
    yield Fact("varied", search.vary)
    conditions = (*search.thresholds, *(f"{each} (default)" for each in search.defaults))
    if conditions:
        yield Fact("passes while", "; ".join(conditions))
    if answer.best is not None:
        yield Fact("largest that passes", _estimate_text(search, answer.best))
    if answer.most is not None and search.figure is not None:
        yield Fact(f"most {search.figure}", _estimate_text(search, answer.most))
    if answer.limited_by is not None:
        yield Fact("limited by", str(answer.limited_by))
    if answer.best is not None:
        yield Fact("played again", AGAIN[answer.confirmed][0])
    played = f"{counted(len(search.trials), 'trial')} in {span_text(search.took_s)}"
    uncounted = sum(not trial.counted for trial in search.trials)
    yield Fact("played", played + (f", {uncounted} of them not counted" if uncounted else ""))


def _estimate_text(search: SearchResult, estimate: Estimate) -> str:
    """Returns an estimate with its interval and the origin of that."""
    if estimate.bound == "at_least":
        return f"{estimate.text}: no larger value could be counted or was to be tried"
    if not search.answer.confirmed and estimate is search.answer.best:
        return f"{estimate.text} (it did not pass again)"
    if estimate.bound == "none" and estimate.repeats > 1:
        return f"{estimate.text} (the lower value passed again, a larger one failed)"
    if estimate.repeats < 2:
        return f"{estimate.text} (found once)"
    confidence = share_text(search.confidence)
    return f"{estimate.text} (mean of {estimate.repeats} repeats, {confidence} confidence)"


def _tables(search: SearchResult) -> Iterator[Table]:
    if search.trials:
        yield trials_table(search)
    played = [trial for trial in search.trials if trial.cells]
    if played and search.columns:
        heads = cell_columns(search.columns, [trial.cells for trial in played])
        rows = [(_value(search, trial), *trial.cells) for trial in played]
        yield Table("The scenario's own table", (*columns("count", "value"), *heads), rows)


def trials_table(search: SearchResult) -> Table:
    """Returns one row for each trial, in the order of playing."""
    heads = (
        *columns("count", "trial"),
        *columns("word", "for"),
        *columns("count", "value", search.figure or "figure", *search.thresholds),
        *columns("word", "verdict", "limited by", "counted"),
        *columns("s", "took"),
    )
    rows = [tuple(_cells(search, trial)) for trial in search.trials]
    links = tuple(str(trial.number) for trial in search.trials)
    return Table("Trials", heads, rows, links=links).without_empty()


def _cells(search: SearchResult, trial: Trial) -> Iterator[Value]:
    found = {outcome.expression: TrialCondition(outcome) for outcome in trial.thresholds}
    figure = trial.figure
    yield from (trial.number, _purpose(trial), _value(search, trial))
    yield None if figure is None else Cell(value=figure, unit=search.figure_unit)
    yield from (found.get(expression) for expression in search.thresholds)
    yield from (trial.outcome, trial.limited_by, "yes" if trial.counted else "no")
    yield trial.duration_s


def _purpose(trial: Trial) -> str:
    several = f" {trial.repetition}" if trial.phase in {"repeat", "most"} else ""
    again = "" if trial.attempt == 1 else f", attempt {trial.attempt}"
    return trial.phase + several + again


def _value(search: SearchResult, trial: Trial) -> Cell:
    return Cell(value=trial.value, unit=search.unit)


def _trial_item(search: SearchResult, trial: Trial, is_first: bool, directory: Path | None) -> Item:
    page = f"{trial.folder}/report.html"
    has_page = directory is not None and holds(directory, page)
    why = () if trial.why is None else (f"not counted: {trial.why}",)
    return Item(
        number=trial.number,
        name=value_text(trial.value, search.unit),
        outcome=trial.outcome,
        status=trial.status,
        limited_by=trial.limited_by,
        facts=(*why, *trial.evidence[:FACTS_MAX]),
        folder=trial.folder,
        is_notable=is_first or trial.why is not None or trial.status is None,
        page=page if has_page else None,
    )


def _courses(search: SearchResult, directory: Path) -> Iterator[Course]:
    """Yields the last trials of the values nearest to the answer over time."""
    best = search.answer.best
    last = {trial.value: trial for trial in search.trials if trial.status is not None}
    near = sorted(last.values(), key=lambda trial: abs(trial.value - (best.value if best else 0.0)))
    for trial in sorted(near[:TRIALS_COMPARED], key=lambda trial: trial.number):
        folder = directory / trial.folder
        if not lies_in(folder, directory):
            continue
        with suppress(StoredRunError):
            name = f"{trial.number}: {value_text(trial.value, search.unit)}"
            yield course(name, load_result(folder), load_tracks(folder)[0])


def _cases(search: SearchResult, facts: tuple[Fact, ...]) -> tuple[Case, ...]:
    answer, is_invalid = search.answer, search.status is Status.INVALID
    text = "\n".join((*answer.statements, *(f"{fact.name}: {fact.value}" for fact in facts)))
    took_s = math.fsum(trial.duration_s for trial in search.trials)
    return (
        Case("trials could be counted", text if is_invalid else None, took_s=took_s),
        Case("a value passes", text if answer.best is None and not is_invalid else None),
        Case(
            "no part of this host was the limit",
            text if ended_by_host(search.trials, answer.best) else None,
        ),
        Case("the answer passed again", None if answer.confirmed or answer.best is None else text),
    )
