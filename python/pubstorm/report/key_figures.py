"""The handful of figures that a run is remembered by, as text. It knows no format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pubstorm.quantity import (
    bytes_text,
    count_text,
    duration_text,
    rate_text,
    share_text,
    span_text,
)
from pubstorm.report.summary import disconnect_cpu
from pubstorm.report.watched import broker_sources
from pubstorm.result import Latency, Result, StageResult, Watched


@dataclass(frozen=True)
class KeyFigure:
    """One figure with what it says."""

    name: str
    value: str
    note: str
    """Over what, or out of how many."""


def key_figures(result: Result) -> list[KeyFigure]:
    """Load, delivery, latency, what is under test, generator; what was not measured is left out."""
    parts = (_clients, _load, _publishers, _latencies, _brokers, _generator)
    return [figure for part in parts for figure in part(result)]


def _clients(result: Result) -> Iterator[KeyFigure]:
    populations = result.populations.values()
    clients = sum(p.clients for p in populations)
    connected = result.peaks.connected or sum(p.connected_max for p in populations)
    yield KeyFigure("clients connected", count_text(connected), f"of {count_text(clients)} planned")
    came = [stage for stage in result.stages if stage.connects_per_s]
    if came:
        took_s = sum(stage.duration_s for stage in came)
        count = sum(p.connected_total for stage in came for p in stage.populations.values())
        note = f"{count_text(count)} connections in {span_text(took_s)}, {_stages_text(came)}"
        yield KeyFigure("connect rate", f"{rate_text(count / took_s)} /s", note)
    went = [pair for pair in pairwise(result.stages) if pair[1].disconnects_per_s]
    if went:
        took_s = sum(stage.duration_s for _, stage in went)
        count = sum(before.connected - stage.connected for before, stage in went)
        note = f"{count_text(count)} clients in {span_text(took_s)}"
        cpu = disconnect_cpu(result)
        if cpu is not None:
            leaving, load = (share_text(round(part.mean, 4)) for part in cpu)
            note += f"; CPU of the broker {leaving}, under load {load}"
        yield KeyFigure("disconnect rate", f"{rate_text(count / took_s)} /s", note)


def _stages_text(stages: Sequence[StageResult]) -> str:
    return "1 stage" if len(stages) == 1 else f"{len(stages)} stages"


def _load(result: Result) -> Iterator[KeyFigure]:
    populations = result.populations.values()
    for name, total_name in (("sent", "sent_total"), ("acked", "acked_total")):
        total = sum(getattr(p, total_name) for p in populations)
        rate = sum(getattr(p.rates, f"{name}_per_s") for p in populations)
        if total:
            note = f"{count_text(total)} in all; rate while steady"
            yield KeyFigure(f"messages {name}", f"{rate_text(rate)} /s", note)
    expected = sum(p.expected_total for p in populations)
    received = sum(p.received_total for p in populations)
    if expected or received:
        rate = sum(p.rates.received_per_s for p in populations)
        note = f"{count_text(received)} in all; rate while steady"
        yield KeyFigure("messages received", f"{rate_text(rate)} /s", note)
        peak = result.peaks.received_per_s
        if peak.at_s is not None:
            note = f"largest rate of an interval, at {span_text(peak.at_s)}"
            yield KeyFigure("peak dispatch rate", f"{rate_text(peak.value)} /s", note)
        lost = sum(p.lost_total for p in populations)
        share = lost / expected if expected else 0.0
        note = f"{share_text(share)} of {count_text(expected)} deliveries owed"
        yield KeyFigure("messages lost", count_text(lost), note)


def _publishers(result: Result) -> Iterator[KeyFigure]:
    """What a subscriber of a publisher under test received, against what was sent."""
    sent = sum(result.populations[name].rates.sent_per_s for name in _published(result))
    receivers = [
        population
        for population in result.populations.values()
        if population.version == "zmtp-3.1" and population.expected_total
    ]
    ready = sum(population.ready_max for population in receivers)
    if sent and ready:
        each = sum(population.rates.received_per_s for population in receivers) / ready
        of = f", of {rate_text(sent)} /s sent" if len(result.publishers) == 1 else ""
        note = f"mean of {count_text(ready)}{of}; rate while steady"
        yield KeyFigure("received by each subscriber", f"{rate_text(each)} /s", note)
        traffic = sum(population.rates.bytes_received_per_s for population in receivers)
        note = "read by all subscribers together; rate while steady"
        yield KeyFigure("network", f"{bytes_text(traffic)}/s", note)
    threads = [w for w in result.monitors if w.metric == "thread_cpu_max" and w.load.count]
    thread = max(threads, key=lambda each: each.load.mean, default=None)
    if thread is not None and result.publishers:
        note = f"of one core, mean under load; most {share_text(thread.load.max)}"
        name = f"busiest thread of {thread.source}"
        yield KeyFigure(name, share_text(thread.load.mean), note)


def _published(result: Result) -> set[str]:
    return {publisher.population for publisher in result.publishers}


def _latencies(result: Result) -> Iterator[KeyFigure]:
    populations = result.populations
    for name, field in (("delivery", "latency_us"), ("acknowledgement", "ack_latency_us")):
        found: dict[str, Latency] = {n: getattr(p, field).intended for n, p in populations.items()}
        counted = [(latency.p99, n) for n, latency in found.items() if latency.count]
        if counted:
            p99, worst = max(counted)
            latency = found[worst]
            note = f"median {duration_text(latency.p50)}, largest {duration_text(latency.max)}"
            of = f", {worst}" if len(counted) > 1 else ""
            off = f" ± {duration_text(latency.bound_us)}" if latency.bound_us else ""
            yield KeyFigure(f"{name} p99", duration_text(p99) + off, note + of)


def _brokers(result: Result) -> Iterator[KeyFigure]:
    sources = broker_sources(result)
    watched = [each for each in result.monitors if each.source in sources]
    cpu = max(_of(watched, "cpu"), key=lambda each: each.load.mean, default=None)
    if cpu is not None:
        note = f"of one core, mean under load; most {share_text(cpu.load.max)}"
        yield KeyFigure(f"CPU of {cpu.source}", share_text(cpu.load.mean), note)
    memory = max(_of(watched, "rss_bytes"), key=lambda each: each.whole.max, default=None)
    if memory is not None:
        note = f"largest; {bytes_text(memory.whole.first)} at first"
        yield KeyFigure(f"memory of {memory.source}", bytes_text(memory.whole.max), note)


def _of(watched: list[Watched], metric: str) -> Iterator[Watched]:
    return (each for each in watched if each.metric == metric)


def _generator(result: Result) -> Iterator[KeyFigure]:
    late = result.fleet.lateness_us
    if late.count:
        note = f"limit {duration_text(result.validity.lateness_p99_us)}"
        yield KeyFigure("generator late p99", duration_text(late.p99), note)
    busiest = max((agent.busy_share for agent in result.fleet.agents), default=None)
    if busiest is not None:
        note = "time in which the busiest engine was at work"
        yield KeyFigure("generator busy", share_text(busiest), note)
    if result.headroom is not None:
        headroom = result.headroom
        note = f"of its calibrated ceiling in messages; {share_text(headroom.clients)} in clients"
        yield KeyFigure("generator used", share_text(headroom.rate), note)
