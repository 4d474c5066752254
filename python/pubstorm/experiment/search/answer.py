"""The answer of a search, a pure function of its trials: the largest value that passes and the
largest figure, each with its interval, what set the limit, and a sentence. A trial passes, fails,
or does not count, with the reason why it says nothing about what is under test."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar

from pubstorm.experiment.search.strategy import Bracket, Facts, TrialOutcome
from pubstorm.metrics import columns_of
from pubstorm.metrics.expressions import Expression
from pubstorm.quantities import Unit, counted, rate_text, share_text, value_text
from pubstorm.result import (
    Bound,
    Estimate,
    LimitedBy,
    Phase,
    PhaseStatus,
    RunResult,
    SearchAnswer,
    Status,
    Trial,
)
from pubstorm.result.figures import Found, evaluate
from pubstorm.result.interval import interval
from pubstorm.result.search import RecoveryTrial, Return, ended_by_host, nothing_passed
from pubstorm.result.search import beyond as trial_beyond
from pubstorm.scenario import Scenario
from pubstorm.scenario.recovery import AGAIN, BEYOND

T = TypeVar("T", bound=Trial)
EVIDENCE_MAX = 3
"""Facts that are kept of each trial; its own folder has them all."""


def evaluated(trial: Trial, result: RunResult, figure: Expression | None) -> Trial:
    """Returns a trial with the outcome of its run."""
    verdict = result.verdict
    found = None if figure is None else evaluate(result, figure)
    why = _why_not_counted(result)
    return trial.of_run(
        result,
        figure=found.value if isinstance(found, Found) else None,
        counted=why is None,
        why=why,
        thresholds=verdict.thresholds,
        evidence=verdict.facts[:EVIDENCE_MAX],
        cells=tuple(result.table.values()),
    )


def recovered(trial: RecoveryTrial, result: RunResult) -> RecoveryTrial:
    """Returns a recovery test with the outcome of its run."""
    played = evaluated(trial, result, None)
    assert isinstance(played, RecoveryTrial), "an evaluated trial is of its own kind"
    found = returned(result.phases)
    part_s = min((p.duration_s for p in result.phases if p.name in (BEYOND, AGAIN)), default=0.0)
    played = played.model_copy(update={"part_s": part_s})
    if isinstance(found, str):
        why = played.why or found
        return played.model_copy(update={"counted": False, "why": why})
    if not played.counted:
        return played
    outcome, after_s = found
    return played.model_copy(update={"outcome_of_load": outcome, "after_s": after_s})


def returned(phases: Sequence[Phase]) -> tuple[Return, float | None] | str:
    """Returns how the load of a recovery test came back, and the seconds until then; or why the
    phases do not say it."""
    names = [phase.name for phase in phases]
    place = names.index(BEYOND) if BEYOND in names else 0
    if place == 0 or AGAIN not in names[place:]:
        return "the run ended before the load was the answer again"
    before, over, again = phases[place - 1 : place + 2]
    for phase in (before, over, again):
        if phase.status is PhaseStatus.UNKNOWN:
            why = next(iter(phase.evidence), "no evidence")
            return f"phase {phase.name} is inconclusive: {why}"
    if before.status not in {PhaseStatus.HELD, PhaseStatus.RECOVERED}:
        return "the answer was not carried before the load rose"
    if again.status is PhaseStatus.HELD:
        is_held = over.status is PhaseStatus.HELD
        return ("no collapse" if is_held else "under overload"), None
    if again.recovered_after_s is None:
        return "never", None
    return "came back", again.recovered_after_s


def uncounted(trial: T, why: str | None, limited_by: LimitedBy | None = None) -> T:
    """Returns a trial without a measurement; `limited_by` is this host if the trial was not
    played."""
    return trial.model_copy(update={"counted": False, "why": why, "limited_by": limited_by})


def outcome_of(trial: Trial) -> TrialOutcome:
    """Returns the outcome of a trial for the strategy."""
    was_played = trial.status is not None or trial.limited_by is None
    if not trial.counted:
        closed = trial.limited_by is LimitedBy.TARGET
        return TrialOutcome("uncounted", trial.figure, final=not was_played, closed=closed)
    return TrialOutcome("passed" if trial.passed else "failed", trial.figure)


def in_words(trial: Trial) -> str:
    """Returns the outcome of a trial in a few words."""
    if not trial.counted:
        return f"is not counted: {trial.why}"
    if trial.passed:
        return "passes"
    fact = f": {trial.evidence[0]}" if trial.evidence else ""
    return f"fails, limited by {trial.limited_by}{fact}"


def _why_not_counted(result: RunResult) -> str | None:
    """Why a run says nothing of what is under test; None: it does."""
    verdict = result.verdict
    fact = next(iter(verdict.evidence), "nothing was measured")
    if verdict.status is not Status.PASS and verdict.limited_by is LimitedBy.HOST:
        return f"this host was the limit: {fact}"
    if verdict.status is not Status.PASS and verdict.limited_by is LimitedBy.GENERATOR:
        return f"the load generator was the limit: {fact}"
    return f"the run is invalid: {fact}" if verdict.status is Status.INVALID else None


TIMES = {metric.name: column.head for metric, column in columns_of("missed times")}
"""Times of populations, as a headline names their statistics."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Units and names of an answer."""

    unit: Unit
    """Unit of the trials' values."""
    per_unit: float
    """Values of the strategy in one unit."""
    figure: str | None
    """Name of the figure."""
    figure_unit: Unit
    confidence: float
    question: str = "{} passes"
    """The answer in words, with {} for the value of the whole load."""
    clients: int = 1
    """Clients of which each has the value; 1: the value is that of the whole load."""
    recovery: bool = False
    """True if a search at its end was to test the recovery of its load."""

    def answered(self, *values: float) -> str:
        """Returns a value of the trials, or a span of two, in the words of the question."""
        is_rate = self.unit == "per_s" and "messages/s" in self.question
        named = [value * self.clients for value in values]
        texts = [rate_text(each) if is_rate else self.shown(each) for each in named]
        said = self.question.replace("{}", " to ".join(texts))
        if self.clients == 1:
            return said
        return f"{said}, {' to '.join(map(self.shown, values))} from each client"

    def of_load(self, value: float) -> str:
        """Returns a value of the trials as that of the whole load."""
        return self.shown(value * self.clients)

    def shown(self, value: float) -> str:
        """Returns a value with its unit."""
        return value_text(value, self.unit)


