"""Figures of phases. They have a phase as their span and no subject."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import dropwhile

from pubstorm.quantities import UnfitError
from pubstorm.result import Measured, Phase, PhaseStatus
from pubstorm.result.figures.metric import Asked, Found, Metric, Missing


@dataclass(frozen=True)
class PhaseMetric(Metric):
    """A figure of phases."""

    def check(self, asked: Asked) -> None:
        """Raises UnfitError unless the expression names a phase, and no statistic."""
        name = asked.metric
        if asked.span is None:
            hint = f"for example {name}@kill cloud"
            words = f"is {name}@PHASE, the name of a fault, change or publish stage"
            raise UnfitError(name, words, hint)
        super().check(asked)

    def read(self, measured: Measured, asked: Asked) -> Found | Missing:
        """Returns the time until the load was carried again, which may be in a later phase of the
        stage."""
        phases = list(_from(measured, asked.span))
        if not phases:
            return Missing(f"{asked.span} is no phase of this run")
        if phases[0].status is PhaseStatus.HELD:
            return Found(0.0, self.unit or "")
        for phase in phases:
            if phase.status is PhaseStatus.UNKNOWN:
                why = next(iter(phase.evidence), "nothing is known about the load")
                return Missing(f"phase {phase.name} was not evaluated: {why}")
            if phase.recovered_after_s is not None:
                since_s = phase.start_s if phase.collapsed_at_s is None else phase.collapsed_at_s
                carried_s = since_s + phase.recovered_after_s
                return Found(round(carried_s - phases[0].start_s, 3), self.unit or "")
        return Missing(f"the load was not carried again before stage {phases[0].stage} ended")


PHASE_METRICS: Mapping[str, PhaseMetric] = {
    "recovery": PhaseMetric(
        "s",
        "Time from the start of a phase, so from the fault or change that begins it, until the "
        "load was carried again and the queue was gone. 0 if the load was carried all the time.",
    )
}


def _from(measured: Measured, name: str | None) -> Iterator[Phase]:
    """Yields the phase of a name and the later ones of its stage."""
    phases = list(dropwhile(lambda phase: phase.name != name, measured.phases))
    yield from (phase for phase in phases if phase.stage == phases[0].stage)
