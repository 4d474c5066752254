"""The facts in a result that bear on its verdict: one rule for each kind, each fact with its
numerators. Pure functions of measured values; they weigh nothing against each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pubstorm.contract.reasons import Reason, ReasonFamily, reasons_of
from pubstorm.contract.snapshot import STARVED_SHARE, Answer
from pubstorm.metrics.counters import COUNTERS
from pubstorm.quantities import (
    count_text,
    counted,
    duration_text,
    share_text,
    span_text,
)
from pubstorm.result import (
    FleetResult,
    FlowResult,
    LimitedBy,
    Measured,
    PopulationResult,
    StageResult,
)
from pubstorm.result.machinery import is_late, too_busy
from pubstorm.result.summary import KINDS, ProblemKind, problem_of, reasons_text
from pubstorm.result.verdict.culprit import Evidence, EvidenceKind, Uncarried, on_purpose

MAX_HEADROOM_USE = 0.8
"""Share of a calibrated ceiling above which the generator may have set the limit."""
MIN_HELD_UP_SHARE = 0.01
"""Share of the messages held up by socket or window from which the broker sets the limit."""
MOSTLY_HELD = 0.5
"""Share of publish stages with waits for the Receive Maximum from which it limits the rate."""


@dataclass(frozen=True)
class Finding:
    """One fact that bears on the verdict."""

    text: str
    because: Evidence | None = None
    """Evidence that the fact is; None if it names no culprit."""
    invalid: bool = False
    failed: bool = False
    reason: str = ""
    """Why the run is invalid, in a few words for the headline."""

    @property
    def limited_by(self) -> LimitedBy:
        """The culprit that it names."""
        return LimitedBy.NONE if self.because is None else self.because.kind.culprit


_EXITS = {
    "broker": EvidenceKind.EXITED,
    "service": EvidenceKind.SERVICE_EXITED,
    "publisher": EvidenceKind.PUBLISHER_EXITED,
}
"""Evidence of the end of a program under test, by the kind of its event."""


def _events(measured: Measured) -> Iterable[Finding]:
    """Agents lost, brokers gone, an interruption, an early end."""
    for event in measured.events:
        text = f"at {event.at_s:.1f} s: {event.text}"
        if event.kind == "agent" or event.kind == "links":
            yield invalid(text, EvidenceKind.AGENT_LOST, "a part of the load generator failed")
        elif event.kind in _EXITS:
            yield Finding(text, _EXITS[event.kind](), failed=True)
        elif event.kind == "outage":
            broken = any(stage.holds(event.at_s) for stage in with_faults(measured))
            yield Finding(text, None if broken else under_test(measured)())
        elif event.kind == "check":
            yield Finding(event.text, EvidenceKind.UNEXPLAINED(), failed=True)
        elif event.kind in {"host", "bridge", "scenario"}:
            yield Finding(event.text)
        elif event.kind == "stale_state":
            yield invalid(
                event.text, EvidenceKind.STALE_STATE, "the target holds what earlier runs left"
            )
        elif event.kind == "memory":
            yield invalid(text, EvidenceKind.NO_RESOURCE, "the host ran out of memory")
        elif event.kind == "interrupt":
            yield invalid(text, EvidenceKind.UNEXPLAINED, "the run was interrupted")
        elif event.kind == "by_hand":
            yield Finding(f"changed by hand {text}")
        elif event.kind == "summary":
            yield invalid(
                event.text, EvidenceKind.UNEXPLAINED, "a part of the result could not be made"
            )
        elif event.kind not in {"change", "fault", "failure"}:
            yield Finding(text)
    if any(event.kind in {"agent", "failure"} for event in measured.events):
        yield Finding("the ledger lacks what a lost agent did after its last snapshot")


def _failures(measured: Measured) -> Iterable[Finding]:
    """Agent failures that did not end the run: each is a fact, and not a limit by itself."""
    clients = sum(population.clients for population in measured.populations.values())
    for failure in measured.fleet.failures:
        its = f"its {count_text(failure.clients)} of {counted(clients, 'client')} were away"
        until = "from then on"
        if failure.rejoined_after_s is not None:
            after = duration_text(1e6 * failure.rejoined_after_s)
            until = f"until its replacement began to rejoin, {after} later"
        yield Finding(f"at {failure.at_s:.1f} s: {failure.text}: {its} {until}")


def _stale_state(measured: Measured) -> Iterable[Finding]:
    """Stale state on the targets, and state that this run could not remove."""
    for stale_state in measured.stale_state:
        text = f"{stale_state.target}: {stale_state.text}"
        if stale_state.when == "after":
            if stale_state.what == "unknown":
                yield Finding(text)
        elif stale_state.what == "unknown":
            yield Finding(f"whether it was a clean start is not known: {text}")
        elif stale_state.what in {"queued", "cleared"}:
            yield Finding(text)
        else:
            yield Finding(f"it was not a clean start: {text}")


def _host_limits(measured: Measured) -> Iterable[Finding]:
    """Resources of this host that connections lacked, and packets that could not be written."""
    outcomes = outcomes_of(measured)
    unwritten = outcomes[Reason.CANNOT_ENCODE]
    if unwritten:
        text = (
            f"pubstorm could not write {counted(unwritten, 'packet')} of its own: a text is longer "
            "than MQTT allows; please report this, with the scenario"
        )
        yield invalid(text, EvidenceKind.CANNOT_ENCODE, "the generator could not write its packets")
    for reason, (what, fix) in _HOST_FIXES.items():
        if outcomes[reason]:
            text = f"{counted(outcomes[reason], 'attempt')} met {what}: {fix}"
            yield invalid(text, EvidenceKind.NO_RESOURCE, "the host could not open all connections")


def _target(measured: Measured) -> Iterable[Finding]:
    populations = measured.populations.values()
    attempts = sum(p.connect_attempts_total for p in populations)
    connected = sum(p.connected_total for p in populations)
    if attempts and not connected:
        reasons = [reasons_text(outcomes_of(measured), populations)]
        waiting = attempts - sum(p.connect_failed_total for p in populations)
        stage = next((stage for stage in measured.stages if stage.kind == "connect"), None)
        if waiting > 0 and stage is not None:
            text = f"{count_text(waiting)} had no answer from the target when stage {stage.name}"
            reasons.append(f"{text} ended after {span_text(stage.duration_s)}")
        text = f"none of {counted(attempts, 'connection attempt')} succeeded: "
        text += ", ".join(filter(None, reasons)) or "no reason was counted"
        # A run that was interrupted may not have given the target the time to answer.
        cut_short = waiting == attempts and _was_interrupted(measured)
        advice = "no client could connect to the target"
        yield Finding(text) if cut_short else invalid(text, EvidenceKind.NO_CONNECTION, advice)


def _was_interrupted(measured: Measured) -> bool:
    return any(event.kind == "interrupt" for event in measured.events)


def _saturation(measured: Measured) -> Iterable[Finding]:
    """The generator's own lateness and load."""
    fleet, limits = measured.fleet, measured.validity
    if fleet.held_s:
        text = (
            f"an agent published nothing for {span_text(fleet.held_s)}: the controller had read "
            "none of its snapshots for a minute"
        )
        yield invalid(text, EvidenceKind.HELD, "the controller stood still")
    late = fleet.lateness_us
    if is_late(late, fleet.late_total, limits.lateness_p99_us):
        text = (
            f"the generator was late: p99 {duration_text(late.p99)} over "
            f"{counted(late.count, 'message')} that nothing else held up, allowed is "
            f"{duration_text(limits.lateness_p99_us)}"
        )
        late_ones = counted(fleet.late_total, "late message")
        why = (
            f"{count_text(fleet.late_starved_total)} of {late_ones} fell into intervals in which "
            "the host gave an agent no processor for more than "
            f"{share_text(STARVED_SHARE)} of the time"
        )
        yield _by_host(text, why) if _was_starved(fleet) else _by_generator(text)
    elif late.count and late.p99 > limits.lateness_p99_us:
        yield Finding(
            f"{count_text(fleet.late_total)} of {counted(late.count, 'message')} that nothing else "
            f"held up went out later than {duration_text(limits.lateness_p99_us)}, the latest by "
            f"{duration_text(late.max)}: too few to say that the generator was late"
        )
    busy, intervals = fleet.busy_intervals_total, fleet.load_intervals_total
    if too_busy(busy, intervals):
        text = (
            f"an agent's loop was busy for more than {share_text(limits.busy)} of the time in "
            f"{count_text(busy)} of {counted(intervals, 'interval')} under load"
        )
        why = f"in {count_text(fleet.busy_starved_total)} of them the host gave it no processor"
        mostly = 2 * fleet.busy_starved_total > busy
        yield _by_host(text, why) if mostly else _by_generator(text)


