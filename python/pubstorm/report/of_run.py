"""The report of a run. The key figures of a run, as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, zip_longest

from pubstorm.metrics import columns_of
from pubstorm.metrics.expressions import Expression
from pubstorm.metrics.metric import Metric
from pubstorm.quantities import (
    bytes_text,
    count_text,
    counted,
    duration_text,
    rate_text,
    share_text,
    span_text,
)
from pubstorm.report.document import KEY_FIGURES_MAX, Case, Document, KeyFigure
from pubstorm.report.tables import detail_tables, facts, tables
from pubstorm.report.watched import broker_sources, disconnect_cpu
from pubstorm.result import RATED_MIN, RATED_MIN_S, RunResult, Statistics, Status, Watched
from pubstorm.result.figures import from_send, from_send_text, slowest_first, together


def key_figures(result: RunResult) -> list[KeyFigure]:
    """The most important first: what is bad, then one figure each of delivery, latency, load,
    clients, what is under test, generator, and how clients came and went, then the second of each.
    What was not measured is left out."""
    parts = (_losses, _latencies, _load, _present, _publishers, _brokers, _generator, _passing)
    rounds = zip_longest(*(part(result) for part in parts))
    found = [_evaluated(result, figure) for each in rounds for figure in each if figure is not None]
    return sorted(found, key=lambda figure: figure.status in {None, Status.PASS})


def _evaluated(result: RunResult, figure: KeyFigure) -> KeyFigure:
    """Returns a figure with the outcome of its thresholds, unless the figure has failed itself. It
    is bad where any threshold about its metrics failed. It is good where one passed about what it
    shows: its statistic over the whole run, in a run that is evidence."""
    if figure.status is not None:
        return figure
    outcomes = result.verdict.thresholds
    names = {metric.partition(".")[0] for metric in figure.metrics}
    if any(each.missed and each.metric.partition(".")[0] in names for each in outcomes):
        return replace(figure, status=Status.FAIL)
    subjects = [figure.subject] if figure.subject else [*result.populations, *result.wholes]
    shown = {*figure.metrics, *(f"{name}.{m}" for name in subjects for m in figure.metrics)}
    is_good = any(each.passed and each.figure in shown for each in outcomes)
    is_evidence = result.verdict.status is not Status.INVALID
    return replace(figure, status=Status.PASS) if is_good and is_evidence else figure


def _present(result: RunResult) -> Iterator[KeyFigure]:
    published = _published(result)
    populations = [p for name, p in result.populations.items() if name not in published]
    clients = sum(p.clients for p in populations)
    connected = result.peaks.connected or sum(p.connected_max for p in populations)
    status = Status.FAIL if any(p.never_ready for p in populations) else None
    note = f"of {count_text(clients)} planned"
    yield KeyFigure("clients connected", count_text(connected), note, _of("key clients"), status)


def _passing(result: RunResult) -> Iterator[KeyFigure]:
    """Rates at which clients connected and left."""
    came = [stage for stage in result.stages if stage.connects_per_s]
    if came:
        took_s = sum(stage.duration_s for stage in came)
        count = sum(p.connected_total for stage in came for p in stage.populations.values())
        if count >= RATED_MIN and took_s >= RATED_MIN_S:
            note = f"{count_text(count)} connections in {span_text(took_s)}, "
            note += counted(len(came), "stage")
            yield KeyFigure("connect rate", f"{rate_text(count / took_s)} /s", note)
    went = [pair for pair in pairwise(result.stages) if pair[1].disconnects_per_s]
    if went:
        took_s = sum(stage.duration_s for _, stage in went)
        count = sum(before.connected - stage.connected for before, stage in went)
        if count < RATED_MIN or took_s < RATED_MIN_S:
            return
        note = f"{count_text(count)} clients in {span_text(took_s)}"
        cpu = disconnect_cpu(result)
        if cpu is not None:
            leaving, load = (share_text(round(part.mean, 4)) for part in cpu)
            note += f"; CPU of the broker {leaving}, under load {load}"
        yield KeyFigure("disconnect rate", f"{rate_text(count / took_s)} /s", note)


def _losses(result: RunResult) -> Iterator[KeyFigure]:
    populations = result.populations.values()
    expected = sum(p.expected_total for p in populations)
    if not expected and not any(p.received_total for p in populations):
        return
    lost = sum(p.lost_total for p in populations)
    share = lost / expected if expected else 0.0
    note = f"{share_text(share)} of {count_text(expected)} expected deliveries"
    # Loss that a threshold allows is neither good nor bad.
    status = Status.FAIL if lost and result.verdict.status is not Status.PASS else None
    metrics = () if lost and status is None else _of("key losses")
    yield KeyFigure("messages lost", count_text(lost), note, metrics, status)


def _load(result: RunResult) -> Iterator[KeyFigure]:
    populations = result.populations.values()
    for metric, column in columns_of("key rates"):
        counts = {name: sum(getattr(p, name) for p in populations) for name in column.given}
        if any(counts.values()):
            total = sum(getattr(p, f"{column.head}_total") for p in populations)
            yield _messages(metric, column.head, total, together(metric, populations) or 0.0)
    foreign = sum(p.foreign_total for p in populations)
    if foreign:
        yield KeyFigure("foreign messages", count_text(foreign), "of other programs, in all")
    received = sum(p.received_total for p in populations)
    if received >= RATED_MIN:
        peak = result.peaks.received_per_s
        if peak.at_s is not None:
            note = f"largest rate of an interval, at {span_text(peak.at_s)}"
            by_qos = result.peaks.received_by_qos
            if len(by_qos) > 1:
                parts = (f"{_qos_text(q)} {rate_text(each.value)} /s" for q, each in by_qos.items())
                note += f"; {', '.join(parts)} at most"
            yield KeyFigure("peak dispatch rate", f"{rate_text(peak.value)} /s", note)


def _messages(metric: Metric, name: str, total: int, per_s: float) -> KeyFigure:
    """Returns the rate of messages, or their number if they are too few for a rate or were sent
    outside of the load."""
    if total and (total < RATED_MIN or not per_s):
        return KeyFigure(f"messages {name}", count_text(total), "in all")
    note = f"{count_text(total)} in all; rate while steady"
    return KeyFigure(f"messages {name}", f"{rate_text(per_s)} /s", note, (metric.name,))


def _of(figure: str) -> tuple[str, ...]:
    """Returns the metrics that a figure is about."""
    return tuple(metric.name for metric, _ in columns_of(figure))


def _qos_text(qos: str) -> str:
    return "at several QoS" if qos == "mixed" else f"QoS {qos}"


def _publishers(result: RunResult) -> Iterator[KeyFigure]:
    """Yields the rate of each subscriber of publishers under test, beside the rate sent."""
    sent = sum(result.populations[name].rates.sent_per_s for name in _published(result))
    receivers = [
        population
        for population in result.populations.values()
        if not population.can.has_broker and population.expected_total
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


def _published(result: RunResult) -> set[str]:
    return {publisher.population for publisher in result.publishers}


def _latencies(result: RunResult) -> Iterator[KeyFigure]:
    for metric, column in columns_of("key latencies"):
        found = slowest_first(metric, result.populations)
        for worst, latency in found[:1]:
            statistic = latency.tail
            note = f"median {duration_text(latency.p50)}, largest {duration_text(latency.max)}"
            if statistic == "max":
                note = f"largest of {counted(latency.count, 'message')}"
            of = f", {worst}" if len(found) > 1 else ""
            off = f" ± {duration_text(latency.bound_us)}" if latency.bound_us else ""
            text = duration_text(getattr(latency, statistic)) + off
            asked = Expression(worst, metric.name, statistic)
            sent = from_send(result, asked)
            late = "" if sent is None else f"; {from_send_text(asked, sent)}"
            name = f"{column.head} {statistic}"
            metrics = (f"{metric.name}.{statistic}",)
            yield KeyFigure(name, text, note + late + of, metrics, subject=worst)


def _brokers(result: RunResult) -> Iterator[KeyFigure]:
    sources = broker_sources(result)
    watched = [each for each in result.monitors if each.source in sources]
    cpu = max(_readings(watched, "cpu"), key=lambda each: each.load.mean, default=None)
    if cpu is not None:
        note = f"of one core, mean under load; most {share_text(cpu.load.max)}{_unread(cpu.load)}"
        yield KeyFigure(f"CPU of {cpu.source}", share_text(cpu.load.mean), note)
    memory = max(_readings(watched, "rss_bytes"), key=lambda each: each.whole.max, default=None)
    if memory is not None:
        note = f"largest; {bytes_text(memory.whole.first)} at first{_unread(memory.whole)}"
        yield KeyFigure(f"memory of {memory.source}", bytes_text(memory.whole.max), note)


def _unread(found: Statistics) -> str:
    """Returns the time without readings as a part of a note; nothing if there are enough."""
    return "" if found.is_enough else f"; {found.unread_text}"


def _readings(watched: list[Watched], metric: str) -> Iterator[Watched]:
    return (each for each in watched if each.metric == metric)


def _generator(result: RunResult) -> Iterator[KeyFigure]:
    late = result.fleet.lateness_us
    if late.count:
        note = f"limit {duration_text(result.validity.lateness_p99_us)}"
        is_late = late.p99 > result.validity.lateness_p99_us
        status = Status.INVALID if is_late else None
        text = duration_text(getattr(late, late.tail))
        yield KeyFigure(f"generator late {late.tail}", text, note, status=status)
    busiest = max((agent.busy_share for agent in result.fleet.agents), default=None)
    if busiest is not None:
        status = Status.INVALID if busiest > result.validity.busy else None
        note = "time in which the busiest agent was at work"
        yield KeyFigure("generator busy", share_text(busiest), note, status=status)
    if result.headroom is not None:
        headroom = result.headroom
        note = f"of its calibrated ceiling in messages; {share_text(headroom.clients)} in clients"
        yield KeyFigure("generator used", share_text(headroom.rate), note)


def run_document(result: RunResult) -> Document:
    """Builds the report of a run."""
    figures = tuple(key_figures(result))
    return Document(
        kind="run",
        title=result.name,
        started=result.started,
        run_directory=result.run_directory,
        status=result.verdict.status,
        limited_by=result.verdict.limited_by,
        headline=result.verdict.headline,
        key_figures=figures[:KEY_FIGURES_MAX],
        more_figures=figures[KEY_FIGURES_MAX:],
        verdict=result.verdict,
        facts=facts(result),
        tables=tuple(tables(result)),
        details=tuple(detail_tables(result)),
        cases=_cases(result),
        output=_output(result),
    )


def _cases(result: RunResult) -> tuple[Case, ...]:
    verdict = result.verdict
    evidence = "\n".join(verdict.evidence) or f"limited by {verdict.limited_by}"
    is_invalid = verdict.status is Status.INVALID
    missed = any(threshold.missed for threshold in verdict.thresholds)
    has_failed = verdict.status is Status.FAIL and not missed
    return (
        Case("run is valid", evidence if is_invalid else None, took_s=result.duration_s),
        Case("target did not fail", evidence if has_failed else None),
        *(
            Case(
                threshold.label,
                threshold.text if threshold.missed else None,
                threshold.text if threshold.undecided else None,
            )
            for threshold in verdict.thresholds
        ),
    )


def _output(result: RunResult) -> tuple[str, ...]:
    verdict = result.verdict
    return (
        *([verdict.headline] if verdict.headline else []),
        f"{str(verdict.status).upper()}, limited by {verdict.limited_by}",
        *verdict.evidence,
        *(f"{figure.name}: {figure.value} ({figure.note})" for figure in key_figures(result)),
        *(f"{problem.kind}: {problem.text}" for problem in result.problems),
        *(f"{event.at_s:.1f} s {event.kind}: {event.text}" for event in result.events),
    )
