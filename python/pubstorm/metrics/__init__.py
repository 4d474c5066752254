"""Metric expressions: `[SUBJECT.]METRIC[.STATISTIC][@SPAN]`, such as `device.latency.p99`,
`broker.cpu.max` or `device.acked_per_s@steady`, and the metrics that are known before a run. The
one grammar of thresholds, tables and stop rules. It knows no scenario and no result.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from pubstorm.metrics import percentiles
from pubstorm.metrics.of_run import RUN_METRICS, check_run_metric
from pubstorm.samples import Unit, unit_of
from pubstorm.units import UnfitError

Combination = Literal["sum", "worst"]
SpanKind = Literal["stage", "phase"]


@dataclass(frozen=True, slots=True)
class Divisor:
    """What a metric of populations is divided by. Where a stage or phase does not keep it, it is
    that of the whole run."""

    path: tuple[str, ...]
    """Where it stands in a population's result."""
    meaning: str
    """What the quotient says."""
    nothing: str
    """Why there is no quotient where it is zero."""
    among: tuple[str, ...] = ()
    """Counters of which a population must have one that is not zero to be among all; nothing: each
    of them is."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of populations."""

    path: tuple[str, ...]
    """Where it stands in a population's result, before its statistic."""
    unit: Unit = ""
    statistics: tuple[str, ...] = ()
    """What can be asked of it; nothing where it is one number."""
    over_all: Combination = "sum"
    """What it is for all populations together."""
    spans: frozenset[SpanKind] = frozenset()
    """Whether it is kept for single stages and phases too."""
    over_time: bool = False
    """Whether its readings can be asked for too, with the statistics of monitors."""
    divisor: Divisor | None = None
    """What it is a quotient by; None: it stands in the result as it is."""
    of_acks: bool = False
    """True if only populations with acknowledged messages have the metric."""


@dataclass(frozen=True, slots=True)
class FaultMetric:
    """A metric of faults, which has a fault as its span and no subject."""

    meaning: str
    unit: Unit = ""
    statistics: tuple[str, ...] = ()
    """What can be asked of it; nothing where it is one number."""


@dataclass(frozen=True, slots=True)
class Expression:
    """What is asked of a result."""

    subject: str | None
    """A population or a share of one, a monitor's source or its group; None: all populations."""
    metric: str
    statistic: str | None = None
    span: str | None = None
    """A stage, phase or fault; None: the whole run, for monitors its load time."""

    def __str__(self) -> str:
        subject = "" if self.subject is None else f"{self.subject}."
        statistic = "" if self.statistic is None else f".{self.statistic}"
        span = "" if self.span is None else f"@{self.span}"
        return f"{subject}{self.metric}{statistic}{span}"

    @property
    def is_of_fault(self) -> bool:
        """Whether it asks what came of a fault."""
        return self.subject is None and self.metric in FAULT_METRICS

    @property
    def is_of_run(self) -> bool:
        """Whether it asks for a metric of the run as a whole."""
        return self.metric in RUN_METRICS

    @property
    def unit(self) -> Unit | None:
        """The unit of its value; None where only the result can tell."""
        if self.is_of_run:
            return RUN_METRICS[self.metric].unit
        if self.statistic == "rate":
            return unit_of_growth(self.metric)
        known = POPULATION_METRICS.get(self.metric)
        if known is not None:
            return known.unit
        if self.is_of_fault:
            return FAULT_METRICS[self.metric].unit
        if self.subject is not None and self.metric in PUBLISHER_METRICS:
            return PUBLISHER_METRICS[self.metric].unit
        if self.metric in MONITOR_METRICS:
            return unit_of(MONITOR_METRICS[self.metric])
        return unit_of(self.metric) or None


