"""Findings about monitors: processes and hosts at their limit, and counters of the kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pubstorm.contract.source import HOST, OF_GENERATOR, OTHER_HOST, Source
from pubstorm.quantities import (
    bytes_text,
    count_text,
    counted,
    duration_text,
    share_text,
    span_text,
)
from pubstorm.result import LimitedBy, Measured, Statistics, Watched
from pubstorm.result.verdict.findings import Finding, is_held, of_publishers

FULL_SHARE = 0.95
"""Share of usable processors from which they limit a process or the host; share of a kernel table
from which the table is full."""
STOLEN_SHARE = 0.1
"""Share of the host's time that the hypervisor may give to others."""
SPARE_MEMORY_SHARE = 0.05
"""Share of the host's memory that must stay available."""
RESENT_SHARE = 0.001
"""Share of the packets of the clients that TCP may have to send again."""
SILENT_S = 5.0
"""Time under load for which a source may be silent, if that is a small part."""
METRICS_SHOWN = 3
"""Metrics of a source that evidence names."""


def _processors(measured: Measured) -> Iterable[Finding]:
    """A process at its limit: it has no core left, or a publisher's thread has none; else the host.
    A publisher that sends as fast as possible always has a full thread, which says nothing about
    the host."""
    texts = processes_at_limit(measured, FULL_SHARE)
    at_limit = [Finding(text, LimitedBy.BROKER) for text in texts]
    at_limit += _threads_at_limit(measured, closed_loop=False)
    yield from at_limit
    yield from _threads_at_limit(measured, closed_loop=True)
    for host in _hosts(measured):
        yield from _host(measured, host, LimitedBy.NONE if at_limit else LimitedBy.HOST)


def _hosts(measured: Measured) -> list[str]:
    return sorted({w.source for w in measured.monitors if w.kind == "host"})


def _name(host: str) -> str:
    return "the host" if host == HOST else f"host {host.removeprefix(OTHER_HOST)}"


def _host(measured: Measured, host: str, limited_by: LimitedBy) -> Iterable[Finding]:
    """A host whose processors were full, or given to others."""
    name = _name(host)
    for share, span in _busiest(measured, host, "cpu"):
        if share >= FULL_SHARE:
            text = f"{name}'s processors were busy for {share_text(share)} of the time {span}"
            text += _users(measured, host)
            yield Finding(text, limited_by)
    for share, span in _busiest(measured, host, "cpu_steal"):
        if share >= STOLEN_SHARE:
            text = f"the hypervisor gave {share_text(share)} of {name}'s time to others {span}"
            yield Finding(text, LimitedBy.HOST)


def processes_at_limit(measured: Measured, full_share: float) -> Iterator[str]:
    """Yields the brokers and services that used `full_share` of their processors, in words. Brokers
    that are watched together have a thread each: the host is their limit."""
    published = {publisher.name for publisher in measured.publishers}
    hosts = {broker.name: broker.host for broker in measured.brokers}
    others = {*(broker.group for broker in measured.brokers), *published}
    # Redis does all commands in one of its threads.
    alone = {service.name for service in measured.services}
    watched = (w for w in measured.monitors if w.metric == "cpu" and w.kind not in OF_GENERATOR)
    for source in (w.source for w in watched if w.source not in others):
        threads = 1 if source in alone else round(_whole(measured, source, "threads").max)
        there = _whole(measured, f"{OTHER_HOST}{hosts.get(source, source)}", "processors").max
        cores = min(max(threads, 1), round(there) or measured.environment.cores)
        for used, span in _busiest(measured, source, "cpu"):
            if used >= full_share * cores:
                of = "a core" if cores == 1 else counted(cores, "core")
                why = ", and has one thread only" if threads == 1 else ""
                yield f"{source} used {share_text(used / cores)} of {of} {span}{why}"


def _threads_at_limit(measured: Measured, *, closed_loop: bool) -> Iterator[Finding]:
    """Publishers with a thread that had a core to itself, and no less to do: the one that sends, or
    one that does input and output."""
    for publisher in measured.publishers:
        if measured.populations[publisher.population].closed_loop is closed_loop:
            for used, span in _busiest(measured, publisher.name, "thread_cpu_max"):
                if used >= FULL_SHARE:
                    text = f"{publisher.name}: its busiest thread used {share_text(used)} of a core"
                    yield Finding(f"{text} {span}", LimitedBy.PUBLISHER)


