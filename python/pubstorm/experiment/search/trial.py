"""Outcome of one trial of a search: passed, failed or not counted, with the value of the figure,
and the reason why a trial says nothing about what is under test."""

from __future__ import annotations

from pubstorm.experiment.search.strategy import TrialOutcome
from pubstorm.metrics.expressions import Expression
from pubstorm.result import LimitedBy, RunResult, Status, Trial
from pubstorm.result.figures import Found, evaluate

EVIDENCE_MAX = 3
"""Facts that are kept of each trial; its own folder has them all."""


def evaluated(trial: Trial, result: RunResult, figure: Expression | None) -> Trial:
    """Returns a trial with the outcome of its run."""
    verdict = result.verdict
    found = None if figure is None else evaluate(result, figure)
    why = _why_not_counted(result)
    return trial.of_run(
        result,
        figure=found.value if isinstance(found, Found) else None,
        counted=why is None,
        why=why,
        thresholds=verdict.thresholds,
        evidence=verdict.facts[:EVIDENCE_MAX],
        cells=tuple(result.table.values()),
    )


def uncounted(trial: Trial, why: str | None, limited_by: LimitedBy | None = None) -> Trial:
    """Returns a trial without a measurement; `limited_by` is this host if the trial was not
    played."""
    return trial.model_copy(update={"counted": False, "why": why, "limited_by": limited_by})


def outcome_of(trial: Trial) -> TrialOutcome:
    """Returns the outcome of a trial for the strategy."""
    was_played = trial.status is not None or trial.limited_by is None
    if not trial.counted:
        return TrialOutcome("uncounted", trial.figure, final=not was_played)
    return TrialOutcome("passed" if trial.passed else "failed", trial.figure)


def in_words(trial: Trial) -> str:
    """Returns the outcome of a trial in a few words."""
    if not trial.counted:
        return f"is not counted: {trial.why}"
    if trial.passed:
        return "passes"
    fact = f": {trial.evidence[0]}" if trial.evidence else ""
    return f"fails, limited by {trial.limited_by}{fact}"


def _why_not_counted(result: RunResult) -> str | None:
    """Why a run says nothing of what is under test; None: it does."""
    verdict = result.verdict
    fact = next(iter(verdict.evidence), "nothing was measured")
    if verdict.status is not Status.PASS and verdict.limited_by is LimitedBy.HOST:
        return f"this host was the limit: {fact}"
    if verdict.status is not Status.PASS and verdict.limited_by is LimitedBy.GENERATOR:
        return f"the load generator was the limit: {fact}"
    return f"the run is invalid: {fact}" if verdict.status is Status.INVALID else None
