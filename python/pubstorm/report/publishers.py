"""The tables of the publishers under test and of their subscribers, and the rate of each subscriber
over time."""

from __future__ import annotations

from collections.abc import Iterator

from pubstorm.contract.source import Source
from pubstorm.quantities import rate_text
from pubstorm.report.document import Table, Value, columns
from pubstorm.result import PopulationResult, PublisherResult, Result, Watched
from pubstorm.result.samples import Track, Tracks

PUBLISHERS_NOTE = (
    "HWM is the high-water mark, in messages for each subscriber. Sent is what was given to the "
    "socket, which drops what a queue has no room for. CPU, of all threads and of the busiest one, "
    "is the mean under load, of one core."
)


def publishers(result: Result) -> Table:
    """Returns the publishers: messages sent, and the CPU and memory that they took."""
    rows = [_publisher_cells(result, publisher) for publisher in result.publishers]
    heads = (
        *columns("word", "publisher", "what", "at"),
        *columns("count", "HWM", "burst", "sent"),
        *columns("rate", "sent/s"),
        *columns("count", "skipped"),
        *columns("us", "late p99"),
        *columns("share", "CPU", "thread"),
        *columns("bytes", "mem max"),
    )
    return Table("Publishers", heads, rows, PUBLISHERS_NOTE).without_empty()


def subscribers(result: Result) -> Table:
    """Returns expected and received deliveries of each population of ZeroMQ subscribers. The shares
    of a population follow their sum."""
    rows = [
        _subscriber_cells(name, population, of_shares=name in result.wholes)
        for name, population in _ordered(result).items()
        if _subscribes(population)
    ]
    heads = (
        *columns("word", "subscribers"),
        *columns("count", "clients", "ready max"),
        *columns("rate", "each received/s", "received/s"),
        *columns("share", "lost"),
        *columns("bytes_per_s", "network"),
        *columns("rate", "reads"),
    )
    return Table("Subscribers", heads, rows).without_empty()


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


def _publisher_cells(result: Result, publisher: PublisherResult) -> tuple[Value, ...]:
    population = result.populations[publisher.population]
    part = publisher.sent_total / population.sent_total if population.sent_total else 0.0
    late = publisher.lateness_us
    found = {
        w.metric: w for w in result.monitors if (w.kind, w.source) == ("publisher", publisher.name)
    }
    mark = publisher.high_water_mark
    return (
        publisher.name,
        publisher.library or publisher.kind,
        publisher.address,
        mark or "no limit",
        publisher.burst if publisher.burst > 1 else None,
        publisher.sent_total,
        population.rates.sent_per_s * part,
        publisher.skipped_total,
        late.p99 if late.count else None,
        _share(found.get("cpu")),
        _share(found.get("thread_cpu_max")),
        found["rss_bytes"].whole.max if "rss_bytes" in found else None,
    )


def _share(watched: Watched | None) -> float | None:
    return watched.load.mean if watched and watched.load.count else None


def _subscribes(population: PopulationResult) -> bool:
    receives = population.expected_total or population.received_total or population.subscribed_total
    return population.version == "zmtp-3.1" and bool(receives)


def _subscriber_cells(
    name: str, population: PopulationResult, *, of_shares: bool
) -> tuple[Value, ...]:
    received_per_s, expected = population.rates.received_per_s, population.expected_total
    each = received_per_s / population.ready_max if population.ready_max else 0.0
    reads = None if of_shares else population.read_rate_per_s
    return (
        name,
        population.clients,
        population.ready_max,
        each,
        received_per_s,
        round(population.lost_total / expected, 5) if expected else None,
        population.rates.bytes_received_per_s,
        None if reads is None else f"{rate_text(reads)}/s at most",
    )


def _each(result: Result, tracks: Tracks) -> Iterator[tuple[tuple[Source, str], Track]]:
    """Rates of populations by the clients that were ready at the same instant."""
    for name, population in _ordered(result).items():
        source = Source.single("population", name)
        ready = tracks.get((source, "ready"))
        for metric, total in (("sent", population.sent_total), ("received", _received(population))):
            rates = tracks.get((source, f"{metric}_per_s"))
            if not total or rates is None or ready is None:
                continue
            clients = dict(zip(ready.at_s, ready.values, strict=True))
            found = [
                (at_s, value / clients[at_s])
                for at_s, value in zip(rates.at_s, rates.values, strict=True)
                if clients.get(at_s)
            ]
            track = Track([at_s for at_s, _ in found], [value for _, value in found])
            yield (source, f"{metric}_each_per_s"), track


def _received(population: PopulationResult) -> int:
    return population.received_total or population.expected_total
