"""Findings about reasons: their meaning, what to look at, the texts of brokers, and the ends of
connections that the peer made. Findings about the clocks of agents: deliveries that seem to arrive
before they were sent, and unanswered exchanges with the reference clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pubstorm.contract.explanation import ExplanationSum
from pubstorm.contract.snapshot import Answer, Explanation, Reason
from pubstorm.metrics.counters import ENDED_BY_PEER
from pubstorm.quantities import bytes_text, count_text, counted, duration_text, span_text
from pubstorm.result import AgentResult, Measured, PopulationResult, PublisherResult
from pubstorm.result.verdict.culprit import Evidence, EvidenceKind, Uncarried
from pubstorm.result.verdict.findings import Finding, carrier, invalid, outcomes_of, touched

ADVICE: Mapping[Reason, str] = {
    Reason.BAD_CREDENTIALS: (
        "the broker or publisher knows another password for these users, or does not know them; "
        "pubstorm seed TARGET SCENARIO --verify lists users that are missing in Redis"
    ),
    Reason.BAD_PROTOCOL_VERSION: (
        "the broker does not speak this version of MQTT: set version of the population to another"
    ),
    Reason.PROTOCOL_ERROR: (
        "the target sent bytes that the protocol of the clients does not allow: look whether this "
        "port speaks that protocol; ports of TLS take mqtts://, ports of WebSocket ws:// or wss://"
    ),
    Reason.PACKET_TOO_LARGE: (
        "the broker sent a packet above max_packet of the scenario, and the client closed the "
        "connection: raise max_packet, or make the messages smaller"
    ),
    Reason.FILTERS_TOO_LARGE: (
        "SUBSCRIBE or UNSUBSCRIBE of the clients is larger than the Maximum Packet Size in the "
        "broker's CONNACK, so they did not send it: use fewer or shorter filters"
    ),
    Reason.SUBSCRIBE_TIMEOUT: (
        "the broker or publisher accepted the clients and did not answer their subscriptions "
        "within connect_timeout, so the clients closed the connections: its log says more"
    ),
    Reason.PATH_TIMEOUT: (
        "nothing acknowledged what the kernel had sent, and it gave the connections up: the path "
        "to the broker, or its host, was gone"
    ),
    Reason.SLOW_CONSUMER: (
        "the NATS server ended the connections of clients that took messages more slowly than they "
        "came: its max_pending says how much may wait for one, its write_deadline for how long"
    ),
    Reason.JETSTREAM_NO_RESPONDERS: (
        "no stream has the subjects of messages or requests: write the stream under "
        "topology.streams with these subjects, or look whether the server has JetStream"
    ),
    Reason.JETSTREAM_STREAM_EXISTS: (
        "the server has a stream of this name with other settings: leave it out of "
        "topology.streams, or write its settings there"
    ),
    Reason.JETSTREAM_CONSUMER_EXISTS: (
        "the server has a consumer of this name with other settings, from an earlier run: delete it"
    ),
    Reason.TLS_BROKEN: (
        "the bytes of established connections were none of TLS, or the broker ended them with an "
        "alert: look at the broker's log, and at what lies between"
    ),
    Reason.UNEXPECTED_ACK: (
        "the broker acknowledged messages that were not in flight, or with the wrong packet"
    ),
    Reason.RECEIVE_MAXIMUM_EXCEEDED: (
        "the broker sent more messages before an acknowledgement than the Receive Maximum of the "
        "clients allows; each is a read with too many [MQTT5-3.3.4-9]"
    ),
    Reason.PACKET_SIZE_EXCEEDED: (
        "the broker sent packets above the Maximum Packet Size of the clients, which it should "
        "have discarded [MQTT5-3.1.2-24]"
    ),
    Reason.NO_CLIENT_ID_ASSIGNED: (
        "the broker accepted clients without an identifier, and its CONNACK names none that it "
        "assigned [MQTT5-3.2.2-16]"
    ),
    Reason.PUBCOMP_ERROR: (
        "the broker does not know messages whose PUBREC it had sent (PUBCOMP 0x92); they count as "
        "acknowledged"
    ),
    Reason.OTHER_AUTHENTICATION_METHOD: (
        "the broker's AUTH or CONNACK names another authentication method than the clients, or "
        "none [MQTT5-4.12.0-5]"
    ),
    Reason.UNAVAILABLE_GRANTED: (
        "the broker granted filters with wildcards, identifiers or $share, of which its CONNACK "
        "says that they are not available"
    ),
    Reason.AUTHENTICATION_INVALID: (
        "the broker's AUTH is not a step of the method of the clients: compare authentication in "
        "the population with the broker's settings"
    ),
    Reason.SERVER_UNPROVED: (
        "the broker accepted clients without the proof that it has their passwords: look whether "
        "the target is the right one, and whether it plays SCRAM-SHA-256 to the end"
    ),
    Reason.MESSAGE_TOO_LARGE: (
        "the messages are larger than the Maximum Packet Size in the broker's CONNACK, or than "
        "MQTT allows: make them smaller or raise the broker's limit"
    ),
    Reason.QOS_UNSUPPORTED: (
        "the broker's CONNACK allows a lower Maximum QoS: lower qos of the publication"
    ),
    Reason.RETAIN_UNSUPPORTED: (
        "the broker's CONNACK says that it retains no messages: leave retain out"
    ),
    Reason.CERTIFICATE_EXPIRED: (
        "the broker's certificate, or one above it, is out of its dates: renew it, and look at the "
        "clocks of both sides"
    ),
    Reason.CERTIFICATE_UNTRUSTED: (
        "no authority that the clients trust vouches for the broker's certificate: name its "
        "authority in tls.ca; clients with pre-shared keys trust none"
    ),
    Reason.CERTIFICATE_NAME: (
        "the broker's certificate is for another name: connect to a name that it has, or name one "
        "in tls.server_name"
    ),
    Reason.TLS_REFUSED: (
        "the broker ended the handshake: look whether it speaks TLS at this port, knows these "
        "identities with these keys or the authority of these client certificates, and shares a "
        "version and a cipher with them; its log says more"
    ),
    Reason.TLS_FAILED: (
        "the clients failed in the handshake: look whether the broker speaks TLS at "
        "this port and shares a version and a cipher with them"
    ),
    Reason.UPGRADE_CLOSED: (
        "the target closed the connection instead of answering the upgrade: look whether it has a "
        "WebSocket listener at this port; ports of MQTT itself take mqtt:// or mqtts://, ports of "
        "TLS wss://"
    ),
    Reason.UPGRADE_INVALID: (
        "the target answered the upgrade with something that is not HTTP: look whether it has a "
        "WebSocket listener at this port; ports of TLS take wss://"
    ),
    Reason.UPGRADE_IGNORED: (
        "the target answered the request and did not upgrade to WebSocket: a web server or a proxy "
        "without WebSocket has this port or path"
    ),
    Reason.WRONG_ACCEPT_KEY: (
        "the accept key of the answer does not follow from the request's: a proxy answered, or the "
        "target breaks RFC 6455"
    ),
    Reason.NO_SUBPROTOCOL: (
        "the target upgraded without the subprotocol mqtt: its WebSocket is for something else, or "
        "a proxy drops the header Sec-WebSocket-Protocol"
    ),
    Reason.HTTP_REDIRECT: (
        "the target redirects the upgrade (HTTP 3xx), which clients do not follow: write the "
        "address that it leads to, often wss:// instead of ws://"
    ),
    Reason.HTTP_BAD_REQUEST: (
        "the target refused the upgrade (HTTP 400): look whether it serves WebSocket with the "
        "subprotocol mqtt at this path; its log says more"
    ),
    Reason.HTTP_UNAUTHORIZED: (
        "the upgrade needs a login (HTTP 401): write it under headers of the population"
    ),
    Reason.HTTP_FORBIDDEN: (
        "the target forbids the upgrade (HTTP 403): look at its rules, and at headers of the "
        "population such as Origin"
    ),
    Reason.HTTP_NOT_FOUND: (
        "the target has no such path (HTTP 404): write the path of its WebSocket after the port, "
        "often /mqtt"
    ),
    Reason.HTTP_UPGRADE_REQUIRED: (
        "the target refused this upgrade (HTTP 426): it does not speak version 13 of WebSocket"
    ),
    Reason.HTTP_TOO_MANY_REQUESTS: (
        "the target limits the rate of upgrades (HTTP 429): lower the rate of connections, or "
        "raise its limit"
    ),
    Reason.HTTP_SERVER_ERROR: "the target failed at the upgrade (HTTP 5xx): its log says more",
    Reason.HTTP_BAD_GATEWAY: (
        "a proxy did not reach the broker behind it (HTTP 502): look whether that runs"
    ),
    Reason.HTTP_UNAVAILABLE: (
        "the target or a proxy takes no more upgrades (HTTP 503): look at its limits"
    ),
    Reason.HTTP_OTHER: "the target refused the upgrade with another status: its log says more",
    Reason.WEBSOCKET_GOING_AWAY: "close code 1001: the broker, or a proxy, shut down",
    Reason.WEBSOCKET_PROTOCOL_ERROR: "close code 1002: the broker found a fault in the frames",
    Reason.WEBSOCKET_UNSUPPORTED_DATA: "close code 1003: the broker takes no binary frames",
    Reason.WEBSOCKET_INVALID_DATA: "close code 1007: the broker found wrong data in a frame",
    Reason.WEBSOCKET_POLICY_VIOLATION: "close code 1008: a rule of the broker, or of a proxy",
    Reason.WEBSOCKET_TOO_BIG: (
        "close code 1009: a frame was larger than the broker takes; clients put up to 128 KiB of "
        "packets into a frame"
    ),
    Reason.WEBSOCKET_SERVER_ERROR: "close code 1011: the broker failed; its log says more",
    Reason.WEBSOCKET_SERVICE_RESTART: "close code 1012: the broker restarts",
    Reason.WEBSOCKET_TRY_AGAIN_LATER: "close code 1013: the broker is overloaded",
    Reason.WEBSOCKET_OTHER_CODE: "the broker closed with a code that has no name here",
    Reason.WEBSOCKET_INVALID: (
        "the broker sent frames that MQTT over WebSocket does not allow: text, masked, with an "
        "extension, or with a close code that no frame may have"
    ),
}
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
"""Ends of connections by the peer before CONNACK."""
ENDED_BY_OTHERS = {
    Reason.PATH_TIMEOUT: EvidenceKind.NO_PATH,
    Reason.PACKET_TOO_LARGE: EvidenceKind.SMALL_PACKETS,
}
"""Ends of connections that are not the broker's doing."""
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
    for reason, advice in ADVICE.items():
        if outcomes[reason]:
            with_it = [p for p in measured.populations.values() if p.outcomes.get(reason)]
            if all(population.connected_total for population in with_it):
                advice = ACCEPTED.get(reason, advice)
            text = f"{reason} ({count_text(outcomes[reason])} ×): {advice}"
            yield Finding(text, _not_by_the_broker(measured, reason))
    for name, population in measured.populations.items():
        ended = sum(population.outcomes.get(reason, 0) for reason in ENDED_UNANSWERED)
        if ended and not population.connected_total:
            begin = f"{name}: the broker ends {counted(ended, 'connection')} without CONNACK; "
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
    """Likely reasons for which brokers end a connection at its CONNECT without an answer."""
    if carrier(population) is EvidenceKind.AT_BROKER:
        yield "a port of TLS does so with clients of mqtt://: if this is one, write mqtts://"
    if population.version == "mqtt-5":
        yield (
            "a broker that does not speak MQTT 5 does so, such as RabbitMQ before 3.13: set "
            "version of the population to 3.1.1"
        )
    sent = population.bytes_sent_total / max(1, population.connect_attempts_total)
    if sent >= LARGE_CONNECT_BYTES:
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
