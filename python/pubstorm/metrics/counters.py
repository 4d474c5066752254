"""The counters of populations, and the words for what they mean to verdicts. The meaning of a
counter stands beside its field in the contract."""

from __future__ import annotations

from typing import Unpack

from pubstorm.contract.reasons import ReasonFamily, reasons_of
from pubstorm.metrics.metric import (
    Basis,
    Failures,
    Further,
    Kind,
    Metric,
    Missed,
    Owner,
    ReportColumn,
    SpanKind,
    Successes,
    Zero,
)
from pubstorm.quantities import Unit

POPULATION: frozenset[Owner] = frozenset({"population"})
NOWHERE: frozenset[SpanKind] = frozenset()
STAGES: frozenset[SpanKind] = frozenset({"stage"})
EVERYWHERE: frozenset[SpanKind] = frozenset({"stage", "phase"})

_UNCONNECTED = "no client{of} was to connect{where}: no stage connects it"
CLIENTS = Basis(("asked",), _UNCONNECTED)
ATTEMPTS = Basis(("connect_attempts_total",), _UNCONNECTED, may_be_earlier=True)
FILTERS = Basis(
    ("subscribed_total", "subscribe_failed_total"), "no filter{of} was sent to a broker{where}"
)
REMOVALS = Basis(
    ("unsubscribed_total", "unsubscribe_failed_total"),
    "no broker answered an UNSUBSCRIBE{of}{where}: only flapping clients send some",
)
MESSAGES = Basis(("sent_total", "skipped_total"), "no message{of} was scheduled{where}")
ANSWERS = Basis(
    ("answers_expected_total",),
    "no request{of} was sent{where}: only publications with request: true send some",
)
BIRTHS = Basis(
    ("births_received_total",),
    "no birth of an edge node came{to}{where}: only clients with sparkplug: {{group: NAME}} "
    "send some",
    may_be_earlier=True,
)
ANSWERED = Basis(("answered_total",))
SESSIONS = Basis(
    ("sessions_resumed_total", "sessions_lost_total"),
    "no client{of} returned to a session{where}: only clients with session: persistent have one",
)
HANDSHAKES = Basis(
    ("tls_full_total", "tls_resumed_total"), "no handshake of TLS{of} ended well{where}"
)
EARLY = Basis(
    ("tls_early_accepted_total", "tls_early_rejected_total"),
    "no connection{of} had data in 0-RTT{where}: only a return with early_data has some",
)
MIGRATIONS = Basis(
    ("migrated_total",),
    "no connection{of} changed its port{where}: only a change with migrate makes some",
)
QUEUED = Basis(
    ("queued_total",),
    "no message was queued{to}{where}: the broker queues for clients with session: persistent "
    "that a disconnect stage has ended",
)
EXPIRIES = Basis(
    ("expiries_checked_total",),
    "no retained message with an expiry came{to}{where} two seconds or more after it was sent",
)
RESUMED = Basis(
    ("sessions_resumed_total",), "no client{of} returned to a session that its broker had{where}"
)
EXPECTED = Basis(("expected_total",))
RECEIVED = Basis(("received_total",), needs_stamps=True)
DELIVERIES = Basis(("expected_total", "received_total"))
STAMPED = Basis(DELIVERIES.counters, needs_stamps=True)
_NO_WILL = "no will{to} was expected or received{where}"
WILLS = Basis(("wills_expected_total",), _NO_WILL)
WILLS_RECEIVED = Basis(("wills_received_total",), _NO_WILL)


LOST = Missed(("delivery", "deliveries"), "were lost", "to")
SENT = ("sent_total",)
REQUESTS = ("requests_total",)
RECEIVES = ("expected_total", "received_total", "expired_total")
"""Counters of which a population that receives has one above zero."""


def counter(name: str, **further: Unpack[Further]) -> Metric:
    """Returns a counter, which lies in the field `NAME_total`. Stages keep all counters."""
    field = f"{name}_total"
    further = {"aliases": (field,), **further}
    return Metric(name, POPULATION, "counter", "", at=field, spans=STAGES, **further)


def reading(name: str, unit: Unit = "", kind: Kind = "gauge", **further: Unpack[Further]) -> Metric:
    """Returns a metric that no expression asks for: other programs get it, or charts show it."""
    return Metric(name, POPULATION, kind, unit, **further)


