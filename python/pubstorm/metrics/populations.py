"""The metrics of populations: counters, states, rates and distributions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack

from pubstorm.metrics.counters import (
    ANSWERED,
    BIRTHS,
    CLIENTS,
    COUNTERS,
    DELIVERIES,
    EARLY,
    EVERYWHERE,
    EXPECTED,
    HANDSHAKES,
    LOST,
    MESSAGES,
    NOWHERE,
    POPULATION,
    RECEIVED,
    REMOVALS,
    RESUMED,
    SENT,
    STAGES,
    WILLS_RECEIVED,
    reading,
)
from pubstorm.metrics.metric import (
    LATENCY_STATISTICS,
    Basis,
    Divisor,
    Failures,
    Further,
    Line,
    Metric,
    Missed,
    Owner,
    ReportColumn,
    SpanKind,
    Zero,
    both,
    page,
)

DELIVERIES_BY_QOS: frozenset[Owner] = frozenset({"deliveries"})
THREE = ("p50", "p99", "max")
"""Statistics of durations in tables with little room."""


def gauge(name: str, *, is_peak: bool = False, **further: Unpack[Further]) -> Metric:
    """Returns a number of clients or messages. `is_peak`: the largest of the run, which the field
    `NAME_max` has."""
    field = f"{name}_max" if is_peak else name
    further = {"aliases": (field,) if is_peak else (), **further}
    return Metric(name, POPULATION, "gauge", "", at=field, **further)


def in_short(counter: str, rank: int, *, given: tuple[str, ...]) -> tuple[ReportColumn, ...]:
    """Returns the columns of a rate of messages where few figures stand for a run. `rank`: that on
    a terminal. `given`: the counters of which a run with the figure has one above zero."""
    return (
        ReportColumn("steps", f"{counter}/s"),
        ReportColumn("live", f"{counter}/s", rank=rank),
        ReportColumn("live end", f"{counter}/s"),
        ReportColumn("key rates", counter, given=given),
        ReportColumn("throughput", counter),
    )


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
    name: str, rate: str, line: Line, divisor: Divisor, words: str, *columns: ReportColumn
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
    words: str = "",
    **further: Unpack[Further],
) -> Metric:
    """Returns a distribution of durations, by default that of the field `NAME_us`."""
    return Metric(
        name,
        POPULATION,
        "histogram",
        "us",
        words,
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
        full, words = f"{name}.{clock}", ""
        if clock == "intended":
            own = {**further, **own, "aliases": (full,)}
        else:
            words = f"As `{name}`, from the instant at which the message was sent."
            if log == "delivery":
                own["columns"] = (ReportColumn("latency", "p99 from send", ("p99",)),)
        yield histogram(
            name if clock == "intended" else full,
            spans,
            at=f"{name}_us.{clock}",
            words=words,
            **own,
        )


def _ready(*among: str) -> Divisor:
    return Divisor("ready_max", "no client was ready", among)


POPULATIONS: tuple[Metric, ...] = (
    *COUNTERS,
    gauge(
        "clients",
        of_a_size=True,
        columns=(
            ReportColumn("connections", place=-1),
            ReportColumn("subscribers"),
            ReportColumn("agents", place=-2),
        ),
    ),
    gauge(
        "connected",
        is_peak=True,
        of_a_size=True,
        replaces="never_ready",
        columns=(
            ReportColumn("connections", "connected max", place=-1),
            ReportColumn("key clients"),
            ReportColumn("steps", "connected"),
            ReportColumn("live", "connected", rank=1),
            ReportColumn("live end", "connected"),
        ),
        lines=both("clients", "connected"),
        export="Clients that the broker has accepted",
        export_name="clients_connected",
    ),
    gauge(
        "ready_max",
        of_a_size=True,
        replaces="never_ready",
        columns=(ReportColumn("subscribers"),),
    ),
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
        missed=Missed(("client", "clients"), "never connected"),
        zero=Zero(1, "clients", doing=None),
        columns=(ReportColumn("key clients"),),
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
    gauge("in_flight_max", replaces="in_flight"),
    reading(
        "missing",
        columns=(ReportColumn("live", "missing", place=1, rank=4),),
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
        missed=Missed(("message", "messages"), "were not acknowledged when publishing ended"),
        zero=Zero(4, "acknowledged", but="leaving", exempts_leavers=True, is_of_last_stage=True),
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
        columns=(ReportColumn("order", "sent/s", given=SENT), *in_short("sent", 3, given=SENT)),
        lines=both("load", "sent"),
        better="higher",
    ),
    reading("due_per_s", "per_s", lines=both("load", "scheduled")),
    rate(
        "acked_per_s",
        columns=(
            ReportColumn("phase acks", "acked/s"),
            ReportColumn("comparison", "acked_per_s"),
            *in_short("acked", 5, given=("acked_total",)),
        ),
        lines=(*both("load", "acked"), Line("sides", "over-acked")),
        of_acks=True,
        better="higher",
    ),
    rate(
        "received_per_s",
        columns=(
            ReportColumn("order", "received/s", given=RECEIVED.counters),
            ReportColumn("phases", "received/s", without_zero=True),
            ReportColumn("subscribers", "received/s", place=2),
            ReportColumn("comparison", "received_per_s"),
            *in_short("received", 2, given=DELIVERIES.counters),
        ),
        lines=(
            *both("load", "received"),
            Line("sides", "over-received"),
            Line("runs", "compare-received"),
        ),
        better="higher",
    ),
    reading(
        "foreign_per_s",
        "per_s",
        lines=both("load", "from other programs"),
        columns=(ReportColumn("live", "foreign/s", when="any", rank=2),),
    ),
    rate("bytes_sent_per_s"),
    rate("bytes_received_per_s", columns=(ReportColumn("subscribers", "network", place=4),)),
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
        missed=LOST,
        replaces="lost",
        columns=(
            ReportColumn("subscribers", "lost", when="known", place=3),
            ReportColumn("comparison", "loss"),
            ReportColumn("key losses"),
        ),
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
        ReportColumn("subscribers", "each received/s", place=1),
    ),
    shares("client_loss", ("mean", "p50", "p90", "p99", "max"), basis=EXPECTED, better="lower"),
    shares("group_share", ("fairness", "min", "p50", "max"), basis=DELIVERIES),
    Metric(
        "idle_members",
        POPULATION,
        "derived",
        "",
        "Members of a shared group that received nothing in a publish stage, once for each stage.",
        at="group_share.idle",
        spans=STAGES,
        basis=DELIVERIES,
        better="lower",
    ),
    Metric(
        "latency_p99_us",
        POPULATION,
        "derived",
        "us",
        "99th percentile of latencies of deliveries. Its readings are those of each interval; a "
        "population without deliveries has those of acknowledgements.",
        at="latency_us.intended.p99",
        aliases=("latency_p99",),
        spans=EVERYWHERE,
        basis=Basis(("received_total", "acked_total")),
        over_all="worst",
        has_readings=True,
        better="lower",
    ),
    *two_clocks(
        "latency",
        "latency",
        "delivery",
        basis=RECEIVED,
        export="From the scheduled instant to the delivery",
        columns=(
            ReportColumn("latency", statistics=("p50", "p99", "p999", "max")),
            ReportColumn("flows", statistics=THREE),
            ReportColumn("phase latency", statistics=("p99",)),
            ReportColumn("steps", "p99", ("p99",)),
            ReportColumn("live", statistics=("p50", "p99")),
            ReportColumn("live end", statistics=("p50", "p99")),
            ReportColumn("comparison", "latency", ("p50", "p99"), place=-1),
            ReportColumn("key latencies", "delivery"),
            ReportColumn("headline", "p99"),
            ReportColumn("missed times"),
            ReportColumn("slowest", "delivery", ("p99",)),
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
    histogram(
        "queued_latency",
        better="lower",
        export="From the scheduled instant to the delivery, of messages queued for their receiver",
        tag="queued:{}",
        columns=(ReportColumn("curves", "queued deliveries"),),
    ),
    histogram(
        "live_latency",
        basis=RECEIVED,
        better="lower",
        columns=(ReportColumn("curves", "live deliveries"),),
    ),
    *two_clocks(
        "ack_latency",
        "ack",
        "ack",
        export="From the scheduled instant to the acknowledgement",
        columns=(
            ReportColumn("steps", "ack p99", ("p99",)),
            ReportColumn("comparison", "ack latency", ("p99",), place=1),
            ReportColumn("key latencies", "acknowledgement"),
            ReportColumn("headline", "p99 of acknowledgements"),
            ReportColumn("slowest", "acknowledgement", ("p99",)),
            ReportColumn("missed times", " of acknowledgements"),
        ),
    ),
    histogram(
        "round_trip",
        basis=ANSWERED,
        export="From the scheduled instant of a request to its answer",
        tag="round_trip:{}",
        better="lower",
        columns=(
            ReportColumn("curves", "round trips"),
            ReportColumn("round trips", statistics=("p50", "p99", "p999", "max")),
            ReportColumn("steps", "round trip p99", ("p99",)),
            ReportColumn("live", "round trip", ("p50", "p99"), when="any"),
            ReportColumn("live end", "round trip", ("p50", "p99"), when="any"),
            ReportColumn("comparison", "round trip", ("p50", "p99"), place=-2),
            ReportColumn("key latencies", "round trip", place=-1),
            ReportColumn("headline", "p99 of round trips", place=-1),
            ReportColumn("missed times", " of round trips"),
            ReportColumn("slowest", "round trip", ("p99",), place=-1),
        ),
        lines=(
            Line("page", "round-trip", "p50", "p50"),
            Line("page", "round-trip", "p99", "p99", band=True),
            Line("page", "round-trip", "largest", "max"),
            Line("live", "round-trip", "p50", "p50", each=True),
            Line("live", "round-trip", "p99", "p99", "max", each=True),
            Line("sides", "over-round-trip", statistic="p99", joined="max"),
            Line("runs", "compare-round-trip", statistic="p99", joined="max"),
        ),
    ),
    histogram(
        "gap_time",
        basis=BIRTHS,
        better="lower",
        columns=(ReportColumn("sparkplug", "gap noticed", THREE, when="any", place=1),),
        export="From the first missing message of an edge node to the notice of the gap",
    ),
    histogram(
        "rebirth_time",
        basis=BIRTHS,
        better="lower",
        columns=(ReportColumn("sparkplug", "rebirth", THREE, when="any", place=1),),
        export="From the command of a host of Sparkplug to the birth of the edge node",
    ),
    histogram(
        "will_latency",
        basis=WILLS_RECEIVED,
        tag="will:{}",
        columns=(ReportColumn("will latency", statistics=THREE),),
    ),
    histogram(
        "connect_time",
        better="lower",
        columns=(
            ReportColumn("connections", statistics=THREE),
            ReportColumn("comparison", "connect time", ("p99",)),
            ReportColumn("missed times", " of connects"),
        ),
        export="From the start of TCP to the broker's acceptance",
        tag="connect:{}",
    ),
    histogram(
        "connect_time_tls_full",
        basis=HANDSHAKES,
        better="lower",
        columns=(ReportColumn("tls", "full", THREE),),
        export="From the start of TCP to the broker's acceptance, with a full handshake of TLS",
    ),
    histogram(
        "connect_time_tls_resumed",
        basis=HANDSHAKES,
        better="lower",
        columns=(ReportColumn("tls", "resumed", THREE),),
        export="From the start of TCP to the broker's acceptance, with a resumed session of TLS",
    ),
    histogram(
        "connect_time_tls_early",
        basis=EARLY,
        better="lower",
        columns=(ReportColumn("tls", "0-RTT", THREE, when="any"),),
        export="From the start to the broker's acceptance, with CONNECT accepted in 0-RTT",
    ),
    histogram(
        "connect_time_resumed",
        basis=RESUMED,
        better="lower",
        columns=(ReportColumn("connections", "resumed", THREE, when="any"),),
        export="From the start of TCP to the acceptance of a client whose session continues",
        tag="connect_resumed:{}",
    ),
    *(
        histogram(
            f"connect_{phase}",
            better="lower",
            columns=(ReportColumn("connecting", head, ("mean", "p99"), makes_rows=True),),
            lines=(Line("page", "connecting", head, "p99"),),
            export=export,
        )
        for phase, head, export in (
            ("tcp", "TCP", "From the start of an attempt until TCP was established"),
            ("tls", "TLS", "From TCP to the end of the handshake of TLS or QUIC"),
            ("accept", "accept", "From the last handshake to the broker's acceptance"),
            ("subscribe", "subscribe", "From the broker's acceptance to the last SUBACK"),
        )
    ),
    histogram(
        "receive_maximum_wait",
        NOWHERE,
        columns=(ReportColumn("receive maximum", statistics=("mean", *THREE)),),
    ),
    histogram(
        "link_time",
        columns=(ReportColumn("links", "time in link", THREE, makes_rows=True),),
        export="Time of bytes in the link of their client, in one direction",
        tag="link:{}",
    ),
    histogram("link_wait", columns=(ReportColumn("links", "wait for rate", THREE),)),
    histogram(
        "subscribe_time",
        basis=REMOVALS,
        columns=(ReportColumn("flapping", "SUBACK", THREE, place=1),),
        export="From SUBSCRIBE to SUBACK, of clients that had unsubscribed",
    ),
    histogram(
        "unsubscribe_time",
        basis=REMOVALS,
        columns=(ReportColumn("flapping", "UNSUBACK", THREE, makes_rows=True),),
        export="From UNSUBSCRIBE to UNSUBACK",
    ),
    *(
        Metric(f"qos_{qos}_per_s", DELIVERIES_BY_QOS, "gauge", "per_s", lines=(page("qos", label),))
        for qos, label in (("0", "QoS 0"), ("1", "QoS 1"), ("2", "QoS 2"), ("mixed", "several"))
    ),
)