def _was_starved(fleet: FleetResult) -> bool:
    """Returns whether most late messages are explained by a lack of processors."""
    return 2 * fleet.late_starved_total > fleet.late_total


def _by_host(text: str, why: str) -> Finding:
    return starved(f"{text}; {why}")


def starved(text: str) -> Finding:
    """A lack of processor time for agents, which makes the run invalid."""
    reason = "the host gave the load generator too little processor time"
    return invalid(f"{text}: {_STARVED_ADVICE}", EvidenceKind.NO_PROCESSOR, reason)


def invalid(text: str, kind: EvidenceKind, reason: str) -> Finding:
    """A fact that makes the run invalid, with the reason in a few words."""
    return Finding(text, kind(), invalid=True, reason=reason)


def _by_generator(text: str) -> Finding:
    return invalid(f"{text}: use more agents or less load", EvidenceKind.TOO_SLOW, _TOO_SLOW)


def _headroom(measured: Measured) -> Iterable[Finding]:
    """Headroom: the load against the calibrated limits of the generator."""
    headroom = measured.headroom
    if headroom is None:
        return
    rate, clients = share_text(round(headroom.rate, 2)), share_text(round(headroom.clients, 2))
    advice = f", above {share_text(MAX_HEADROOM_USE)}: use more agents (fleet.agents)"
    is_high = headroom.rate > MAX_HEADROOM_USE
    yield Finding(
        f"the generator ran at {rate} of its calibrated ceiling{advice if is_high else ''}"
    )
    if headroom.clients > MAX_HEADROOM_USE:
        yield Finding(f"an agent played {clients} of its calibrated number of clients{advice}")


