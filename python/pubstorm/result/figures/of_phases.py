"""Reads figures of phases."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import dropwhile

from pubstorm.metrics.expressions import Expression
from pubstorm.metrics.metric import RunMetric
from pubstorm.result import Measured, Phase, PhaseStatus
from pubstorm.result.figures.reading import Found, Missing


def read(measured: Measured, metric: RunMetric, asked: Expression) -> Found | Missing:
    """Returns the time until the load was carried again, which may be in a later phase of the
    stage."""
    phases = list(_from(measured, asked.span))
    if not phases:
        return Missing(f"{asked.span} is no phase of this run")
    if phases[0].status is PhaseStatus.HELD:
        return Found(0.0, metric.unit or "")
    for phase in phases:
        if phase.status is PhaseStatus.UNKNOWN:
            why = next(iter(phase.evidence), "nothing is known about the load")
            return Missing(f"phase {phase.name} was not evaluated: {why}")
        if phase.recovered_after_s is not None:
            since_s = phase.start_s if phase.collapsed_at_s is None else phase.collapsed_at_s
            carried_s = since_s + phase.recovered_after_s
            return Found(round(carried_s - phases[0].start_s, 3), metric.unit or "")
    return Missing(f"the load was not carried again before stage {phases[0].stage} ended")


def _from(measured: Measured, name: str | None) -> Iterator[Phase]:
    """Yields the phase of a name and the later ones of its stage."""
    phases = list(dropwhile(lambda phase: phase.name != name, measured.phases))
    yield from (phase for phase in phases if phase.stage == phases[0].stage)