def parse_expression(source: str) -> Expression:
    """Parses an expression; whether its subject and span exist is the scenario's to say."""
    found = _EXPRESSION.fullmatch(source.strip())
    if found is None:
        raise UnfitError(source, "is [SUBJECT.]METRIC[.STATISTIC][@SPAN]", EXAMPLES_HINT)
    body, span = found["body"], found["span"]
    metric, statistic = _split_statistic(body)
    if metric in POPULATION_METRICS:
        _check_statistic(metric, statistic)
        return Expression(None, metric, statistic, span)
    if metric in FAULT_METRICS:
        _check_fault_metric(metric, statistic, span)
        return Expression(None, metric, statistic, span)
    if metric in RUN_METRICS:
        check_run_metric(metric, None, statistic, span)
        return Expression(None, metric, None, span)
    subject = _SUBJECT.fullmatch(body)
    if subject is None:
        known = (*POPULATION_METRICS, *FAULT_METRICS, *RUN_METRICS)
        hint = metric_hint(metric, known, SHOWN_METRICS)
        raise UnfitError(body, "are the metrics of the reference, or SUBJECT.METRIC", hint)
    name = subject["name"]
    metric, statistic = _split_statistic(subject["metric"])
    if metric in RUN_METRICS:
        check_run_metric(metric, name, statistic, span)
    if metric in BRIDGE_METRICS:
        return Expression(name, metric, statistic, span)
    if metric in POPULATION_METRICS:
        _check_statistic(metric, statistic)
    elif name in POPULATION_METRICS:
        _check_statistic(name, subject["metric"])
    elif metric in PUBLISHER_METRICS:
        _check_among(metric, statistic, PUBLISHER_METRICS[metric].statistics)
    return Expression(name, metric, statistic, span)


def check_population_metric(expression: Expression) -> None:
    """Raises UnfitError unless populations have the metric, with that statistic."""
    if expression.metric not in POPULATION_METRICS:
        tail = expression.metric.rpartition(".")
        if tail[0] in POPULATION_METRICS:
            _check_statistic(tail[0], tail[2])
        hint = metric_hint(expression.metric, POPULATION_METRICS, SHOWN_METRICS)
        raise UnfitError(expression.metric, "are the metrics of the reference", hint)
    _check_statistic(expression.metric, expression.statistic)


def check_monitor_metric(expression: Expression, known: Sequence[str] | None) -> None:
    """Raises UnfitError unless the metric is `known`, where that can be said, or of `$SYS`, and
    the statistic one of monitors."""
    metric, statistic = expression.metric, expression.statistic
    if known is not None and metric in PUBLISHER_METRICS and metric in known:
        return
    if known is not None and not metric.startswith(SYS_PREFIX):
        names = [name for name, full in MONITOR_METRICS.items() if full in known]
        if metric not in names:
            hint = metric_hint(metric, names, known)
            raise UnfitError(metric, "are the metrics of the reference", hint)
    if statistic is not None and statistic not in MONITOR_STATISTICS:
        raise UnfitError(statistic, f"are {', '.join(MONITOR_STATISTICS)}")


def metric_hint(name: str, metrics: Collection[str], shown: Collection[str]) -> str:
    """What a wrong metric might have meant, or what there is to show."""
    close = get_close_matches(name, metrics, n=2, cutoff=0.7)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"there are {', '.join(shown)}"


def unit_of_growth(metric: str) -> Unit:
    """The unit of a count's growth a second."""
    counts_bytes = unit_of(metric) == "bytes" or metric.startswith(f"{SYS_PREFIX}bytes/")
    return "bytes_per_s" if counts_bytes else "per_s"


def full_names(metric: str) -> tuple[str, ...]:
    """What a monitor's metric may be called in a result, where its unit was left out."""
    return (metric, *(f"{metric}_{suffix}" for suffix in UNIT_SUFFIXES))