def clients_of(scenario: Scenario) -> int:
    """Returns the clients of which each has the value of a scenario's search; 1 if the value is
    that of the whole load."""
    assert scenario.search is not None, "only a scenario with a search has a value"
    match scenario.search.vary.split("."):
        case ["populations", name, "publications", _, "rate"]:
            return scenario.populations[name].clients
        case _:
            return 1


def question_of(scenario: Scenario) -> str:
    """Returns the answer of a scenario's search in words, with {} for the value of the whole
    load."""
    assert scenario.search is not None, "only a scenario with a search has a question"
    populations = scenario.populations
    publications = sum(len(getattr(each, "publications", ())) for each in populations.values())
    match scenario.search.vary.split("."):
        case ["populations", name, "clients"]:
            return "{} clients" if len(populations) == 1 else f"{{}} clients of {name}"
        case ["populations", name, "publications", _, "total_rate" | "rate"]:
            return "{} messages/s in all" if publications == 1 else f"{{}} messages/s of {name}"
        case ["populations", name, "publications", _, "size"]:
            return f"messages of {{}} of {name}"
        case path:
            return f"{path[-1]} {{}}"


def answer_of(
    trials: Sequence[Trial], facts: Facts, terms: Terms, recovery: RecoveryTrial | None = None
) -> SearchAnswer:
    """The answer so far. `recovery` is its recovery test, if one was played."""
    best, most = _best(facts, terms), _most(facts, terms)
    states = [outcome.state for _, outcome in facts.confirmations]
    again = [value for value, outcome in facts.confirmations if outcome.state == "passed"]
    confirmed_at = again[0] / terms.per_unit if again else None
    if best is not None and confirmed_at is None:
        best = _unconfirmed(best, trials, facts, terms)
    elif best is not None and confirmed_at is not None and states[0] == "failed":
        best = _lowered(best, confirmed_at)
    beyond = trial_beyond(trials, best)
    shown = confirmed_at if confirmed_at is not None or best is None else best.value
    most_value = None if facts.most_value is None else facts.most_value / terms.per_unit
    answer = SearchAnswer(
        best=best,
        whole=None if best is None or terms.clients == 1 else best.times(terms.clients),
        most=most,
        limited_by=_limit(best, beyond, is_growing=facts.is_growing),
        confirmed=bool(again) if {"passed", "failed"} & {*states} else None,
        confirmed_at=confirmed_at,
        best_trial=_passed(trials, shown),
        most_trial=_largest_figure(trials, most_value),
        trials=len(trials),
        recovery=recovery,
    )
    head = _headline(answer, trials, terms) if trials else ""
    return answer.model_copy(update={"headline": head, "text": _text(answer, trials, facts, terms)})


