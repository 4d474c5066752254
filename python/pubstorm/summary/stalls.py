"""Subscribers that stalled, on the time axis of the run. Pure arithmetic on what agents told."""

from __future__ import annotations

from pubstorm.assemble import SECOND_NS, Assembly
from pubstorm.course import StageSpan
from pubstorm.result import StalledSubscriber
from pubstorm.snapshot import Stall


def stalls(assembly: Assembly) -> tuple[StalledSubscriber, ...]:
    """The stalls that were kept, in the order of time."""
    return tuple(_stalled(assembly, stall) for _, stall in sorted(assembly.totals.stalls.items()))


def _stalled(assembly: Assembly, stall: Stall) -> StalledSubscriber:
    begun = [s for s in assembly.course.spans if s.from_ns <= stall.since_ns < s.to_ns]
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
    """Whether anybody of the population was still stalled when a stage ended."""
    totals = assembly.totals
    return totals.at_end(span.index, span.to_ns, (stall.population,), "stalled") > 0


def _instant_s(assembly: Assembly, instant_ns: int) -> float:
    return round((instant_ns - assembly.course.started_ns) / SECOND_NS, 3)
