"""The tables of monitors: processes, the broker's own counters, the profile, and monitors that
failed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from pubstorm.contract.source import OF_GENERATOR
from pubstorm.metrics.monitors import unit_of
from pubstorm.report.document import Table, Value, columns
from pubstorm.report.publishers import publisher_sources
from pubstorm.result import Cell, Result, Statistics, Watched

COUNTERS = re.compile(
    r"\$SYS/(publish/)?(messages|bytes)/(received|sent|dropped|stored)|pubstorm_broker_\w+_total"
)
"""Counters of the broker for messages and refusals; its moving averages are in the details."""
ENGINES_MAX = 8
"""Engines that have a row each."""
BROKERS_MAX = 2
"""Brokers that have a column each in the table of phases."""
SYMBOLS_MAX = 25
"""Functions of a profile in its table."""


def broker_sources(result: Result) -> set[str]:
    """Returns the monitored sources under test: brokers that the run started, else their groups,
    and publishers. If there are none, all other sources except the generator."""
    started = {broker.name for broker in result.brokers}
    watched = {each.source for each in result.monitors}
    others = {each.source for each in result.monitors if each.kind not in OF_GENERATOR}
    brokers = started & watched or groups(result) & watched
    return brokers | (publisher_sources(result) & watched) or others


def groups(result: Result) -> set[str]:
    """Names under which the run started brokers."""
    return {broker.group for broker in result.brokers if broker.group}


def processes(result: Result) -> Table:
    """CPU and memory of every watched process and of the host; of many engines, of the busiest."""
    sources: dict[str, _Found] = {}
    for each in _known(result):
        sources.setdefault(each.source, {})[each.metric] = each
    rows = [
        (
            name,
            *(_share(found.get(metric)) for metric in ("cpu", "cpu_user", "cpu_system")),
            _largest(found.get("cpu")),
            _first(found.get("rss_bytes") or found.get("memory_used_bytes")),
            _largest(found.get("rss_bytes") or found.get("memory_used_bytes")),
            _largest(found.get("threads")),
            _largest(found.get("descriptors")),
        )
        for name, found in _with_busiest_engine(sources).items()
        if "cpu" in found or "rss_bytes" in found
    ]
    heads = (
        *columns("word", "process"),
        *columns("share", "CPU", "user", "system", "CPU max"),
        *columns("bytes", "mem first", "mem max"),
        *columns("count", "threads", "files"),
    )
    what = "Publishers" if result.publishers and not result.brokers else "Brokers"
    return Table(f"{what}, host and agents under load", heads, rows)


def cpu_by_span(result: Result) -> dict[str, dict[str, float]]:
    """Returns the mean CPU in each stage and phase, by the name of its column: of each broker, of
    many brokers the busiest in each, and of the hosts."""
    brokers: dict[str, dict[str, float]] = {}
    host: dict[str, dict[str, float]] = {}
    named = broker_sources(result)
    for each in _known(result):
        if each.metric == "cpu" and (each.kind == "host" or each.source in named):
            spans = {name: part.mean for name, part in each.spans.items() if part.count}
            (host if each.kind == "host" else brokers)[each.source] = spans
    if len(brokers) > BROKERS_MAX:
        names = {name for spans in brokers.values() for name in spans}
        busiest = {
            name: max(spans[name] for spans in brokers.values() if name in spans) for name in names
        }
        brokers = {f"busiest of {len(brokers)}": busiest}
    return {**brokers, **host}


def broker_counters(result: Result) -> Table:
    """Returns the counters that the broker reports."""
    rows = [
        (
            each.source,
            each.metric,
            each.whole.first,
            each.whole.last,
            each.whole.last - each.whole.first,
        )
        for each in _known(result)
        if COUNTERS.fullmatch(each.metric) and (each.whole.last or "$SYS" in each.metric)
    ]
    heads = (*columns("word", "broker", "counter"), *columns("count", "first", "last", "growth"))
    return Table("The broker's own counts", heads, rows)


def every_track(result: Result) -> Table:
    """Everything that was watched, over the whole run and under load."""
    rows = [
        (
            each.source,
            each.metric,
            each.whole.count,
            *(_figure(each.metric, value) for value in _in_short(each)),
        )
        for each in _known(result)
    ]
    names = ("first", "last", "min", "mean", "max", "mean under load", "max under load")
    words = columns("word", "source", "metric")
    heads = (*words, *columns("count", "readings"), *columns("rate", *names))
    return Table("Everything watched", heads, rows)


def observers(result: Result) -> Table:
    """The clients that only watch, which are load too."""
    rows = [
        (
            each.name,
            each.target,
            ", ".join(each.topics),
            each.received_total,
            each.received_bytes,
            each.problem or None,
        )
        for each in result.observers
    ]
    heads = (
        *columns("word", "observer", "at", "topics"),
        *columns("count", "received"),
        *columns("bytes", "payload"),
        *columns("word", "problem"),
    )
    return Table("Observers", heads, rows)


def monitor_problems(result: Result) -> Table:
    """Returns the monitors that failed."""
    rows = [(each.source, each.at_s, each.text) for each in result.monitor_problems]
    heads = (*columns("word", "source"), *columns("s", "at"), *columns("word", "what was found"))
    return Table("Not watched", heads, rows)


def stale_state(result: Result) -> Table:
    """Returns the stale state found before the run, and that removed after the run."""
    rows = [
        (each.target, each.when, each.what, each.total, each.text) for each in result.stale_state
    ]
    words = columns("word", "broker", "when", "what")
    heads = (*words, *columns("count", "count"), *columns("word", "in words"))
    return Table("Clean start", heads, rows)


def symbols(result: Result) -> Table:
    """Returns the functions in which the profiled broker spent its time."""
    found = result.profile.symbols if result.profile else ()
    rows = [(each.share, each.command, each.module, each.symbol) for each in found[:SYMBOLS_MAX]]
    heads = (*columns("share", "share"), *columns("word", "program", "module", "function"))
    return Table("Profile of the broker", heads, rows)


def _with_busiest_engine(sources: Mapping[str, _Found]) -> Mapping[str, _Found]:
    """Returns the monitors of each source; of many agents those of the busiest."""
    engines = [name for name, found in sources.items() if "busy" in found]
    if len(engines) <= ENGINES_MAX:
        return sources
    busiest = max(engines, key=lambda name: _mean(sources[name].get("cpu")))
    rest = {name: found for name, found in sources.items() if name not in engines}
    return {f"{busiest}, busiest of {len(engines)}": sources[busiest], **rest}


def _known(result: Result) -> list[Watched]:
    """Returns the monitors whose values are finite."""
    return [each for each in result.monitors if all(map(math.isfinite, _in_short(each)))]


def _mean(watched: Watched | None) -> float:
    return watched.load.mean if watched else 0.0


def _share(watched: Watched | None) -> float | None:
    return watched.load.mean if watched and watched.load.count else None


def _largest(watched: Watched | None) -> float | None:
    return watched.whole.max if watched and watched.whole.count else None


def _first(watched: Watched | None) -> float | None:
    return watched.whole.first if watched and watched.whole.count else None


def _in_short(watched: Watched) -> Iterator[float]:
    whole: Statistics = watched.whole
    yield from (whole.first, whole.last, whole.min, whole.mean, whole.max)
    yield from (watched.load.mean, watched.load.max)


def _figure(metric: str, value: float) -> Value:
    """Returns a value as a cell of its own unit; counts are written as rates."""
    unit = unit_of(metric)
    return Cell(value=value, unit=unit) if unit in OWN_UNITS else value


OWN_UNITS = frozenset({"share", "bytes", "bytes_per_s", "us"})
_Found = dict[str, Watched]
"""Monitors of a source, by metric."""