def _split_statistic(body: str) -> tuple[str, str | None]:
    """The metric and its statistic, if it ends with one outside labels."""
    labels_end = body.rfind("}") + 1
    found = percentiles.split_percentile(body[labels_end:])
    if found is not None:
        return body[:labels_end] + found[0], found[1]
    metric, dot, statistic = body[labels_end:].rpartition(".")
    if dot and body[:labels_end] + metric and statistic in ALL_STATISTICS:
        return body[:labels_end] + metric, statistic
    return body, None


def _check_fault_metric(metric: str, statistic: str | None, span: str | None) -> None:
    if span is None:
        raise UnfitError(metric, f"is {metric}@FAULT, the name of a fault", FAULT_HINT)
    _check_among(metric, statistic, FAULT_METRICS[metric].statistics)


def _check_statistic(metric: str, statistic: str | None) -> None:
    if POPULATION_METRICS[metric].over_time:
        if statistic is not None and statistic not in MONITOR_STATISTICS:
            words = f"are {metric} alone, or .{', .'.join(MONITOR_STATISTICS)}"
            raise UnfitError(statistic, words)
        return
    _check_among(metric, statistic, POPULATION_METRICS[metric].statistics)


def _check_among(metric: str, statistic: str | None, allowed: tuple[str, ...]) -> None:
    if statistic in allowed or (statistic is None and not allowed):
        return
    has_percentiles = allowed == LATENCY_STATISTICS
    if has_percentiles and statistic is not None and percentiles.share_of(statistic) is not None:
        return
    if not allowed:
        raise UnfitError(statistic, f"is {metric} alone: it is one number")
    found = metric if statistic is None else f"{metric}.{statistic}"
    example = "p99" if "p99" in allowed else allowed[0]
    others = f" and {percentiles.ALLOWED}" if has_percentiles else ""
    raise UnfitError(
        found, f"are {metric}.{', .'.join(allowed)}{others}", f"for example {metric}.{example}"
    )


LATENCY_STATISTICS = ("mean", "min", "p50", "p90", "p99", "p999", "max")
MONITOR_STATISTICS = ("mean", "min", "max", "first", "last", "increase", "rate")
BACK_STATISTICS: Mapping[str, str] = {
    "first": "Until the first one of those that were lost was back.",
    "most": "Until 99 % of those that were there before were there again.",
    "all": "Until all of them were.",
}
ALL_STATISTICS = frozenset((*LATENCY_STATISTICS, *MONITOR_STATISTICS, *BACK_STATISTICS))

COUNTERS = (
    "connect_attempts",
    "connect_failed",
    "disconnected",
    "subscribed",
    "subscribe_failed",
    "sent",
    "acked",
    "left",
    "stalled",
    "resent",
    "abandoned",
    "skipped",
    "expected",
    "received",
    "lost",
    "duplicate",
    "reordered",
    "stale",
    "retained",
    "foreign",
    "packets_sent",
    "packets_received",
    "bytes_sent",
    "bytes_received",
)
STAGE_COUNTERS = frozenset(
    (
        "connect_failed",
        "disconnected",
        "sent",
        "acked",
        "skipped",
        "left",
        "stalled",
        "received",
        "expected",
        "lost",
        "duplicate",
        "reordered",
        "stale",
    )
)
STATES = (
    "clients",
    "connected",
    "ready_max",
    "never_ready",
    "away",
    "in_flight_max",
    "in_flight",
    "backlog",
)
RATES = ("sent_per_s", "acked_per_s", "received_per_s")
BYTE_RATES = ("bytes_sent_per_s", "bytes_received_per_s")
QUOTIENTS = ("loss", "sent_each_per_s", "received_each_per_s")
LATENCIES = ("latency", "ack_latency")
SHOWN_METRICS = (
    *COUNTERS,
    *STATES,
    *RATES,
    *BYTE_RATES,
    *QUOTIENTS,
    *LATENCIES,
    "connect_time",
)
"""Each metric of populations once, though some can be written in several ways."""