def _skipped(measured: Measured) -> Iterable[Finding]:
    """Messages that the agents did not send; publishers under test have rules of their own."""
    missing = Uncarried.of(measured)
    for name, population in measured.populations.items():
        due = population.skipped_total + population.sent_total
        left_out = sum(
            population.outcomes.get(reason, 0) for reason in reasons_of(ReasonFamily.MESSAGE)
        )
        if left_out:
            text = f"{name}: {count_text(left_out)} of {counted(due, 'message')} due were not sent"
            reach = missing.of_unsent(left_out)
            yield Finding(f"{text}: the broker does not accept them", EvidenceKind.REFUSED(reach))
        skipped = population.skipped_total - left_out
        if skipped <= 0 or name in of_publishers(measured):
            continue
        text = f"{name}: {count_text(skipped)} of {counted(due, 'message')} due were not sent"
        ended = population.connected_total + population.connect_failed_total
        if _held_up(measured, population):
            yield Finding(f"{text}: their connection, socket or window did not take them")
        elif _was_interrupted(measured):
            yield Finding(f"{text} when the run was interrupted")
        elif _was_starved(measured.fleet):
            yield starved(f"{text}: the host's processors were taken")
        elif population.connect_attempts_total > ended:
            yield Finding(f"{text}: clients had to leave before they were connected")
        else:
            text = f"{text}, and nothing but the generator held them up"
            yield invalid(text, EvidenceKind.TOO_SLOW, _TOO_SLOW)


def of_publishers(measured: Measured) -> set[str]:
    """Populations whose clients are publishers under test."""
    return {publisher.population for publisher in measured.publishers}


def _held_up(measured: Measured, population: PopulationResult) -> bool:
    never_ready = population.never_ready > 0
    lost_connections = population.disconnected_total > 0
    unanswered = population.in_flight > 0 or population.abandoned_total > 0
    blocked = measured.fleet.blocked_us.count > 0 or population.blocked_total > 0
    return never_ready or lost_connections or unanswered or blocked


def _unready(measured: Measured) -> Iterable[Finding]:
    for name, population in measured.populations.items():
        asked, missing = population.asked, population.never_ready
        if missing > 0 and population.connect_attempts_total > 0:
            lost = "; what was meant for them counts as lost" if population.lost_total else ""
            yield Finding(
                f"{name}: never ready: {count_text(missing)} of {counted(asked, 'client')}{lost}"
            )


