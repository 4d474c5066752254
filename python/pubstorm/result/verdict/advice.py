"""Findings about reasons: their meaning, what to look at, the texts of brokers, and the ends of
connections that the peer made. Findings about the clocks of agents: deliveries that seem to arrive
before they were sent, and unanswered exchanges with the reference clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pubstorm.contract.explanation import ExplanationSum
from pubstorm.contract.reasons import Reason
from pubstorm.contract.snapshot import Answer, Explanation
from pubstorm.quantities import bytes_text, count_text, counted, duration_text, span_text
from pubstorm.result import AgentResult, Measured, PopulationResult, PublisherResult
from pubstorm.result.verdict.culprit import Evidence, EvidenceKind, Uncarried
from pubstorm.result.verdict.findings import Finding, carrier, invalid, outcomes_of, touched

ACCEPTED: Mapping[Reason, str] = {
    Reason.PROTOCOL_ERROR: (
        "the broker had accepted the clients, and then sent what the protocol does not allow, so "
        "the clients closed the connections: the detail beside it names the packet and the rule"
    ),
}
"""Advice where the broker had accepted the clients."""
ENDED_EACH = 3
"""Connections of each client, in the mean, that a broker must have ended."""
SHORT_S = 15.0
"""Mean time between two connections of a client up to which they count as short."""
ENDED_UNANSWERED = (Reason.CONNECT_CLOSED, Reason.CONNECT_RESET)
"""Ends of connections by the peer before it accepts the client."""
ENDED_BY_OTHERS = {
    Reason.PATH_TIMEOUT: EvidenceKind.NO_PATH,
    Reason.PACKET_TOO_LARGE: EvidenceKind.SMALL_PACKETS,
    Reason.AMQP_PRECONDITION_FAILED: EvidenceKind.OTHER_SETTINGS,
}
"""Ends of connections that are not the broker's doing."""
ENDED_BY_PEER = frozenset(reason for reason in Reason if reason.startswith("websocket_")) - {
    Reason.WEBSOCKET_INVALID
} | {Reason.CLOSED_BY_BROKER, Reason.RESET_BY_BROKER}
"""Ends of connections that the peer made, without those that have a reason code of MQTT 5."""
BEFORE_SUBACK = "before SUBACK"
"""Detail of ends of connections that have a SUBSCRIBE without an answer (crates/engine)."""
SESSION_TAKEN_OVER = "disconnect_session_taken_over"
ABOUT_ONE = 1.5
"""Messages of a connection, in the mean, up to which the first one may have ended it."""
LARGE_CONNECT_BYTES = 1000
"""Bytes of a CONNECT from which its size may be the cause: few have more without a large will."""
MOSTLY = 0.9
"""Share of the ends of connections from which a common circumstance explains them."""


def _advice(measured: Measured) -> Iterable[Finding]:
    """Meaning of reasons that need one, with advice."""
    outcomes = outcomes_of(measured)
    for reason in Reason:
        if reason.advice and outcomes[reason]:
            with_it = [p for p in measured.populations.values() if p.outcomes.get(reason)]
            accepted = all(population.connected_total for population in with_it)
            advice = (accepted and ACCEPTED.get(reason)) or reason.advice
            text = f"{reason} ({count_text(outcomes[reason])} ×): {advice}"
            yield Finding(text, _not_by_the_broker(measured, reason))
    for name, population in measured.populations.items():
        ended = sum(population.outcomes.get(reason, 0) for reason in ENDED_UNANSWERED)
        if ended and not population.connected_total:
            begin = f"{name}: the broker ends {counted(ended, 'connection')} "
            begin += f"without {population.can.welcome}; "
            yield from (Finding(begin + text) for text in _unanswered_connects(population))


def _not_by_the_broker(measured: Measured, reason: Reason) -> Evidence | None:
    """Evidence that ends of connections have another culprit than the broker; None if they have
    not, or if faults explain them. Its reach is the share of the ends with this reason."""
    kind = ENDED_BY_OTHERS.get(reason)
    ended = {name for _, names in touched(measured, "disconnected_total") for name in names}
    populations = measured.populations
    ends = sum(populations[name].outcomes.get(reason, 0) for name in ended)
    if kind is None or not ends:
        return None
    lost = sum(populations[name].disconnected_total for name in ended)
    asked = sum(population.asked for population in populations.values())
    befell = Uncarried.of(measured).of_clients(min(ends / max(asked, 1), 1.0))
    return kind(min(ends / max(lost, 1), 1.0) * befell)


def _unanswered_connects(population: PopulationResult) -> Iterable[str]:
    """Likely reasons for which brokers end a connection without an answer to its login."""
    scheme, under_tls = population.can.scheme, population.can.under_tls
    if under_tls is not None and carrier(population) is EvidenceKind.AT_BROKER:
        yield f"a port of TLS does so with clients of {scheme}: if this is one, write {under_tls}"
    if population.version == "mqtt-5":
        yield (
            "a broker that does not speak MQTT 5 does so, such as RabbitMQ before 3.13: set "
            "version of the population to 3.1.1"
        )
    sent = population.bytes_sent_total / max(1, population.connect_attempts_total)
    if population.can.has_qos and sent >= LARGE_CONNECT_BYTES:
        yield (
            f"clients sent {bytes_text(sent)} each: look whether the broker's limit of packets, "
            "such as max_packet_size of mosquitto, allows a CONNECT of this size"
        )


