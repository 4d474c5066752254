"""The first sentence of a verdict: the load with its loss and latency, or the reason why the run
failed or is invalid. Built from measured values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pubstorm.metrics import columns_of
from pubstorm.metrics.expressions import Expression
from pubstorm.metrics.thresholds import Threshold
from pubstorm.quantities import count_text, counted, duration_text, rate_text
from pubstorm.result import (
    RATED_MIN,
    LimitedBy,
    Measured,
    PopulationResult,
    Status,
    ThresholdOutcome,
)
from pubstorm.result.figures import from_send, from_send_text, slowest_first
from pubstorm.result.verdict.findings import Finding, under_test


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
    limit = "" if limited_by in _NO_LIMIT else f"; limited by the {limited_by}"
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
