"""The metrics of monitors: processes, services, hosts, agents and bridges, and the lateness of
publishers under test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Unpack

from pubstorm.metrics.metric import (
    LATENCY_STATISTICS,
    Further,
    Kind,
    Line,
    Metric,
    Owner,
    ReportColumn,
    live,
    page,
    unit_at_end,
)
from pubstorm.quantities import Unit

PROCESSES: frozenset[Owner] = frozenset({"broker", "publisher", "service", "process"})
REDIS: frozenset[Owner] = frozenset({"service", "endpoint"})
PROGRAMS = PROCESSES | REDIS
"""Processes, and a Redis that another program started."""
HOSTS: frozenset[Owner] = frozenset({"host"})
AGENTS: frozenset[Owner] = frozenset({"agent"})
BRIDGES: frozenset[Owner] = frozenset({"bridge"})
BROKERS: frozenset[Owner] = frozenset({"broker"})
PUBLISHERS: frozenset[Owner] = frozenset({"publisher"})
ANYTHING = PROGRAMS | HOSTS | AGENTS | BRIDGES
LOAD_MEAN = ("load.mean",)
"""The mean under load, in a table."""
LOAD_SLOPE = ("load.slope",)
"""The slope under load with its interval, in a table."""
RUN_DELAY = "run_delay"
"""Share of the time for which a program could run and had no processor."""
SYS_PREFIX = "$SYS/"
"""Prefix of metrics that a broker publishes itself."""
DROPPED_METRICS = ("$SYS/messages/dropped", "$SYS/publish/messages/dropped")
"""Numbers of messages that a broker dropped, in the order of preference."""


def reading(name: str, words: str, kind: Kind = "gauge", **further: Unpack[Further]) -> Metric:
    """Returns a metric of a monitor. Its unit is the end of its name, and an expression can leave
    it out."""
    unit = unit_at_end(name)
    short = name.removesuffix(f"_{unit}") if unit else name
    further = {"aliases": (short,) if short != name else (), **further}
    return Metric(name, frozenset(), kind, unit, words, **further)


def share(name: str, words: str, **further: Unpack[Further]) -> Metric:
    """Returns a metric of a monitor that is a share."""
    return Metric(name, frozenset(), "gauge", "share", words, **further)


def read_of(owners: frozenset[Owner], *metrics: Metric) -> tuple[Metric, ...]:
    """Returns metrics as those of some kinds of sources."""
    return tuple(replace(metric, of=owners) for metric in metrics)


OF_PROCESSES = (
    *read_of(
        PROGRAMS,
        share(
            "cpu",
            "CPU time, as a share of one core: 150 % is one and a half cores.",
            better="lower",
            lines=(page("process-cpu", "all"), live("cpu", each=True), Line("sides", "over-cpu")),
            columns=(
                ReportColumn("processes", "CPU", LOAD_MEAN),
                ReportColumn("processes", "CPU max", ("whole.max",), place=1),
                ReportColumn("publishers", "CPU", LOAD_MEAN, "known"),
                ReportColumn("targets", "CPU", LOAD_MEAN, "known"),
                ReportColumn("stages", "CPU", ("mean",)),
                ReportColumn("broker comparison", "cpu"),
            ),
        ),
        share(
            "cpu_user",
            "CPU time in the program.",
            lines=(page("process-cpu", "user"),),
            columns=(ReportColumn("processes", "user", LOAD_MEAN),),
        ),
        share(
            "cpu_system",
            "CPU time in the kernel.",
            lines=(page("process-cpu", "system"),),
            columns=(ReportColumn("processes", "system", LOAD_MEAN),),
        ),
        reading(
            "rss_bytes",
            "Resident memory.",
            better="lower",
            lines=(page("process-memory", "resident"), live("memory", each=True)),
            columns=(
                ReportColumn("processes", "mem first", ("whole.first",), place=1),
                ReportColumn("processes", "mem max", ("whole.max",), place=1),
                ReportColumn("processes", "mem slope", LOAD_SLOPE, "known", place=1),
                ReportColumn("publishers", "mem max", ("whole.max",), "known", place=1),
                ReportColumn("targets", "memory", LOAD_MEAN, "known"),
                ReportColumn("stages", "mem", ("max",)),
                ReportColumn("broker comparison", "rss"),
            ),
        ),
    ),
    *read_of(
        PROCESSES,
        reading(
            "private_bytes",
            "Resident memory without what other processes share, such as the program.",
            lines=(page("process-memory", "private"),),
        ),
        reading(
            "virtual_bytes",
            "Addresses that it has, with and without memory behind them (VIRT of `top`).",
        ),
        share("memory", "Resident memory, as a share of the memory of the host (%MEM of `top`)."),
        reading(
            "disk_read_bytes_per_s",
            "Bytes that it and its children read from disks.",
            lines=(page("process-disk", "read"),),
        ),
        reading(
            "disk_written_bytes_per_s",
            "Bytes that it and its children wrote to disks.",
            lines=(page("process-disk", "written"),),
        ),
        share(
            "thread_cpu_max",
            "CPU time of its busiest thread, as a share of one core; of a publisher, or of a "
            "broker with few threads.",
            lines=(page("process-cpu", "busiest thread"),),
            columns=(ReportColumn("publishers", "thread", LOAD_MEAN, "known"),),
        ),
        share(
            RUN_DELAY,
            "Share of the time that its longest waiting thread could run and had no processor. "
            "Only of processes with few threads.",
            better="lower",
            lines=(page("process-cpu", "no processor"),),
        ),
        share(
            "throttled",
            "Share of the time that the CPU quota of its cgroup kept it from the processors.",
            better="lower",
        ),
        reading(
            "threads",
            "Threads.",
            columns=(ReportColumn("processes", "threads", ("whole.max",), place=1),),
        ),
        reading(
            "descriptors",
            "Open descriptors.",
            columns=(
                ReportColumn("processes", "files", ("whole.max",), place=1),
                ReportColumn("processes", "files slope", LOAD_SLOPE, "known", place=1),
            ),
        ),
        reading("descriptors_max", "Descriptors that it may have open."),
        reading(
            "processes",
            "Processes: the one watched and its children.",
            lines=(page("group-processes", "processes"),),
        ),
    ),
)
OF_CONNECTIONS = read_of(
    PROCESSES,
    reading(
        "udp_receive_drops",
        "With QUIC: datagrams that the kernel dropped since its socket was full: a counter.",
        "counter",
    ),
    reading("tcp_connections", "Connections that it accepted, of those that are read."),
    reading("tcp_unread_bytes", "Bytes that its clients sent and it has not read."),
    reading(
        "tcp_unsent_bytes",
        "Bytes that it wrote and TCP has not sent.",
        lines=(page("process-unsent", "unsent"),),
    ),
    reading(
        "tcp_unsent_closed_bytes",
        "Unsent bytes for clients whose receive window was full for most of the time: such clients "
        "read too slowly.",
        lines=(page("process-unsent", "at a full window"),),
    ),
    reading("tcp_segments_per_s", "TCP segments with data that it sent."),
    reading("tcp_resent_per_s", "TCP segments that it sent again."),
    reading("tcp_acked_bytes_per_s", "Bytes that its clients acknowledged in TCP."),
    reading("tcp_received_bytes_per_s", "Bytes that TCP received from its clients."),
    share(
        "tcp_window_closed",
        "Share of the time with data to send in which the receive window of the client was full.",
    ),
    share(
        "tcp_send_buffer_full",
        "Share of the time with data to send in which its send buffer was too small.",
    ),
    reading(
        "tcp_rtt_us",
        "Round trip of TCP, the mean of connections that sent data.",
        lines=(page("process-round-trip", "round trip"),),
    ),
    reading(
        "tcp_least_rtt_us",
        "Shortest round trip of TCP in the last minutes, the mean of the same connections.",
        lines=(page("process-round-trip", "at least"),),
    ),
    reading(
        "tcp_answer_us",
        "Median time from data of a client to the next data for it, in ticks of the kernel.",
    ),
    reading(
        "tcp_onward_connections",
        "Connections that a proxy made to pass on those that it accepted.",
    ),
    reading("tcp_onward_unread_bytes", "Bytes on onward connections that a proxy has not read."),
    reading(
        "tcp_onward_unsent_bytes",
        "Bytes on onward connections that a proxy wrote and TCP has not sent.",
    ),
    reading(
        "tcp_onward_answer_us",
        "Median time from data on onward connections of a proxy to the next data that came back.",
    ),
)
OF_REDIS = read_of(
    REDIS,
    reading("used_memory_bytes", "Memory that Redis has taken for its data and buffers."),
    reading("keys", "Keys of all its databases."),
    reading("connections", "Connections to it."),
    reading("commands_per_s", "Commands a second, as Redis itself measures it."),
    reading("evicted", "Keys that it deleted for lack of memory: a counter.", "counter"),
    reading("rejected", "Connections that it refused: a counter.", "counter"),
)
OF_BRIDGES = read_of(
    BRIDGES,
    reading(
        "connected",
        "Bridges that are up, by their own reports on the main broker.",
        lines=(page("bridges", "up"),),
    ),
)
OF_HOSTS = read_of(
    HOSTS,
    share(
        "cpu",
        "CPU time, as a share of all cores.",
        better="lower",
        lines=(page("host-cpu", "all"), live("busy", "host: CPU", "max", place=2)),
    ),
    share("cpu_user", "CPU time in programs.", lines=(page("host-cpu", "user"),)),
    share("cpu_system", "CPU time in the kernel.", lines=(page("host-cpu", "system"),)),
    share(
        "cpu_softirq",
        "CPU time in soft interrupts, where the kernel handles packets.",
        lines=(page("host-cpu", "soft interrupts"),),
    ),
    share(
        "cpu_steal",
        "Time that the hypervisor gave to others.",
        lines=(page("host-cpu", "stolen by the hypervisor"),),
    ),
    reading("processors", "Processors."),
    reading("memory_used_bytes", "Memory in use.", lines=(page("host-memory", "used"),)),
    reading(
        "memory_available_bytes",
        "Memory that programs can still get.",
        lines=(page("host-memory", "available"),),
    ),
    reading("slab_bytes", "Memory of the kernel's own objects, with caches that it can reclaim."),
    reading(
        "kernel_bytes",
        "Memory of the kernel's own objects that it cannot reclaim; with many connections, most of "
        "it is sockets.",
    ),
    reading("load1", "Load average of a minute."),
    reading(
        "net_sent_bytes_per_s",
        "Bytes sent over all interfaces.",
        lines=(page("host-network", "sent"),),
    ),
    reading(
        "net_received_bytes_per_s",
        "Bytes received over all interfaces.",
        lines=(page("host-network", "received"),),
    ),
    reading(
        "disk_read_bytes_per_s", "Bytes read from all disks.", lines=(page("host-disk", "read"),)
    ),
    reading(
        "disk_written_bytes_per_s",
        "Bytes written to all disks.",
        lines=(page("host-disk", "written"),),
    ),
    reading(
        "tcp_retransmits",
        "TCP segments sent again: a counter.",
        "counter",
        lines=(page("host-tcp", "retransmits", growth=True),),
    ),
    reading(
        "tcp_listen_overflows",
        "Connections dropped since a listener's queue was full: a counter.",
        "counter",
        lines=(page("host-tcp", "listen overflows", growth=True),),
    ),
    reading(
        "udp_receive_drops",
        "With QUIC: datagrams that the kernel dropped since a socket was full: a counter.",
        "counter",
        lines=(page("host-udp", "dropped", growth=True),),
    ),
    reading("tcp_sockets", "TCP sockets in use."),
    reading("tcp_buffer_bytes", "What all TCP sockets have in their buffers."),
    reading(
        "clients_unread_bytes",
        "Bytes that brokers sent to clients on this host, and that no agent has read.",
    ),
    reading(
        "clients_unsent_bytes",
        "Bytes that clients on this host wrote and TCP has not sent.",
        lines=(page("host-unsent", "unsent"),),
    ),
    reading(
        "clients_unsent_closed_bytes",
        "Unsent bytes for brokers whose receive window was full for most of the time.",
        lines=(page("host-unsent", "at a full window"),),
    ),
    reading("clients_segments_per_s", "TCP segments with data that these clients sent."),
    reading("clients_resent_per_s", "TCP segments that these clients sent again."),
    reading("clients_acked_bytes_per_s", "Bytes of these clients that TCP delivered."),
    reading("clients_received_bytes_per_s", "Bytes that TCP received for these clients."),
    reading("clients_rtt_us", "Round trip of TCP at these clients, in the mean."),
    reading(
        "clients_least_rtt_us",
        "Shortest round trip of TCP at these clients in the last minutes, in the mean.",
    ),
    reading("conntrack", "Connections that the firewall follows."),
    reading("conntrack_max", "How many it can follow."),
)
OF_AGENTS = read_of(
    AGENTS,
    share(
        "cpu",
        "CPU time of the agent, as a share of one core.",
        better="lower",
        lines=(
            page("agent-load", "CPU", place=1),
            live("busy", "busiest agent: CPU", "max", place=1),
        ),
        export="CPU time of an agent",
        export_name="agent_cpu_seconds_total",
        interval="cpu_ns",
    ),
    reading(
        "rss_bytes",
        "Resident memory of the agent.",
        better="lower",
        export="Resident memory of an agent",
        export_name="agent_resident_memory_bytes",
        interval="rss_bytes",
    ),
    share(
        "busy",
        "Share of the time that its loop was not waiting.",
        is_under_test=True,
        lines=(page("agent-load", "busy"), live("busy", "busiest agent: busy", "max")),
        export="Time in which an agent's loop was at work",
        export_name="agent_busy_seconds_total",
        interval="busy_ns",
    ),
    share(
        "run_delay",
        "Share of the time that its loop could run and had no processor, since other programs of "
        "its host had them.",
        lines=(page("agent-load", "no processor", place=2),),
    ),
    reading(
        "lateness_p99_us",
        "99th percentile of the lateness with which it wrote messages, by its own fault.",
        is_under_test=True,
        lines=(page("agent-late", "late p99"), live("late", "late p99", "max")),
        export="Lateness of messages that the agent caused",
        export_name="agent_lateness_seconds",
        interval="lateness",
    ),
    reading(
        "clock_bound_us",
        "Largest possible error of its clock, on a host other than the one that the run was "
        "started on.",
        lines=(page("agent-clock", "clock"),),
    ),
)
CLOCK_BOUND = OF_AGENTS[-1]
"""Error of the clock of an agent; readings from other hosts have it too."""
OF_AGENTS_UNDER_TEST = frozenset(metric.name for metric in OF_AGENTS if metric.is_under_test)
"""Names of the metrics of agents that a publisher under test has beside those of its process."""
OF_PUBLISHERS: tuple[Metric, ...] = (
    Metric(
        "lateness",
        PUBLISHERS,
        "histogram",
        "us",
        "Lateness of messages by the publisher.",
        at="lateness_us",
        statistics=LATENCY_STATISTICS,
    ),
)


def reported(pattern: str, *lines: Line, unit: Unit = "", is_counter: bool = False) -> Metric:
    """Returns metrics that a broker publishes itself, below `$SYS/`. Those of counters are in the
    table of its own counts."""
    name = rf"\$SYS/{pattern}"
    columns = (ReportColumn("own counts"),) if is_counter else ()
    return Metric(name, BROKERS, "gauge", unit, lines=lines, columns=columns, is_pattern=True)


def reported_rate(pattern: str, line: Line, unit: Unit = "") -> Metric:
    """Returns a count of the broker itself, which a chart shows as growth a second."""
    return reported(pattern, line, unit=unit, is_counter=True)


OF_SYS: tuple[Metric, ...] = (
    reported_rate("messages/received", page("sys-messages", "received", growth=True)),
    reported_rate("messages/sent", page("sys-messages", "sent", growth=True)),
    reported_rate(
        "publish/messages/received", page("sys-messages", "PUBLISH received", growth=True)
    ),
    reported_rate("publish/messages/sent", page("sys-messages", "PUBLISH sent", growth=True)),
    reported_rate("bytes/received", page("sys-bytes", "received", growth=True), "bytes"),
    reported_rate("bytes/sent", page("sys-bytes", "sent", growth=True), "bytes"),
    reported("(publish/)?bytes/(dropped|stored)", is_counter=True, unit="bytes"),
    reported("publish/(bytes/(received|sent)|messages/stored)", is_counter=True),
    reported("(publish/)?messages/dropped", page("sys-dropped"), is_counter=True),
    reported("(?!publish/).+/messages/dropped", page("sys-dropped")),
    reported("messages/stored", page("sys-stored"), is_counter=True),
    reported("(store/messages/count|retained messages/count)", page("sys-stored")),
    reported("clients/(connected|disconnected|total|active|inactive)", page("sys-clients")),
    reported("heap/current( size)?", page("sys-heap"), unit="bytes"),
)
OF_EMBEDDED: tuple[Metric, ...] = (
    Metric(
        r"pubstorm_broker_\w+_total",
        BROKERS,
        "counter",
        "",
        columns=(ReportColumn("own counts", without_zero=True),),
        is_pattern=True,
    ),
)
"""Counters of the embedded broker, in Prometheus' format."""
READINGS = (*OF_PROCESSES, *OF_CONNECTIONS, *OF_REDIS, *OF_HOSTS, *OF_AGENTS, *OF_BRIDGES)


def _by_name() -> dict[str, Metric]:
    found: dict[str, Metric] = {}
    for metric in READINGS:
        for name in metric.names:
            found[name] = metric
    return found


KNOWN: Mapping[str, Metric] = _by_name()
"""Readings by name with and without unit. The same name has one unit wherever it is read."""


def reading_of(name: str) -> Metric:
    """Returns the reading of a name, with or without its unit. Only the run defines the unit of an
    unknown one whose name ends with none."""
    known = KNOWN.get(name)
    return known or Metric(name, ANYTHING, "gauge", unit_at_end(name) or None)


def unit_of(name: str) -> Unit:
    """Returns the unit of a reading by its full name."""
    return _UNITS.get(name) or unit_at_end(name)


_UNITS = {metric.name: metric.unit for metric in READINGS}