def _explanations(measured: Measured) -> Iterable[Finding]:
    """The most frequent text of the broker beside each problem."""
    sums = ExplanationSum()
    for population in measured.populations.values():
        sums.add(population.explanations)
    most: dict[tuple[str, str], Explanation] = {}
    for each in sums.value():
        key = each.outcome, each.property
        if each.text is not None and (key not in most or each.count > most[key].count):
            most[key] = each
    for each in most.values():
        words = _PROPERTIES[each.property]
        yield Finding(f'{each.outcome}: {words} "{each.text}" ({count_text(each.count)} ×)')


def _taken_over(measured: Measured) -> Iterable[Finding]:
    """Populations whose clients were accepted and sent away again and again. Restarts of a broker
    end each connection once; faults explain what they broke."""
    if measured.faults or any(event.kind in {"broker", "restart"} for event in measured.events):
        return
    for name, population in measured.populations.items():
        by_peer = (n for reason, n in population.outcomes.items() if _is_end_by_peer(reason))
        ended = min(sum(by_peer), population.disconnected_total)
        if not population.asked or ended < ENDED_EACH * population.asked:
            continue
        between_s = measured.duration_s * population.asked / max(population.connected_total, 1)
        if between_s <= SHORT_S:
            yield Finding(
                f"{name}: the broker accepted {counted(population.connected_total, 'connection')} "
                f"of {counted(population.asked, 'client')} and ended {count_text(ended)} of them, "
                f"each client every {span_text(between_s)}: {_why_ended(population, ended)}",
                EvidenceKind.AT_BROKER(),
            )


def _is_end_by_peer(reason: Reason | Answer) -> bool:
    """Returns True if the peer has ended an established connection, with a code or without."""
    return reason in ENDED_BY_PEER or reason.startswith("disconnect_")


def _why_ended(population: PopulationResult, ended: int) -> str:
    """The likely cause of ends of connections: a packet that the broker does not take, or a client
    id that is used twice."""
    unanswered = sum(e.count for e in population.explanations if e.text == BEFORE_SUBACK)
    if unanswered >= MOSTLY * ended:
        return (
            "before it answered SUBSCRIBE, so it probably dislikes a filter, or the clients may "
            "not subscribe; look at the broker's log"
        )
    takeovers = population.outcomes.get(SESSION_TAKEN_OVER, 0)
    sent_each = population.sent_total / max(1, population.connected_total)
    if not takeovers and 0 < sent_each <= ABOUT_ONE and not population.acked_total:
        return (
            "after about one message each and without an acknowledgement, so it probably dislikes "
            "the topic, the size or a property; look at the broker's log"
        )
    if not population.can.has_qos:
        # Only MQTT has client ids.
        return "its own rules, or a proxy, probably end them; look at the broker's log"
    return (
        "another program probably uses the same client ids, or the broker's rules end these "
        "sessions; look for a second run and at the broker's log, or change client_id"
    )


_PROPERTIES = {
    "reason_string": "the peer's reason is",
    "server_reference": "the broker refers to",
    "detail": "the agents found",
}
ADVICE_RULES = (_advice, _explanations, _taken_over)


UNANSWERED_S = 3.0
"""Seconds without an answer of the reference clock from which there is a finding."""


def _negative(measured: Measured) -> Iterable[Finding]:
    """Deliveries that came before they were sent. What the bound explains is nothing; more means
    that a clock is wrong, and then no latency between hosts is worth anything."""
    bound_us = measured.fleet.clock_bound_us
    for flow in measured.flows:
        early = flow.histogram_ns.early
        if not early.count:
            continue
        total = counted(early.of, "delivery", "deliveries")
        text = (
            f"{flow.source} → {flow.to}: {count_text(early.count)} of {total} seem to "
            f"have come before they were sent, by up to {duration_text(early.most_us)}"
        )
        if early.most_us <= bound_us:
            yield Finding(
                f"{text}: the clocks are known to ± {duration_text(bound_us)}, so they count as 0"
            )
            continue
        known = f"more than the ± {duration_text(bound_us)} that the clocks are known to"
        why = known if bound_us else "though all agents are said to have one clock"
        reason = "a clock of the load generator is wrong"
        yield invalid(f"{text}, {why}: a clock is wrong", EvidenceKind.INEXACT, reason)


def _unanswered(measured: Measured) -> Iterable[Finding]:
    """Agents that had to continue without the reference clock, the longest time first."""
    agents = [(_name(agent), agent.clock) for agent in measured.fleet.agents]
    agents += [(_name(publisher), publisher.clock) for publisher in measured.publishers]
    known = [(name, clock) for name, clock in agents if clock is not None]
    alone = [(name, clock) for name, clock in known if clock.unanswered_s >= UNANSWERED_S]
    if not alone:
        return
    who, clock = max(alone, key=lambda each: each[1].unanswered_s)
    if len(alone) > 1:
        who = f"{count_text(len(alone))} of {counted(len(known), 'agent')}, such as {who},"
    yield Finding(
        f"{who} had no answer of the reference clock for {span_text(clock.unanswered_s)}; its time "
        f"was off by up to {duration_text(clock.bound_us)}: look whether UDP goes through to "
        "the host that the run was started on"
    )


def _name(agent: AgentResult | PublisherResult) -> str:
    name = f"agent {agent.agent}" if isinstance(agent, AgentResult) else f"publisher {agent.name}"
    return name + (f" on {agent.host}" if agent.host else "")


CLOCK_RULES = (_negative, _unanswered)
