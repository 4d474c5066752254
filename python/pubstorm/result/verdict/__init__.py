"""Evaluates measurements by pure functions: validity, thresholds, the component that set the limit,
and the first sentence of a verdict, which has the load with its loss and latency, or the reason why
the run failed or is invalid."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pubstorm.metrics import columns_of
from pubstorm.metrics.expressions import Expression, Threshold
from pubstorm.quantities import count_text, counted, duration_text, rate_text
from pubstorm.result import (
    RATED_MIN,
    LimitedBy,
    Measured,
    PopulationResult,
    Status,
    ThresholdOutcome,
    Verdict,
)
from pubstorm.result.figures import evaluate_threshold, from_send, from_send_text, slowest_first
from pubstorm.result.verdict.advice import ADVICE_RULES, CLOCK_RULES
from pubstorm.result.verdict.culprit import EvidenceKind, limit
from pubstorm.result.verdict.effects import FAULT_RULES, PHASE_RULES, PUBLISHER_RULES, SUMMARY_RULES
from pubstorm.result.verdict.findings import RULES, Finding, invalid, under_test
from pubstorm.result.verdict.link_findings import LINK_RULES, delayed_by, limiting
from pubstorm.result.verdict.network_findings import NETWORK_RULES, delays
from pubstorm.result.verdict.watched_findings import WATCHED_RULES, WINDOW_RULES


def headline(
    measured: Measured,
    decided: tuple[Status, LimitedBy],
    conditions: Sequence[tuple[Threshold, ThresholdOutcome]],
    findings: Sequence[Finding],
) -> str:
    """One sentence on the outcome of a run."""
    found = _sentence(measured, decided, conditions, findings)
    return f"{found[:-1]}; changed by hand." if measured.changed_by_hand else found


def _sentence(
    measured: Measured,
    decided: tuple[Status, LimitedBy],
    conditions: Sequence[tuple[Threshold, ThresholdOutcome]],
    findings: Sequence[Finding],
) -> str:
    status, limited_by = decided
    if status is Status.INVALID:
        reason = next((each.reason for each in findings if each.invalid), "nothing was measured")
        return f"Invalid: {reason}; the figures are no evidence about the {_carrier(measured)}."
    limit = "" if limited_by in _NO_LIMIT else f"; limited by the {_limit(measured, limited_by)}"
    if status is Status.PASS:
        return f"{_carried(measured)}{limit}."
    ended = next((event.text for event in measured.events if event.kind == "check"), None)
    if ended is not None:
        return f"Failed: {ended}."
    missed = next((pair for pair in conditions if pair[1].missed), None)
    if missed is not None:
        return f"Failed: {_missed(measured, *missed)}{_load(measured, 'at')}{limit}."
    reason = next((each.text for each in findings if each.failed), "the target failed")
    return f"Failed: {reason}."


def _limit(measured: Measured, limited_by: LimitedBy) -> str:
    if limited_by is not LimitedBy.LINK:
        return str(limited_by)
    names = limiting(measured)
    if len(names) == 1:
        return f"link of population {names[0]}"
    return f"links of populations {', '.join(names[:-1])} and {names[-1]}"


def _carried(measured: Measured) -> str:
    """The load that was carried, with its loss and latency."""
    who = f"The {_carrier(measured)}"
    sent = [population for population in measured.populations.values() if population.sent_total]
    if not _sent_per_s(measured):
        clients = sum(population.ready_max for population in measured.populations.values())
        parts = [f"{who} held {counted(clients, 'client')}{_foreign(measured)}"]
    elif sent and not any(map(_carried_share, sent)):
        parts = [f"{who} acknowledged none of{_load(measured, '')}"]
    else:
        parts = [f"{who} carried{_load(measured, '', of=_carried_share)}"]
    populations = measured.populations.values()
    expected = sum(population.expected_total for population in populations)
    if expected:
        lost = sum(population.lost_total for population in populations)
        of = counted(expected, "delivery", "deliveries")
        none = "nothing was lost"
        if any(flow.unstamped > 0 for flow in measured.flows):
            none = "no fewer deliveries came than expected"
        parts.append(f"{count_text(lost)} of {of} were lost" if lost else none)
    for metric, column in columns_of("headline"):
        for _, latency in slowest_first(metric, measured.populations)[:1]:
            asked = Expression(None, metric.name, latency.tail)
            own = from_send(measured, asked)
            instead = "" if own is None else f" ({from_send_text(asked, own)})"
            head = column.head.replace("p99", _TAILS[latency.tail])
            parts.append(f"{head} {duration_text(getattr(latency, latency.tail))}{instead}")
            return "; ".join(parts)
    return "; ".join(parts)


def _foreign(measured: Measured) -> str:
    """The messages of other programs that clients received; nothing if there were none."""
    foreign = sum(population.foreign_total for population in measured.populations.values())
    return f", which received {counted(foreign, 'message')} of other programs" if foreign else ""


def _carrier(measured: Measured) -> str:
    who = str(under_test(measured).culprit)
    many = len(measured.publishers if who == "publisher" else measured.targets) > 1
    return f"{who}s" if many else who


def _carried_share(population: PopulationResult) -> float:
    """The share of the messages sent that were acknowledged, or that need no acknowledgement. A
    message that is in flight when publishing ends may be given up later: it counts once."""
    sent = population.sent_total
    lacking = max(population.in_flight, population.abandoned_total) + population.rejected_total
    return max(sent - lacking, 0) / sent if sent else 0.0


def _load(
    measured: Measured, word: str, of: Callable[[PopulationResult], float] = lambda _: 1.0
) -> str:
    """The messages a second, or a few messages, and the clients that sent them; nothing if none was
    sent. `of`: the share of the messages that counts."""
    if not _sent_per_s(measured):
        return ""
    populations = measured.populations.values()
    senders = sum(p.ready_max for p in populations if p.sent_total)
    sent = sum(round(p.sent_total * of(p)) for p in populations)
    per_s = sum(p.rates.sent_per_s * of(p) for p in populations)
    load = f"{rate_text(per_s)} messages/s" if sent >= RATED_MIN else counted(sent, "message")
    before = f", {word}" if word else ""
    return f"{before} {load} from {counted(senders, 'client')}"


def _missed(measured: Measured, threshold: Threshold, outcome: ThresholdOutcome) -> str:
    asked = threshold.expression
    metric, subject = asked.figure, asked.subject
    every = {**measured.wholes, **measured.populations}
    meant = [every[subject]] if subject in every else list(measured.populations.values())
    known = subject is None or subject in every
    said, basis = metric.missed, metric.basis
    counters = metric.failures.of if metric.failures else basis.counters if basis else ()
    if known and asked.span is None and outcome.found is not None and said and counters:
        count = sum(getattr(each, metric.field) for each in meant)
        of = sum(getattr(each, counter) for each in meant for counter in counters)
        where = "" if subject is None else f" {said.preposition} {subject}"
        return f"{count_text(count)} of {counted(of, *said.noun)}{where} {said.words}"
    return f"{threshold.source} was not met: {outcome.text}"


def _sent_per_s(measured: Measured) -> float:
    return sum(population.rates.sent_per_s for population in measured.populations.values())


_TAILS = {"p99": "p99", "max": "largest latency"}
_NO_LIMIT = frozenset({LimitedBy.NONE, LimitedBy.UNKNOWN})


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
        *LINK_RULES,
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
    ended = "the run was ended by hand before a threshold could be evaluated"

    def advice(outcome: ThresholdOutcome) -> str:
        if outcome.found is None:
            return ended
        return late if outcome.from_send is not None else slopes if outcome.is_slope else clocks

    return [
        invalid(f"{outcome.expression}: {outcome.text}", EvidenceKind.INEXACT, advice(outcome))
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
        if slow and delayed_by(measured, asked):
            return EvidenceKind.LINK_DELAY
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
