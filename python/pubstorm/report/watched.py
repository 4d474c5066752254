"""The tables of what was watched beside the clients: processes, the broker's own counters, the
profile, and what could not be watched. It knows no format."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping

from pubstorm.quantity import (
    NOTHING,
    bytes_text,
    count_text,
    duration_text,
    rate_text,
    share_text,
    span_text,
)
from pubstorm.report.publishers import publisher_sources
from pubstorm.report.table import Column, Table
from pubstorm.result import Result, Statistics, Watched
from pubstorm.samples import unit_of

COUNTERS = re.compile(
    r"\$SYS/(publish/)?(messages|bytes)/(received|sent|dropped|stored)|pubstorm_broker_\w+_total"
)
"""The broker's own figures that tell where messages went, and what it refused; its moving averages
are in the details."""
ENGINES_MAX = 8
"""Engines that have a row each."""
SYMBOLS_MAX = 25
"""Functions of a profile in its table."""


def broker_sources(result: Result) -> set[str]:
    """What is under test, as it is watched: the brokers that the run started, those that are
    watched together only where there are no others, and publishers; where it started none,
    whatever else was watched."""
    started = {broker.name for broker in result.brokers}
    watched = {each.source for each in result.monitors}
    generator = {f"agent-{agent.agent}" for agent in result.fleet.agents}
    bridges = {each.name for each in result.bridges}
    others = watched - generator - bridges - {"host", *result.populations, *result.wholes}
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
            _largest(found.get("cpu"), share_text),
            _first(found.get("rss_bytes") or found.get("memory_used_bytes")),
            _largest(found.get("rss_bytes") or found.get("memory_used_bytes"), bytes_text),
            _largest(found.get("threads"), count_text),
            _largest(found.get("descriptors"), count_text),
        )
        for name, found in _with_busiest_engine(sources).items()
        if "cpu" in found or "rss_bytes" in found
    ]
    cpu = ("CPU", "user", "system", "CPU max")
    names = (*cpu, "mem first", "mem max", "threads", "files")
    columns = (Column("process", right=False), *map(Column, names))
    what = "Publishers" if result.publishers and not result.brokers else "Brokers"
    return Table(f"{what}, host and engines under load", columns, tuple(rows))


def broker_counters(result: Result) -> Table:
    """What the broker itself counted, where it says so."""
    rows = [
        (
            each.source,
            each.metric,
            count_text(each.whole.first),
            count_text(each.whole.last),
            count_text(each.whole.last - each.whole.first),
        )
        for each in _known(result)
        if COUNTERS.fullmatch(each.metric) and (each.whole.last or "$SYS" in each.metric)
    ]
    columns = (Column("broker", right=False), Column("counter", right=False))
    names = ("first", "last", "growth")
    return Table("The broker's own counts", (*columns, *map(Column, names)), tuple(rows))


def every_track(result: Result) -> Table:
    """Everything that was watched, over the whole run and under load."""
    rows = [
        (
            each.source,
            each.metric,
            count_text(each.whole.count),
            *(_written(each.metric, value) for value in _in_short(each)),
        )
        for each in _known(result)
    ]
    columns = (Column("source", right=False), Column("metric", right=False))
    names = ("readings", "first", "last", "min", "mean", "max", "mean under load", "max under load")
    return Table("Everything watched", (*columns, *map(Column, names)), tuple(rows))


def observers(result: Result) -> Table:
    """The clients that only watch, which are load too."""
    rows = [
        (
            each.name,
            each.target,
            ", ".join(each.topics),
            count_text(each.received_total),
            bytes_text(each.received_bytes),
            each.problem or NOTHING,
        )
        for each in result.observers
    ]
    texts = (Column("observer", right=False), Column("at", right=False))
    columns = (*texts, Column("topics", right=False), Column("received"), Column("payload"))
    return Table("Observers", (*columns, Column("problem", right=False)), tuple(rows))


def monitor_problems(result: Result) -> Table:
    """What could not be watched."""
    rows = [(each.source, span_text(each.at_s), each.text) for each in result.monitor_problems]
    columns = (Column("source", right=False), Column("at"), Column("what was found", right=False))
    return Table("Not watched", columns, tuple(rows))


def residue(result: Result) -> Table:
    """What was on the broker before, and what the run left and removed."""
    rows = [
        (each.target, each.when, each.what, count_text(each.total), each.text)
        for each in result.residue
    ]
    texts = tuple(Column(name, right=False) for name in ("broker", "when", "what"))
    columns = (*texts, Column("count"), Column("in words", right=False))
    return Table("Clean start", columns, tuple(rows))


def symbols(result: Result) -> Table:
    """Where the profiled broker spent its time."""
    found = result.profile.symbols if result.profile else ()
    rows = [
        (share_text(each.share), each.command, each.module, each.symbol)
        for each in found[:SYMBOLS_MAX]
    ]
    texts = (Column(name, right=False) for name in ("program", "module", "function"))
    return Table("Profile of the broker", (Column("share"), *texts), tuple(rows))


def _with_busiest_engine(sources: Mapping[str, _Found]) -> Mapping[str, _Found]:
    """What was found of each source, of many engines that of the busiest."""
    engines = [name for name, found in sources.items() if "busy" in found]
    if len(engines) <= ENGINES_MAX:
        return sources
    busiest = max(engines, key=lambda name: _mean(sources[name].get("cpu")))
    rest = {name: found for name, found in sources.items() if name not in engines}
    return {f"{busiest}, busiest of {len(engines)}": sources[busiest], **rest}


def _known(result: Result) -> list[Watched]:
    """What was watched, without what was not a number."""
    return [each for each in result.monitors if all(map(math.isfinite, _in_short(each)))]


def _mean(watched: Watched | None) -> float:
    return watched.load.mean if watched else 0.0


def _share(watched: Watched | None) -> str:
    return share_text(watched.load.mean) if watched and watched.load.count else NOTHING


def _largest(watched: Watched | None, write: Callable[[float], str]) -> str:
    return write(watched.whole.max) if watched and watched.whole.count else NOTHING


def _first(watched: Watched | None) -> str:
    return bytes_text(watched.whole.first) if watched and watched.whole.count else NOTHING


def _in_short(watched: Watched) -> Iterator[float]:
    whole: Statistics = watched.whole
    yield from (whole.first, whole.last, whole.min, whole.mean, whole.max)
    yield from (watched.load.mean, watched.load.max)


def _written(metric: str, value: float) -> str:
    writers = {
        "share": share_text,
        "bytes": bytes_text,
        "bytes_per_s": lambda size: f"{bytes_text(size)}/s",
        "us": duration_text,
    }
    return writers.get(unit_of(metric), rate_text)(value)


_Found = dict[str, Watched]
"""What was watched of a source, by metric."""
