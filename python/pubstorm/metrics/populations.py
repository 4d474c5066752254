"""The metrics of populations. The meaning of a counter stands beside its field in the contract."""

from __future__ import annotations

from typing import Literal

from pubstorm.metrics.metric import (
    LATENCY_STATISTICS,
    Basis,
    Divisor,
    Line,
    Metric,
    Owner,
    SpanKind,
    both,
    page,
)
from pubstorm.quantities import Unit

Better = Literal["lower", "higher"]

POPULATION: frozenset[Owner] = frozenset({"population"})
DELIVERIES_BY_QOS: frozenset[Owner] = frozenset({"deliveries"})
NOWHERE: frozenset[SpanKind] = frozenset()
STAGES: frozenset[SpanKind] = frozenset({"stage"})
EVERYWHERE: frozenset[SpanKind] = frozenset({"stage", "phase"})

_UNCONNECTED = "no client{of} was to connect{where}: no stage connects it"
CLIENTS = Basis(("asked",), _UNCONNECTED)
ATTEMPTS = Basis(("connect_attempts_total",), _UNCONNECTED)
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


def counter(
    name: str,
    spans: frozenset[SpanKind] = NOWHERE,
    basis: Basis | None = None,
    *,
    of_acks: bool = False,
    better: Better | None = None,
) -> Metric:
    """Returns a counter, which lies in the field `NAME_total`."""
    return Metric(
        name,
        POPULATION,
        "counter",
        "",
        at=f"{name}_total",
        aliases=(f"{name}_total",),
        spans=spans,
        basis=basis,
        of_acks=of_acks,
        better=better,
    )


def gauge(
    name: str,
    *,
    is_peak: bool = False,
    of_a_size: bool = False,
    basis: Basis | None = None,
    lines: tuple[Line, ...] = (),
    better: Better | None = None,
) -> Metric:
    """Returns a number of clients or messages. `is_peak`: the largest of the run, which the field
    `NAME_max` has."""
    return Metric(
        name,
        POPULATION,
        "gauge",
        "",
        at=f"{name}_max" if is_peak else name,
        aliases=(f"{name}_max",) if is_peak else (),
        of_a_size=of_a_size,
        basis=basis,
        lines=lines,
        better=better,
    )


def reading(name: str, *lines: Line, unit: Unit = "", of: frozenset[Owner] = POPULATION) -> Metric:
    """Returns a metric that only samples have."""
    return Metric(name, of, "gauge", unit, lines=lines)


def rate(name: str, *lines: Line, of_acks: bool = False, better: Better | None = None) -> Metric:
    """Returns a rate over the steady windows. The readings of one in charts can be asked for."""
    return Metric(
        name,
        POPULATION,
        "derived",
        "bytes_per_s" if name.startswith("bytes_") else "per_s",
        at=f"rates.{name}",
        spans=EVERYWHERE,
        has_readings=bool(lines),
        of_acks=of_acks,
        lines=lines,
        better=better,
    )


def of_each(name: str, rate: str, line: Line, divisor: Divisor, words: str) -> Metric:
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
        better="higher",
    )


def shares(name: str, statistics: tuple[str, ...], basis: Basis, better: Better | None) -> Metric:
    """Returns a distribution of shares."""
    return Metric(
        name,
        POPULATION,
        "derived",
        "share",
        at=name,
        statistics=statistics,
        spans=STAGES,
        basis=basis,
        over_all="worst",
        better=better,
    )


def histogram(
    name: str,
    spans: frozenset[SpanKind] = STAGES,
    basis: Basis | None = None,
    *,
    at: str = "",
    aliases: tuple[str, ...] = (),
    lines: tuple[Line, ...] = (),
    better: Better | None = None,
) -> Metric:
    """Returns a distribution of durations, by default that of the field `NAME_us`."""
    return Metric(
        name,
        POPULATION,
        "histogram",
        "us",
        at=at or f"{name}_us",
        statistics=LATENCY_STATISTICS,
        aliases=aliases,
        spans=spans,
        basis=basis,
        over_all="worst",
        lines=lines,
        better=better,
    )


def two_clocks(name: str, basis: Basis | None = None, *lines: Line) -> tuple[Metric, Metric]:
    """Returns a distribution from the scheduled instant, and from the instant of sending."""
    intended, actual = f"{name}.intended", f"{name}.actual"
    return (
        histogram(
            name,
            EVERYWHERE,
            basis,
            at=f"{name}_us.intended",
            aliases=(intended,),
            lines=lines,
            better="lower",
        ),
        histogram(actual, STAGES, basis, at=f"{name}_us.actual", better="lower"),
    )


def _ready(*among: str) -> Divisor:
    return Divisor("ready_max", "no client was ready", among)


