"""Findings about publishers under test: messages that they could not send, and messages that their
sockets dropped. A PUB socket drops silently if a subscriber's queue is full. So lost deliveries
were dropped there, unless readers or host were at their limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pubstorm.quantities import count_text, counted, duration_text, rate_text, share_text
from pubstorm.result import FlowResult, Measured, PublisherResult
from pubstorm.result.verdict.culprit import EvidenceKind, Uncarried
from pubstorm.result.verdict.findings import (
    Finding,
    explained_by_faults,
    reads_slowly,
    slow_text,
)

MIN_SKIPPED_SHARE = 0.001
"""Share of the messages due that a publisher must have left out to set the limit: the last before
the end of a stage may miss it by chance."""
NEAR_SHARE = 0.5
"""Share of the high-water mark from which a burst comes near it."""


def _unsent(measured: Measured) -> Iterable[Finding]:
    """Messages due that were not sent, or too late. A closed loop sends what it can, which is its
    limit."""
    for publisher in measured.publishers:
        if publisher.sent_total and measured.populations[publisher.population].closed_loop:
            rate = rate_text(sent_per_s(measured, publisher))
            text = f"{publisher.name} sent as fast as it could: {rate} messages a second"
            yield Finding(text, EvidenceKind.AT_PUBLISHER())
            continue
        if publisher.skipped_total:
            few = publisher.skipped_total < MIN_SKIPPED_SHARE * publisher.due_total
            because = None if few else EvidenceKind.AT_PUBLISHER()
            yield Finding(_skipped_text(measured, publisher), because)
        late, allowed_us = publisher.lateness_us, measured.validity.lateness_p99_us
        if late.count and late.p99 > allowed_us:
            yield Finding(
                f"{publisher.name} was late: p99 {duration_text(late.p99)} over "
                f"{counted(late.count, 'message')}, allowed is {duration_text(allowed_us)}",
                EvidenceKind.AT_PUBLISHER(),
            )


def sent_per_s(measured: Measured, publisher: PublisherResult) -> float:
    """Messages a second of one publisher: its part of what its population sent."""
    population = measured.populations[publisher.population]
    if not population.sent_total:
        return 0.0
    return population.rates.sent_per_s * publisher.sent_total / population.sent_total


def _skipped_text(measured: Measured, publisher: PublisherResult) -> str:
    due, rate = publisher.due_total, sent_per_s(measured, publisher)
    skipped = f"{count_text(publisher.skipped_total)} of {count_text(due)} were not sent"
    if not rate:
        return f"{publisher.name}: {skipped}"
    due_per_s = rate * due / publisher.sent_total
    return (
        f"{publisher.name} sent {rate_text(rate)} of {rate_text(due_per_s)} scheduled messages a "
        f"second: {skipped}"
    )


def _dropped(measured: Measured) -> Iterable[Finding]:
    """Messages that were sent and did not come, by the subscribers that they were due to."""
    by_population = {publisher.population: publisher for publisher in measured.publishers}
    hit: dict[str, PublisherResult] = {}
    for flow in measured.flows:
        publisher = by_population.get(flow.source)
        if publisher is None or not flow.lost_total:
            continue
        finding = _drop(measured, flow, publisher)
        yield finding
        if finding.because is not None and finding.because.kind is EvidenceKind.PUBLISHER_DROPS:
            hit[flow.source] = publisher
    for name, publisher in hit.items():
        yield from _bursts(name, publisher)


def _drop(measured: Measured, flow: FlowResult, publisher: PublisherResult) -> Finding:
    share = share_text(round(flow.lost_total / flow.expected_total, 5))
    of = counted(flow.expected_total, "delivery", "deliveries")
    text = (
        f"{flow.source} dropped {share} of the deliveries to {flow.to} "
        f"({count_text(flow.lost_total)} of {of})"
    )
    receiver = measured.populations[flow.to]
    if not receiver.ready_max:
        return Finding(f"{flow.to} was never ready: nothing of the deliveries to it came ({of})")
    reach = Uncarried.of(measured).of_lost(flow.lost_total)
    if reads_slowly(measured, receiver):
        return Finding(text + slow_text(flow.to, receiver), EvidenceKind.SLOW_READERS(reach))
    if explained_by_faults(measured, flow):
        return Finding(f"{text} in stages with faults")
    if not publisher.high_water_mark:
        why = (
            ", though its queues have no limit: it waited there until the run ended, or went with "
            "a lost connection"
        )
    else:
        why = f" at its high-water mark of {count_text(publisher.high_water_mark)}"
        if receiver.player != "engine":
            why += ", or its subscribers did at theirs"
    return Finding(text + why, EvidenceKind.PUBLISHER_DROPS(reach))


def _bursts(name: str, publisher: PublisherResult) -> Iterator[Finding]:
    """Bursts that a subscriber's queue has hardly room for."""
    limit, burst = publisher.high_water_mark, publisher.burst
    if limit and burst > 1 and burst >= NEAR_SHARE * limit:
        yield Finding(
            f"{name}: bursts of {count_text(burst)} meet a high-water mark of {count_text(limit)}: "
            "the queue of every subscriber must be emptied while a burst goes in, or before the "
            "next"
        )


PUBLISHER_RULES = (_unsent, _dropped)
