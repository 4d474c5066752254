"""Findings about monitors: processes and hosts at their limit, and counters of the kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pubstorm.contract import HOST, OF_GENERATOR, OTHER_HOST, Source
from pubstorm.contract.snapshot import STARVED_SHARE
from pubstorm.contract.target import parse_target
from pubstorm.metrics.monitors import DROPPED_METRICS
from pubstorm.quantities import (
    bytes_text,
    count_text,
    counted,
    duration_text,
    rate_text,
    share_text,
    span_text,
)
from pubstorm.result import Measured, PopulationResult, Statistics, Watched
from pubstorm.result.verdict.culprit import Evidence, EvidenceKind, Uncarried, on_purpose
from pubstorm.result.verdict.findings import (
    Finding,
    explained_by_faults,
    is_held,
    of_publishers,
)

FULL_SHARE = 0.95
"""Share of usable processors from which they limit a process or the host; share of a kernel table
from which the table is full."""
STOLEN_SHARE = 0.1
"""Share of the host's time that the hypervisor may give to others."""
UNPINNED = 2**31
"""Processors of a broker that may use all of its host."""
SPARE_MEMORY_SHARE = 0.05
"""Share of the host's memory that must stay available."""
BUSY_SHARE = 0.9
"""Share of the host's processors in use from which programs wait for each other."""
MOSTLY_STARVED = 0.5
"""Share of the time without a processor from which an agent could not have kept up."""
SPARE_FILES = 2
"""Descriptors that a broker without others left may have spare, to refuse a client with."""
FULL_FILES_SHARE = 0.98
"""Share of its descriptors that a broker has open when it is out of them."""
SILENT_S = 5.0
"""Time under load for which a source may be silent, if that is a small part."""
METRICS_SHOWN = 3
"""Metrics of a source that evidence names."""


def _processors(measured: Measured) -> Iterable[Finding]:
    """Processes at their limit: they have no core left, or a publisher's thread has none. A full
    host limits nothing by itself: what it starves has findings of its own."""
    for text in processes_at_limit(measured, FULL_SHARE):
        yield Finding(text, EvidenceKind.FULL_BROKER())
    yield from _threads_at_limit(measured)
    for host in _hosts(measured):
        yield from _host(measured, host)


def _hosts(measured: Measured) -> list[str]:
    return sorted({w.source for w in measured.monitors if w.kind == "host"})


def _name(host: str) -> str:
    return "the host" if host == HOST else f"host {host.removeprefix(OTHER_HOST)}"


def _host(measured: Measured, host: str) -> Iterable[Finding]:
    """A host whose processors were full, or given to others."""
    name = _name(host)
    for share, span in _busiest(measured, host, "cpu"):
        if share >= FULL_SHARE:
            text = f"{name}'s processors were busy for {share_text(share)} of the time {span}"
            text += _users(measured, host)
            yield Finding(text)
    for share, span in _busiest(measured, host, "cpu_steal"):
        if share >= STOLEN_SHARE:
            text = f"the hypervisor gave {share_text(share)} of {name}'s time to others {span}"
            yield Finding(text, EvidenceKind.STOLEN(Uncarried.of(measured).of_time(share)))


def processes_at_limit(measured: Measured, full_share: float) -> Iterator[str]:
    """Yields the brokers and services that used `full_share` of their processors, in words. Brokers
    that are watched together have a thread each: the host is their limit."""
    published = {publisher.name for publisher in measured.publishers}
    hosts = {broker.name: broker.host for broker in measured.brokers}
    cpus = {broker.name: broker.cpus for broker in measured.brokers}
    others = {*(broker.group for broker in measured.brokers), *published}
    # Redis does all commands in one of its threads.
    alone = {service.name for service in measured.services}
    watched = (w for w in measured.monitors if w.metric == "cpu" and w.kind not in OF_GENERATOR)
    for source in (w.source for w in watched if w.source not in others):
        threads = 1 if source in alone else round(_whole(measured, source, "threads").max)
        there = _whole(measured, f"{OTHER_HOST}{hosts.get(source, source)}", "processors").max
        pinned = len(cpus.get(source, ())) or UNPINNED
        cores = min(max(threads, 1), pinned, round(there) or measured.environment.cores)
        for used, span in _busiest(measured, source, "cpu"):
            if used >= full_share * cores:
                of = "a core" if cores == 1 else counted(cores, "core")
                why = ", and has one thread only" if threads == 1 else ""
                why = why or (", and may use no other" if cores == pinned else "")
                yield f"{source} used {share_text(used / cores)} of {of} {span}{why}"