def _users(measured: Measured, host: str) -> str:
    """Returns the users of the processors of a host that has publishers."""
    address = "" if host == HOST else host.removeprefix(OTHER_HOST)
    published = [p.name for p in measured.publishers if p.host == address]
    if not published:
        return ""
    parts = {" and ".join(published): {*published}}
    there = (agent.agent for agent in measured.fleet.agents if agent.host == address)
    if agents := {Source.member("agent", "agent", agent).name for agent in there}:
        parts["the agents"] = agents
    cores = round(_whole(measured, host, "processors").max) or measured.environment.cores
    used = _watched(measured, host, "cpu")
    left, texts = used.load.mean if used is not None else 0.0, []
    for name, sources in parts.items():
        found = (_watched(measured, source, "cpu") for source in sorted(sources))
        share = sum(w.load.mean for w in found if w is not None) / cores
        left -= share
        texts.append(f"{name} {share_text(round(share, 3))}")
    return f": {', '.join(texts)}, others {share_text(round(max(left, 0.0), 3))}"


def _memory(measured: Measured) -> Iterable[Finding]:
    for host in _hosts(measured):
        available = _whole(measured, host, "memory_available_bytes")
        total = measured.environment.memory_bytes
        if host != HOST:
            total = round(available.last + _whole(measured, host, "memory_used_bytes").last)
        if available.count and available.min < SPARE_MEMORY_SHARE * total:
            left = f"{bytes_text(available.min)} of {bytes_text(total)} memory"
            yield Finding(f"{_name(host)} had {left} left", LimitedBy.HOST)


def _kernel(measured: Measured) -> Iterable[Finding]:
    for host in _hosts(measured):
        yield from _kernel_of(measured, host)


def _kernel_of(measured: Measured, host: str) -> Iterable[Finding]:
    """Counts of a kernel. Those of TCP are of all programs of the host, so they are evidence only
    as far as this run can have caused them, and name no culprit."""
    name = "this host" if host == HOST else _name(host)
    populations = measured.populations.values()
    attempts = sum(population.connect_attempts_total for population in populations)
    overflows = _increase(measured, host, "tcp_listen_overflows")
    if 0 < overflows <= attempts:
        yield Finding(
            f"listeners of {name} dropped {counted(overflows, 'connection attempt')}, of all "
            f"programs, while this run made {count_text(attempts)}: if the broker's listener did, "
            "raise net.core.somaxconn and the broker's backlog, or connect more slowly"
        )
    resent = _increase(measured, host, "tcp_retransmits")
    packets = sum(p.packets_sent_total + p.packets_received_total for p in populations)
    if RESENT_SHARE * packets < resent <= packets:
        yield Finding(
            f"TCP of {name} sent {counted(resent, 'segment')} again, of all programs, while "
            f"clients of this run wrote and read {counted(packets, 'packet')}"
        )
    followed = _whole(measured, host, "conntrack").max
    limit = _whole(measured, host, "conntrack_max").max
    if limit and followed >= FULL_SHARE * limit:
        firewall = "the firewall" if host == HOST else f"the firewall of {name}"
        yield Finding(
            f"{firewall} followed {count_text(followed)} of at most {count_text(limit)} "
            "connections: raise net.netfilter.nf_conntrack_max",
            LimitedBy.HOST,
        )


def _busiest(measured: Measured, source: str, metric: str) -> Iterator[tuple[float, str]]:
    """The largest mean over the load or over a single publish stage or phase, if there is one,
    and which it was."""
    loaded = {stage.name for stage in measured.stages if stage.kind == "publish"}
    loaded |= {phase.name for phase in measured.phases}
    watched = _watched(measured, source, metric)
    if watched is None or not watched.load.count:
        return
    spans = {"under load": watched.load}
    spans |= {f"in {name}": span for name, span in watched.spans.items() if name in loaded}
    means = [(round(span.mean, 3), name) for name, span in spans.items() if span.count]
    yield max(means, key=lambda mean: mean[0])