def _connections(measured: Measured) -> Iterable[Finding]:
    """Refused and lost connections of all populations; stages with faults have their own rule."""
    if any(population.connected_total for population in measured.populations.values()):
        for carried_by, names in touched(measured, "connect_failed_total"):
            yield from _problem(measured, KINDS["connect_failed"], names, carried_by)
    for name in measured.populations:
        for kind in _stated_as("refusal"):
            yield from _problem(measured, kind, [name], EvidenceKind.AT_BROKER)
    for carried_by, names in touched(measured, "disconnected_total"):
        yield from _problem(measured, KINDS["disconnected"], names, carried_by)


def _stated_as(finding: str) -> Iterator[ProblemKind]:
    return (kind for kind in KINDS.values() if kind.failures.finding == finding)


def _problem(
    measured: Measured,
    kind: ProblemKind,
    names: Iterable[str],
    symptom: EvidenceKind | None = None,
) -> Iterable[Finding]:
    problem = problem_of(kind, {name: measured.populations[name] for name in names})
    if problem is not None:
        because = None if symptom is None else symptom()
        yield Finding(f"{', '.join(problem.populations)}: {problem.text}", because)


def touched(measured: Measured, counter: str) -> Iterable[tuple[EvidenceKind, list[str]]]:
    """The populations with a counter that faults do not explain, by what carries their messages."""
    broken, found = with_faults(measured), dict[EvidenceKind, list[str]]()
    for name, population in measured.populations.items():
        carried_by = unless_broken(measured, broken, name, counter)
        if getattr(population, counter) and carried_by is not None:
            found.setdefault(carried_by, []).append(name)
    return found.items()


def with_faults(measured: Measured) -> list[StageResult]:
    """The stages in which something was broken on purpose."""
    return [s for s in measured.stages if any(s.holds(fault.at_s) for fault in measured.faults)]


def unless_broken(
    measured: Measured, broken: Iterable[StageResult], population: str, counter: str
) -> EvidenceKind | None:
    """Returns the symptom of a population's counter; None if it grew in stages with faults only."""
    there = [s.populations[population] for s in broken if population in s.populations]
    counted_there = sum(getattr(part, counter) for part in there)
    whole = measured.populations[population]
    return None if counted_there >= getattr(whole, counter) else carrier(whole)


def carrier(population: PopulationResult) -> EvidenceKind:
    """Returns the symptom of load that is missing behind what carries the messages of a population:
    a broker, or a publisher."""
    return EvidenceKind.AT_BROKER if population.can.has_broker else EvidenceKind.AT_PUBLISHER


def under_test(measured: Measured) -> EvidenceKind:
    """Returns the symptom of load that is missing behind what carries the messages of a run:
    publishers if no client has a broker, else brokers."""
    found = set(map(carrier, measured.populations.values()))
    return (
        EvidenceKind.AT_PUBLISHER
        if found == {EvidenceKind.AT_PUBLISHER}
        else EvidenceKind.AT_BROKER
    )


def explained_by_faults(measured: Measured, flow: FlowResult) -> bool:
    """Returns True if a flow lost deliveries in stages with faults only."""
    return in_stages_with_faults(measured, flow, "lost_total") >= flow.lost_total


def in_stages_with_faults(measured: Measured, flow: FlowResult, counter: str) -> int:
    """The part of a flow's counter that belongs to stages with faults."""
    pair = (flow.source, flow.to)
    parts = (part for stage in with_faults(measured) for part in stage.flows)
    return sum(getattr(part, counter) for part in parts if (part.source, part.to) == pair)


def _deliveries(measured: Measured) -> Iterable[Finding]:
    """Losses, surplus, duplicates and what the ledger could not follow, flow by flow; the losses of
    publishers under test have a rule of their own."""
    published, missing = of_publishers(measured), Uncarried.of(measured)
    for flow in measured.flows:
        name = f"{flow.source} → {flow.to}"
        of = f"of {counted(flow.expected_total, 'delivery', 'deliveries')}"
        if flow.source not in published and not explained_by_faults(measured, flow):
            wills = min(flow.wills_expected_total - flow.wills_received_total, flow.lost_total)
            part = f", {count_text(wills)} of them {'will' if wills == 1 else 'wills'}"
            text = (
                f"{name}: {count_text(flow.lost_total)} {of} were lost{part if wills > 0 else ''}"
            )
            words, kind = on_purpose(measured, flow) or _unknown_loss(flow)
            yield Finding(text + words, kind(missing.of_lost(flow.lost_total)))
        if flow.in_flight_total:
            in_flight = count_text(flow.in_flight_total)
            yield Finding(f"{name}: {in_flight} {of} were in flight when the run ended early")
        for counter, words in _ODDITIES.items():
            total = getattr(flow, counter)
            if total > in_stages_with_faults(measured, flow, counter):
                expected = counted(flow.expected_total, "expected delivery", "expected deliveries")
                yield Finding(f"{name}: {count_text(total)} {words} beside {expected}")
        yield from (Finding(f"{name}: {text}") for text in _beyond(measured, flow))
    unfollowed = measured.fleet.unfollowed_total
    if unfollowed:
        yield Finding(
            f"{counted(unfollowed, 'delivery', 'deliveries')} were beyond the ledger's bound: "
            "counted, not checked for order and duplicates"
        )


