"""What the monitors of a run bear on its verdict: processes and hosts at their limit, and what the
kernel counted. Pure functions of measured values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pubstorm.quantity import bytes_text, count_text, counted, share_text, span_text
from pubstorm.result import LimitedBy, Measured, Statistics, Watched
from pubstorm.verdict.findings import Finding

FULL_SHARE = 0.95
"""Share of the processors that a process or the host may use from which they are its limit; of a
kernel table from which it is full."""
STOLEN_SHARE = 0.1
"""Share of the host's time that the hypervisor may give to others."""
SPARE_MEMORY_SHARE = 0.05
"""Share of the host's memory that must stay available."""
RESENT_SHARE = 0.001
"""Share of the packets of the clients that TCP may have to send again."""


def _processors(measured: Measured) -> Iterable[Finding]:
    """A process with no core left to use is at its limit, and so is a publisher with a thread that
    has none; else the host, when it has none left. Who sends as fast as it can always has a full
    thread, which tells nothing of the host."""
    texts = processes_at_limit(measured, FULL_SHARE)
    at_limit = [Finding(text, LimitedBy.BROKER) for text in texts]
    at_limit += _threads_at_limit(measured, closed_loop=False)
    yield from at_limit
    yield from _threads_at_limit(measured, closed_loop=True)
    for share, span in _busiest(measured, "host", "cpu"):
        if share >= FULL_SHARE:
            text = f"the host's processors were busy for {share_text(share)} of the time {span}"
            text += _users(measured)
            yield Finding(text, LimitedBy.NONE if at_limit else LimitedBy.HOST)
    for share, span in _busiest(measured, "host", "cpu_steal"):
        if share >= STOLEN_SHARE:
            text = f"the hypervisor gave {share_text(share)} of the host's time to others {span}"
            yield Finding(text, LimitedBy.HOST)


def processes_at_limit(measured: Measured, full_share: float) -> Iterator[str]:
    """Yields the brokers and services that used `full_share` of their processors, in words. Brokers
    that are watched together have a thread each: the host is their limit."""
    published = {publisher.name for publisher in measured.publishers}
    others = {"host", *(broker.group for broker in measured.brokers), *published}
    # Redis does all commands in one of its threads.
    alone = {service.name for service in measured.services}
    watched = (w for w in measured.monitors if w.metric == "cpu" and w.group != "agent")
    for source in (w.source for w in watched if w.source not in others):
        threads = 1 if source in alone else round(_whole(measured, source, "threads").max)
        cores = min(max(threads, 1), measured.environment.cores)
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


def _users(measured: Measured) -> str:
    """Who used the processors of a host that publishers run on beside the generator."""
    if not measured.publishers:
        return ""
    parts = {
        " and ".join(p.name for p in measured.publishers): {p.name for p in measured.publishers},
        "the engines": {w.source for w in measured.monitors if w.group == "agent"},
    }
    host = _watched(measured, "host", "cpu")
    left, texts = host.load.mean if host is not None else 0.0, []
    for name, sources in parts.items():
        found = (_watched(measured, source, "cpu") for source in sorted(sources))
        share = sum(w.load.mean for w in found if w is not None) / measured.environment.cores
        left -= share
        texts.append(f"{name} {share_text(round(share, 3))}")
    return f": {', '.join(texts)}, others {share_text(round(max(left, 0.0), 3))}"


def _memory(measured: Measured) -> Iterable[Finding]:
    available = _whole(measured, "host", "memory_available_bytes")
    total = measured.environment.memory_bytes
    if available.count and available.min < SPARE_MEMORY_SHARE * total:
        text = f"the host had {bytes_text(available.min)} of {bytes_text(total)} memory left"
        yield Finding(text, LimitedBy.HOST)


def _kernel(measured: Measured) -> Iterable[Finding]:
    """Counts of the kernel. Those of TCP are of all programs of the host, so they are evidence only
    as far as this run can have caused them, and name no culprit."""
    populations = measured.populations.values()
    attempts = sum(population.connect_attempts_total for population in populations)
    overflows = _increase(measured, "tcp_listen_overflows")
    if 0 < overflows <= attempts:
        yield Finding(
            f"listeners of this host dropped {counted(overflows, 'connection attempt')}, of all "
            f"programs, while this run made {count_text(attempts)}: if the broker's listener did, "
            "raise net.core.somaxconn and the broker's backlog, or connect more slowly"
        )
    resent = _increase(measured, "tcp_retransmits")
    packets = sum(p.packets_sent_total + p.packets_received_total for p in populations)
    if RESENT_SHARE * packets < resent <= packets:
        yield Finding(
            f"TCP of this host sent {counted(resent, 'segment')} again, of all programs, while "
            f"clients of this run wrote and read {counted(packets, 'packet')}"
        )
    followed = _whole(measured, "host", "conntrack").max
    limit = _whole(measured, "host", "conntrack_max").max
    if limit and followed >= FULL_SHARE * limit:
        yield Finding(
            f"the firewall followed {count_text(followed)} of at most {count_text(limit)} "
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


def _increase(measured: Measured, metric: str) -> int:
    whole = _whole(measured, "host", metric)
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


WATCHED_RULES = (_processors, _memory, _kernel, _gaps)
