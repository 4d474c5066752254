"""Figures of monitors: processes, services, the host, agents and bridges, and the lateness of
publishers under test."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pubstorm.quantities import UnfitError, span_text
from pubstorm.result import Measured
from pubstorm.result.figures.metric import (
    LATENCY_STATISTICS,
    MONITOR_STATISTICS,
    NOTHING_MEASURED,
    Asked,
    Found,
    Metric,
    Missing,
    metric_hint,
    number_at,
    readings,
    span_of,
)
from pubstorm.result.samples import Unit, unit_of

MOVING_AVERAGE = re.compile(r"^\$SYS/.*/(\d+)min$", re.ASCII)
"""Names of the broker's moving averages, with their time constant in minutes."""
SETTLED_TIMES = 4.6
"""Time constants after which such an average is within 1 % of a load that stays the same."""
NO_GROWTH = "the source reported fewer than twice in that time, so there is no rate"


@dataclass(frozen=True)
class MonitorMetric(Metric):
    """A figure of monitors."""

    def check(self, asked: Asked) -> None:
        """Accepts every expression: the statistics depend on the source."""

    def read(self, measured: Measured, asked: Asked) -> Found | Missing:
        """Returns the worst value of the sources that the subject means."""
        subject = asked.subject
        watched = [w for w in measured.monitors if subject in {w.source, w.group}]
        if not watched:
            return Missing(unwatched(measured, subject or ""))
        full = (asked.metric, *(f"{asked.metric}_{suffix}" for suffix in UNIT_SUFFIXES))
        metric = next((name for name in full if any(w.metric == name for w in watched)), None)
        if metric is None:
            return Missing(f"{subject} shows no {asked.metric}")
        if (unsettled := _unsettled(measured, metric, asked.span)) is not None:
            return Missing(unsettled, "not settled")
        statistic = asked.statistic or "mean"
        unit = unit_of_growth(metric) if statistic == "rate" else unit_of(metric)
        named = [w for w in watched if w.metric == metric]
        values = readings(named, statistic, asked.span)
        if values:
            return Found(max(values), unit)
        has_reading = any(span_of(w, asked.span).count for w in named)
        return Missing(NO_GROWTH if has_reading else NOTHING_MEASURED)


def _unsettled(measured: Measured, metric: str, span: str | None) -> str | None:
    """Returns why a moving average of the broker says nothing of a span: the load did not last long
    enough before its end. None for other figures, and for settled averages."""
    minutes = MOVING_AVERAGE.search(metric)
    if minutes is None:
        return None
    needed_s = 60 * SETTLED_TIMES * int(minutes[1])
    lasted_s = _lasted_s(measured, span)
    if lasted_s >= needed_s:
        return None
    return (
        f"{metric} is a moving average, which comes within 1 % of a load after "
        f"{span_text(needed_s)}, and the load lasted {span_text(lasted_s)}"
    )


def _lasted_s(measured: Measured, span: str | None) -> float:
    """Returns the time for which the load of a span was the same: of the last phase, or of a stage
    without phases; without a span, of the last one under load."""
    phases = [each for each in measured.phases if span in {None, each.name, each.stage}]
    if phases:
        return phases[-1].duration_s
    stages = [each for each in measured.stages if span in {None, each.name}]
    loaded = [s for s in stages if s.kind == "publish"] or [s for s in stages if s.kind == "hold"]
    return max((stage.steady_s for stage in (loaded or stages)[-1:]), default=0.0)


@dataclass(frozen=True)
class PublisherMetric(Metric):
    """A figure of publishers under test, beside those of populations and processes."""

    def read(self, measured: Measured, asked: Asked) -> Found | Missing:
        """Returns the worst value of the publishers that the subject means."""
        if asked.span is not None:
            return Missing(f"{asked.metric} of publishers is kept for the whole run only")
        named = [p for p in measured.publishers if asked.subject in {p.name, p.population}]
        path = (f"{asked.metric}_us", asked.statistic or "")
        values = [value for p in named if (value := number_at(p, path)) is not None]
        return Found(max(values), self.unit or "") if values else Missing(NOTHING_MEASURED)


def monitor_metric(name: str, statistic: str | None) -> MonitorMetric:
    """Returns a figure of monitors by its name, with or without its unit."""
    if statistic == "rate":
        return MonitorMetric(unit_of_growth(name))
    if name in MONITOR_NAMES:
        return MonitorMetric(unit_of(MONITOR_NAMES[name]))
    return MonitorMetric(unit_of(name) or None)