def _unknown_loss(flow: FlowResult) -> tuple[str, EvidenceKind]:
    """Returns the words about lost deliveries that may have come, and the kind of evidence that all
    are: the ledger does not separate those that come long after later ones from duplicates."""
    late = min(flow.stale_total, flow.lost_total)
    if not late:
        return "", EvidenceKind.AT_BROKER
    is_all = late == flow.lost_total
    words = "they" if is_all else f"{count_text(late)} of them"
    kind = EvidenceKind.UNEXPLAINED if is_all else EvidenceKind.AT_BROKER
    return f"; {words} may be among the deliveries too late to separate from duplicates", kind


def _beyond(measured: Measured, flow: FlowResult) -> Iterable[str]:
    """Deliveries of a flow that were not expected, with their origin."""
    expected = f"{count_text(flow.expected_total)} were expected"
    wills = flow.wills_surplus_total
    messages = flow.surplus_total - wills
    if wills:
        came = counted(wills, "will", "wills")
        yield (
            f"{came} came that no end of a connection explains, beside "
            f"{count_text(flow.wills_expected_total)} expected: they stand for no other message"
        )
    if messages:
        came = counted(messages, "delivery", "deliveries")
        if flow.has_unstamped:
            yield f"{came} came twice, of messages without a stamp; {expected}"
        elif any(event.kind in {"agent", "failure"} for event in measured.events):
            why = "since an agent ended before its last report"
            yield f"{came} came that no agent reported as sent, {why}; {expected}"
        else:
            yield f"{came} came that no agent reported as sent; {expected}"


def _counted_only(measured: Measured) -> Iterable[Finding]:
    """Flows whose losses duplicates can hide, with what MQTT says of repeated messages."""
    for flow in measured.flows:
        if flow.unstamped <= 0:
            continue
        publisher, receiver = (measured.populations[name] for name in (flow.source, flow.to))
        ends = [publisher] if publisher is receiver else [publisher, receiver]
        ended = sum(each.disconnected_total + each.left_total for each in ends)
        rule = "MQTT forbids duplicates at QoS 0 and 2"
        if 1 in receiver.delivery_qos or publisher.resent_total:
            rule = f"MQTT allows them at QoS 1 after a connection ended: {count_text(ended)} ended"
        yield Finding(
            f"{flow.source} → {flow.to}: "
            f"{counted(flow.unstamped, 'delivery', 'deliveries')} carried no stamp and were only "
            f"counted: a duplicate would hide a loss; {rule}"
        )


def _excluded(measured: Measured) -> Iterable[Finding]:
    """Receivers that joined, left or were lost while messages were sent."""
    why = "its clients joined or left meanwhile"
    if measured.fleet.failures:
        why = "clients joined, left or were lost with an agent meanwhile"
    if measured.changed_by_hand:
        why += ", or had not joined when the user ended a stage"
    for stage in measured.stages:
        for name in stage.excluded:
            own = stage.populations.get(name)
            received = 0 if own is None else own.received_total
            if not received and stage.kind == "hold":
                continue
            did = "" if own is None else own.changed
            if measured.interrupted and not stage.settled:
                why = "the run ended before the stage"
            yield Finding(
                f"{name}: {counted(received, 'delivery', 'deliveries')} in stage {stage.name} "
                f"were excluded from loss, because "
                + (f"its clients {did} meanwhile" if did else why)
            )


def _unacknowledged(measured: Measured) -> Iterable[Finding]:
    for name in measured.populations:
        for kind in _stated_as("acknowledgement"):
            yield from _problem(measured, kind, [name])


