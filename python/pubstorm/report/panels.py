"""Which metrics are plotted over time, together with which, and in what words: data only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pubstorm.samples import Unit

Kind = Literal["population", "host", "agent", "bridge", "group", "watched"]
"""Whose tracks a panel shows."""


@dataclass(frozen=True)
class Pick:
    """Tracks that a panel shows."""

    pattern: str
    """What the metric must match as a whole."""
    label: str
    """What it is called; empty: its own name."""
    counter: bool = False
    """Whether it is a growing count, shown as its growth a second."""
    unit: Unit | None = None
    """Its unit, where its name does not tell."""
    band: bool = False
    """Whether the space down to the track before it is filled."""


@dataclass(frozen=True)
class Panel:
    """One plot over time."""

    key: str
    title: str
    caption: str
    axis: str
    """What the vertical axis counts, with its unit."""
    kind: Kind
    """Whose tracks it shows."""
    picks: tuple[Pick, ...]
    log: bool = False


PANELS = (
    Panel(
        "load",
        "Load",
        "Messages a second: due by the scenario, written by the clients, acknowledged by the "
        "broker and received by subscribers. Where sent falls below due, the load was not offered "
        "in full.",
        "messages per second",
        "population",
        (
            Pick("sent_per_s", "sent"),
            Pick("due_per_s", "due"),
            Pick("acked_per_s", "acked"),
            Pick("received_per_s", "received"),
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
        "Latency",
        "From the instant a message was due to its delivery, or to its acknowledgement where "
        "nobody receives. The band reaches from the median to p99; the scale is logarithmic.",
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
        "acknowledged. Backlog: due and not yet sent. Skipped: due in that second and never sent.",
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
        "clients",
        "Clients",
        "Connected: accepted by the broker. Ready: connected, with every subscription answered. "
        "Away: their life is over, and they may come back. Stalled: nothing came for a while, "
        "though messages were due.",
        "clients",
        "population",
        (
            Pick("connected", "connected"),
            Pick("ready", "ready"),
            Pick("away", "away"),
            Pick("stalled", "stalled"),
        ),
    ),
    Panel(
        "bridges",
        "Bridges up",
        "Bridges that told the main broker that they are up. While nobody can hear them, because "
        "the main broker is away, all count as down.",
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
    Panel(
        "agent-load",
        "Load of the generator's engines",
        "Busy: time in which the loop was at work. 100 % CPU is one core, and each engine has one "
        "loop: near 100 % the generator sets the limit, not the broker. No processor: other "
        "programs had them, though the loop could run.",
        "share (% of one core)",
        "agent",
        (Pick("busy", "busy"), Pick("cpu", "CPU"), Pick("run_delay", "no processor")),
    ),
    Panel(
        "agent-late",
        "Lateness of the generator's engines",
        "How late messages were written that nothing but the engine held up: the 99th percentile "
        "of each interval.",
        "lateness p99 (ms)",
        "agent",
        (Pick("lateness_p99_us", "late p99"),),
    ),
    Panel(
        "agent-clock",
        "Clocks of the generator's engines",
        "How far the time of an engine on another host was off at most: half of what exchanges "
        "with the reference clock left open.",
        "off by at most (ms)",
        "agent",
        (Pick("clock_bound_us", "clock"),),
    ),
)
