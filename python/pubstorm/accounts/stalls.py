"""Subscribers that stalled, on the time axis of the run. Pure arithmetic on what agents told."""

from __future__ import annotations

from collections.abc import Sequence

from pubstorm.assemble import SECOND_NS, Assembly
from pubstorm.result import StageResult, StalledSubscriber
from pubstorm.snapshot import Stall


def stalls(assembly: Assembly, stages: Sequence[StageResult]) -> tuple[StalledSubscriber, ...]:
    """The stalls that were kept, in the order of time."""
    kept = sorted(assembly.totals.stalls.items())
    return tuple(_stalled(assembly, stages, stall) for _, stall in kept)


def _stalled(assembly: Assembly, stages: Sequence[StageResult], stall: Stall) -> StalledSubscriber:
    since_s = _instant_s(assembly, stall.since_ns)
    begun = [stage.name for stage in stages if stage.holds(since_s)]
    return StalledSubscriber(
        population=assembly.plan.populations[stall.population].name,
        number=stall.number,
        stage=begun[-1] if begun else None,
        since_s=since_s,
        until_s=None if stall.until_ns is None else _instant_s(assembly, stall.until_ns),
        due=stall.due,
    )


def _instant_s(assembly: Assembly, instant_ns: int) -> float:
    return round((instant_ns - assembly.course.started_ns) / SECOND_NS, 3)