def check_monitor_metric(asked: Asked, known: Sequence[str] | None) -> None:
    """Raises UnfitError unless a source has the metric and the statistic. `known` are its metrics,
    beside those of `$SYS`; None if only the run defines them."""
    metric, statistic = asked.metric, asked.statistic
    if known is not None and metric in PUBLISHER_METRICS and metric in known:
        return
    if known is not None and not metric.startswith(SYS_PREFIX):
        names = [name for name, full in MONITOR_NAMES.items() if full in known]
        if metric not in names:
            hint = metric_hint(metric, names, known)
            raise UnfitError(metric, "are the metrics of the reference", hint)
    if statistic is not None and statistic not in MONITOR_STATISTICS:
        raise UnfitError(statistic, f"are {', '.join(MONITOR_STATISTICS)}")


def unit_of_growth(metric: str) -> Unit:
    """Returns the unit of a count's growth a second."""
    counts_bytes = unit_of(metric) == "bytes" or metric.startswith(f"{SYS_PREFIX}bytes/")
    return "bytes_per_s" if counts_bytes else "per_s"


def unwatched(measured: Measured, subject: str) -> str:
    """Returns why a subject is not among the monitors."""
    for problem in measured.monitor_problems:
        if subject in {problem.source, problem.group}:
            return f"{subject} is not watched: {problem.text}"
    return f"{subject} is not watched"


PUBLISHER_METRICS: Mapping[str, PublisherMetric] = {
    "lateness": PublisherMetric("us", "Lateness of messages by the publisher.", LATENCY_STATISTICS)
}
PROCESS_METRICS: Mapping[str, str] = {
    "cpu": "CPU time, as a share of one core: 150 % is one and a half cores.",
    "cpu_user": "The part of it in the program.",
    "cpu_system": "The part of it in the kernel.",
    "rss_bytes": "Resident memory.",
    "private_bytes": "Resident memory without what other processes share, such as the program.",
    "virtual_bytes": "Addresses that it has, with and without memory behind them (VIRT of `top`).",
    "memory": "Resident memory, as a share of the memory of the host (%MEM of `top`).",
    "disk_read_bytes_per_s": "Bytes that it and its children read from disks.",
    "disk_written_bytes_per_s": "Bytes that it and its children wrote to disks.",
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
    "processors": "Processors.",
    "memory_used_bytes": "Memory in use.",
    "memory_available_bytes": "Memory that programs can still get.",
    "slab_bytes": "Memory of the kernel's own objects, with caches that it can reclaim.",
    "kernel_bytes": "The part of it that the kernel cannot reclaim; with many connections sockets "
    "are the most of it.",
    "load1": "Load average of a minute.",
    "net_sent_bytes_per_s": "Bytes sent over all interfaces.",
    "net_received_bytes_per_s": "Bytes received over all interfaces.",
    "disk_read_bytes_per_s": "Bytes read from all disks.",
    "disk_written_bytes_per_s": "Bytes written to all disks.",
    "tcp_retransmits": "TCP segments sent again: a counter.",
    "tcp_listen_overflows": "Connections dropped since a listener's queue was full: a counter.",
    "tcp_sockets": "TCP sockets in use.",
    "tcp_buffer_bytes": "What all TCP sockets have in their buffers.",
    "conntrack": "Connections that the firewall follows.",
    "conntrack_max": "How many it can follow.",
}
BOUND_METRIC = "clock_bound_us"
"""Metric: how far the time of a reading was off at most."""
AGENT_METRICS: Mapping[str, str] = {
    "cpu": "CPU time of the agent, as a share of one core.",
    "rss_bytes": "Resident memory of the agent.",
    "busy": "Share of the time that its loop was not waiting.",
    "run_delay": "Share of the time that its loop could run and had no processor, since other "
    "programs of its host had them.",
    "lateness_p99_us": "99th percentile of how late it wrote messages by its own fault.",
    BOUND_METRIC: "How far its time was off at most, on a host other than the one that the run "
    "was started on.",
}
BRIDGE_METRICS: Mapping[str, str] = {
    "connected": "Bridges that are up, as they say themselves on the main broker.",
}
SYS_PREFIX = "$SYS/"
"""Prefix of metrics that a broker publishes itself."""
UNIT_SUFFIXES = ("bytes", "bytes_per_s", "per_s", "us")


def _names() -> dict[str, str]:
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


MONITOR_NAMES: Mapping[str, str] = _names()
"""Full names of the figures of monitors, by name with and without unit."""
