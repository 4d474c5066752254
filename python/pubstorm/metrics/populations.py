"""The metrics of populations. The meaning of a counter stands beside its field in the contract."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack

from pubstorm.contract.snapshot import Reason
from pubstorm.metrics.metric import (
    LATENCY_STATISTICS,
    Basis,
    Divisor,
    Failures,
    Further,
    Kind,
    Line,
    Metric,
    Owner,
    SpanKind,
    Successes,
    TableColumn,
    both,
    page,
)
from pubstorm.quantities import Unit

ENDS_A_CONNECTION = frozenset(
    {
        Reason.CLOSED_BY_BROKER,
        Reason.RESET_BY_BROKER,
        Reason.KEEP_ALIVE_TIMEOUT,
        Reason.DISCONNECT_TIMEOUT,
        Reason.SUBSCRIBE_TIMEOUT,
        Reason.UNSUBSCRIBE_TIMEOUT,
    }
)
"""Reasons that end an established connection only."""
ENDS_A_WEBSOCKET = frozenset(reason for reason in Reason if reason.startswith("websocket_"))
"""Close codes of WebSocket, and frames that are none of MQTT."""
ENDS_EITHER = frozenset({Reason.PROTOCOL_ERROR, Reason.SOCKET_ERROR}) | ENDS_A_WEBSOCKET
"""Reasons that end an attempt or a connection."""
REFUSES_A_FILTER = frozenset({Reason.SUBSCRIBE_REFUSED})
LEAVES_A_MESSAGE_OUT = frozenset(
    {Reason.MESSAGE_TOO_LARGE, Reason.QOS_UNSUPPORTED, Reason.RETAIN_UNSUPPORTED}
)
"""Limits of a broker of MQTT 5, for which a client does not send a message."""
FAILS_AN_ATTEMPT = (
    frozenset(Reason) - ENDS_A_CONNECTION - ENDS_EITHER - REFUSES_A_FILTER - LEAVES_A_MESSAGE_OUT
)
"""Reasons that end an attempt only."""

POPULATION: frozenset[Owner] = frozenset({"population"})
DELIVERIES_BY_QOS: frozenset[Owner] = frozenset({"deliveries"})
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
ANSWERED = Basis(("answered_total",))
EXPECTED = Basis(("expected_total",))
RECEIVED = Basis(("received_total",))
DELIVERIES = Basis(("expected_total", "received_total"))
_NO_WILL = "no will{to} was expected or received{where}"
WILLS = Basis(("wills_expected_total",), _NO_WILL)
WILLS_RECEIVED = Basis(("wills_received_total",), _NO_WILL)


SENT = ("sent_total",)
REQUESTS = ("requests_total",)
RECEIVES = ("expected_total", "received_total", "expired_total")
"""Counters of which a population that receives has one above zero."""
THREE = ("p50", "p99", "max")
"""Statistics of durations in tables with little room."""


def counter(name: str, **further: Unpack[Further]) -> Metric:
    """Returns a counter, which lies in the field `NAME_total`. Stages keep all counters."""
    field = f"{name}_total"
    further = {"aliases": (field,), **further}
    return Metric(name, POPULATION, "counter", "", at=field, spans=STAGES, **further)


def gauge(name: str, *, is_peak: bool = False, **further: Unpack[Further]) -> Metric:
    """Returns a number of clients or messages. `is_peak`: the largest of the run, which the field
    `NAME_max` has."""
    field = f"{name}_max" if is_peak else name
    further = {"aliases": (field,) if is_peak else (), **further}
    return Metric(name, POPULATION, "gauge", "", at=field, **further)


def reading(name: str, unit: Unit = "", kind: Kind = "gauge", **further: Unpack[Further]) -> Metric:
    """Returns a metric that no expression asks for: other programs get it, or charts show it."""
    return Metric(name, POPULATION, kind, unit, **further)


def rate(name: str, **further: Unpack[Further]) -> Metric:
    """Returns a rate over the steady windows. The readings of one in charts can be asked for."""
    return Metric(
        name,
        POPULATION,
        "derived",
        "bytes_per_s" if name.startswith("bytes_") else "per_s",
        at=f"rates.{name}",
        spans=EVERYWHERE,
        has_readings="lines" in further,
        **further,
    )


def of_each(
    name: str, rate: str, line: Line, divisor: Divisor, words: str, *columns: TableColumn
) -> Metric:
    """Returns a rate by the number of clients."""
    return Metric(
        name,
        POPULATION,
        "derived",
        "per_s",
        words,
        at=f"rates.{rate}",
        spans=EVERYWHERE,
        divisor=divisor,
        lines=(line,),
        columns=columns,
        better="higher",
    )


def shares(name: str, statistics: tuple[str, ...], **further: Unpack[Further]) -> Metric:
    """Returns a distribution of shares."""
    return Metric(
        name,
        POPULATION,
        "derived",
        "share",
        at=name,
        statistics=statistics,
        spans=STAGES,
        over_all="worst",
        **further,
    )


def histogram(
    name: str,
    spans: frozenset[SpanKind] = STAGES,
    *,
    at: str = "",
    **further: Unpack[Further],
) -> Metric:
    """Returns a distribution of durations, by default that of the field `NAME_us`."""
    return Metric(
        name,
        POPULATION,
        "histogram",
        "us",
        at=at or f"{name}_us",
        statistics=LATENCY_STATISTICS,
        spans=spans,
        over_all="worst",
        **further,
    )


def two_clocks(name: str, field: str, log: str, **further: Unpack[Further]) -> Iterator[Metric]:
    """Yields a distribution from the scheduled instant, and one from the instant of sending. Only
    the first has lines and an export."""
    for clock, spans in (("intended", EVERYWHERE), ("actual", STAGES)):
        own: Further = {
            "basis": further.get("basis"),
            "interval": f"{field}_{clock}",
            "tag": f"{log}:{{}}:{clock}",
            "better": "lower",
        }
        full = f"{name}.{clock}"
        if clock == "intended":
            own = {**further, **own, "aliases": (full,)}
        elif log == "delivery":
            own["columns"] = (TableColumn("latency", "p99 from send", ("p99",)),)
        yield histogram(
            name if clock == "intended" else full, spans, at=f"{name}_us.{clock}", **own
        )


def _some_answers(head: str, *, makes_rows: bool = False) -> TableColumn:
    """Returns a column of answers, which a table without any leaves out."""
    return TableColumn("round trips", head, when="known", without_zero=True, makes_rows=makes_rows)


def _ready(*among: str) -> Divisor:
    return Divisor("ready_max", "no client was ready", among)


POPULATIONS: tuple[Metric, ...] = (
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
            TableColumn("connections"),
            TableColumn("agents", "failed connects", when="known", without_zero=True, place=-1),
        ),
        export="Connection attempts that failed",
        failures=Failures(
            2,
            "connections failed",
            "connection attempts failed",
            ATTEMPTS.counters,
            certain=FAILS_AN_ATTEMPT,
            possible=ENDS_EITHER,
            answers="connect",
        ),
    ),
    counter(
        "disconnected",
        basis=ATTEMPTS,
        better="lower",
        columns=(TableColumn("connections"),),
        export="Connections that the client did not end",
        failures=Failures(
            3,
            "connections lost",
            "connections were lost",
            ("connected_total",),
            certain=ENDS_A_CONNECTION,
            possible=ENDS_EITHER,
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
            certain=REFUSES_A_FILTER,
            answers="subscribe",
            finding="refusal",
        ),
    ),
    counter(
        "unsubscribed",
        successes=Successes("unsubscribe", REMOVALS.counters, "unsubscribe_time_us"),
        excludes="unsubscribed and subscribed again",
        columns=(TableColumn("flapping"),),
        export="Filters that the broker removed",
    ),
    counter(
        "unsubscribe_failed",
        basis=REMOVALS,
        columns=(TableColumn("flapping", "refused"),),
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
        columns=(TableColumn("messages"), TableColumn("receive maximum"), TableColumn("agents")),
        export="Messages sent",
    ),
    counter(
        "acked",
        of_acks=True,
        columns=(TableColumn("messages", given=SENT), TableColumn("agents")),
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
            answers="publish",
            finding="refusal",
        ),
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
        columns=(TableColumn("agents", "given up", when="known", without_zero=True),),
        export="Messages given up without acknowledgement",
        failures=Failures(
            9,
            "publishes given up",
            "messages sent were given up with their session",
            ("sent_total",),
            finding="acknowledgement",
        ),
    ),
    reading(
        "unsent_dropped",
        kind="counter",
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
        columns=(TableColumn("agents", when="known", without_zero=True),),
        export="Messages that were scheduled and not sent",
        failures=Failures(
            7,
            "messages not sent",
            "scheduled messages were not sent",
            MESSAGES.counters,
            certain=LEAVES_A_MESSAGE_OUT,
        ),
    ),
    counter("requests", columns=(TableColumn("round trips", without_zero=True, makes_rows=True),)),
    counter("answered", columns=(TableColumn("round trips", given=REQUESTS),)),
    counter("unanswered", basis=ANSWERS, columns=(TableColumn("round trips", given=REQUESTS),)),
    counter("answers_expected"),
    counter("answers_duplicate", basis=ANSWERS, columns=(_some_answers("dup"),)),
    counter("answers_late", basis=ANSWERS, columns=(_some_answers("late"),)),
    counter("answers_of_others", columns=(_some_answers("of others"),)),
    counter("answers", columns=(_some_answers("answers", makes_rows=True),)),
    counter("answers_dropped", columns=(_some_answers("not sent", makes_rows=True),)),
    counter(
        "expected",
        columns=(TableColumn("ledger"), TableColumn("agents")),
        export="Expected deliveries",
    ),
    counter(
        "received",
        columns=(
            TableColumn("messages", given=RECEIVES),
            TableColumn("ledger"),
            TableColumn("agents"),
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
        fault_effect="lost",
        columns=(TableColumn("messages", given=RECEIVES), TableColumn("ledger")),
    ),
    counter(
        "duplicate",
        basis=DELIVERIES,
        better="lower",
        export="Deliveries of a message that the receiver already had",
        failures=Failures(13, "duplicates", "deliveries were duplicates"),
        oddity="duplicates",
        fault_effect="duplicated",
        columns=(TableColumn("order", "dup", given=RECEIVES), TableColumn("disorder", "dup")),
    ),
    counter("copies", basis=DELIVERIES),
    counter(
        "reordered",
        basis=DELIVERIES,
        better="lower",
        export="Deliveries after a later message of the same stream",
        failures=Failures(14, "out of order", "deliveries came out of order", RECEIVED.counters),
        oddity="deliveries out of order",
        fault_effect="out of order",
        columns=(TableColumn("order", given=RECEIVES), TableColumn("disorder")),
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
        columns=(TableColumn("receive maximum", "waits", makes_rows=True, place=-1),),
    ),
    counter("wills_expected", columns=(TableColumn("wills", "expected", makes_rows=True),)),
    counter("wills_received", columns=(TableColumn("wills", "received", makes_rows=True),)),
    counter("wills_lost", basis=WILLS, columns=(TableColumn("wills", "lost"),)),
    counter(
        "expired",
        columns=(TableColumn("order", when="known", without_zero=True),),
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
    counter("retained"),
    counter("retained_as_published"),
    counter("expiry_reduced"),
    counter("server_keep_alives"),
    counter("foreign"),
    counter("packets_sent"),
    counter("packets_received"),
    counter("bytes_sent", export="Bytes written to sockets"),
    counter("bytes_received", export="Bytes read from sockets"),
    gauge(
        "clients",
        of_a_size=True,
        columns=(
            TableColumn("connections", place=-1),
            TableColumn("subscribers"),
            TableColumn("agents", place=-2),
        ),
    ),
    gauge(
        "connected",
        is_peak=True,
        of_a_size=True,
        columns=(TableColumn("connections", "connected max", place=-1),),
        lines=both("clients", "connected"),
        export="Clients that the broker has accepted",
        export_name="clients_connected",
    ),
    gauge("ready_max", of_a_size=True, columns=(TableColumn("subscribers"),)),
    reading(
        "ready",
        lines=both("clients", "ready"),
        export="Clients that are connected and subscribed",
        export_name="clients_ready",
    ),
    gauge(
        "never_ready",
        basis=CLIENTS,
        better="lower",
        failures=Failures(
            1,
            "clients never ready",
            "clients were never ready",
            CLIENTS.counters,
            after="connect_attempts_total",
        ),
    ),
    gauge(
        "offline",
        is_peak=True,
        lines=both("clients", "offline"),
        export="Clients between two session lifetimes",
        export_name="clients_offline",
    ),
    reading(
        "stalled",
        lines=both("clients", "stalled"),
        export="Subscribers that miss messages and receive none",
        export_name="clients_stalled",
    ),
    gauge("in_flight_max"),
    reading(
        "missing",
        lines=both("behind", "missing"),
        export="Messages passed over in streams and not received yet",
        export_name="messages_missing",
        interval="missing_total",
    ),
    gauge(
        "in_flight",
        lines=both("behind", "in flight"),
        export="Messages sent and not acknowledged",
        export_name="messages_in_flight",
        failures=Failures(
            8,
            "publishes unacknowledged",
            "messages sent were not acknowledged when publishing ended",
            ("sent_total",),
            finding="acknowledgement",
        ),
    ),
    gauge(
        "backlog",
        lines=both("behind", "backlog"),
        export="Messages scheduled and not yet sent",
        export_name="messages_backlog",
    ),
    reading("skipped_per_s", "per_s", lines=(page("behind", "skipped per second"),)),
    rate(
        "sent_per_s",
        columns=(TableColumn("order", "sent/s", given=SENT),),
        lines=both("load", "sent"),
        better="higher",
    ),
    reading("due_per_s", "per_s", lines=both("load", "scheduled")),
    rate(
        "acked_per_s",
        columns=(TableColumn("phase acks", "acked/s"),),
        lines=(*both("load", "acked"), Line("sides", "over-acked")),
        of_acks=True,
        better="higher",
    ),
    rate(
        "received_per_s",
        columns=(
            TableColumn("order", "received/s", given=RECEIVED.counters),
            TableColumn("phases", "received/s", without_zero=True),
            TableColumn("subscribers", "received/s", place=2),
        ),
        lines=(
            *both("load", "received"),
            Line("sides", "over-received"),
            Line("runs", "compare-received"),
        ),
        better="higher",
    ),
    rate("bytes_sent_per_s"),
    rate("bytes_received_per_s", columns=(TableColumn("subscribers", "network", place=4),)),
    Metric(
        "loss",
        POPULATION,
        "derived",
        "share",
        "Lost deliveries, as a share of the expected deliveries.",
        at="lost_total",
        spans=STAGES,
        basis=EXPECTED,
        divisor=Divisor("expected_total", "no delivery was expected"),
        columns=(TableColumn("subscribers", "lost", when="known", place=3),),
        better="lower",
    ),
    of_each(
        "sent_each_per_s",
        "sent_per_s",
        page("each", "sent"),
        _ready(*MESSAGES.counters),
        "Messages that each client sent: the rate by the most clients that were ready at once.",
    ),
    of_each(
        "received_each_per_s",
        "received_per_s",
        page("each", "received by each"),
        _ready(*DELIVERIES.counters),
        "Messages that each client received: the rate by the most clients that were ready at once.",
        TableColumn("subscribers", "each received/s", place=1),
    ),
    shares("client_loss", ("mean", "p50", "p90", "p99", "max"), basis=EXPECTED, better="lower"),
    shares("group_share", ("fairness", "min", "p50", "max"), basis=DELIVERIES),
    *two_clocks(
        "latency",
        "latency",
        "delivery",
        basis=RECEIVED,
        export="From the scheduled instant to the delivery",
        columns=(
            TableColumn("latency", statistics=("p50", "p99", "p999", "max")),
            TableColumn("flows", statistics=THREE),
            TableColumn("phase latency", statistics=("p99",)),
        ),
        lines=(
            Line("page", "latency", "p50", "p50"),
            Line("page", "latency", "p99", "p99", band=True),
            Line("page", "latency", "largest", "max"),
            Line("live", "latency", "p50", "p50", each=True),
            Line("live", "latency", "p99", "p99", "max", each=True),
            Line("sides", "over-p50", statistic="p50", joined="max"),
            Line("sides", "over-p99", statistic="p99", joined="max"),
            Line("runs", "compare-p99", statistic="p99", joined="max"),
        ),
    ),
    *two_clocks(
        "ack_latency", "ack", "ack", export="From the scheduled instant to the acknowledgement"
    ),
    histogram(
        "round_trip",
        basis=ANSWERED,
        export="From the scheduled instant of a request to its answer",
        tag="round_trip:{}",
        columns=(TableColumn("round trips", statistics=("p50", "p99", "p999", "max")),),
    ),
    histogram(
        "will_latency",
        basis=WILLS_RECEIVED,
        tag="will:{}",
        columns=(TableColumn("will latency", statistics=THREE),),
    ),
    histogram(
        "connect_time",
        NOWHERE,
        better="lower",
        columns=(TableColumn("connections", statistics=THREE),),
        export="From the start of TCP to the broker's acceptance",
        tag="connect:{}",
    ),
    histogram(
        "receive_maximum_wait",
        NOWHERE,
        columns=(TableColumn("receive maximum", statistics=("mean", *THREE)),),
    ),
    histogram(
        "subscribe_time",
        basis=REMOVALS,
        columns=(TableColumn("flapping", "SUBACK", THREE, place=1),),
        export="From SUBSCRIBE to SUBACK, of clients that had unsubscribed",
    ),
    histogram(
        "unsubscribe_time",
        basis=REMOVALS,
        columns=(TableColumn("flapping", "UNSUBACK", THREE, makes_rows=True),),
        export="From UNSUBSCRIBE to UNSUBACK",
    ),
    *(
        Metric(f"qos_{qos}_per_s", DELIVERIES_BY_QOS, "gauge", "per_s", lines=(page("qos", label),))
        for qos, label in (("0", "QoS 0"), ("1", "QoS 1"), ("2", "QoS 2"), ("mixed", "several"))
    ),
)