def _limit(best: Estimate | None, beyond: Trial | None, *, is_growing: bool) -> LimitedBy | None:
    """Returns what set the limit at the first failing value; none if no value failed; None if the
    search ended before that is known."""
    if beyond is not None:
        return beyond.limited_by
    return None if best is None or is_growing else LimitedBy.NONE


def _best(facts: Facts, terms: Terms) -> Estimate | None:
    found = facts.estimates
    passed = [bracket.passed / terms.per_unit for bracket in found if bracket.passed is not None]
    if not passed:
        return None
    if not all(bracket.is_exact for bracket in found):
        low = min(passed)
        high = max(_end(bracket, terms) for bracket in found)
        return _estimate((low, low, high), len(passed), "at_least", terms.unit)
    if len(passed) == 1:
        ends = (passed[0], passed[0], _end(found[0], terms))
        return _estimate(ends, 1, "none", terms.unit)
    found_interval = facts.interval(terms.confidence)
    assert found_interval is not None, "several exact brackets have an interval"
    low, high = (end / terms.per_unit for end in found_interval)
    mean = fmean(passed)
    around = (mean, min(low, mean), max(high, mean))
    return _estimate(around, len(passed), "exact", terms.unit)


def _lowered(best: Estimate, confirmed: float) -> Estimate:
    """Returns the value that passed again as the answer, up to what was found before."""
    bound: Bound = "at_least" if best.bound == "at_least" else "none"
    high = max(best.high, confirmed)
    return best.model_copy(
        update={"value": confirmed, "low": confirmed, "high": high, "bound": bound}
    )


def _unconfirmed(best: Estimate, trials: Sequence[Trial], facts: Facts, terms: Terms) -> Estimate:
    """Returns the span of an answer that did not pass again: from the largest value that passed
    below all of its failures, up to the largest that did not pass. A lower bound that did not fail
    stays one."""
    failed = [v / terms.per_unit for v, outcome in facts.confirmations if outcome.state == "failed"]
    if best.bound == "at_least" and not failed:
        return best
    limit = min(failed, default=best.value)
    low = max((t.value for t in trials if t.passed and t.value < limit), default=0.0)
    if not failed:
        low = min(each.passed for each in facts.estimates if each.passed is not None)
        low /= terms.per_unit
    high = max(_end(bracket, terms) for bracket in facts.estimates)
    return best.model_copy(update={"value": low, "low": low, "high": high, "bound": "none"})


def _end(bracket: Bracket, terms: Terms) -> float:
    beyond = bracket.passed if bracket.beyond is None else bracket.beyond
    assert beyond is not None, "an estimate has a value that passed"
    return beyond / terms.per_unit


def _most(facts: Facts, terms: Terms) -> Estimate | None:
    if not facts.most:
        return None
    ends = interval(facts.most, terms.confidence)
    bound: Bound = "none" if len(facts.most) == 1 else "exact"
    if facts.most_is_bound:
        bound = "at_least"
    return _estimate(ends, len(facts.most), bound, terms.figure_unit)


def _estimate(ends: tuple[float, float, float], repeats: int, bound: Bound, unit: Unit) -> Estimate:
    value, low, high = ends
    low = max(0.0, low)
    return Estimate(value=value, low=low, high=high, repeats=repeats, bound=bound, unit=unit)


