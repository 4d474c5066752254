"""Findings about publishers under test, stalled subscribers, uneven targets, faults and phases. A
PUB socket drops silently if a subscriber's queue is full, so lost deliveries were dropped there,
unless readers or host were at their limit. A fault fails no run by itself; one whose command failed
makes the run invalid. A load that was not carried at the end of a phase fails the run, or makes it
invalid if processors were lacking. After a fault the load must be carried again before the stage
ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pubstorm.metrics import columns_of
from pubstorm.metrics.counters import COUNTERS
from pubstorm.metrics.expressions import Expression
from pubstorm.quantities import count_text, counted, duration_text, rate_text, share_text, span_text
from pubstorm.result import (
    RATED_MIN_S,
    FaultResult,
    FlowResult,
    Measured,
    Phase,
    PhaseStatus,
    PublisherResult,
    StageFlow,
    StageResult,
    StalledSubscriber,
    TargetResult,
)
from pubstorm.result.figures import ROUND_TRIP, evaluate, from_send, from_send_text
from pubstorm.result.verdict.culprit import EvidenceKind, Uncarried, on_purpose
from pubstorm.result.verdict.findings import (
    Finding,
    carrier,
    explained_by_faults,
    invalid,
    starved,
    under_test,
    unless_broken,
    with_faults,
)

MIN_SKIPPED_SHARE = 0.001
"""Share of the messages due that a publisher must have left out to set the limit: the last before
the end of a stage may miss it by chance."""
NEAR_SHARE = 0.5
"""Share of the high-water mark from which a burst comes near it."""


def _unsent(measured: Measured) -> Iterable[Finding]:
    """Messages due that were not sent, or too late; faults explain those of their stages. A closed
    loop sends what it can, which is its limit."""
    for publisher in measured.publishers:
        if publisher.sent_total and measured.populations[publisher.population].closed_loop:
            rate = rate_text(sent_per_s(measured, publisher))
            text = f"{publisher.name} sent as fast as it could: {rate} messages a second"
            yield Finding(text, EvidenceKind.AT_PUBLISHER())
            continue
        if publisher.skipped_total:
            text, because = _skipped_text(measured, publisher), None
            broken = with_faults(measured)
            if unless_broken(measured, broken, publisher.population, "skipped_total") is None:
                text += ", in stages with faults"
            elif publisher.skipped_total >= MIN_SKIPPED_SHARE * publisher.due_total:
                because = EvidenceKind.AT_PUBLISHER()
            yield Finding(text, because)
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
    if (purpose := on_purpose(measured, flow)) is not None:
        words, kind = purpose
        return Finding(text + words, kind(reach))
    if explained_by_faults(measured, flow):
        counts = f"{count_text(flow.lost_total)} of {of} from {flow.source} to {flow.to}"
        return Finding(f"{counts} were lost, in stages with faults")
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


def _unstamped(measured: Measured) -> Iterable[Finding]:
    """Messages of declared flows whose stamp did not survive."""
    for name, population in measured.populations.items():
        if population.unstamped_total:
            came = counted(population.unstamped_total, "message")
            text = f"{name} received {came} without a stamp of their name, under names of declared "
            text += (
                "flows: what carries them drops, changes or swaps payloads, so the ledger cannot "
            )
            text += "follow them"
            yield invalid(text, EvidenceKind.UNEXPLAINED, "stamps of a declared flow were lost")


PUBLISHER_RULES = (_unsent, _dropped, _unstamped)


UNEVEN_FACTOR = 1.1
"""Largest share of a target, by that of the plan."""
NAMED_MAX = 3
"""Stalled subscribers that are named in a finding."""


def _stalls(measured: Measured) -> Iterable[Finding]:
    """Subscribers that stalled. Those that got nothing more count as lost deliveries do: of what
    carries their messages, unless a fault explains them."""
    broken = {stage.name for stage in with_faults(measured)}
    for name, population in measured.populations.items():
        stalls = [stall for stall in measured.stalls if stall.population == name]
        for_good = [stall for stall in stalls if stall.lasted]
        lasting = population.stalled
        if lasting:
            text = (
                f"{name}: {counted(lasting, 'subscriber')} stalled and got nothing more before the "
                f"stage ended{_named(for_good, lasting)}"
            )
            explained = stalls and all(stall.stage in broken for stall in stalls)
            yield Finding(text, None if explained else carrier(population)())
        passing = max(population.stalled_total, len(stalls)) - lasting
        if passing > 0:
            over = [stall for stall in stalls if not stall.lasted]
            text = f"{name}: {counted(passing, 'time')} a subscriber stalled and recovered"
            yield Finding(text + _named(over, passing))


def _named(stalls: Sequence[StalledSubscriber], total: int) -> str:
    """The first of some stalls, each with its time."""
    if not stalls:
        return ""
    shown = [_in_words(stall) for stall in stalls[: min(NAMED_MAX, total)]]
    left = total - len(shown)
    return f": {', '.join(shown)}" + (f" and {count_text(left)} more" if left > 0 else "")


def _in_words(stall: StalledSubscriber) -> str:
    until = "" if stall.until_s is None else f" to {span_text(stall.until_s)}"
    until = " on" if stall.lasted else until
    due = f"{counted(stall.due, 'message')} due"
    return f"{stall.population} {stall.number} (from {span_text(stall.since_s)}{until}, {due})"


def _balance(measured: Measured) -> Iterable[Finding]:
    """The target of each name that is furthest above its share. It is evidence only, since clients
    choose their targets."""
    groups: dict[str, list[TargetResult]] = {}
    for target in measured.balance:
        groups.setdefault(target.group, []).append(target)
    for group, targets in groups.items():
        beyond = [t for t in targets if t.share > UNEVEN_FACTOR * t.planned_share]
        if not beyond:
            continue
        worst = max(beyond, key=lambda target: target.share - target.planned_share)
        connected = sum(target.connected_max for target in targets)
        others = f", and {count_text(len(beyond) - 1)} more had too much" if beyond[1:] else ""
        yield Finding(
            f"{group} was not in balance: {worst.name} had {count_text(worst.connected_max)} of "
            f"{counted(connected, 'connection')}, {share_text(worst.share)}; by the plan "
            f"{share_text(worst.planned_share)}{others}"
        )


def _from_send(measured: Measured) -> Iterable[Finding]:
    """Latencies of populations of which the generator made too much."""
    for name in measured.populations:
        for metric, what in _LATENCIES.items():
            shown = []
            for statistic in ("p50", "p99"):
                asked = Expression(name, metric, statistic)
                found, sent = evaluate(measured, asked), from_send(measured, asked)
                if sent is not None:
                    shown.append(f"{statistic} {found}, {from_send_text(asked, sent)}")
            if shown:
                text = f"{name}: the generator made a part of the {what}: {'; '.join(shown)}"
                bound = " (a bound, by the lateness of all messages)"
                yield Finding(text + (bound if metric == ROUND_TRIP else ""))


_LATENCIES = {
    **{
        metric.name: column.head.replace("p99", "latency")
        for metric, column in columns_of("headline")
    },
    ROUND_TRIP: "round trips",
}
OUR_FAULTS = frozenset({"rotate", "cut", "delay", "command"})
"""Faults that fail through the run. Those of brokers fail where a broker has ended, which is a
finding of its own."""
SUMMARY_RULES = (_stalls, _balance, _from_send)


def _faults(measured: Measured) -> Iterable[Finding]:
    """One line for each fault. The connections and deliveries of a stage with one fault are in
    that line; a stage with several faults has a line of its own for them."""
    for stage in with_faults(measured):
        inside = [fault for fault in measured.faults if stage.holds(fault.at_s)]
        facts = "; ".join(_stage_facts(stage))
        alone = len(inside) == 1
        for fault in inside:
            yield Finding(_fault_text(fault, facts if alone else ""))
        if facts and not alone:
            yield Finding(f"stage {stage.name}, with its faults: {facts}")
    for fault in measured.faults:
        if fault.failed is not None and fault.kind in OUR_FAULTS:
            text = f"fault {fault.name} at {span_text(fault.at_s)} failed: {fault.failed}"
            yield invalid(text, EvidenceKind.UNEXPLAINED, "a fault could not be made")
    outside = (f for f in measured.faults if not any(s.holds(f.at_s) for s in measured.stages))
    yield from (Finding(_fault_text(fault, "")) for fault in outside)


def _fault_text(fault: FaultResult, more: str) -> str:
    lasted = "not repaired"
    if fault.repaired_at_s is not None:
        lasted = f"repaired after {span_text(fault.repaired_at_s - fault.at_s)}"
    facts = "; ".join((lasted, *fault.evidence, *((more,) if more else ())))
    return f"{fault.name} at {span_text(fault.at_s)}: {facts}"


def _stage_facts(stage: StageResult) -> Iterator[str]:
    """The connections and deliveries of a stage with faults, the latter by QoS."""
    populations = stage.populations.values()
    failed = sum(population.connect_failed_total for population in populations)
    ended = sum(population.disconnected_total for population in populations)
    if failed or ended:
        yield (
            f"{counted(ended, 'connection')} ended and {counted(failed, 'connection attempt')} "
            "failed"
        )
    levels: dict[tuple[int, ...], list[StageFlow]] = {}
    for flow in stage.flows:
        levels.setdefault(flow.qos, []).append(flow)
    for qos, flows in sorted(levels.items()):
        counts = ", ".join(
            f"{count_text(sum(getattr(flow, counter) for flow in flows))} {words}"
            for counter, words in _EFFECTS.items()
        )
        expected = sum(flow.expected_total for flow in flows)
        level = f" at QoS {' and '.join(map(str, qos))}" if qos else ""
        yield f"{counts} of {counted(expected, 'delivery', 'deliveries')}{level}"


_EFFECTS = {metric.field: metric.fault_effect for metric in COUNTERS if metric.fault_effect}
FAULT_RULES = (_faults,)


def _phases(measured: Measured) -> Iterable[Finding]:
    faults = {(fault.stage, fault.name) for fault in measured.faults}
    unknown = [phase for phase in measured.phases if _is_unknown(phase)]
    if len(unknown) > 1:
        # A user who presses keys makes phases, of which one line is enough.
        names = ", ".join(phase.name for phase in unknown)
        facts = "; ".join(unknown[0].evidence)
        yield Finding(
            f"{len(unknown)} phases say nothing about the target ({names}); of the first: {facts}"
        )
    for number, phase in enumerate(measured.phases):
        if len(unknown) > 1 and _is_unknown(phase):
            continue
        if phase.status in _WORDS:
            facts = f": {'; '.join(phase.evidence)}" if phase.evidence else ""
            text = (
                f"phase {phase.name} {_WORDS[phase.status]}{phase.times(' and recovered')}{facts}"
            )
            broke = phase.status in {PhaseStatus.COLLAPSED, PhaseStatus.NEVER_RECOVERED}
            lasted = broke and phase.recovered_after_s is None
            is_starved = phase.starved
            if (phase.stage, phase.name) in faults:
                made_up = _made_up_for(measured.phases[number + 1 :], phase)
                broke, lasted = lasted and not made_up, lasted and not made_up
                is_starved = is_starved and not made_up
            if is_starved:
                yield starved(text)
            else:
                because = under_test(measured)() if broke else None
                yield Finding(text, because, failed=lasted)


def _is_unknown(phase: Phase) -> bool:
    return phase.status is PhaseStatus.UNKNOWN and not phase.starved and bool(phase.evidence)


def _made_up_for(later: Iterable[Phase], phase: Phase) -> bool:
    """Returns True if a later phase of the same stage carried the load again; the first conclusive
    phase decides."""
    statuses = (
        p.status for p in later if p.stage == phase.stage and p.status is not PhaseStatus.UNKNOWN
    )
    return any(status is not PhaseStatus.NEVER_RECOVERED for status in statuses)


_WORDS = {
    PhaseStatus.COLLAPSED: "collapsed",
    PhaseStatus.RECOVERED: "recovered",
    PhaseStatus.NEVER_RECOVERED: "never recovered",
    PhaseStatus.UNKNOWN: "says nothing about the target",
}


def _short(measured: Measured) -> Iterable[Finding]:
    """Stages in which no collapse was looked for. Their loss is evaluated by thresholds."""
    for each in measured.short_stages:
        yield Finding(
            f"stage {each.stage} was too short to see a collapse: it has "
            f"{counted(each.intervals, 'interval')}, {count_text(each.needed)} are needed "
            "(a longer stage, or a shorter snapshot_interval)"
        )


def _unrated(measured: Measured) -> Iterable[Finding]:
    """Stages whose load was too short for rates."""
    for stage in measured.stages:
        sent = any(each.sent_total for each in stage.populations.values())
        if stage.kind == "publish" and sent and not stage.steady_s:
            needed = span_text(RATED_MIN_S)
            yield Finding(
                f"stage {stage.name} has no rates: all its messages were sent in less than {needed}"
                " (send more of them)"
            )


PHASE_RULES = (_phases, _short, _unrated)
