"""The headline and the key figures of a series, a search or a comparison, as text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pubstorm.quantities import bytes_text, count_text, counted, span_text, value_text
from pubstorm.report.document import KEY_FIGURES_MAX, Fact, KeyFigure, sentence
from pubstorm.result import Estimate, Experiment, SearchResult, Series, SeriesStep, Status
from pubstorm.result.comparison import ComparedFigure, Comparison, signed
from pubstorm.result.search import ended_by_host
from pubstorm.result.series import NOT_PASSED, RANKED

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
    note = " and ".join(means) or figure.note
    if figure.outcome in RANKS:
        assert figure.difference is not None, "an outcome has a difference"
        value = signed(figure.difference, figure)
        note = f"{figure.outcome}: {' → '.join(means)}, {_interval(figure)}"
    elif figure.outcome == "no difference detectable":
        value = "none shown"
        note += f", {_interval(figure)}"
    else:
        value = str(figure.outcome)
        note = figure.note or f"{means[0]} in every run"
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
        if bad.limited_by is not None:
            yield KeyFigure("limited by", str(bad.limited_by), f"at {bad.name}")
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
