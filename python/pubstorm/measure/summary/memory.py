"""Memory by connections: a straight line through the readings of ramps, for each broker, for the
agents together and for the kernel. Pure arithmetic on readings."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import StatisticsError, correlation, fmean, linear_regression

from pubstorm.contract import Source
from pubstorm.contract.plan import AddClients
from pubstorm.measure.assemble import Assembly
from pubstorm.metrics.run import ENGINES
from pubstorm.quantities import SECOND_NS
from pubstorm.result import BrokerResult, MemoryModel, MemoryPoint, StageResult
from pubstorm.result.samples import Span, Track, Tracks
from pubstorm.result.timeline.rows import Row

POINTS_MIN = 4
"""Readings, and readings that differ in connections, from which a line is fitted."""
SPREAD_MIN = 200
"""Connections by which the readings must differ."""
R_SQUARED_MIN = 0.5
"""Share of the scatter that a line must explain."""
KERNEL_METRIC = "kernel_bytes"
"""Memory of the objects of the host's kernel that it cannot reclaim, of which sockets are most."""
AT_START = "an agent takes its memory when it starts"
"""Why agents have no line over the ramp of one run."""


@dataclass(frozen=True)
class MemorySamples:
    """The samples of memory, and the numbers of connections that go with them."""

    assembly: Assembly
    tracks: Tracks
    stages: Sequence[StageResult]
    groups: Mapping[str, Sequence[int]]
    """Indices of the targets of each name."""
    brokers: Sequence[BrokerResult]
    given: Sequence[Source] = ()
    """Sources of the first targets, which the run did not start."""


def memory_models(watched: MemorySamples) -> tuple[MemoryModel, ...]:
    """Returns the line of each subject with samples of its memory, or why there is none."""
    spans = sorted((*_stages(watched.stages), *_joins(watched.assembly)), key=lambda s: s.from_s)
    steady = watched.assembly.named_spans()[1][-1:]
    models = [
        _model(source.name, track, connections, (spans, steady)).model_copy(
            update={"group": source.group}
        )
        for source, track, connections in _subjects(watched)
    ]
    return tuple(models)


def fitted(
    subject: str,
    points: Sequence[MemoryPoint],
    *,
    steady: MemoryPoint | None = None,
    points_min: int = POINTS_MIN,
) -> MemoryModel:
    """Returns the line through some points, or why there is none."""
    x, y = [point.connections for point in points], [point.bytes for point in points]
    if len(set(x)) < points_min:
        problem = f"readings at {len(set(x))} numbers of connections, needed are {points_min}"
    elif max(x) - min(x) < SPREAD_MIN:
        problem = f"readings over {max(x) - min(x):.0f} connections, needed are {SPREAD_MIN}"
    else:
        slope, base = linear_regression(x, y)
        try:
            r_squared = correlation(x, y) ** 2
        except StatisticsError:
            r_squared = 0.0
        if slope > 0 and r_squared >= R_SQUARED_MIN:
            return MemoryModel(
                subject=subject,
                base_bytes=round(base),
                bytes_per_connection=round(slope, 1),
                r_squared=round(r_squared, 4),
                points=len(points),
                steady=steady,
            )
        problem = "memory did not grow with connections"
    return MemoryModel(subject=subject, points=len(points), problem=problem, steady=steady)


Connections = Callable[[float], float]
"""Clients connected at an instant."""


def _subjects(watched: MemorySamples) -> Iterator[tuple[Source, Track, Connections]]:
    """Everything whose memory was read, with the connections that it depends on."""
    everything = _connections(watched.assembly, lambda row: row.connected)
    is_counted = any(row.targets for row in watched.assembly.timeline.rows())
    everywhere = set(range(len(watched.assembly.plan.targets)))
    for source, targets in _targets_of_sources(watched).items():
        track = watched.tracks.get((source, "rss_bytes"))
        if track is not None and targets == everywhere:
            yield source, track, everything
        elif track is not None and is_counted:
            yield source, track, _connections(watched.assembly, _connected_to(targets))
    engines = _engines(watched.tracks, watched.assembly.agents_of_load)
    if engines.values:
        yield Source.single("agent", ENGINES), engines, everything
    kernel = watched.tracks.get((Source.host(), KERNEL_METRIC))
    if kernel is not None:
        yield Source.host(), kernel, everything