def _threads_at_limit(measured: Measured) -> Iterator[Finding]:
    """Publishers with a thread that had a core to itself, and no less to do: the one that sends, or
    one that does input and output."""
    for publisher in measured.publishers:
        for used, span in _busiest(measured, publisher.name, "thread_cpu_max"):
            if used >= FULL_SHARE:
                text = f"{publisher.name}: its busiest thread used {share_text(used)} of a core"
                yield Finding(f"{text} {span}", EvidenceKind.FULL_THREAD())


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
            yield Finding(f"{_name(host)} had {left} left")


def _kernel(measured: Measured) -> Iterable[Finding]:
    for host in _hosts(measured):
        yield from _kernel_of(measured, host)


def _kernel_of(measured: Measured, host: str) -> Iterable[Finding]:
    """Counts of a kernel. Those of listeners are of all programs of the host, so they are evidence
    only as far as this run can have caused them, and name no culprit."""
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
    yield from _datagrams(measured, host, name)
    followed = _whole(measured, host, "conntrack").max
    limit = _whole(measured, host, "conntrack_max").max
    if limit and followed >= FULL_SHARE * limit:
        firewall = "the firewall" if host == HOST else f"the firewall of {name}"
        yield Finding(
            f"{firewall} followed {count_text(followed)} of at most {count_text(limit)} "
            "connections: raise net.netfilter.nf_conntrack_max",
            EvidenceKind.FIREWALL(1.0 if Uncarried.of(measured).clients else 0.0),
        )


