"""The charts over time, each with its words. The registry says which metrics are their lines."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pubstorm.metrics import METRICS
from pubstorm.metrics.metric import Line, Metric, View
from pubstorm.quantities import Unit

SubjectKind = Literal["population", "deliveries", "host", "agent", "bridge", "group", "watched"]
"""Kinds of subjects in charts. `watched` are brokers, publishers, services and other processes."""
SCALES = {"share": 100.0, "bytes": 1e-6, "bytes_per_s": 1e-6, "us": 1e-3}
"""Factors from the unit of a metric to the one plotted: %, MB, MB/s, ms."""
UNITS = {
    "share": " %",
    "bytes": " MB",
    "per_s": "/s",
    "bytes_per_s": " MB/s",
    "us": " ms",
    "s": " s",
}
"""Text under the pointer after a value."""


@dataclass(frozen=True)
class Chart:
    """One plot over time."""

    key: str
    title: str
    caption: str
    axis: str
    """Title of the vertical axis, with its unit; on the live page the unit after values."""
    kind: SubjectKind = "watched"
    """Kind of its subjects, of a chart of a report."""
    log: bool = False


@dataclass(frozen=True)
class ChartLine:
    """A line of a chart, and the metric that it shows."""

    metric: Metric
    line: Line

    @property
    def sample(self) -> str:
        """Name of the metric in samples."""
        return self.metric.sample(self.line.statistic)

    @property
    def unit(self) -> Unit:
        """Unit of its values, before they are scaled."""
        return (self.metric.growth if self.line.growth else self.metric).unit or ""

    @property
    def kind(self) -> SubjectKind:
        """Kind of the sources that have the metric."""
        return next((kind for kind in OWN_KINDS if kind in self.metric.of), "watched")

    def shows(self, sample: str) -> bool:
        """Returns True for the name of a metric that the line shows."""
        if self.metric.is_pattern:
            return re.fullmatch(self.metric.name, sample) is not None
        return sample == self.sample


def lines_of(view: View, chart: str) -> tuple[ChartLine, ...]:
    """Returns the lines of a chart, in their order."""
    return tuple(_LINES[view, chart])


def _drawn() -> Iterator[tuple[tuple[View, str], ChartLine]]:
    for metric in METRICS:
        for line in metric.lines:
            yield (line.view, line.chart), ChartLine(metric, line)


OWN_KINDS: tuple[SubjectKind, ...] = ("population", "deliveries", "host", "agent", "bridge")
"""Kinds of sources with charts of their own."""
_LINES: defaultdict[tuple[View, str], list[ChartLine]] = defaultdict(list)
for _key, _line in sorted(_drawn(), key=lambda each: each[1].line.place):
    _LINES[_key].append(_line)

PAGE = (
    Chart(
        "load",
        "Messages a second",
        "Scheduled, written by the clients, acknowledged by the broker and "
        "received by subscribers. If sent falls below scheduled, the load was not offered in full.",
        "messages per second",
        "population",
    ),
    Chart(
        "clients",
        "Clients",
        "Connected: accepted by the broker. Ready: connected, with every subscription answered. "
        "Away: their session lifetime is over. Stalled: they received nothing for a while, "
        "though messages were scheduled.",
        "clients",
        "population",
    ),
    Chart(
        "qos",
        "Deliveries by QoS",
        "Messages received a second by all populations together, for each QoS of delivery.",
        "messages per second",
        "deliveries",
    ),
    Chart(
        "each",
        "Sent, and received by each subscriber",
        "Messages a second of one client, on average over those that are ready. Where received "
        "falls below sent, the publisher dropped what a subscriber's queue had no room for.",
        "messages per second and client",
        "population",
    ),
    Chart(
        "round-trip",
        "Round trips over time",
        "From the scheduled instant of a request to its answer. The band reaches from the median "
        "to p99. The scale is logarithmic.",
        "round trip (ms, logarithmic)",
        "population",
        log=True,
    ),
    Chart(
        "latency",
        "Latency over time",
        "From the scheduled instant of a message to its delivery, or to its acknowledgement if "
        "there are no receivers. The band reaches from the median to p99. The scale is "
        "logarithmic.",
        "latency (ms, logarithmic)",
        "population",
        log=True,
    ),
    Chart(
        "connecting",
        "Phases of connecting",
        "The 99th percentile of each phase in each interval: TCP, the handshake of TLS or QUIC, "
        "the broker's acceptance, and the subscriptions. A phase that no client ended in an "
        "interval has no point. The scale is logarithmic.",
        "time p99 (ms, logarithmic)",
        "population",
        log=True,
    ),
    Chart(
        "behind",
        "Missing, skipped and waiting messages",
        "Missing: passed over in a stream and not filled so far. In flight: sent and not yet "
        "acknowledged. Backlog: scheduled and not yet sent. Skipped: scheduled and never sent.",
        "messages",
        "population",
    ),
    Chart(
        "process-cpu",
        "CPU of brokers and other watched processes",
        "100 % is one core. A broker that uses one thread ends at 100 %, and so does the busiest "
        "thread of a publisher; brokers that are watched together are added up.",
        "CPU (% of one core)",
    ),
    Chart(
        "process-memory",
        "Memory of brokers and other watched processes",
        "Resident memory, as the kernel counts it, and the part that no other process shares.",
        "memory (MB)",
    ),
    Chart(
        "process-disk",
        "Disk traffic of brokers and other watched processes",
        "Bytes that they and their children read from disks and wrote to them.",
        "traffic (MB/s)",
    ),
    Chart(
        "process-unsent",
        "Bytes that brokers wrote and TCP has not sent",
        "At a full window the other end reads too slowly: a client, or a proxy between. The rest "
        "waits for the network.",
        "bytes (MB)",
    ),
    Chart(
        "process-round-trip",
        "Round trip of TCP at brokers",
        "The mean of connections that sent data, and the shortest of the last minutes. A round "
        "trip far above the shortest has waited in the network.",
        "round trip (ms)",
    ),
    Chart(
        "host-unsent",
        "Bytes that clients wrote and TCP has not sent",
        "Clients on the host of the run. At a full window the other end reads too slowly: the "
        "broker, or a proxy between. The rest waits for the network.",
        "bytes (MB)",
        "host",
    ),
    Chart(
        "bridges",
        "Bridges up",
        "Bridges that reported to the main broker that they are up. All count as down while the "
        "main broker is down.",
        "bridges",
        "bridge",
    ),
    Chart(
        "group-processes",
        "Brokers that run",
        "Processes of the brokers that are watched together.",
        "processes",
        "group",
    ),
    Chart(
        "agent-load",
        "Load of the agents",
        "Busy: time in which the loop was at work. 100 % CPU is one core, and each agent has one "
        "loop: near 100 % the generator sets the limit, not the broker. No processor: other "
        "programs had them, though the loop could run.",
        "share (% of one core)",
        "agent",
    ),
    Chart(
        "agent-late",
        "Lateness of the agents",
        "Lateness of messages that only the agent held up: the 99th percentile of each interval.",
        "lateness p99 (ms)",
        "agent",
    ),
    Chart(
        "agent-clock",
        "Clocks of the agents",
        "Largest error of an agent's time on another host: half of what exchanges "
        "with the reference clock left open.",
        "off by at most (ms)",
        "agent",
    ),
    Chart(
        "host-cpu",
        "CPU of the host",
        "100 % is all cores of this machine, with everything that runs on it.",
        "CPU (% of all cores)",
        "host",
    ),
    Chart(
        "host-memory",
        "Memory of the host",
        "Used and still available on this machine.",
        "memory (MB)",
        "host",
    ),
    Chart(
        "host-network",
        "Network of the host",
        "All interfaces together, the internal one included.",
        "traffic (MB/s)",
        "host",
    ),
    Chart(
        "host-disk",
        "Disk traffic of the host",
        "Bytes read from all disks and written to them.",
        "traffic (MB/s)",
        "host",
    ),
    Chart(
        "host-tcp",
        "TCP trouble of the host",
        "Segments sent again, and connections that found a listen queue full, in each second.",
        "per second",
        "host",
    ),
    Chart(
        "host-udp",
        "Datagrams dropped by the host",
        "Datagrams that found the socket of their receiver full, in each second.",
        "per second",
        "host",
    ),
    Chart(
        "sys-messages",
        "$SYS: messages",
        "What the broker itself counts, as growth a second between two of its reports.",
        "messages per second",
    ),
    Chart(
        "sys-bytes",
        "$SYS: bytes",
        "What the broker itself counts, as growth a second between two of its reports.",
        "traffic (MB/s)",
    ),
    Chart(
        "sys-dropped",
        "$SYS: dropped messages",
        "Messages that the broker says it dropped, in all so far.",
        "messages",
    ),
    Chart(
        "sys-stored",
        "$SYS: stored and retained messages",
        "Messages that the broker holds: queued, in flight and retained.",
        "messages",
    ),
    Chart(
        "sys-clients",
        "$SYS: clients",
        "Clients as the broker counts them, observers included.",
        "clients",
    ),
    Chart("sys-heap", "$SYS: heap", "Memory that the broker says it has allocated.", "memory (MB)"),
)
"""The charts of a report."""
LIVE = (
    Chart(
        "load",
        "Messages a second",
        "Scheduled, written by the clients, acknowledged by the broker and received by "
        "subscribers, all populations together.",
        "/s",
    ),
    Chart(
        "round-trip",
        "Round trips",
        "From the scheduled instant of a request to its answer. The scale is logarithmic.",
        "ms",
        log=True,
    ),
    Chart(
        "latency",
        "Latency",
        "From the scheduled instant of a message to its delivery, or to its acknowledgement if "
        "there are no receivers. The scale is logarithmic.",
        "ms",
        log=True,
    ),
    Chart("clients", "Clients", "Clients by state, all populations together.", ""),
    Chart(
        "behind",
        "Missing and waiting messages",
        "Missing: passed over in a stream and not "
        "filled so far. Backlog: scheduled and not yet sent.",
        "",
    ),
    Chart(
        "cpu", "CPU of brokers", "Of brokers and other watched processes; 100 % is one core.", "%"
    ),
    Chart("memory", "Memory of brokers", "Resident memory, as the kernel counts it.", "MB"),
    Chart(
        "busy",
        "Load of the generator",
        "Of the busiest agent, in % of one core, and of the controller's host, in % of all cores. "
        "Near 100 % the generator sets the limit, not the broker.",
        "%",
    ),
    Chart(
        "late",
        "Lateness of the generator",
        "99th percentile of the lateness of messages that "
        "only the agent held up, of the agent with the largest.",
        "ms",
    ),
)
"""The charts of the live page."""


def slowest(key: str, title: str, figure: str) -> Chart:
    """Returns a chart of a latency of the slowest population."""
    caption = "The slowest population at each instant. The scale is logarithmic."
    return Chart(key, title, caption, f"{figure} (ms, logarithmic)", log=True)


SIDES = (
    Chart(
        "over-received",
        "Messages received",
        "Messages that all clients received in a second.",
        "messages per second",
    ),
    Chart(
        "over-acked",
        "Messages acknowledged",
        "Messages of all clients that the broker acknowledged in a second.",
        "messages per second",
    ),
    slowest("over-round-trip", "Round trip p99", "round trip p99"),
    slowest("over-p50", "Latency p50", "latency p50"),
    slowest("over-p99", "Latency p99", "latency p99"),
    Chart(
        "over-cpu",
        "CPU under test",
        "All monitored brokers and publishers together. 100 % is one core.",
        "CPU (% of one core)",
    ),
)
"""The charts of a comparison, with one line each."""
RUNS = (
    Chart(
        "compare-received",
        "Received, by run",
        "Messages that all clients received in a second.",
        "messages per second",
    ),
    slowest("compare-round-trip", "Round trip p99, by run", "round trip p99"),
    slowest("compare-p99", "Latency p99, by run", "latency p99"),
)
"""The charts of runs beside each other, with one line each."""
