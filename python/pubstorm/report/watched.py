"""The tables of brokers and bridges, and of monitors: processes, the broker's own counters, the
profile, and monitors that failed. The tables of the publishers under test and of their subscribers,
and the rate of each subscriber over time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from pubstorm.contract import OF_GENERATOR, Source
from pubstorm.metrics import columns_of
from pubstorm.metrics.monitors import unit_of
from pubstorm.quantities import count_text, rate_text
from pubstorm.report.layout import Cells, RunTable, Value, fields, listed, names, words, written
from pubstorm.result import (
    BridgeResult,
    BrokerResult,
    Cell,
    MonitorProblem,
    ObserverTraffic,
    PopulationResult,
    ProfiledSymbol,
    PublisherResult,
    RunResult,
    StaleState,
    Statistics,
    Watched,
)
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


OWN_UNITS = frozenset({"share", "bytes", "bytes_per_s", "us"})
"""Units of cells in a table of everything; other figures are written as rates."""
AGENTS_MAX = 8
"""Agents that have a row each."""
BROKERS_MAX = 2
"""Brokers that have a column each in the table of phases."""
SYMBOLS_MAX = 25
"""Functions of a profile in its table."""
STAGE_KINDS = {"connect": "ramp", "steady": "steady", "disconnect": "leaving"}
"""Parts of a run that memory and CPU are shown of, with their headings."""
PORTS_MAX = 4
"""Ports that are shown one by one."""


def broker_sources(result: RunResult) -> set[str]:
    """Returns the monitored sources under test: brokers that the run started, else their groups,
    and publishers. If there are none, all other sources except the generator."""
    started = {broker.name for broker in result.brokers}
    watched = {each.source for each in result.monitors}
    others = {each.source for each in result.monitors if each.kind not in OF_GENERATOR}
    brokers = started & watched or groups(result) & watched
    return brokers | (publisher_sources(result) & watched) or others


def groups(result: RunResult) -> set[str]:
    """Names under which the run started brokers."""
    return {broker.group for broker in result.brokers if broker.group}


def cpu_by_span(result: RunResult) -> dict[str, dict[str, float]]:
    """Returns the mean CPU in each stage and phase, by the name of its column: of each broker, of
    many brokers the busiest in each, and of the hosts."""
    brokers: dict[str, dict[str, float]] = {}
    host: dict[str, dict[str, float]] = {}
    named = broker_sources(result)
    for each in result.monitors:
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


def _figure(watched: Watched, value: float) -> Value:
    """Returns a value as a cell of its own unit; counts are written as rates."""
    unit = unit_of(watched.metric)
    return Cell(value=value, unit=unit) if unit in OWN_UNITS else value


class _Process(NamedTuple):
    """Something with processes, and its monitors by metric."""

    found: Mapping[str, Watched]


def _processes(result: RunResult) -> Iterator[tuple[str, _Process]]:
    """Yields every watched process and the host, whose memory in use stands for its own; of many
    agents, the busiest."""
    sources: dict[str, dict[str, Watched]] = {}
    for each in result.monitors:
        sources.setdefault(each.source, {})[each.metric] = each
    agents = [name for name, found in sources.items() if "busy" in found]
    if len(agents) > AGENTS_MAX:
        cpu = {name: w.load.mean for name in agents if (w := sources[name].get("cpu"))}
        busiest = max(agents, key=lambda name: cpu.get(name, 0.0))
        rest = {name: found for name, found in sources.items() if name not in agents}
        sources = {f"{busiest}, busiest of {len(agents)}": sources[busiest], **rest}
    for name, found in sources.items():
        if "cpu" in found or "rss_bytes" in found:
            used = found.get("memory_used_bytes")
            yield name, _Process({"rss_bytes": used, **found} if used else found)


def _processes_title(result: RunResult) -> str:
    what = "Publishers" if result.publishers and not result.brokers else "Brokers"
    return f"{what}, host and agents under load"


PROCESSES = RunTable[_Process](_processes_title, "broker", _processes).of(
    names("process"),
    listed("processes"),
)


def _is_own_count(each: Watched) -> bool:
    """Returns True for a count of messages or refusals by the broker itself. Its moving averages
    are in the details."""
    return any(
        re.fullmatch(metric.name, each.metric) and (each.whole.last or not column.without_zero)
        for metric, column in columns_of("own counts")
    )


BROKER_COUNTERS = RunTable[Watched](
    "The broker's own counts", "broker", lambda result: filter(_is_own_count, result.monitors)
).of(
    words("source as broker", "metric as counter"),
    fields("whole.first", "whole.last"),
    Cells("growth", "count", lambda each: each.whole.last - each.whole.first),
)
EVERY_TRACK = RunTable[Watched]("Everything watched", "details", lambda result: result.monitors).of(
    words("source", "metric"),
    fields("whole.count as readings"),
    Cells("first", "rate", lambda each: _figure(each, each.whole.first)),
    Cells("last", "rate", lambda each: _figure(each, each.whole.last)),
    Cells("min", "rate", lambda each: _figure(each, each.whole.min)),
    Cells("mean", "rate", lambda each: _figure(each, each.whole.mean)),
    Cells("max", "rate", lambda each: _figure(each, each.whole.max)),
    Cells("mean under load", "rate", lambda each: _figure(each, each.load.mean)),
    Cells("max under load", "rate", lambda each: _figure(each, each.load.max)),
)
OBSERVERS = RunTable[ObserverTraffic]("Observers", "broker", lambda result: result.observers).of(
    words("name as observer", "target as at"),
    Cells("topics", "word", lambda observer: ", ".join(observer.topics)),
    fields("received_total", "received_bytes as payload"),
    words("problem", without_empty=True),
)
"""The clients that only watch, which are load too."""
MONITOR_PROBLEMS = RunTable[MonitorProblem](
    "Not watched", "generator", lambda result: result.monitor_problems
).of(
    words("source"),
    fields("at_s"),
    words("text as what was found"),
)
STALE_STATE = RunTable[StaleState]("Clean start", "broker", lambda result: result.stale_state).of(
    words("target as broker", "when", "what"),
    fields("total as count"),
    words("text as in words"),
)
"""The stale state found before the run, and that removed after the run."""
SYMBOLS = RunTable[ProfiledSymbol](
    "Profile of the broker",
    "broker",
    lambda result: result.profile.symbols[:SYMBOLS_MAX] if result.profile else (),
).of(
    fields("share"),
    words("command as program", "module", "symbol as function"),
)
"""The functions in which the profiled broker spent its time."""

_Parts = Mapping[tuple[str, str], Statistics]
"""Statistics of a source by metric and kind of stages."""


def _by_stage(result: RunResult) -> Iterable[tuple[str, _Parts]]:
    """Returns CPU and memory of brokers and services while clients connected, under load, and while
    clients left. Empty if there was only load."""
    found: dict[str, dict[tuple[str, str], Statistics]] = {}
    shown = {metric.name for metric, _ in columns_of("stages")}
    for each in result.monitors:
        if each.kind not in OF_GENERATOR and each.metric in shown:
            for kind in STAGE_KINDS:
                parts = found.setdefault(each.source, {})
                parts[each.metric, kind] = _of_kind(result, each, kind)
    read = [each for parts in found.values() for each in parts.items() if each[1].count]
    played = {kind for (_, kind), _ in read}
    return found.items() if len(played) > 1 else ()


def _stage_columns() -> Iterator[Cells[_Parts]]:

    def made(statistic: str, key: tuple[str, str], parts: _Parts) -> float | None:
        found = parts.get(key, Statistics())
        value: float = round(getattr(found, statistic), 4)
        return value if found.count else None

    for metric, column in columns_of("stages"):
        for kind, head in STAGE_KINDS.items():
            read = partial(made, column.statistics[0], (metric.name, kind))
            yield Cells(f"{column.head} {head}", written(metric.unit), read, "known")


def _by_stage_note(result: RunResult) -> str:
    several = sum(stage.kind == "publish" for stage in result.stages) > 1
    return (
        f"Ramp: connect stages; steady: {'the last publish stage' if several else 'under load'}; "
        "leaving: disconnect stages. CPU is a mean, memory the largest."
    )


BY_STAGE = RunTable[_Parts]("Brokers and services by stage", "broker", _by_stage).of(
    names("process"),
    [*_stage_columns()],
    note=_by_stage_note,
)


def disconnect_cpu(result: RunResult) -> tuple[Statistics, Statistics] | None:
    """Returns CPU of the busiest broker while clients left, and under load; None if unknown."""
    sources = broker_sources(result)
    found = [
        (_of_kind(result, each, "disconnect"), _of_kind(result, each, "steady"))
        for each in result.monitors
        if each.source in sources and each.metric == "cpu"
    ]
    read = [pair for pair in found if pair[0].count]
    return max(read, key=lambda pair: pair[0].mean, default=None)


def _of_kind(result: RunResult, watched: Watched, kind: str) -> Statistics:
    """Returns the readings of all stages of a kind. Of several publish stages the last is steady,
    since clients may still connect in earlier ones."""
    if kind == "steady":
        loaded = [stage.name for stage in result.stages if stage.kind == "publish"]
        last = watched.spans.get(loaded[-1], Statistics()) if loaded[1:] else Statistics()
        return last if last.count else watched.load
    names = dict.fromkeys(stage.name for stage in result.stages if stage.kind == kind)
    parts = [part for name in names if (part := watched.spans.get(name)) and part.count]
    count = sum(part.count for part in parts)
    if not count:
        return Statistics()
    return Statistics(
        count=count,
        first=parts[0].first,
        last=parts[-1].last,
        min=min(part.min for part in parts),
        mean=sum(part.mean * part.count for part in parts) / count,
        max=max(part.max for part in parts),
    )


def _by_name(result: RunResult) -> Iterable[tuple[str, list[BrokerResult]]]:
    """Returns the brokers by name, if there are several or one of them died or restarted."""
    groups: dict[str, list[BrokerResult]] = {}
    if len(result.brokers) > 1 or any(each.died or each.restarts for each in result.brokers):
        for broker in result.brokers:
            groups.setdefault(broker.group or broker.name, []).append(broker)
    return groups.items()


def _kinds_text(members: Sequence[BrokerResult]) -> str:
    kinds = dict.fromkeys(f"{each.kind} {each.version}".strip() for each in members)
    many = f"{count_text(len(members))} × " if len(members) > 1 else ""
    return many + ", ".join(kinds)


def addresses_text(addresses: Sequence[tuple[str, int]]) -> str:
    """Returns hosts with their ports, consecutive ports as a range."""
    by_host: dict[str, list[int]] = {}
    for host, port in addresses:
        by_host.setdefault(host, []).append(port)
    return ", ".join(_address_text(host, sorted(ports)) for host, ports in by_host.items())


def _address_text(host: str, ports: Sequence[int]) -> str:
    first, last = ports[0], ports[-1]
    if len(ports) == 1:
        return f"{host}:{first}"
    if last - first == len(ports) - 1:
        return f"{host}:{first}-{last}"
    if len(ports) <= PORTS_MAX:
        return ", ".join(f"{host}:{port}" for port in ports)
    return f"{host}, {count_text(len(ports))} ports from {first} to {last}"


BROKERS = RunTable[Sequence[BrokerResult]]("Brokers of the run", "broker", _by_name).of(
    names("brokers"),
    Cells("what", "word", _kinds_text),
    Cells("at", "word", lambda members: addresses_text([(b.host, b.port) for b in members])),
    Cells("restarts", "count", lambda members: sum(each.restarts for each in members)),
    Cells("died", "count", lambda members: sum(each.died for each in members)),
)
BRIDGES = RunTable[BridgeResult]("Bridges", "broker", lambda result: result.bridges).of(
    words("name as bridges"),
    Cells("from → to", "word", lambda bridge: f"{bridge.small} → {bridge.main}"),
    fields("bridges as count", "up as up at first", "up_after_s as after"),
)
"""The bridges by name, and the number that was up when the first stage began."""
