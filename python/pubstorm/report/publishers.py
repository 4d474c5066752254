"""The tables of the publishers under test and of their subscribers, and what each subscriber
received over time. It knows no format."""

from __future__ import annotations

from collections.abc import Iterator

from pubstorm.quantity import (
    NOTHING,
    bytes_text,
    count_text,
    duration_text,
    rate_text,
    share_text,
)
from pubstorm.report.table import Column, Table
from pubstorm.result import PopulationResult, PublisherResult, Result, Watched
from pubstorm.samples import Track, Tracks

PUBLISHERS_NOTE = (
    "HWM is the high-water mark, in messages for each subscriber. Sent is what was given to the "
    "socket, which drops what a queue has no room for. CPU, of all threads and of the busiest one, "
    "is the mean under load, of one core."
)


def publishers(result: Result) -> Table:
    """Each publisher, what it sent and what it needed for it."""
    rows = [_publisher_cells(result, publisher) for publisher in result.publishers]
    texts = tuple(Column(name, right=False) for name in ("publisher", "what", "at"))
    names = (
        "HWM",
        "burst",
        "sent",
        "sent/s",
        "skipped",
        "late p99",
        "CPU",
        "thread",
        "mem max",
    )
    table = Table("Publishers", (*texts, *map(Column, names)), tuple(rows), PUBLISHERS_NOTE)
    return table.without_empty_columns()


def subscribers(result: Result) -> Table:
    """What each population of ZeroMQ's subscribers was owed and received, its shares each by
    themselves after the whole."""
    rows = [
        _subscriber_cells(name, population, of_shares=name in result.wholes)
        for name, population in _ordered(result).items()
        if _subscribes(population)
    ]
    names = ("clients", "ready max", "each received/s", "received/s", "lost", "network", "reads")
    columns = (Column("subscribers", right=False), *map(Column, names))
    return Table("Subscribers", columns, tuple(rows)).without_empty_columns()


def with_each(result: Result, tracks: Tracks) -> Tracks:
    """The tracks of a run, with what one client sent or received on average, in runs of ZeroMQ."""
    if not any(population.version == "zmtp-3.1" for population in result.populations.values()):
        return tracks
    return {**tracks, **dict(_each(result, tracks))}


def publisher_sources(result: Result) -> set[str]:
    """Names under which publishers are watched."""
    return {publisher.name for publisher in result.publishers}


def _ordered(result: Result) -> dict[str, PopulationResult]:
    """Populations in their order, the sum of shares before them."""
    every = {**result.wholes, **result.populations}
    names = dict.fromkeys(part for name in result.populations for part in (_whole(name), name))
    return {name: every[name] for name in names if name in every}


def _whole(name: str) -> str:
    return name.partition("/")[0]


def _publisher_cells(result: Result, publisher: PublisherResult) -> tuple[str, ...]:
    population = result.populations[publisher.population]
    part = publisher.sent_total / population.sent_total if population.sent_total else 0.0
    late = publisher.lateness_us
    found = {w.metric: w for w in result.monitors if w.source == publisher.name}
    mark = publisher.high_water_mark
    return (
        publisher.name,
        publisher.library or publisher.kind,
        publisher.address,
        count_text(mark) if mark else "no limit",
        count_text(publisher.burst) if publisher.burst > 1 else NOTHING,
        count_text(publisher.sent_total),
        rate_text(population.rates.sent_per_s * part),
        count_text(publisher.skipped_total),
        duration_text(late.p99) if late.count else NOTHING,
        _share(found.get("cpu")),
        _share(found.get("thread_cpu_max")),
        bytes_text(found["rss_bytes"].whole.max) if "rss_bytes" in found else NOTHING,
    )


def _share(watched: Watched | None) -> str:
    return share_text(watched.load.mean) if watched and watched.load.count else NOTHING


def _subscribes(population: PopulationResult) -> bool:
    receives = population.expected_total or population.received_total or population.subscribed_total
    return population.version == "zmtp-3.1" and bool(receives)


def _subscriber_cells(
    name: str, population: PopulationResult, *, of_shares: bool
) -> tuple[str, ...]:
    received_per_s, owed = population.rates.received_per_s, population.expected_total
    each = received_per_s / population.ready_max if population.ready_max else 0.0
    reads = None if of_shares else population.read_rate_per_s
    return (
        name,
        count_text(population.clients),
        count_text(population.ready_max),
        rate_text(each),
        rate_text(received_per_s),
        share_text(round(population.lost_total / owed, 5)) if owed else NOTHING,
        f"{bytes_text(population.rates.bytes_received_per_s)}/s",
        NOTHING if reads is None else f"{rate_text(reads)}/s at most",
    )


def _each(result: Result, tracks: Tracks) -> Iterator[tuple[tuple[str, str], Track]]:
    """Rates of populations by the clients that were ready at the same instant."""
    for name, population in _ordered(result).items():
        ready = tracks.get((name, "ready"))
        for metric, total in (("sent", population.sent_total), ("received", _received(population))):
            rates = tracks.get((name, f"{metric}_per_s"))
            if not total or rates is None or ready is None:
                continue
            clients = dict(zip(ready.at_s, ready.values, strict=True))
            found = [
                (at_s, value / clients[at_s])
                for at_s, value in zip(rates.at_s, rates.values, strict=True)
                if clients.get(at_s)
            ]
            track = Track([at_s for at_s, _ in found], [value for _, value in found])
            yield (name, f"{metric}_each_per_s"), track


def _received(population: PopulationResult) -> int:
    return population.received_total or population.expected_total