def _targets_of_sources(watched: MemorySamples) -> dict[Source, set[int]]:
    """Returns the targets of each source that may be a broker."""
    plan, brokers, given = watched.assembly.plan, watched.brokers, dict(enumerate(watched.given))
    started = {
        (broker.host, broker.port): Source("broker", broker.name, broker.group)
        for broker in brokers
    }
    found: dict[Source, set[int]] = {}
    for index, target in enumerate(plan.targets):
        source = given.get(index) or started.get((target.host, target.port))
        if source is not None:
            found.setdefault(source, set()).add(index)
    together = {Source.single("broker", broker.group) for broker in brokers if broker.group}
    return found | {group: set(watched.groups.get(group.name, ())) for group in together}


def _connected_to(targets: Iterable[int]) -> Callable[[Row], int]:
    return lambda row: row.connected_to(targets)


def _connections(assembly: Assembly, reading: Callable[[Row], int]) -> Connections:
    """Clients connected over time: between two snapshots of an agent along a straight line."""
    tracks: dict[int, Track] = {}
    for row in assembly.timeline.rows():
        track = tracks.setdefault(row.agent, Track())
        if not track.at_s:
            track.add((row.from_ns - assembly.run_log.started_ns) / SECOND_NS, 0.0)
        track.add((row.to_ns - assembly.run_log.started_ns) / SECOND_NS, reading(row))
    return lambda at_s: sum(_between(track, at_s) for track in tracks.values())


def _between(track: Track, at_s: float) -> float:
    """The value of a track at an instant, along a straight line; its ends beyond them."""
    after = bisect_right(track.at_s, at_s)
    if after in {0, len(track.at_s)}:
        return track.values[max(after - 1, 0)]
    from_s, to_s = track.at_s[after - 1 : after + 1]
    before, then = track.values[after - 1 : after + 1]
    return before + (then - before) * (at_s - from_s) / (to_s - from_s)


def _engines(tracks: Tracks, agents: int) -> Track:
    """Memory of all agents, at the instants that all have a reading of."""
    sums, samples = Counter[float](), Counter[float]()
    for (source, metric), track in tracks.items():
        if source.kind == "agent" and metric == "rss_bytes":
            for at_s, value in zip(track.at_s, track.values, strict=True):
                sums[at_s] += value  # type: ignore[assignment]
                samples[at_s] += 1
    known = sorted(at_s for at_s, count in samples.items() if count == agents)
    return Track(known, [sums[at_s] for at_s in known])


def _stages(stages: Sequence[StageResult]) -> Iterator[Span]:
    """Connect stages, and the hold stages that follow them."""
    connecting = False
    for stage in stages:
        connecting = stage.kind == "connect" or (connecting and stage.kind == "hold")
        if connecting:
            yield Span(stage.name, stage.start_s, stage.start_s + stage.duration_s)


def _joins(assembly: Assembly) -> Iterator[Span]:
    """The times in publish stages over which clients join."""
    for change in assembly.run_log.changes:
        if isinstance(change.action, AddClients) and change.action.over_ns:
            from_s = (change.at_ns - assembly.run_log.started_ns) / SECOND_NS
            yield Span(change.name, from_s, from_s + change.action.over_ns / SECOND_NS)


def _model(
    subject: str,
    track: Track,
    connections: Connections,
    spans: tuple[Sequence[Span], Sequence[Span]],
) -> MemoryModel:
    """The line of a subject: over the ramps, with the last reading before the first of them."""
    ramps, steady = spans
    points = [
        MemoryPoint(connections=connections(at_s), bytes=track.values[place])
        for place, at_s in enumerate(track.at_s)
        if _within(ramps, at_s) or _is_last_before(track, place, ramps)
    ]
    held = [place for place, at_s in enumerate(track.at_s) if _within(steady, at_s)]
    point = None
    if held:
        point = MemoryPoint(
            connections=fmean(connections(track.at_s[place]) for place in held),
            bytes=fmean(track.values[place] for place in held),
        )
    if subject == ENGINES:
        return MemoryModel(subject=subject, points=len(points), problem=AT_START, steady=point)
    return fitted(subject, points, steady=point)


def _within(spans: Iterable[Span], at_s: float) -> bool:
    return any(span.from_s <= at_s <= span.to_s for span in spans)


def _is_last_before(track: Track, place: int, spans: Sequence[Span]) -> bool:
    if not spans or track.at_s[place] >= spans[0].from_s:
        return False
    return place + 1 == len(track.at_s) or track.at_s[place + 1] >= spans[0].from_s
