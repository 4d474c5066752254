"""The reports of a series, a search and a comparison: headline and key figures, the table of all
steps with its conclusion, every trial with the reason of those that are not counted, and the answer
with its interval."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from pubstorm.errors import StoredRunError
from pubstorm.files import lies_in
from pubstorm.quantities import (
    NOTHING,
    bytes_text,
    count_text,
    counted,
    share_text,
    span_text,
    value_text,
)
from pubstorm.report.document import (
    KEY_FIGURES_MAX,
    Case,
    Document,
    Fact,
    Item,
    KeyFigure,
    Plots,
    mark,
    sentence,
)
from pubstorm.report.layout import Table, Value, cell_columns, columns
from pubstorm.report.overlay import HOW_COURSES, Course, compared, course
from pubstorm.report.search_plots import search_plots
from pubstorm.report.series_plots import StepPlots, answer_plots, overview, step_plots
from pubstorm.report.stored import holds, load_result, load_tracks
from pubstorm.report.summary import memory_layout
from pubstorm.result import (
    Cell,
    Estimate,
    Experiment,
    LimitedBy,
    SearchResult,
    Series,
    SeriesStep,
    Status,
    ThresholdOutcome,
    Trial,
    are_figures,
)
from pubstorm.result.comparison import ComparedFigure, Comparison, signed
from pubstorm.result.search import NOT_PASSED, RANKED, ended_by_host

RANKS = {"worse": 0, "better": 1, "different": 2}
"""Order of the differences of a comparison; figures without one follow."""
STATUSES = {"worse": Status.FAIL, "better": Status.PASS}
AGAIN = {
    True: ("passed", Status.PASS),
    False: ("failed", Status.FAIL),
    None: ("not counted", Status.OPEN),
}
"""Outcome of the answer that was played again, by its confirmation."""


def experiment_settings(experiment: Experiment) -> tuple[Fact, ...]:
    """Returns the times of an experiment, its changes to the scenario, and its folder."""
    return (
        Fact("started", experiment.started),
        Fact("ended", experiment.ended),
        *(Fact("changed by", override) for override in experiment.overrides),
        Fact("folder", experiment.run_directory),
    )


def series_headline(series: Series) -> str:
    """Returns the conclusion of a series; with variants the number of steps that passed."""
    if len(series.text.splitlines()) == 1:
        return sentence(series.text)
    passed, played = _passed(series.steps), [step for step in series.steps if step.was_played]
    return sentence(f"{passed} of {counted(len(played), 'step')} passed{_others(played, '; ')}")


def series_figures(series: Series) -> tuple[KeyFigure, ...]:
    """Returns the key figures of a series: steps that passed, the first that did not, answers of
    searches, memory by connections, and the time."""
    return tuple(_of_series(series))[:KEY_FIGURES_MAX]


def search_figures(search: SearchResult) -> tuple[KeyFigure, ...]:
    """Returns the key figures of a search: the answer, what set the limit, and the trials."""
    return tuple(_of_search(search))[:KEY_FIGURES_MAX]


def comparison_figures(found: Comparison) -> tuple[KeyFigure, ...]:
    """Returns the key figures of a comparison: those that got worse, those that got better, and the
    others in their order."""
    ranked = sorted(found.figures, key=lambda each: RANKS.get(each.outcome, len(RANKS)))
    return tuple(map(_compared, ranked[:KEY_FIGURES_MAX]))


def _compared(figure: ComparedFigure) -> KeyFigure:
    means = [value_text(each, figure.unit) for each in figure.means if each is not None]
    if figure.outcome in RANKS:
        assert figure.difference is not None, "an outcome has a difference"
        value = signed(figure.difference, figure)
        note = f"{figure.outcome}: {' → '.join(means)}, {_interval(figure)}"
    elif figure.outcome == "no difference detectable":
        value = means[-1]
        note = f"{figure.outcome}: {' → '.join(means)}, {_interval(figure)}"
    elif figure.outcome == "equal":
        value, note = means[-1], figure.note or "equal in every run"
    else:
        value = " → ".join(means) or NOTHING
        note = figure.note or str(figure.outcome)
    return KeyFigure(figure.name, value, note, status=STATUSES.get(figure.outcome))


def _interval(figure: ComparedFigure) -> str:
    low, high = figure.low, figure.high
    assert low is not None and high is not None, "a difference has an interval"
    return f"interval {signed(low, figure)} … {signed(high, figure)}"


def _of_series(series: Series) -> Iterator[KeyFigure]:
    played = [step for step in series.steps if step.was_played]
    left = len(series.steps) - len(played)
    note = _others(played, "") or "every step that was played"
    outcomes = {step.status or Status.INVALID for step in played}
    status = next((each for each in RANKED if each in outcomes), None)
    value = f"{_passed(played)} of {count_text(len(played))}"
    unplayed = f"; {left} not played" if left else ""
    yield KeyFigure("steps passed", value, note + unplayed, status=status)
    bad = next((step for step in played if step.status is not Status.PASS), None)
    if bad is not None:
        note = next(iter(bad.evidence), (bad.problem or bad.outcome).partition("\n")[0])
        name = f"first {'that failed' if bad.status is Status.FAIL else 'without a verdict'}"
        yield KeyFigure(name, bad.name, note, status=bad.status or Status.INVALID)
    yield from _limit(played, bad)
    answers = [(step, step.answer) for step in played if step.answer and step.answer.best]
    if answers:
        step, answer = max(answers, key=lambda pair: pair[1].best.value if pair[1].best else 0.0)
        assert answer.best is not None, "only answers that have one are compared"
        yield KeyFigure("largest that passes", answer.best.text, f"found by {step.name}")
    for model in series.memory[:2]:
        if model.bytes_per_connection is not None and not model.is_rough:
            value = bytes_text(model.bytes_per_connection)
            note = f"of {model.subject}, a line through {counted(model.points, 'step')}"
            yield KeyFigure("memory per connection", value, note)
    yield KeyFigure("played in", span_text(series.took_s), counted(len(played), "step"))


def _limit(played: Sequence[SeriesStep], bad: SeriesStep | None) -> Iterator[KeyFigure]:
    """Yields the limit that all limited steps have, or else that of the first bad step."""
    limited = [step for step in played if step.limited_by not in {None, LimitedBy.NONE}]
    if len({step.limited_by for step in limited}) == 1:
        note = f"in {len(limited)} of {counted(len(played), 'step')}"
        if len(limited) == 1:
            note = f"at {limited[0].name}"
        yield KeyFigure("limited by", str(limited[0].limited_by), note)
    elif bad is not None and bad.limited_by is not None:
        yield KeyFigure("limited by", str(bad.limited_by), f"at {bad.name}")


def _of_search(search: SearchResult) -> Iterator[KeyFigure]:
    answer = search.answer
    best = "–" if answer.of_load is None else answer.of_load.text
    note = f"of {search.vary}{_basis(answer.best)}"
    yield KeyFigure("largest that passes", best, note, status=search.status)
    failed = [trial for trial in search.trials if trial.failed]
    floor = -math.inf if answer.best is None else answer.best.value
    beyond = min((t for t in failed if t.value > floor), key=lambda t: t.value, default=None)
    if beyond is not None:
        missed = next((each.text for each in beyond.thresholds if each.missed), "")
        note = missed or next(iter(beyond.evidence), "the trial failed")
        yield KeyFigure("first that failed", value_text(beyond.value, search.unit), note)
    if answer.limited_by is not None:
        is_open = ended_by_host(search.trials, answer.best)
        note = "no larger value was counted" if is_open else "at the first value that failed"
        yield KeyFigure("limited by", str(answer.limited_by), note)
    if answer.most is not None and search.figure is not None:
        yield KeyFigure(f"largest {search.figure}", answer.most.text, "at any value")
    if answer.best is not None:
        value, status = AGAIN[answer.confirmed]
        yield KeyFigure("played again", value, "the answer, once more", status=status)
    tested = answer.recovery
    if tested is not None:
        yield KeyFigure("recovery", tested.in_short, tested.in_words(search.unit))
    uncounted = sum(not trial.counted for trial in search.trials)
    note = f"in {span_text(search.took_s)}" + (f", {uncounted} not counted" if uncounted else "")
    yield KeyFigure("trials", count_text(len(search.trials)), note)


def _basis(best: Estimate | None) -> str:
    """Returns the number of repeats behind an answer, in words; empty if there is none."""
    if best is None:
        return ""
    return f", mean of {best.repeats} repeats" if best.repeats > 1 else ", found once"


def _passed(steps: Sequence[SeriesStep]) -> int:
    return sum(step.status is Status.PASS for step in steps)


def _others(played: Sequence[SeriesStep], before: str) -> str:
    """Returns the steps that did not pass by outcome, in words; empty if there is none."""
    outcomes = [step.outcome for step in played]
    parts = [f"{outcomes.count(o)} {word}" for o, word in NOT_PASSED.items() if o in outcomes]
    return before + ", ".join(parts) if parts else ""


HOW_STEPS = (
    "Each point is a step, its sign the verdict: a circle passed, a cross failed, an open triangle "
    "is invalid."
)


@dataclass(frozen=True)
class Range:
    """The figures of several repeats."""

    ordered: tuple[Cell, ...]

    @property
    def text(self) -> str:
        """The range, after the median if the number of figures is odd."""
        half, is_odd = divmod(len(self.ordered), 2)
        span = f"{self.ordered[0].text} … {self.ordered[-1].text}"
        return f"{self.ordered[half].text} ({span})" if is_odd else span


def series_document(series: Series, directory: Path | None = None) -> Document:
    """Builds the report of a series. `directory` is its folder; without one there are no plots."""
    drawn = [StepPlots() if directory is None else step_plots(directory, s) for s in series.steps]
    results = [each.result for each in drawn]
    memory = memory_layout("steps").table(series)
    return Document(
        kind="series",
        title=series.name,
        started=series.started,
        run_directory=series.run_directory,
        status=None,
        headline=series_headline(series),
        key_figures=series_figures(series),
        statements=tuple(series.text.splitlines()),
        settings=experiment_settings(series),
        tables=(
            *(
                Table(own.title, cell_columns(own.columns, own.rows), own.rows)
                for own in series.tables
            ),
            steps_table(series),
            *([memory] if memory.rows else []),
        ),
        items=tuple(_step_item(step, each) for step, each in zip(series.steps, drawn, strict=True)),
        plots=(
            Plots("Answers", "What the searches found", tuple(answer_plots(series))),
            Plots(
                "Plots",
                "Over the steps",
                tuple(overview(series.steps, results)),
                HOW_STEPS,
                "No step has a result yet.",
            ),
            Plots(
                "Compare",
                "The steps over time",
                tuple(compared([each.course for each in drawn if each.course is not None])),
                HOW_COURSES,
            ),
        ),
        cases=tuple(map(_case, series.steps)),
        output=(series.text,),
        is_complete=series.complete,
        stopped=series.stopped,
    )


def steps_table(series: Series) -> Table:
    """Returns one row for each step, and after the repeats of a step a row that sums them up."""
    rows: list[tuple[Value, ...]] = []
    links: list[str] = []
    for _, group in groupby(series.steps, key=lambda step: step.label):
        steps = list(group)
        rows += [step.cells for step in steps]
        links += [f"#part-{step.number}" for step in steps]
        measured = [step for step in steps if step.status is not None]
        if len(measured) > 1:
            rows.append(tuple(_summary(measured)))
            links.append("")
    heads = cell_columns(series.columns, [step.cells for step in series.steps])
    return Table("Steps", heads, rows, links=tuple(links))


def _summary(steps: Sequence[SeriesStep]) -> Iterator[Value]:
    """Yields the range of each column of figures, and the common word of other columns."""
    for place, column in enumerate(zip(*(step.cells for step in steps), strict=True)):
        if len({cell.text for cell in column}) == 1:
            yield column[0]
        elif are_figures(column):
            known = [cell for cell in column if cell.value is not None]
            yield Range(tuple(sorted(known, key=lambda cell: cell.value or 0.0)))
        else:
            yield "" if place else f"{steps[0].label}: {len(steps)} repeats"


def _step_item(step: SeriesStep, drawn: StepPlots) -> Item:
    problem = () if step.problem is None else tuple(step.problem.splitlines())
    return Item(
        number=step.number,
        name=step.name,
        outcome=step.outcome,
        status=step.status,
        limited_by=step.limited_by,
        facts=problem or step.evidence,
        folder=step.folder,
        is_notable=step.status not in {Status.PASS, None} or step.problem is not None,
        note=step.note,
        plots=drawn.plots,
        missing=drawn.problem and f"There is no plot over time: {drawn.problem}.",
        command=step.command,
        page=drawn.page,
    )


def _case(step: SeriesStep) -> Case:
    name = f"{step.number}: {step.name}"
    if step.status is None and step.problem is None:
        return Case(name, skipped=step.unfit or step.outcome)
    facts = "\n".join((step.outcome, *((step.problem,) if step.problem else step.evidence)))
    return Case(name, None if step.status is Status.PASS else facts, took_s=step.duration_s)


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
            _trial_item(search, trial, trial is first, directory) for trial in search.played
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
    if answer.recovery is not None:
        yield Fact("recovery", answer.recovery.in_words(search.unit))
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
    rows = [tuple(_cells(search, trial)) for trial in search.played]
    links = tuple(f"#part-{trial.number}" for trial in search.played)
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
    took_s = math.fsum(trial.duration_s for trial in search.played)
    return (
        Case("trials could be counted", text if is_invalid else None, took_s=took_s),
        Case("a value passes", text if answer.best is None and not is_invalid else None),
        Case(
            "no part of this host was the limit",
            text if ended_by_host(search.trials, answer.best) else None,
        ),
        Case("the answer passed again", None if answer.confirmed or answer.best is None else text),
    )