POPULATIONS: tuple[Metric, ...] = (
    counter("connect_attempts"),
    counter("connect_failed", STAGES, ATTEMPTS, better="lower"),
    counter("disconnected", STAGES, ATTEMPTS, better="lower"),
    counter("subscribed"),
    counter("subscribe_failed", basis=FILTERS),
    counter("unsubscribed", STAGES),
    counter("unsubscribe_failed", STAGES, REMOVALS),
    counter("sent", STAGES),
    counter("acked", STAGES, of_acks=True),
    counter("rejected", basis=MESSAGES, better="lower"),
    counter("left", STAGES),
    counter("stalled", STAGES, DELIVERIES, better="lower"),
    counter("resent", basis=MESSAGES, better="lower"),
    counter("abandoned", basis=MESSAGES, better="lower"),
    counter("skipped", STAGES, MESSAGES, better="lower"),
    counter("requests", STAGES),
    counter("answered", STAGES),
    counter("unanswered", STAGES, ANSWERS),
    counter("answers_expected", STAGES),
    counter("answers_duplicate", STAGES, ANSWERS),
    counter("answers_late", STAGES, ANSWERS),
    counter("answers_of_others"),
    counter("answers", STAGES),
    counter("answers_dropped", STAGES),
    counter("expected", STAGES),
    counter("received", STAGES),
    counter("lost", STAGES, EXPECTED, better="lower"),
    counter("duplicate", STAGES, DELIVERIES, better="lower"),
    counter("copies", STAGES, DELIVERIES),
    counter("reordered", STAGES, DELIVERIES, better="lower"),
    counter("stale", STAGES, DELIVERIES, better="lower"),
    counter("receive_maximum_waits"),
    counter("wills_expected", STAGES),
    counter("wills_received", STAGES),
    counter("wills_lost", STAGES, WILLS),
    counter("expired", STAGES),
    counter("expired_received", STAGES, RECEIVED),
    counter("retained"),
    counter("retained_as_published"),
    counter("expiry_reduced"),
    counter("server_keep_alives"),
    counter("foreign"),
    counter("packets_sent"),
    counter("packets_received"),
    counter("bytes_sent"),
    counter("bytes_received"),
    gauge("clients", of_a_size=True),
    gauge("connected", is_peak=True, of_a_size=True, lines=both("clients", "connected")),
    gauge("ready_max", of_a_size=True),
    reading("ready", *both("clients", "ready")),
    gauge("never_ready", basis=CLIENTS, better="lower"),
    gauge("offline", is_peak=True, lines=both("clients", "offline")),
    reading("stalled", *both("clients", "stalled")),
    gauge("in_flight_max"),
    reading("missing", *both("behind", "missing")),
    gauge("in_flight", lines=both("behind", "in flight")),
    gauge("backlog", lines=both("behind", "backlog")),
    reading("skipped_per_s", page("behind", "skipped per second"), unit="per_s"),
    rate("sent_per_s", *both("load", "sent"), better="higher"),
    reading("due_per_s", *both("load", "scheduled"), unit="per_s"),
    rate(
        "acked_per_s",
        *both("load", "acked"),
        Line("sides", "over-acked"),
        of_acks=True,
        better="higher",
    ),
    rate(
        "received_per_s",
        *both("load", "received"),
        Line("sides", "over-received"),
        Line("runs", "compare-received"),
        better="higher",
    ),
    rate("bytes_sent_per_s"),
    rate("bytes_received_per_s"),
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
        better="lower",
    ),
    of_each(
        "sent_each_per_s",
        "sent_per_s",
        page("each", "sent"),
        _ready("sent_total", "skipped_total"),
        "Messages that each client sent: the rate by the most clients that were ready at once.",
    ),
    of_each(
        "received_each_per_s",
        "received_per_s",
        page("each", "received by each"),
        _ready("expected_total", "received_total"),
        "Messages that each client received: the rate by the most clients that were ready at once.",
    ),
    shares("client_loss", ("mean", "p50", "p90", "p99", "max"), EXPECTED, "lower"),
    shares("group_share", ("fairness", "min", "p50", "max"), DELIVERIES, None),
    *two_clocks(
        "latency",
        RECEIVED,
        Line("page", "latency", "p50", "p50"),
        Line("page", "latency", "p99", "p99", band=True),
        Line("page", "latency", "largest", "max"),
        Line("live", "latency", "p50", "p50", each=True),
        Line("live", "latency", "p99", "p99", "max", each=True),
        Line("sides", "over-p50", statistic="p50", joined="max"),
        Line("sides", "over-p99", statistic="p99", joined="max"),
        Line("runs", "compare-p99", statistic="p99", joined="max"),
    ),
    *two_clocks("ack_latency"),
    histogram("round_trip", basis=ANSWERED),
    histogram("will_latency", basis=WILLS_RECEIVED),
    histogram("connect_time", NOWHERE, better="lower"),
    histogram("receive_maximum_wait", NOWHERE),
    histogram("subscribe_time", basis=REMOVALS),
    histogram("unsubscribe_time", basis=REMOVALS),
    *(
        reading(f"qos_{qos}_per_s", page("qos", label), unit="per_s", of=DELIVERIES_BY_QOS)
        for qos, label in (("0", "QoS 0"), ("1", "QoS 1"), ("2", "QoS 2"), ("mixed", "several"))
    ),
)
