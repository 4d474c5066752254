"""Panels of metrics over time, with their titles and descriptions: data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pubstorm.quantities import Unit
from pubstorm.report.plot import Part

Kind = Literal["population", "deliveries", "host", "agent", "bridge", "group", "watched"]
"""Kinds of subjects that have tracks in a panel."""
PARTS: Mapping[Kind, Part] = {
    "population": "load",
    "deliveries": "load",
    "watched": "broker",
    "group": "broker",
    "bridge": "broker",
    "agent": "generator",
    "host": "generator",
}
"""Section of the page that has the panels of a kind."""


@dataclass(frozen=True)
class Pick:
    """Tracks that a panel shows."""

    pattern: str
    """Pattern of the whole metric name."""
    label: str
    """Name of the line; empty: the metric name."""
    counter: bool = False
    """True for a growing count, shown as growth a second."""
    unit: Unit | None = None
    """Unit, if the name does not end with it."""
    band: bool = False
    """True if the area down to the previous line is filled."""


@dataclass(frozen=True)
class Panel:
    """One plot over time."""

    key: str
    title: str
    caption: str
    axis: str
    """Title of the vertical axis, with its unit."""
    kind: Kind
    """Kind of the subjects whose tracks the panel shows."""
    picks: tuple[Pick, ...]
    log: bool = False

    @property
    def part(self) -> Part:
        """Section of the page that has the panel. The first that moves stands open."""
        return "latency" if self.key == "latency" else PARTS[self.kind]


PANELS = (
    Panel(
        "load",
        "Messages a second",
        "Scheduled, written by the clients, acknowledged by the broker and "
        "received by subscribers. If sent falls below scheduled, the load was not offered in full.",
        "messages per second",
        "population",
        (
            Pick("sent_per_s", "sent"),
            Pick("due_per_s", "scheduled"),
            Pick("acked_per_s", "acked"),
            Pick("received_per_s", "received"),
        ),
    ),
    Panel(
        "clients",
        "Clients",
        "Connected: accepted by the broker. Ready: connected, with every subscription answered. "
        "Away: their session lifetime is over. Stalled: they received nothing for a while, "
        "though messages were scheduled.",
        "clients",
        "population",
        (
            Pick("connected", "connected"),
            Pick("ready", "ready"),
            Pick("offline", "offline"),
            Pick("stalled", "stalled"),
        ),
    ),
    Panel(
        "qos",
        "Deliveries by QoS",
        "Messages received a second by all populations together, for each QoS of delivery.",
        "messages per second",
        "deliveries",
        (
            Pick("qos_0_per_s", "QoS 0"),
            Pick("qos_1_per_s", "QoS 1"),
            Pick("qos_2_per_s", "QoS 2"),
            Pick("qos_mixed_per_s", "several"),
        ),
    ),
    Panel(
        "each",
        "Sent, and received by each subscriber",
        "Messages a second of one client, on average over those that are ready. Where received "
        "falls below sent, the publisher dropped what a subscriber's queue had no room for.",
        "messages per second and client",
        "population",
        (Pick("sent_each_per_s", "sent"), Pick("received_each_per_s", "received by each")),
    ),
    Panel(
        "latency",
        "Latency over time",
        "From the scheduled instant of a message to its delivery, or to its acknowledgement if "
        "there are no receivers. The band reaches from the median to p99. The scale is "
        "logarithmic.",
        "latency (ms, logarithmic)",
        "population",
        (
            Pick("latency_p50_us", "p50"),
            Pick("latency_p99_us", "p99", band=True),
            Pick("latency_max_us", "largest"),
        ),
        log=True,
    ),
    Panel(
        "behind",
        "Missing, skipped and waiting messages",
        "Missing: passed over in a stream and not filled so far. In flight: sent and not yet "
        "acknowledged. Backlog: scheduled and not yet sent. Skipped: scheduled and never sent.",
        "messages",
        "population",
        (
            Pick("missing", "missing"),
            Pick("in_flight", "in flight"),
            Pick("backlog", "backlog"),
            Pick("skipped_per_s", "skipped per second"),
        ),
    ),
    Panel(
        "process-cpu",
        "CPU of brokers and other watched processes",
        "100 % is one core. A broker that uses one thread ends at 100 %, and so does the busiest "
        "thread of a publisher; brokers that are watched together are added up.",
        "CPU (% of one core)",
        "watched",
        (
            Pick("cpu", "all"),
            Pick("cpu_user", "user"),
            Pick("cpu_system", "system"),
            Pick("thread_cpu_max", "busiest thread"),
        ),
    ),
    Panel(
        "process-memory",
        "Memory of brokers and other watched processes",
        "Resident memory, as the kernel counts it, and the part that no other process shares.",
        "memory (MB)",
        "watched",
        (Pick("rss_bytes", "resident"), Pick("private_bytes", "private")),
    ),
    Panel(
        "process-disk",
        "Disk traffic of brokers and other watched processes",
        "Bytes that they and their children read from disks and wrote to them.",
        "traffic (MB/s)",
        "watched",
        (Pick("disk_read_bytes_per_s", "read"), Pick("disk_written_bytes_per_s", "written")),
    ),
    Panel(
        "bridges",
        "Bridges up",
        "Bridges that reported to the main broker that they are up. All count as down while the "
        "main broker is down.",
        "bridges",
        "bridge",
        (Pick("connected", "up"),),
    ),
    Panel(
        "group-processes",
        "Brokers that run",
        "Processes of the brokers that are watched together.",
        "processes",
        "group",
        (Pick("processes", "processes"),),
    ),
    Panel(
        "agent-load",
        "Load of the agents",
        "Busy: time in which the loop was at work. 100 % CPU is one core, and each agent has one "
        "loop: near 100 % the generator sets the limit, not the broker. No processor: other "
        "programs had them, though the loop could run.",
        "share (% of one core)",
        "agent",
        (Pick("busy", "busy"), Pick("cpu", "CPU"), Pick("run_delay", "no processor")),
    ),
    Panel(
        "agent-late",
        "Lateness of the agents",
        "Lateness of messages that only the agent held up: the 99th percentile of each interval.",
        "lateness p99 (ms)",
        "agent",
        (Pick("lateness_p99_us", "late p99"),),
    ),
    Panel(
        "agent-clock",
        "Clocks of the agents",
        "Largest error of an agent's time on another host: half of what exchanges "
        "with the reference clock left open.",
        "off by at most (ms)",
        "agent",
        (Pick("clock_bound_us", "clock"),),
    ),
    Panel(
        "host-cpu",
        "CPU of the host",
        "100 % is all cores of this machine, with everything that runs on it.",
        "CPU (% of all cores)",
        "host",
        (
            Pick("cpu", "all"),
            Pick("cpu_user", "user"),
            Pick("cpu_system", "system"),
            Pick("cpu_softirq", "soft interrupts"),
            Pick("cpu_steal", "stolen by the hypervisor"),
        ),
    ),
    Panel(
        "host-memory",
        "Memory of the host",
        "Used and still available on this machine.",
        "memory (MB)",
        "host",
        (Pick("memory_used_bytes", "used"), Pick("memory_available_bytes", "available")),
    ),
    Panel(
        "host-network",
        "Network of the host",
        "All interfaces together, the internal one included.",
        "traffic (MB/s)",
        "host",
        (Pick("net_sent_bytes_per_s", "sent"), Pick("net_received_bytes_per_s", "received")),
    ),
    Panel(
        "host-disk",
        "Disk traffic of the host",
        "Bytes read from all disks and written to them.",
        "traffic (MB/s)",
        "host",
        (Pick("disk_read_bytes_per_s", "read"), Pick("disk_written_bytes_per_s", "written")),
    ),
    Panel(
        "host-tcp",
        "TCP trouble of the host",
        "Segments sent again, and connections that found a listen queue full, in each second.",
        "per second",
        "host",
        (
            Pick("tcp_retransmits", "retransmits", counter=True),
            Pick("tcp_listen_overflows", "listen overflows", counter=True),
        ),
    ),
    Panel(
        "sys-messages",
        "$SYS: messages",
        "What the broker itself counts, as growth a second between two of its reports.",
        "messages per second",
        "watched",
        (
            Pick(r"\$SYS/messages/received", "received", counter=True),
            Pick(r"\$SYS/messages/sent", "sent", counter=True),
            Pick(r"\$SYS/publish/messages/received", "PUBLISH received", counter=True),
            Pick(r"\$SYS/publish/messages/sent", "PUBLISH sent", counter=True),
        ),
    ),
    Panel(
        "sys-bytes",
        "$SYS: bytes",
        "What the broker itself counts, as growth a second between two of its reports.",
        "traffic (MB/s)",
        "watched",
        (
            Pick(r"\$SYS/bytes/received", "received", counter=True, unit="bytes_per_s"),
            Pick(r"\$SYS/bytes/sent", "sent", counter=True, unit="bytes_per_s"),
        ),
    ),
    Panel(
        "sys-dropped",
        "$SYS: dropped messages",
        "Messages that the broker says it dropped, in all so far.",
        "messages",
        "watched",
        (Pick(r"\$SYS/(.*/)?messages/dropped", ""),),
    ),
    Panel(
        "sys-stored",
        "$SYS: stored and retained messages",
        "Messages that the broker holds: queued, in flight and retained.",
        "messages",
        "watched",
        (Pick(r"\$SYS/(messages/stored|store/messages/count|retained messages/count)", ""),),
    ),
    Panel(
        "sys-clients",
        "$SYS: clients",
        "Clients as the broker counts them, observers included.",
        "clients",
        "watched",
        (Pick(r"\$SYS/clients/(connected|disconnected|total|active|inactive)", ""),),
    ),
    Panel(
        "sys-heap",
        "$SYS: heap",
        "Memory that the broker says it has allocated.",
        "memory (MB)",
        "watched",
        (Pick(r"\$SYS/heap/current( size)?", "", unit="bytes"),),
    ),
)