def _population_metrics() -> dict[str, Metric]:
    in_stages: frozenset[SpanKind] = frozenset({"stage"})
    everywhere: frozenset[SpanKind] = frozenset({"stage", "phase"})
    nowhere: frozenset[SpanKind] = frozenset()
    metrics: dict[str, Metric] = {}
    for name in COUNTERS:
        spans = in_stages if name in STAGE_COUNTERS else nowhere
        metric = Metric((f"{name}_total",), spans=spans, of_acks=name == "acked")
        metrics[name] = metrics[f"{name}_total"] = metric
    for name in STATES:
        metrics[name] = Metric((name,))
    for name in ("connected", "away"):
        metrics[name] = metrics[f"{name}_max"] = Metric((f"{name}_max",))
    for name in RATES:
        acks = name == "acked_per_s"
        path = ("rates", name)
        metrics[name] = Metric(path, "per_s", spans=everywhere, over_time=True, of_acks=acks)
    for name in BYTE_RATES:
        metrics[name] = Metric(("rates", name), "bytes_per_s", spans=everywhere)
    metrics["loss"] = Metric(("lost_total",), "share", spans=in_stages, divisor=_OWED)
    for name, of, divisor in (
        ("sent_each_per_s", "sent_per_s", _SENDERS),
        ("received_each_per_s", "received_per_s", _RECEIVERS),
    ):
        metrics[name] = Metric(("rates", of), "per_s", spans=everywhere, divisor=divisor)
    for name in LATENCIES:
        for clock, spans in (("intended", everywhere), ("actual", in_stages)):
            path = (f"{name}_us", clock)
            metrics[f"{name}.{clock}"] = Metric(path, "us", LATENCY_STATISTICS, "worst", spans)
        metrics[name] = metrics[f"{name}.intended"]
    metrics["connect_time"] = Metric(("connect_time_us",), "us", LATENCY_STATISTICS, "worst")
    return metrics


_OWED = Divisor(
    ("expected_total",),
    "Expected deliveries that were not seen, as a share of those expected.",
    "no delivery was owed",
)
_SENDERS = Divisor(
    ("ready_max",),
    "Messages that each client sent: the rate by the most clients that were ready at once.",
    "no client was ready",
    among=("sent_total", "skipped_total"),
)
_RECEIVERS = Divisor(
    ("ready_max",),
    "Messages that each client received: the rate by the most clients that were ready at once.",
    "no client was ready",
    among=("expected_total", "received_total"),
)
POPULATION_METRICS: Mapping[str, Metric] = _population_metrics()

PUBLISHER_METRICS: Mapping[str, Metric] = {
    "lateness": Metric(("lateness_us",), "us", LATENCY_STATISTICS, "worst")
}
"""Metrics of publishers under test, beside those of populations and of processes."""

FAULT_METRICS: Mapping[str, FaultMetric] = {
    "clients_lost": FaultMetric("Clients that were connected before it, less those at the worst."),
    "clients_back": FaultMetric(
        "Time from when it was mended until they were connected again.",
        "s",
        tuple(BACK_STATISTICS),
    ),
    "bridges_lost": FaultMetric("Bridges that were up before it, less those at the worst."),
    "bridges_back": FaultMetric(
        "Time from when it was mended until they were up again.", "s", tuple(BACK_STATISTICS)
    ),
    "backlog_peak": FaultMetric(
        "Most messages that were due and not yet received or acknowledged."
    ),
    "drained": FaultMetric("Time from when it was mended until they were gone.", "s"),
}

