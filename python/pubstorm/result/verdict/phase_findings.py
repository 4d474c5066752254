"""Findings about phases. A load that was not carried at the end of a phase fails the run; a load
that was carried again is evidence. A lack of processors as its cause makes the run invalid. After a
fault the load must be carried again before the stage ends, not the phase."""

from __future__ import annotations

from collections.abc import Iterable

from pubstorm.quantities import count_text, counted
from pubstorm.result import Measured, Phase, PhaseStatus
from pubstorm.result.verdict.findings import Finding, starved, under_test


def _phases(measured: Measured) -> Iterable[Finding]:
    faults = {(fault.stage, fault.name) for fault in measured.faults}
    unknown = [phase for phase in measured.phases if _is_unknown(phase)]
    if len(unknown) > 1:
        # A user who presses keys makes phases, of which one line is enough.
        names = ", ".join(phase.name for phase in unknown)
        facts = "; ".join(unknown[0].evidence)
        yield Finding(
            f"{len(unknown)} phases say nothing about the target ({names}); of the first: {facts}"
        )
    for number, phase in enumerate(measured.phases):
        if len(unknown) > 1 and _is_unknown(phase):
            continue
        if phase.status in _WORDS:
            facts = f": {'; '.join(phase.evidence)}" if phase.evidence else ""
            text = (
                f"phase {phase.name} {_WORDS[phase.status]}{phase.times(' and recovered')}{facts}"
            )
            broke = phase.status in {PhaseStatus.COLLAPSED, PhaseStatus.NEVER_RECOVERED}
            lasted = broke and phase.recovered_after_s is None
            is_starved = phase.starved
            if (phase.stage, phase.name) in faults:
                made_up = _made_up_for(measured.phases[number + 1 :], phase)
                broke, lasted = lasted and not made_up, lasted and not made_up
                is_starved = is_starved and not made_up
            if is_starved:
                yield starved(text)
            else:
                because = under_test(measured)() if broke else None
                yield Finding(text, because, failed=lasted)


def _is_unknown(phase: Phase) -> bool:
    return phase.status is PhaseStatus.UNKNOWN and not phase.starved and bool(phase.evidence)


def _made_up_for(later: Iterable[Phase], phase: Phase) -> bool:
    """Returns True if a later phase of the same stage carried the load again; the first conclusive
    phase decides."""
    statuses = (
        p.status for p in later if p.stage == phase.stage and p.status is not PhaseStatus.UNKNOWN
    )
    return any(status is not PhaseStatus.NEVER_RECOVERED for status in statuses)


_WORDS = {
    PhaseStatus.COLLAPSED: "collapsed",
    PhaseStatus.RECOVERED: "recovered",
    PhaseStatus.NEVER_RECOVERED: "never recovered",
    PhaseStatus.UNKNOWN: "says nothing about the target",
}


def _short(measured: Measured) -> Iterable[Finding]:
    """Stages in which no collapse was looked for. Their loss is evaluated by thresholds."""
    for each in measured.short_stages:
        yield Finding(
            f"stage {each.stage} was too short to see a collapse: it has "
            f"{counted(each.intervals, 'interval')}, {count_text(each.needed)} are needed "
            "(a longer stage, or a shorter snapshot_interval)"
        )


PHASE_RULES = (_phases, _short)
