"""What the phases of a run bear on its verdict: a load that was not carried to the end of a phase
fails it, one that was carried again is evidence, and what a generator problem may explain says
nothing. Pure functions of measured values."""

from __future__ import annotations

from collections.abc import Iterable

from pubstorm.quantity import span_text
from pubstorm.result import LimitedBy, Measured, Phase, PhaseStatus
from pubstorm.verdict.findings import Finding


def _phases(measured: Measured) -> Iterable[Finding]:
    for phase in measured.phases:
        if phase.status in _WORDS:
            facts = f": {'; '.join(phase.evidence)}" if phase.evidence else ""
            text = f"phase {phase.name} {_WORDS[phase.status]}{_times(phase)}{facts}"
            broke = phase.status in {PhaseStatus.COLLAPSED, PhaseStatus.NEVER_RECOVERED}
            limited_by = LimitedBy.BROKER if broke else LimitedBy.NONE
            yield Finding(text, limited_by, failed=broke and phase.recovered_after_s is None)


def _times(phase: Phase) -> str:
    text = ""
    if phase.collapsed_at_s is not None:
        text += f" at {span_text(phase.collapsed_at_s)}"
    if phase.recovered_after_s is not None:
        recovered = " and recovered" if phase.status is PhaseStatus.COLLAPSED else ""
        text += f"{recovered} after {span_text(phase.recovered_after_s)}"
    if phase.status is PhaseStatus.NEVER_RECOVERED:
        text += f" in {span_text(phase.duration_s)}"
    return text


_WORDS = {
    PhaseStatus.COLLAPSED: "collapsed",
    PhaseStatus.RECOVERED: "recovered",
    PhaseStatus.NEVER_RECOVERED: "never recovered",
    PhaseStatus.UNKNOWN: "tells nothing of the target",
}
PHASE_RULES = (_phases,)