PROCESS_METRICS: Mapping[str, str] = {
    "cpu": "CPU time, as a share of one core: 150 % is one and a half cores.",
    "cpu_user": "The part of it in the program.",
    "cpu_system": "The part of it in the kernel.",
    "rss_bytes": "Resident memory.",
    "private_bytes": "Resident memory without what other processes share, such as the program.",
    "thread_cpu_max": "CPU time of its busiest thread, as a share of one core; of a publisher, or "
    "of a broker with few threads.",
    "threads": "Threads.",
    "descriptors": "Open descriptors.",
    "processes": "Processes: the one watched and its children.",
}
REDIS_METRICS: Mapping[str, str] = {
    "used_memory_bytes": "Memory that Redis has taken for its data and buffers.",
    "keys": "Keys of all its databases.",
    "connections": "Connections to it.",
    "commands_per_s": "Commands a second, as Redis itself measures it.",
    "evicted": "Keys that it threw away for lack of memory: a counter.",
    "rejected": "Connections that it refused: a counter.",
}
HOST_METRICS: Mapping[str, str] = {
    "cpu": "CPU time, as a share of all cores.",
    "cpu_user": "The part of it in programs.",
    "cpu_system": "The part of it in the kernel.",
    "cpu_softirq": "The part of it in soft interrupts, where the kernel handles packets.",
    "cpu_steal": "Time that the hypervisor gave to others.",
    "memory_used_bytes": "Memory in use.",
    "memory_available_bytes": "Memory that programs can still get.",
    "slab_bytes": "Memory of the kernel's own objects, with caches that it can reclaim.",
    "kernel_bytes": "The part of it that the kernel cannot reclaim; with many connections sockets "
    "are the most of it.",
    "load1": "Load average of a minute.",
    "net_sent_bytes_per_s": "Bytes sent over all interfaces.",
    "net_received_bytes_per_s": "Bytes received over all interfaces.",
    "tcp_retransmits": "TCP segments sent again: a counter.",
    "tcp_listen_overflows": "Connections dropped since a listener's queue was full: a counter.",
    "tcp_sockets": "TCP sockets in use.",
    "tcp_buffer_bytes": "What all TCP sockets have in their buffers.",
    "conntrack": "Connections that the firewall follows.",
    "conntrack_max": "How many it can follow.",
}
AGENT_METRICS: Mapping[str, str] = {
    "cpu": "CPU time of the engine, as a share of one core.",
    "rss_bytes": "Resident memory of the engine.",
    "busy": "Share of the time that its loop was not waiting.",
    "run_delay": "Share of the time that its loop could run and had no processor, since other "
    "programs of its host had them.",
    "lateness_p99_us": "99th percentile of how late it wrote messages by its own fault.",
    "clock_bound_us": "How far its time was off at most, on a host other than the one that the run "
    "was started on.",
}
BRIDGE_METRICS: Mapping[str, str] = {
    "connected": "Bridges that are up, as they say themselves on the main broker.",
}
SYS_PREFIX = "$SYS/"
"""What the name of a metric begins with that a broker publishes of itself."""
UNIT_SUFFIXES = ("bytes", "bytes_per_s", "per_s", "us")


def _monitor_metrics() -> dict[str, str]:
    """Full names of the known metrics of monitors, by themselves and without their units."""
    names: dict[str, str] = {}
    known = (PROCESS_METRICS, REDIS_METRICS, HOST_METRICS, AGENT_METRICS, BRIDGE_METRICS)
    for full in (name for metrics in known for name in metrics):
        names[full] = full
        for suffix in sorted(UNIT_SUFFIXES, key=len, reverse=True):
            if full.endswith(f"_{suffix}"):
                names[full.removesuffix(f"_{suffix}")] = full
                break
    return names


MONITOR_METRICS: Mapping[str, str] = _monitor_metrics()

FAULT_HINT = "for example clients_back.most@kill cloud"
EXAMPLES_HINT = "for example device.latency.p99, broker.cpu.max or device.acked_per_s@steady"

_EXPRESSION = re.compile(r"(?P<body>[^@\s](?:[^@{]|\{[^}]*\})*?)(?:@(?P<span>\S(?:.*\S)?))?")
_SUBJECT = re.compile(r"(?P<name>[A-Za-z][\w-]*(?:/[A-Za-z][\w-]*)?)\.(?P<metric>.+)", re.ASCII)
