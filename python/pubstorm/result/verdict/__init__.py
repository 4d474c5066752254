"""Evaluates measurements: validity, thresholds and the component that set the limit. A pure
function of measurements and thresholds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pubstorm.metrics.thresholds import Threshold
from pubstorm.quantities import count_text, counted, duration_text
from pubstorm.result import LimitedBy, Measured, Status, ThresholdOutcome, Verdict
from pubstorm.result.figures import evaluate_threshold
from pubstorm.result.verdict.advice import ADVICE_RULES
from pubstorm.result.verdict.clock_findings import CLOCK_RULES
from pubstorm.result.verdict.culprit import EvidenceKind, limit
from pubstorm.result.verdict.fault_findings import FAULT_RULES
from pubstorm.result.verdict.findings import RULES, Finding, invalid, under_test
from pubstorm.result.verdict.headline import headline
from pubstorm.result.verdict.network_findings import NETWORK_RULES, delays
from pubstorm.result.verdict.phase_findings import PHASE_RULES
from pubstorm.result.verdict.publisher_findings import PUBLISHER_RULES
from pubstorm.result.verdict.summary_findings import SUMMARY_RULES
from pubstorm.result.verdict.watched_findings import WATCHED_RULES, WINDOW_RULES


def evaluate_run(measured: Measured, thresholds: Sequence[Threshold]) -> Verdict:
    """The verdict on a run."""
    outcomes = tuple(evaluate_threshold(measured, threshold) for threshold in thresholds)
    rules = (
        *RULES,
        *ADVICE_RULES,
        *CLOCK_RULES,
        *WINDOW_RULES,
        *PUBLISHER_RULES,
        *FAULT_RULES,
        *PHASE_RULES,
        *WATCHED_RULES,
        *NETWORK_RULES,
        *SUMMARY_RULES,
    )
    findings = [finding for rule in rules for finding in rule(measured)]
    failed = any(outcome.missed for outcome in outcomes) or any(f.failed for f in findings)
    # A condition that surely does not hold decides a run, whatever the others come to.
    findings += [] if failed else _undecided(outcomes)
    is_invalid = any(f.invalid for f in findings)
    status = Status.INVALID if is_invalid else Status.FAIL if failed else Status.PASS
    evidence = [f.because for f in findings if f.because and (f.invalid or not is_invalid)]
    if status is Status.FAIL and all(each.kind.is_state for each in evidence):
        if not evidence and not any(outcome.from_send is not None for outcome in outcomes):
            findings.append(Finding(_health(measured)))
        evidence = [] if _nothing_found(outcomes, findings) else evidence
        evidence.append(_symptom_of_missed(measured, thresholds, outcomes)())
    limited_by = limit(evidence)
    pairs = tuple(zip(thresholds, outcomes, strict=True))
    return Verdict(
        headline=headline(measured, (status, limited_by), pairs, findings),
        status=status,
        limited_by=limited_by,
        evidence=_evidence(findings, limited_by),
        thresholds=outcomes,
    )


def _nothing_found(outcomes: Iterable[ThresholdOutcome], findings: Iterable[Finding]) -> bool:
    """Returns True if a run fails only since thresholds are about nothing, or about what was not
    read: no state of a broker or a host explains that."""
    is_found = any(outcome.missed and outcome.found is not None for outcome in outcomes)
    return not is_found and not any(finding.failed for finding in findings)


def _evidence(findings: Sequence[Finding], limited_by: LimitedBy) -> tuple[str, ...]:
    """The facts, first those that make the run invalid, then those that say who set the limit."""

    def place(finding: Finding) -> tuple[bool, bool]:
        shows_limit = limited_by is not LimitedBy.NONE and finding.limited_by is limited_by
        return not finding.invalid, not shows_limit

    return tuple(finding.text for finding in sorted(findings, key=place))


def _undecided(outcomes: Iterable[ThresholdOutcome]) -> list[Finding]:
    clocks = "the clocks are not exact enough to evaluate a threshold"
    slopes = "readings vary too much to evaluate a threshold"
    late = "the generator made too much of a latency to evaluate a threshold"
    return [
        invalid(
            f"{outcome.expression}: {outcome.text}",
            EvidenceKind.INEXACT,
            late if outcome.from_send is not None else slopes if outcome.is_slope else clocks,
        )
        for outcome in outcomes
        if outcome.undecided
    ]


def _symptom_of_missed(
    measured: Measured, thresholds: Sequence[Threshold], outcomes: Sequence[ThresholdOutcome]
) -> EvidenceKind:
    """Returns the symptom of a missed threshold: of the path or what is under test, for a latency,
    or a figure of a broker or publisher; else an unexplained one."""
    brokers = {part for b in measured.brokers for part in (b.name, b.group)}
    publishers = {part for p in measured.publishers for part in (p.name, p.population)}
    for threshold, outcome in zip(thresholds, outcomes, strict=True):
        asked = threshold.expression
        slow = "latency" in asked.metric
        if not outcome.missed or outcome.found is None:
            continue
        if asked.subject in publishers:
            return EvidenceKind.AT_PUBLISHER
        if asked.subject in brokers:
            return EvidenceKind.AT_BROKER
        if slow:
            return EvidenceKind.ON_THE_PATH if delays(measured) else under_test(measured)
    return EvidenceKind.UNEXPLAINED


def _health(measured: Measured) -> str:
    fleet, late = measured.fleet, ""
    if fleet.lateness_us.count or not measured.publishers:
        p99, count = duration_text(fleet.lateness_us.p99), fleet.lateness_us.count
        late = f"p99 lateness {p99} over {counted(count, 'message')}, "
    return (
        f"the generator kept up: {late}busy in {count_text(fleet.busy_intervals_total)} of "
        f"{counted(fleet.load_intervals_total, 'interval')}"
    )
