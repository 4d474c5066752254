"""The tables of the publishers under test and of their subscribers, and the rate of each subscriber
over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pubstorm.contract.source import Source
from pubstorm.quantities import rate_text
from pubstorm.report.layout import Cells, RunTable, fields, listed, names, words
from pubstorm.result import PopulationResult, PublisherResult, RunResult, Watched
from pubstorm.result.figures import number_at
from pubstorm.result.samples import Track, Tracks


class _Publisher(NamedTuple):
    """A publisher, with its rate and its monitors by metric."""

    of: PublisherResult
    sent_per_s: float
    found: Mapping[str, Watched]


def _publishers(result: RunResult) -> Iterator[_Publisher]:
    for publisher in result.publishers:
        population = result.populations[publisher.population]
        part = publisher.sent_total / population.sent_total if population.sent_total else 0.0
        own = ("publisher", publisher.name)
        found = {each.metric: each for each in result.monitors if (each.kind, each.source) == own}
        yield _Publisher(publisher, population.rates.sent_per_s * part, found)


PUBLISHERS = RunTable[_Publisher]("Publishers", "load", _publishers).of(
    words("of.name as publisher"),
    Cells("what", "word", lambda row: row.of.library or row.of.kind),
    words("of.address as at"),
    Cells("HWM", "count", lambda row: row.of.high_water_mark or "no limit"),
    Cells("burst", "count", lambda row: row.of.burst if row.of.burst > 1 else None, "known"),
    fields("of.sent_total", "sent_per_s as sent/s", "of.skipped_total"),
    Cells("late p99", "us", lambda row: number_at(row.of, ("lateness_us", "p99")), "known"),
    listed("publishers"),
    note="HWM is the high-water mark, in messages for each subscriber. Sent is what was given to "
    "the socket, which drops what a queue has no room for. CPU, of all threads and of the busiest "
    "one, is the mean under load, of one core.",
)
"""The publishers: messages sent, and the CPU and memory that they took."""


def _subscribers(result: RunResult) -> Iterator[tuple[str, PopulationResult]]:
    """Yields the subscribers of publishers. The shares of one follow their sum, which has no limit
    of its own."""
    for name, population in _ordered(result).items():
        if _subscribes(population):
            no_limit = {"read_rate_per_s": None} if name in result.wholes else {}
            yield name, population.model_copy(update=no_limit)


def _subscribes(population: PopulationResult) -> bool:
    receives = population.expected_total or population.received_total or population.subscribed_total
    return not population.can.has_broker and bool(receives)


SUBSCRIBERS = RunTable[PopulationResult]("Subscribers", "load", _subscribers).of(
    names("subscribers"),
    listed("subscribers"),
    Cells(
        "reads",
        "rate",
        lambda p: None if (rate := p.read_rate_per_s) is None else f"{rate_text(rate)}/s at most",
        "known",
    ),
)


def with_each(result: RunResult, tracks: Tracks) -> Tracks:
    """The tracks of a run, with what one client sent or received on average, in runs without
    a broker."""
    if all(each.can.has_broker for each in result.populations.values()):
        return tracks
    return {**tracks, **dict(_each(result, tracks))}


def publisher_sources(result: RunResult) -> set[str]:
    """Names under which publishers are watched."""
    return {publisher.name for publisher in result.publishers}


def _ordered(result: RunResult) -> dict[str, PopulationResult]:
    """Populations in their order, the sum of shares before them."""
    every = {**result.wholes, **result.populations}
    names = dict.fromkeys(
        part for name in result.populations for part in (name.partition("/")[0], name)
    )
    return {name: every[name] for name in names if name in every}


def _each(result: RunResult, tracks: Tracks) -> Iterator[tuple[tuple[Source, str], Track]]:
    """Rates of populations by the clients that were ready at the same instant."""
    for name, population in _ordered(result).items():
        source = Source.single("population", name)
        ready = tracks.get((source, "ready"))
        received = population.received_total or population.expected_total
        for metric, total in (("sent", population.sent_total), ("received", received)):
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