def _passed(trials: Sequence[Trial], value: float | None) -> int | None:
    """The last trial that passed with the largest value not above one."""
    if value is None:
        return None
    passed = [trial for trial in reversed(trials) if trial.passed and trial.value <= value]
    found = max(passed, key=lambda trial: trial.value, default=None)
    return None if found is None else found.number


def _largest_figure(trials: Sequence[Trial], value: float | None) -> int | None:
    """The last trial that was counted at the value of the largest figure."""
    found = (trial for trial in reversed(trials) if trial.counted and trial.value == value)
    return next((trial.number for trial in found), None)


def _headline(answer: SearchAnswer, trials: Sequence[Trial], terms: Terms) -> str:
    """Returns the answer in the unit of the whole load, and the first value beyond it."""
    best, beyond = answer.best, trial_beyond(trials, answer.best)
    parts = [nothing_passed(trials)]
    if best is not None:
        is_span = not answer.confirmed and best.bound == "none"
        bound = "at least " if best.bound == "at_least" else ""
        word = "" if answer.confirmed else "not confirmed: "
        ends = (best.low, best.high) if is_span else (best.value,)
        is_open = ended_by_host(trials, best)
        parts = [f"{'not found: ' if is_open else word}{bound}{terms.answered(*ends)}"]
    if beyond is not None:
        parts.append(f"at {terms.of_load(beyond.value)} {_seen(beyond)}")
    return "; ".join(parts)


def _seen(trial: Trial) -> str:
    """Returns what kept a trial from passing: the figure of the threshold that it missed."""
    if trial.counted:
        missed = next((outcome for outcome in trial.thresholds if outcome.missed), None)
        if missed is None or missed.found is None:
            return in_words(trial)
        figure = (missed.metric or missed.figure).removesuffix("_total").replace("_", " ")
        statistic = re.search(r"\.(p\d+(?:\.\d+)?|max|mean)(?:@|$)", missed.figure)
        if statistic is not None and missed.metric in TIMES:
            figure = f"{statistic[1]}{TIMES[missed.metric]}"
        return f"{figure} was {value_text(missed.found, missed.unit)}"
    return (trial.why or "").partition(":")[0]


def _text(answer: SearchAnswer, trials: Sequence[Trial], facts: Facts, terms: Terms) -> str:
    beyond = trial_beyond(trials, answer.best)
    parts = [nothing_passed(trials) if answer.best is None else _holds(answer, answer.best, terms)]
    if beyond is not None:
        parts.append(f"{terms.shown(beyond.value)} {in_words(beyond)}")
    elif facts.is_growing:
        parts.append("the search ended before a value failed" if trials else "")
    else:
        parts.append("the search goes no further")
    parts.append(_confirmed(facts, terms))
    if answer.recovery is not None:
        parts.append(answer.recovery.in_words(terms.unit))
    elif terms.recovery and facts.confirmations:
        why = "no larger value failed" if answer.confirmed else "the answer did not pass again"
        parts.append(f"there was no recovery test, as {why}")
    if answer.most is not None and facts.most_value is not None:
        at = terms.shown(facts.most_value / terms.per_unit)
        parts.append(f"the largest {terms.figure} is {answer.most.text}, at {at}")
    return "; ".join(part for part in parts if part)


def _holds(answer: SearchAnswer, best: Estimate, terms: Terms) -> str:
    if not answer.confirmed:
        return f"not confirmed: {best.text}"
    if best.bound != "exact":
        return f"{best.text} passes" if best.bound == "at_least" else f"the limit is {best.text}"
    confidence = share_text(terms.confidence)
    return f"{best.text} passes ({counted(best.repeats, 'repeat')}, {confidence} confidence)"


def _confirmed(facts: Facts, terms: Terms) -> str:
    played = [
        (terms.shown(value / terms.per_unit), outcome.state)
        for value, outcome in facts.confirmations
    ]
    words = {"passed": "passed", "failed": "failed", "uncounted": "was not counted"}
    outcomes = " and ".join(f"{value} {words[state]}" for value, state in played)
    return f"played again, {outcomes}" if outcomes else ""