def _backpressure(measured: Measured) -> Iterable[Finding]:
    """Sends of open loops that socket, window or connection held up, which a fault explains."""
    blocked = measured.fleet.blocked_us
    sent = sum(population.sent_total for population in measured.populations.values())
    if blocked.count > MIN_HELD_UP_SHARE * sent and blocked.p99 > measured.validity.lateness_p99_us:
        yield Finding(
            f"{count_text(blocked.count)} of {counted(sent, 'message')} waited for window, socket "
            f"or connection, p99 {duration_text(blocked.p99)}",
            None if measured.faults else EvidenceKind.AT_BROKER(),
        )


def _receive_maximum(measured: Measured) -> Iterable[Finding]:
    """Populations whose messages waited for the Receive Maximum of the broker."""
    for name, population in measured.populations.items():
        waits, times = population.receive_maximum_waits_total, population.receive_maximum_wait_us
        if waits > MIN_HELD_UP_SHARE * population.sent_total:
            yield Finding(
                f"{name}: messages waited {count_text(waits)} × until the broker accepted more in "
                f"flight (Receive Maximum), p99 {duration_text(times.p99)}, "
                f"{share_text(held_share(measured, population))} of the publish stages",
                EvidenceKind.RECEIVE_MAXIMUM() if is_held(measured, population) else None,
            )


def is_held(measured: Measured, population: PopulationResult) -> bool:
    """Returns True if the Receive Maximum of the broker limits the rate of a population."""
    return held_share(measured, population) > MOSTLY_HELD


def held_share(measured: Measured, population: PopulationResult) -> float:
    """Returns the share of publish stages for which a client waited for the Receive Maximum."""
    waits = population.receive_maximum_wait_us
    return _of_publishing(measured, population, waits.count * waits.mean / 1e6)


def _blocked(measured: Measured) -> Iterable[Finding]:
    """Populations whose publications the broker blocked: `blocked_total`."""
    for name, population in measured.populations.items():
        if times := population.blocked_total:
            share = _of_publishing(measured, population, population.blocked_ns / 1e9)
            missing, of = Uncarried.of(measured), f"{share_text(share)} of the publish stages"
            because = EvidenceKind.BLOCKED(missing.of_time(share))
            text = f"{name}: the broker blocked publications {count_text(times)} ×, {of}"
            yield Finding(text, because if share > MOSTLY_HELD or missing.whole else None)


def _of_publishing(measured: Measured, population: PopulationResult, clients_s: float) -> float:
    """Returns a time of clients as a share of publish stages, over all clients."""
    publishing_s = sum(stage.duration_s for stage in measured.stages if stage.kind == "publish")
    return min(clients_s / (publishing_s * population.ready_max or 1.0), 1.0)


def _nothing_published(measured: Measured) -> Iterable[Finding]:
    for stage in measured.stages:
        if stage.kind == "publish" and not any(p.sent_total for p in stage.populations.values()):
            yield Finding(f"stage {stage.name}: no message was sent in {stage.duration_s:.1f} s")


def outcomes_of(measured: Measured) -> Counter[Reason | Answer]:
    """Returns the reasons of problems, over all populations."""
    total = Counter[Reason | Answer]()
    for population in measured.populations.values():
        total.update(population.outcomes)
    return total


_STARVED_ADVICE = "end other programs there, or use a host with more processors"
_TOO_SLOW = "the load generator could not keep up with the load"
_ODDITIES = {metric.field: metric.oddity for metric in COUNTERS if metric.oddity}
_HOST_FIXES = {
    Reason.NO_DESCRIPTORS: (
        "the limit of open descriptors",
        "raise it (ulimit -n) or use more agents (fleet.agents)",
    ),
    Reason.NO_PORTS: (
        "a lack of free source ports",
        "add source addresses (sources) or widen net.ipv4.ip_local_port_range",
    ),
    Reason.NO_MEMORY: ("a lack of kernel memory for sockets", "lower the load or add memory"),
    Reason.BAD_SOURCE: (
        "a source address that this machine does not have",
        "correct sources or add the address to an interface",
    ),
}
RULES: tuple[Callable[[Measured], Iterable[Finding]], ...] = (
    _failures,
    _events,
    _stale_state,
    _host_limits,
    _target,
    _saturation,
    _headroom,
    _skipped,
    _unready,
    _connections,
    _deliveries,
    _counted_only,
    _excluded,
    _unacknowledged,
    _backpressure,
    _receive_maximum,
    _blocked,
    _nothing_published,
)