def _datagrams(measured: Measured, host: str, name: str) -> Iterable[Finding]:
    """Datagrams of QUIC that waited for a second try, since a process did not read its socket in
    time, and whose sockets they were."""
    dropped = _increase(measured, host, "udp_receive_drops")
    if not dropped:
        return
    tested = [source for source in _tested(measured) if source != host]
    lost = {source: _increase(measured, source, "udp_receive_drops") for source in tested}
    lost["agents and other programs"] = dropped - sum(lost.values())
    parts = [f"{count_text(count)} of {whose}" for whose, count in lost.items() if count > 0]
    yield Finding(
        f"sockets of UDP on {name} were full: the kernel dropped {counted(dropped, 'datagram')} "
        f"({', '.join(parts)}), whose bytes QUIC sends again, later: raise "
        "net.core.rmem_default and net.core.rmem_max, or connect more slowly"
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


def _starved(measured: Measured) -> Iterable[Finding]:
    """Programs under test and agents without a processor: a full host limits by these."""
    missing, starved = Uncarried.of(measured), starved_by_hosts(measured)
    for source in _tested(measured):
        held, span = next(_busiest(measured, source, "throttled"), (0.0, ""))
        if held > STARVED_SHARE:
            text = f"a quota kept {source} from the processors for {share_text(held)} of the time"
            yield Finding(f"{text} {span}", EvidenceKind.QUOTA(missing.of_wait(held)))
        waited, span = _waited(measured, source)
        if waited > STARVED_SHARE:
            text = f"{source} could run and had no processor for {share_text(waited)} of the time"
            is_by_host = source in starved
            because = EvidenceKind.STARVED_BROKER(missing.of_wait(waited)) if is_by_host else None
            yield Finding(f"{text} {span}", because)
    share = measured.fleet.starved_share
    if share > STARVED_SHARE:
        text = f"the host gave an agent no processor for {share_text(share)} of the publishing time"
        kind = EvidenceKind.NO_TIME if share > MOSTLY_STARVED else EvidenceKind.STARVED_AGENTS
        yield Finding(text, kind(missing.of_time(share)))


def starved_by_hosts(measured: Measured) -> dict[str, float]:
    """Returns the share of the time for which each program under test could run and its host, which
    was full, gave it no processor."""
    full = set(_full_hosts(measured))
    hosts = {broker.name: broker.host for broker in measured.brokers}
    hosts |= {publisher.name: publisher.host for publisher in measured.publishers}
    found = {}
    for source in _tested(measured):
        if _host_name(measured, hosts.get(source, source)) in full:
            found[source], _ = _waited(measured, source)
    return found


def _unseen(measured: Measured) -> Iterable[Finding]:
    """Brokers on a full host of which nothing shows how long they had no processor."""
    full, reach = set(_full_hosts(measured)), Uncarried.of(measured).of_time(1.0)
    for name, host in _single_brokers(measured):
        waits = _watched(measured, name, "run_delay")
        if _host_name(measured, host) in full and (waits is None or not waits.load.count):
            text = f"how long {name} had no processor was not read, and its host was full"
            yield Finding(
                f"{text}: watch it, with a shorter interval of monitors", EvidenceKind.UNSEEN(reach)
            )


def _single_brokers(measured: Measured) -> Iterator[tuple[str, str]]:
    """Yields the brokers of hosts that the run knows, with their hosts: targets on this machine,
    and those that the run started, but for groups that are watched as one."""
    for name, target in measured.given_targets.items():
        if parse_target(target if "://" in target else f"mqtt://{target}").is_loopback:
            yield name, ""
    together = {watched.source for watched in measured.monitors}
    yield from ((b.name, b.host) for b in measured.brokers if b.group not in together)


def _host_name(measured: Measured, address: str) -> str:
    name = f"{OTHER_HOST}{address}"
    return name if name in _hosts(measured) else HOST


def _waited(measured: Measured, source: str) -> tuple[float, str]:
    """Returns the largest share of a span for which a program could run and had no processor,
    beyond what a quota took, and the span."""
    held, _ = next(_busiest(measured, source, "throttled"), (0.0, ""))
    delay, span = next(_busiest(measured, source, "run_delay"), (0.0, ""))
    return round(delay - held, 3), span


def _tested(measured: Measured) -> Iterable[str]:
    return dict.fromkeys(w.source for w in measured.monitors if w.kind not in OF_GENERATOR)


def _full_hosts(measured: Measured) -> Iterator[str]:
    """Yields the hosts whose processors were so busy that programs wait for them."""
    for host in _hosts(measured):
        if any(share >= BUSY_SHARE for share, _ in _busiest(measured, host, "cpu")):
            yield host


def _drops(measured: Measured) -> Iterable[Finding]:
    """Messages that brokers count as dropped, where deliveries are lost. Losses on purpose have
    their cause."""
    sources = dict.fromkeys(w.source for w in measured.monitors if w.metric in DROPPED_METRICS)
    lost = sum(
        flow.lost_total
        for flow in measured.flows
        if not explained_by_faults(measured, flow) and on_purpose(measured, flow) is None
    )
    for source in sources:
        grown = (_increase(measured, source, metric) for metric in DROPPED_METRICS)
        dropped = next(filter(None, grown), 0)
        if dropped and any(flow.lost_total for flow in measured.flows):
            reach = Uncarried.of(measured).of_lost(min(dropped, lost))
            text = f"{source} says that it dropped {counted(dropped, 'message')}"
            yield Finding(text, EvidenceKind.DROPS(reach) if reach else None)


def _kept(measured: Measured) -> Iterable[Finding]:
    """Brokers whose memory grows while queues keep deliveries that consumers did not take, or took
    without an acknowledgement."""
    populations = measured.populations
    lost = {f.to: 0 for f in measured.flows if f.lost_total and populations[f.to].can.has_queues}
    for flow in measured.flows:
        lost |= {flow.to: lost[flow.to] + flow.lost_total} if flow.to in lost else {}
    left = {n: p.received_total for n, p in populations.items() if p.leaves_deliveries}
    kept = ((lost, "did not come"), (left, "were not acknowledged"))
    waiting = " and ".join(
        f"{count_text(total)} deliveries to {', '.join(found)} {words}"
        for found, words in kept
        if (total := sum(found.values()))
    )
    for source in _tested(measured) if waiting else ():
        grown_bytes = _increase(measured, source, "rss_bytes")
        if grown_bytes >= GROWN_BYTES:
            text = f"{source}: its memory grew by {bytes_text(grown_bytes)} while {waiting}"
            yield Finding(f"{text}: queues keep what consumers do not take or acknowledge")


def _files(measured: Measured) -> Iterable[Finding]:
    """Brokers with as many open descriptors as they may have, where connections failed."""
    populations = measured.populations.values()
    failed = sum(p.connect_failed_total + p.never_ready for p in populations)
    for source in dict.fromkeys(w.source for w in measured.monitors if w.kind not in OF_GENERATOR):
        most = round(_whole(measured, source, "descriptors").max)
        limit = round(_whole(measured, source, "descriptors_max").max)
        if failed and limit and most >= min(FULL_FILES_SHARE * limit, limit - SPARE_FILES):
            yield Finding(
                f"{source} had {count_text(most)} of at most {count_text(limit)} descriptors "
                "open: raise the limit of open files of the broker (ulimit -n)",
                EvidenceKind.NO_FILES(),
            )


def _silent(measured: Measured) -> Iterable[Finding]:
    """Sources that fell silent, of which the verdict knows only a part."""
    stopped_s = sum(gap.to_s - gap.from_s for gap in measured.monitor_gaps)
    by_source: dict[tuple[str, str], list[Watched]] = {}
    for each in measured.monitors:
        by_source.setdefault((each.kind, each.source), []).append(each)
    for (_, source), figures in by_source.items():
        silent = [each for each in figures if each.load.unread_s > max(SILENT_S, stopped_s + 1)]
        silent += [each for each in figures if not each.load.is_enough and each not in silent]
        if not silent:
            continue
        worst = max(silent, key=lambda each: each.load.unread_s)
        which = "" if len(silent) == len(figures) else f": {_metrics(silent)}"
        yield Finding(f"{source} was {worst.load.unread_text} under load{which}")


def _metrics(silent: Sequence[Watched]) -> str:
    shown = ", ".join(each.metric for each in silent[:METRICS_SHOWN])
    return shown + (", …" if len(silent) > METRICS_SHOWN else "")


WATCHED_RULES = (
    _processors,
    _starved,
    _unseen,
    _drops,
    _kept,
    _files,
    _memory,
    _kernel,
    _gaps,
    _silent,
)


MIN_WINDOW_USE = 0.9
"""Share of its windows in use from which a population's window may set the limit."""
QUEUEING_FACTOR = 10
"""Ratio of the median round trip to the shortest from which messages have queued."""
LITTLE_ERROR = 0.25
"""Error of the rate that follows from full windows and their round trips."""
CLOSED_LOOP_FULL_SHARE = 0.9
"""Share of the processors that a broker can use from which the broker, and not the window, limits a
closed loop. The broker has idle moments while every window waits for its round trip."""
GROWN_BYTES = 10_000_000
"""Growth of the memory of a broker from which queues may be its reason."""


def _closed_loops(measured: Measured) -> Iterable[Finding]:
    """A closed loop always has a limit: its window, or what takes its messages."""
    published = of_publishers(measured)
    for name, population in measured.populations.items():
        if not population.closed_loop or not population.sent_total or name in published:
            continue
        if is_held(measured, population):
            continue
        window, trips = population.closed_loop_window, population.ack_latency_us.actual
        if not _is_full(population, window):
            text = f"{name}: the closed loop sent what the sockets took"
            yield Finding(text, EvidenceKind.FULL_SOCKETS())
        elif not trips.count:
            text = f"{name}: the windows of the closed loop were full, and nothing was acknowledged"
            yield Finding(text, EvidenceKind.AT_BROKER())
        else:
            what, because = _of_window(measured, population, EvidenceKind.QUEUED)
            text = _window_text(population, window or 0)
            yield Finding(f"{name}: the closed loop kept {text}: {what}", because)


def _open_loops(measured: Measured) -> Iterable[Finding]:
    """Open loops whose windows are too small for their rate: messages wait for a place."""
    missing, held_up = Uncarried.of(measured), measured.fleet.blocked_us.count
    for name, population in measured.populations.items():
        window, trips = population.open_loop_window, population.ack_latency_us.actual
        late = population.skipped_total or held_up
        if population.closed_loop or not late or not _is_full(population, window):
            continue
        rate = population.rates.sent_per_s
        follows = 1e6 * population.ready_max * (window or 0) / trips.mean if trips.mean else 0.0
        if is_held(measured, population) or abs(rate - follows) > LITTLE_ERROR * follows:
            continue
        reach = missing.of_unsent(population.skipped_total)
        what, because = _of_window(measured, population, EvidenceKind.AT_BROKER, reach)
        if because.kind is EvidenceKind.WINDOW:
            what = "raise window, or lower the rate"
        text = f"{name}: messages waited, with {_window_text(population, window or 0)}"
        yield Finding(
            f"{text}, which allows {rate_text(follows)} messages a second: {what}", because
        )


def _is_full(population: PopulationResult, window: int | None) -> bool:
    """Returns True if the clients of a population used their windows."""
    room = population.ready_max * (window or 0)
    return room > 0 and population.in_flight_max >= MIN_WINDOW_USE * room


def _window_text(population: PopulationResult, window: int) -> str:
    trips, room = population.ack_latency_us.actual, population.ready_max * window
    return (
        f"{count_text(population.in_flight_max)} of {count_text(room)} places in its windows of "
        f"{count_text(window)} in use, and a round trip took {duration_text(trips.p50)} at p50, "
        f"{duration_text(trips.min)} at least"
    )


def _of_window(
    measured: Measured,
    population: PopulationResult,
    queued: EvidenceKind,
    reach: float = 1.0,
) -> tuple[str, Evidence]:
    """Returns the meaning of full windows: a full broker, messages that queue there, or the windows
    themselves."""
    trips = population.ack_latency_us.actual
    full = next(processes_at_limit(measured, CLOSED_LOOP_FULL_SHARE), None)
    if full:
        return f"the broker had no more to give: {full}", queued()
    if trips.p50 > QUEUEING_FACTOR * trips.min:
        return "messages queued at the broker", queued()
    what = "round trips were measured, not what the broker carries"
    if measured.bridges:
        what += "; they end at the broker of the publishers, before any bridge"
    return what, EvidenceKind.WINDOW(reach)


WINDOW_RULES = (_closed_loops, _open_loops)
