"""Evaluates measurements: validity, thresholds and the component that set the limit. A pure
function of measurements and thresholds."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence

from pubstorm.metrics.thresholds import Threshold
from pubstorm.quantities import count_text, counted, duration_text
from pubstorm.result import LimitedBy, Measured, Status, ThresholdOutcome, Verdict
from pubstorm.result.figures import Found, Missing, evaluate, nothing_behind
from pubstorm.result.verdict.clock_findings import CLOCK_RULES
from pubstorm.result.verdict.fault_findings import FAULT_RULES
from pubstorm.result.verdict.findings import RULES, Finding, invalid, under_test
from pubstorm.result.verdict.headline import headline
from pubstorm.result.verdict.phase_findings import PHASE_RULES
from pubstorm.result.verdict.publisher_findings import PUBLISHER_RULES
from pubstorm.result.verdict.summary_findings import SUMMARY_RULES
from pubstorm.result.verdict.watched_findings import CLOSED_LOOP_RULES, WATCHED_RULES


def evaluate_run(measured: Measured, thresholds: Sequence[Threshold]) -> Verdict:
    """The verdict on a run."""
    outcomes = tuple(evaluate_threshold(measured, threshold) for threshold in thresholds)
    rules = (
        *RULES,
        *CLOCK_RULES,
        *CLOSED_LOOP_RULES,
        *PUBLISHER_RULES,
        *FAULT_RULES,
        *PHASE_RULES,
        *WATCHED_RULES,
        *SUMMARY_RULES,
    )
    findings = [finding for rule in rules for finding in rule(measured)]
    failed = any(outcome.missed for outcome in outcomes) or any(f.failed for f in findings)
    # A condition that surely does not hold decides a run, whatever the others come to.
    findings += [] if failed else _undecided(outcomes)
    is_invalid = any(f.invalid for f in findings)
    status = Status.INVALID if is_invalid else Status.FAIL if failed else Status.PASS
    limited_by = _limit(findings, is_invalid)
    if status is Status.FAIL and limited_by is LimitedBy.NONE:
        limited_by = _limit_of_missed(measured, thresholds, outcomes)
        findings.append(Finding(_health(measured)))
    pairs = tuple(zip(thresholds, outcomes, strict=True))
    return Verdict(
        headline=headline(measured, (status, limited_by), pairs, findings),
        status=status,
        limited_by=limited_by,
        evidence=_evidence(findings, limited_by),
        thresholds=outcomes,
    )


def _evidence(findings: Sequence[Finding], limited_by: LimitedBy) -> tuple[str, ...]:
    """The facts, first those that make the run invalid, then those that say who set the limit."""

    def place(finding: Finding) -> tuple[bool, bool]:
        shows_limit = limited_by is not LimitedBy.NONE and finding.limited_by is limited_by
        return not finding.invalid, not shows_limit

    return tuple(finding.text for finding in sorted(findings, key=place))


def evaluate_threshold(measured: Measured, threshold: Threshold) -> ThresholdOutcome:
    """Evaluates one threshold. A threshold about nothing passes only if it may be about nothing. An
    inexact value passes only if every value within the bound does."""
    asked = threshold.expression
    found: Found | Missing | str = evaluate(measured, asked)
    if not threshold.may_be_about_nothing:
        found = nothing_behind(measured, asked) or found
    outcome = ThresholdOutcome(
        expression=threshold.source,
        figure=str(asked),
        metric=asked.metric,
        limit=threshold.value,
        found=None,
        passed=False,
        text=found.reason if isinstance(found, Missing) else str(found),
        default=threshold.is_default,
    )
    if not isinstance(found, Found):
        return outcome
    passed, missed = _passes(threshold, found)
    undecided = not passed and not missed
    doubt = ": the clocks are too inexact to decide" if undecided else ""
    return outcome.model_copy(
        update={
            "found": found.value,
            "unit": found.unit,
            "bound": found.bound,
            "passed": passed,
            "undecided": undecided,
            "text": f"found {found}{doubt}",
        }
    )


def _passes(threshold: Threshold, found: Found) -> tuple[bool, bool]:
    """Returns True if every value within the error passes, and True if none does."""
    fulfils, value = _OPERATORS[threshold.op], threshold.value
    if not found.bound:
        passed = fulfils(found.value, value)
        return passed, not passed
    low, high = max(found.value - found.bound, 0.0), found.value + found.bound
    answers = {fulfils(low, value), fulfils(high, value)}
    if low < value < high:
        # `==` and `!=` say the same of both ends, and another thing of the value between them.
        answers.add(fulfils(value, value))
    return answers == {True}, answers == {False}


def _undecided(outcomes: Iterable[ThresholdOutcome]) -> list[Finding]:
    reason = "the clocks are not exact enough to evaluate a threshold"
    return [
        invalid(f"{outcome.expression}: {outcome.text}", LimitedBy.GENERATOR, reason)
        for outcome in outcomes
        if outcome.undecided
    ]


def _limit(findings: Iterable[Finding], is_invalid: bool) -> LimitedBy:
    """Returns the most severe limit; in an invalid run, only of findings that make it invalid."""
    found = {f.limited_by for f in findings if f.invalid or not is_invalid}
    order = (
        LimitedBy.HOST,
        LimitedBy.TARGET,
        LimitedBy.GENERATOR,
        LimitedBy.BROKER,
        LimitedBy.PUBLISHER,
        LimitedBy.WINDOW,
        LimitedBy.UNKNOWN,
    )
    return next((limit for limit in order if limit in found), LimitedBy.NONE)


def _limit_of_missed(
    measured: Measured, thresholds: Sequence[Threshold], outcomes: Sequence[ThresholdOutcome]
) -> LimitedBy:
    """Returns the limit behind a missed threshold: what is under test, for a latency or a figure of
    a broker or publisher; else unknown."""
    brokers = {part for b in measured.brokers for part in (b.name, b.group)}
    publishers = {part for p in measured.publishers for part in (p.name, p.population)}
    for threshold, outcome in zip(thresholds, outcomes, strict=True):
        asked = threshold.expression
        slow = "latency" in asked.metric
        if not outcome.missed or outcome.found is None:
            continue
        if asked.subject in publishers:
            return LimitedBy.PUBLISHER
        if asked.subject in brokers:
            return LimitedBy.BROKER
        if slow:
            return under_test(measured)
    return LimitedBy.UNKNOWN


def _health(measured: Measured) -> str:
    fleet, late = measured.fleet, ""
    if fleet.lateness_us.count or not measured.publishers:
        p99, count = duration_text(fleet.lateness_us.p99), fleet.lateness_us.count
        late = f"p99 lateness {p99} over {counted(count, 'message')}, "
    return (
        f"the generator kept up: {late}busy in {count_text(fleet.busy_intervals_total)} of "
        f"{counted(fleet.load_intervals_total, 'interval')}"
    )


_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}