def _some_answers(head: str, *, makes_rows: bool = False) -> ReportColumn:
    """Returns a column of answers, which a table without any leaves out."""
    return ReportColumn("round trips", head, when="known", without_zero=True, makes_rows=makes_rows)


def _of_sparkplug(head: str, *, makes_rows: bool = False) -> ReportColumn:
    """Returns a column of Sparkplug, which a table without any leaves out."""
    return ReportColumn("sparkplug", head, when="any", without_zero=True, makes_rows=makes_rows)


def _of_tls(head: str) -> ReportColumn:
    """Returns a column of handshakes, which a table without any leaves out."""
    return ReportColumn("tls", head, without_zero=True, makes_rows=True)


COUNTERS: tuple[Metric, ...] = (
    counter("connect_attempts", export="TCP connections begun"),
    reading(
        "connected",
        kind="counter",
        successes=Successes("connect", ATTEMPTS.counters, "connect_time_us"),
        export="Connections that the broker accepted",
    ),
    counter(
        "connect_failed",
        basis=ATTEMPTS,
        better="lower",
        columns=(
            ReportColumn("connections"),
            ReportColumn("agents", "failed connects", when="known", without_zero=True, place=-1),
        ),
        export="Connection attempts that failed",
        failures=Failures(
            2,
            "connections failed",
            "connection attempts failed",
            ATTEMPTS.counters,
            certain=reasons_of(ReasonFamily.ATTEMPT),
            possible=reasons_of(ReasonFamily.EITHER, ReasonFamily.REPLY),
            answers="connect",
        ),
    ),
    counter(
        "disconnected",
        basis=ATTEMPTS,
        better="lower",
        columns=(ReportColumn("connections"),),
        export="Connections that the client did not end",
        failures=Failures(
            3,
            "connections lost",
            "connections were lost",
            ("connected_total",),
            certain=reasons_of(ReasonFamily.CONNECTION),
            possible=reasons_of(ReasonFamily.EITHER, ReasonFamily.ASKING, ReasonFamily.REPLY),
            answers="disconnect",
        ),
    ),
    counter(
        "subscribed",
        successes=Successes("subscribe", FILTERS.counters),
        export="Filters that the broker granted",
    ),
    counter(
        "subscribe_failed",
        basis=FILTERS,
        failures=Failures(
            4,
            "subscribes refused",
            "filters were refused",
            FILTERS.counters,
            certain=reasons_of(ReasonFamily.FILTER),
            possible=reasons_of(ReasonFamily.ASKING, ReasonFamily.STORE, ReasonFamily.REPLY),
            answers="subscribe",
            finding="refusal",
        ),
    ),
    counter(
        "unsubscribed",
        successes=Successes("unsubscribe", REMOVALS.counters, "unsubscribe_time_us"),
        excludes="unsubscribed and subscribed again",
        columns=(ReportColumn("flapping"),),
        export="Filters that the broker removed",
    ),
    counter(
        "unsubscribe_failed",
        basis=REMOVALS,
        columns=(ReportColumn("flapping", "refused"),),
        failures=Failures(
            5,
            "unsubscribes refused",
            "filters were not removed",
            REMOVALS.counters,
            answers="unsubscribe",
            finding="refusal",
        ),
    ),
    counter(
        "sent",
        columns=(
            ReportColumn("messages"),
            ReportColumn("receive maximum"),
            ReportColumn("agents"),
        ),
        export="Messages sent",
    ),
    counter(
        "acked",
        of_acks=True,
        columns=(ReportColumn("messages", given=SENT), ReportColumn("agents")),
        export="Messages that the broker acknowledged",
    ),
    counter(
        "rejected",
        basis=MESSAGES,
        better="lower",
        export="Messages that the broker refused",
        failures=Failures(
            6,
            "publishes refused",
            "messages sent were refused",
            ("sent_total",),
            certain=reasons_of(ReasonFamily.NACK),
            possible=reasons_of(ReasonFamily.STORE, ReasonFamily.REPLY),
            answers="publish",
            finding="refusal",
        ),
        zero=Zero(8, "rejectable"),
    ),
    counter(
        "returned",
        basis=MESSAGES,
        better="lower",
        columns=(ReportColumn("messages", when="any", without_zero=True),),
        export="Messages that came back, since no queue took them",
        failures=Failures(
            20,
            "messages returned",
            "messages sent came back",
            ("sent_total",),
            certain=reasons_of(ReasonFamily.RETURN),
            finding="acknowledgement",
        ),
    ),
    counter(
        "redelivered",
        basis=DELIVERIES,
        better="lower",
        columns=(ReportColumn("order", when="any", without_zero=True),),
        export="Deliveries that the broker had begun before",
    ),
    counter(
        "requeued",
        basis=DELIVERIES,
        columns=(ReportColumn("order", when="any", without_zero=True),),
        export="Deliveries that clients refused",
    ),
    counter(
        "blocked",
        basis=MESSAGES,
        better="lower",
        columns=(ReportColumn("messages", when="any", without_zero=True),),
        export="Times that a broker blocked the publications of a client",
    ),
    counter("left"),
    counter(
        "stalled",
        basis=DELIVERIES,
        better="lower",
        export="Times that a subscriber stalled",
        failures=Failures(17, "stalls", "times a subscriber stalled"),
    ),
    counter(
        "resent",
        basis=MESSAGES,
        better="lower",
        export="Messages sent again after a reconnect",
        failures=Failures(
            11,
            "publishes sent again",
            "messages sent were sent again after a reconnect",
            ("sent_total",),
            finding="acknowledgement",
        ),
    ),
    counter(
        "abandoned",
        basis=MESSAGES,
        better="lower",
        missed=Missed(("message", "messages"), "were given up without acknowledgement"),
        zero=Zero(5, "acknowledged", but="leaving", exempts_leavers=True),
        columns=(ReportColumn("agents", "given up", when="known", without_zero=True),),
        export="Messages given up without acknowledgement",
        failures=Failures(
            9,
            "publishes given up",
            "messages sent were given up with their session",
            ("sent_total",),
            finding="acknowledgement",
        ),
    ),
    counter(
        "unsent_dropped",
        failures=Failures(
            10,
            "publishes dropped unsent",
            "messages sent were dropped with their connection before the socket took them",
            ("sent_total",),
            finding="acknowledgement",
        ),
    ),
    counter(
        "skipped",
        basis=MESSAGES,
        better="lower",
        columns=(ReportColumn("agents", when="known", without_zero=True),),
        export="Messages that were scheduled and not sent",
        failures=Failures(
            7,
            "messages not sent",
            "scheduled messages were not sent",
            MESSAGES.counters,
            certain=reasons_of(ReasonFamily.MESSAGE),
        ),
        missed=Missed(("scheduled message", "scheduled messages"), "were never sent"),
        zero=Zero(9, "scheduled", but="skipping"),
    ),
    counter("requests", columns=(ReportColumn("round trips", without_zero=True, makes_rows=True),)),
    counter("answered", columns=(ReportColumn("round trips", given=REQUESTS),)),
    counter(
        "unanswered",
        basis=ANSWERS,
        zero=Zero(6, "requesters", but="lossy"),
        columns=(ReportColumn("round trips", given=REQUESTS),),
    ),
    counter(
        "births",
        columns=(_of_sparkplug("births sent", makes_rows=True),),
        export="Births that edge nodes of Sparkplug have sent",
    ),
    counter("rebirths", columns=(_of_sparkplug("asked for"),)),
    counter(
        "births_received",
        columns=(_of_sparkplug("births", makes_rows=True),),
        export="Births of edge nodes and devices of Sparkplug that clients received",
    ),
    counter(
        "deaths_received",
        columns=(_of_sparkplug("deaths", makes_rows=True),),
        export="Deaths of edge nodes and devices of Sparkplug that clients received",
    ),
    counter("old_deaths", columns=(_of_sparkplug("old deaths"),)),
    counter(
        "gaps",
        basis=BIRTHS,
        better="lower",
        columns=(_of_sparkplug("gaps"),),
        export="Gaps in the sequence of edge nodes that hosts of Sparkplug noticed",
    ),
    counter("hidden_gaps", basis=BIRTHS, columns=(_of_sparkplug("hidden gaps"),)),
    counter("unborn", basis=BIRTHS, columns=(_of_sparkplug("data without birth"),)),
    counter(
        "rebirths_asked",
        columns=(_of_sparkplug("rebirths asked"),),
        export="Rebirths that hosts of Sparkplug asked for",
    ),
    counter("rebirths_received", columns=(_of_sparkplug("rebirths received"),)),
    counter("unreadable", columns=(_of_sparkplug("unreadable"),)),
    counter("nodes_unfollowed", columns=(_of_sparkplug("not followed"),)),
    counter("answers_expected"),
    counter("answers_duplicate", basis=ANSWERS, columns=(_some_answers("dup"),)),
    counter("answers_late", basis=ANSWERS, columns=(_some_answers("late"),)),
    counter("answers_of_others", columns=(_some_answers("of others"),)),
    counter("answers", columns=(_some_answers("answers", makes_rows=True),)),
    counter(
        "answers_dropped",
        zero=Zero(7, "responders", but="lossy", doing="receives"),
        columns=(_some_answers("not sent", makes_rows=True),),
    ),
    counter(
        "expected",
        columns=(ReportColumn("ledger"), ReportColumn("agents")),
        export="Expected deliveries",
    ),
    counter(
        "received",
        columns=(
            ReportColumn("messages", given=RECEIVES),
            ReportColumn("ledger"),
            ReportColumn("agents"),
        ),
        export="Deliveries received",
    ),
    counter(
        "lost",
        basis=EXPECTED,
        better="lower",
        failures=Failures(
            12, "deliveries lost", "expected deliveries were lost", EXPECTED.counters
        ),
        missed=LOST,
        zero=Zero(2, "receivers", but="lossy", doing="receives"),
        fault_effect="lost",
        columns=(
            ReportColumn("messages", given=RECEIVES),
            ReportColumn("ledger"),
            ReportColumn("steps", "lost", place=1),
            ReportColumn("key losses"),
            ReportColumn("live end", "lost", place=1),
        ),
    ),
    counter(
        "duplicate",
        basis=STAMPED,
        better="lower",
        export="Deliveries of a message that the receiver already had",
        failures=Failures(13, "duplicates", "deliveries were duplicates"),
        oddity="duplicates",
        fault_effect="duplicated",
        columns=(ReportColumn("order", "dup", given=RECEIVES), ReportColumn("disorder", "dup")),
    ),
    counter("copies", basis=DELIVERIES),
    counter(
        "reordered",
        basis=STAMPED,
        better="lower",
        export="Deliveries after a later message of the same stream",
        failures=Failures(14, "out of order", "deliveries came out of order", RECEIVED.counters),
        oddity="deliveries out of order",
        fault_effect="out of order",
        columns=(ReportColumn("order", given=RECEIVES), ReportColumn("disorder")),
    ),
    counter(
        "stale",
        basis=DELIVERIES,
        better="lower",
        export="Deliveries too late to recognise duplicates",
        failures=Failures(
            15, "too late to check", "deliveries came too late to separate from duplicates"
        ),
        oddity="deliveries too late to separate from duplicates",
    ),
    counter(
        "receive_maximum_waits",
        columns=(ReportColumn("receive maximum", "waits", makes_rows=True, place=-1),),
    ),
    counter("wills_expected", columns=(ReportColumn("wills", "expected", makes_rows=True),)),
    counter("wills_received", columns=(ReportColumn("wills", "received", makes_rows=True),)),
    counter(
        "wills_lost",
        basis=WILLS,
        missed=Missed(("will", "wills"), "were lost", "to"),
        zero=Zero(
            3,
            "receivers",
            but="lossy",
            doing="awaits wills",
            may_be_about_nothing=True,
            replaced_with="lost",
        ),
        columns=(ReportColumn("wills", "lost"),),
    ),
    counter(
        "expired",
        columns=(ReportColumn("order", when="known", without_zero=True),),
        export="Messages for offline clients that may expire, and have not arrived",
        export_name="messages_expired",
    ),
    counter(
        "expired_received",
        basis=RECEIVED,
        export="Deliveries of messages that had expired",
        failures=Failures(16, "expired", "deliveries were messages that had expired"),
        oddity="deliveries of messages that had expired",
    ),
    counter(
        "queued",
        columns=(ReportColumn("order", when="any", without_zero=True),),
    ),
    counter("queued_received", basis=QUEUED),
    counter(
        "queued_lost",
        basis=QUEUED,
        better="lower",
        columns=(ReportColumn("order", when="any", without_zero=True),),
        missed=Missed(("queued delivery", "queued deliveries"), "were lost", "to"),
    ),
    counter(
        "link_retransmissions",
        better="lower",
        columns=(ReportColumn("links", "retransmissions", place=1),),
        export="Segments that links of clients lost, and that came later",
    ),
    counter("link_full", better="lower", columns=(ReportColumn("links", "full", place=1),)),
    counter("retained"),
    counter("retained_as_published"),
    counter("expiry_reduced"),
    counter("expiries_checked"),
    counter(
        "expiry_violations",
        basis=EXPIRIES,
        better="lower",
        columns=(ReportColumn("order", "expiry wrong", when="any", without_zero=True),),
        export="Retained messages whose Message Expiry Interval was missing, wrong or over",
        failures=Failures(
            19,
            "expiries wrong",
            "retained messages had a wrong Message Expiry Interval",
            EXPIRIES.counters,
            certain=reasons_of(ReasonFamily.EXPIRY),
        ),
    ),
    counter("properties"),
    counter("identifiers"),
    counter("breaches", better="lower", basis=ATTEMPTS),
    counter("server_keep_alives"),
    counter("sessions_resumed"),
    counter(
        "sessions_lost",
        basis=SESSIONS,
        better="lower",
        columns=(ReportColumn("connections", when="any", without_zero=True),),
        export="Sessions that the broker had to keep and has lost",
        missed=Missed(("session", "sessions"), "were lost by the broker"),
        failures=Failures(
            18, "sessions lost", "sessions were lost by the broker", SESSIONS.counters
        ),
    ),
    counter(
        "tls_full",
        basis=HANDSHAKES,
        columns=(ReportColumn("tls", "full"),),
        export="Full handshakes of TLS",
    ),
    counter(
        "tls_resumed",
        basis=HANDSHAKES,
        columns=(ReportColumn("tls", "resumed", makes_rows=True),),
        export="Handshakes of TLS with a session that the broker resumed",
    ),
    counter(
        "tls_resume_refused",
        basis=HANDSHAKES,
        better="lower",
        columns=(ReportColumn("tls", "refused", makes_rows=True),),
        export="Full handshakes of connections that had offered a session",
    ),
    counter(
        "tls_early_accepted",
        basis=EARLY,
        columns=(_of_tls("0-RTT"),),
        export="Handshakes of QUIC with data in 0-RTT that the broker accepted",
    ),
    counter(
        "tls_early_rejected",
        basis=EARLY,
        better="lower",
        columns=(_of_tls("0-RTT rejected"),),
        export="Handshakes of QUIC with data in 0-RTT that the broker rejected",
    ),
    counter(
        "tls_alpn_ignored", basis=HANDSHAKES, better="lower", columns=(_of_tls("ALPN ignored"),)
    ),
    counter("tls_certificates_reread", basis=HANDSHAKES, columns=(_of_tls("reread"),)),
    counter("migrated", columns=(ReportColumn("migrations", makes_rows=True),)),
    counter(
        "migrations_followed", basis=MIGRATIONS, columns=(ReportColumn("migrations", "followed"),)
    ),
    counter(
        "migrations_lost",
        basis=MIGRATIONS,
        better="lower",
        columns=(ReportColumn("migrations", "lost"),),
        export="Connections that ended before the broker sent anything to their new port",
    ),
    counter(
        "foreign",
        columns=(
            ReportColumn("messages", when="any", without_zero=True),
            ReportColumn("live end", when="any", place=1),
        ),
    ),
    counter(
        "unstamped",
        better="lower",
        columns=(ReportColumn("messages", when="any", without_zero=True),),
        export="Messages of declared flows that came without a stamp",
    ),
    counter("websocket_pings"),
    counter("websocket_pongs"),
    counter("packets_sent"),
    counter("packets_received"),
    counter("bytes_sent", export="Bytes written to sockets"),
    counter("bytes_received", export="Bytes read from sockets"),
)
