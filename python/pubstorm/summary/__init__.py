"""What a run comes to beside its populations: samplers, problems by kind, memory by connections,
the balance of its targets, stalled subscribers and peaks. It judges nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pubstorm.assemble import Assembly
from pubstorm.result import BrokerResult, Measured
from pubstorm.samples import Tracks
from pubstorm.summary.memory import Watched, memory_models
from pubstorm.summary.peaks import peaks
from pubstorm.summary.problems import problems
from pubstorm.summary.samplers import Outcome, samplers
from pubstorm.summary.stalls import stalls
from pubstorm.summary.targets import target_results

__all__ = ["Sources", "with_summary"]


@dataclass(frozen=True)
class Sources:
    """What a run was played on, and what was read meanwhile."""

    tracks: Tracks
    brokers: Sequence[BrokerResult]
    """Brokers that the run started."""
    groups: Mapping[str, Sequence[int]]
    """Indices of the targets of each name."""


def with_summary(measured: Measured, assembly: Assembly, sources: Sources) -> Measured:
    """The measurements with everything that they come to."""
    tracks, groups, brokers = sources.tracks, sources.groups, sources.brokers
    populations, stages = measured.populations, measured.stages
    plan, totals = assembly.plan, assembly.totals
    found = {
        "samplers": samplers(Outcome(plan, populations, measured.flows, stages)),
        "problems": problems(populations, measured.fleet.unfollowed_total),
        "stalls": stalls(assembly),
        "peaks": peaks(totals, tracks, populations),
        "balance": target_results(assembly, groups, brokers),
        "memory": memory_models(Watched(assembly, tracks, stages, groups, brokers)),
    }
    return measured.model_copy(update=found)