def _increase(measured: Measured, host: str, metric: str) -> int:
    whole = _whole(measured, host, metric)
    return max(round(whole.last - whole.first), 0)


def _whole(measured: Measured, source: str, metric: str) -> Statistics:
    watched = _watched(measured, source, metric)
    return Statistics() if watched is None else watched.whole


def _watched(measured: Measured, source: str, metric: str) -> Watched | None:
    found = (w for w in measured.monitors if (w.source, w.metric) == (source, metric))
    return next(found, None)


def _gaps(measured: Measured) -> Iterable[Finding]:
    """Times in which the controller did not run, so that no monitor was read."""
    for gap in measured.monitor_gaps:
        yield Finding(
            f"no monitor was read for {span_text(gap.to_s - gap.from_s)}, from "
            f"{span_text(gap.from_s)} on: the controller was stopped or got no processor"
        )


def _silent(measured: Measured) -> Iterable[Finding]:
    """Sources that fell silent, of which the verdict knows only a part. The limit is not known
    where one of them is a broker."""
    stopped_s = sum(gap.to_s - gap.from_s for gap in measured.monitor_gaps)
    by_source: dict[tuple[str, str], list[Watched]] = {}
    for each in measured.monitors:
        by_source.setdefault((each.kind, each.source), []).append(each)
    for (kind, source), figures in by_source.items():
        silent = [each for each in figures if each.load.unread_s > max(SILENT_S, stopped_s + 1)]
        silent += [each for each in figures if not each.load.is_enough and each not in silent]
        if not silent:
            continue
        worst = max(silent, key=lambda each: each.load.unread_s)
        which = "" if len(silent) == len(figures) else f": {_metrics(silent)}"
        yield Finding(
            f"{source} was {worst.load.unread_text} under load{which}",
            LimitedBy.UNKNOWN if kind == "broker" else LimitedBy.NONE,
        )


def _metrics(silent: Sequence[Watched]) -> str:
    shown = ", ".join(each.metric for each in silent[:METRICS_SHOWN])
    return shown + (", …" if len(silent) > METRICS_SHOWN else "")


WATCHED_RULES = (_processors, _memory, _kernel, _gaps, _silent)


MIN_WINDOW_USE = 0.9
"""Share of a closed loop's windows in use from which the window sets the limit."""
QUEUEING_FACTOR = 10
"""Ratio of the median round trip to the shortest from which messages have queued."""
CLOSED_LOOP_FULL_SHARE = 0.9
"""Share of the processors that a broker can use from which the broker, and not the window, limits a
closed loop. The broker has idle moments while every window waits for its round trip."""


def _closed_loops(measured: Measured) -> Iterable[Finding]:
    """A closed loop always has a limit: its window, or what takes its messages."""
    published, full = (
        of_publishers(measured),
        list(processes_at_limit(measured, CLOSED_LOOP_FULL_SHARE)),
    )
    for name, population in measured.populations.items():
        if not population.closed_loop or not population.sent_total or name in published:
            continue
        window, trips = population.closed_loop_window, population.ack_latency_us.actual
        room = population.ready_max * window if window else 0
        if is_held(measured, population):
            continue
        if not window or population.in_flight_max < MIN_WINDOW_USE * room:
            yield Finding(f"{name}: the closed loop sent what the sockets took", LimitedBy.BROKER)
            continue
        text = (
            f"{name}: the closed loop kept {count_text(population.in_flight_max)} of "
            f"{count_text(room)} places in its windows of {count_text(window)} in use, and a round "
            f"trip took {duration_text(trips.p50)} at p50, {duration_text(trips.min)} at least"
        )
        if full:
            yield Finding(f"{text}: the broker had no more to give: {full[0]}", LimitedBy.BROKER)
        elif trips.p50 > QUEUEING_FACTOR * trips.min:
            yield Finding(f"{text}: messages queued at the broker", LimitedBy.BROKER)
        else:
            what = "round trips were measured, not what the broker carries"
            if measured.bridges:
                what += "; they end at the broker of the publishers, before any bridge"
            yield Finding(f"{text}: {what}", LimitedBy.WINDOW)


CLOSED_LOOP_RULES = (_closed_loops,)
