"""Sums a run up beside its populations: samplers, problems by kind, memory by connections, the
balance of its targets, stalled subscribers and peaks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from pubstorm.contract.snapshot import Stall
from pubstorm.measure.assemble import Assembly
from pubstorm.measure.run_log import StageSpan
from pubstorm.measure.summary.memory import MemorySamples, memory_models
from pubstorm.measure.summary.samplers import SampledResults, samplers
from pubstorm.measure.summary.targets import target_results
from pubstorm.quantities import SECOND_NS
from pubstorm.result import (
    BrokerResult,
    Measured,
    Peak,
    Peaks,
    PopulationResult,
    StalledSubscriber,
    receivers_by_qos,
)
from pubstorm.result.problems import problems
from pubstorm.result.samples import Tracks
from pubstorm.result.timeline import Timeline

__all__ = ["Sources", "peaks", "summaries"]

Summary = tuple[Callable[[], object], object]


@dataclass(frozen=True)
class Sources:
    """The targets of a run, and the samples of its monitors."""

    tracks: Tracks
    brokers: Sequence[BrokerResult]
    """Brokers that the run started."""
    groups: Mapping[str, Sequence[int]]
    """Indices of the targets of each name."""


def summaries(measured: Measured, assembly: Assembly, sources: Sources) -> dict[str, Summary]:
    """Returns what makes each part that sums measurements up, by the field of the result, and what
    takes its place if it fails."""
    tracks, groups, brokers = sources.tracks, sources.groups, sources.brokers
    populations, stages = measured.populations, measured.stages
    outcome = SampledResults(assembly.plan, populations, measured.flows, stages)
    watched = MemorySamples(assembly, tracks, stages, groups, brokers)
    return {
        "samplers": (lambda: samplers(outcome), ()),
        "problems": (lambda: problems(populations, measured.fleet.unfollowed_total), ()),
        "stalls": (lambda: stalls(assembly), ()),
        "peaks": (lambda: peaks(assembly.timeline, tracks, populations), Peaks()),
        "balance": (lambda: target_results(assembly, groups, brokers), ()),
        "memory": (lambda: memory_models(watched), ()),
    }


def peaks(timeline: Timeline, tracks: Tracks, populations: Mapping[str, PopulationResult]) -> Peaks:
    """The peaks of a run; its rates are those of the time axis, whose spans all populations
    share."""
    return Peaks(
        connected=timeline.peaks().connected,
        sent_per_s=_peak(tracks, populations, "sent_per_s"),
        received_per_s=_peak(tracks, populations, "received_per_s"),
        received_by_qos={
            qos: _peak(tracks, names, "received_per_s")
            for qos, names in receivers_by_qos(populations).items()
        },
    )


def _peak(tracks: Tracks, populations: Collection[str], metric: str) -> Peak:
    sums: dict[float, float] = defaultdict(float)
    for (source, name), track in tracks.items():
        if source.kind == "population" and source.name in populations and name == metric:
            for at_s, value in zip(track.at_s, track.values, strict=True):
                sums[at_s] += value
    if not any(sums.values()):
        return Peak()
    at_s, value = max(sums.items(), key=lambda each: each[1])
    return Peak(value=round(value, 2), at_s=at_s)


def stalls(assembly: Assembly) -> tuple[StalledSubscriber, ...]:
    """The stalls that were kept, in the order of time."""
    return tuple(_stalled(assembly, stall) for stall in assembly.sums.stalls)


def _stalled(assembly: Assembly, stall: Stall) -> StalledSubscriber:
    begun = [s for s in assembly.run_log.spans if s.from_ns <= stall.since_ns < s.to_ns]
    return StalledSubscriber(
        population=assembly.plan.populations[stall.population].name,
        number=stall.number,
        stage=assembly.plan.stages[begun[-1].index].name if begun else None,
        since_s=_instant_s(assembly, stall.since_ns),
        until_s=None if stall.until_ns is None else _instant_s(assembly, stall.until_ns),
        lasted=stall.until_ns is None and (not begun or _anybody_left(assembly, stall, begun[-1])),
        due=stall.due,
    )


def _anybody_left(assembly: Assembly, stall: Stall, span: StageSpan) -> bool:
    """True if a client of the population was still stalled when a stage ended."""
    until_ns, populations = span.to_ns, (stall.population,)
    return assembly.timeline.at_end(span.index, until_ns, populations, "stalled") > 0


def _instant_s(assembly: Assembly, instant_ns: int) -> float:
    return round((instant_ns - assembly.run_log.started_ns) / SECOND_NS, 3)
