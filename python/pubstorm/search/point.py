"""What one playing is worth to a search: whether the value held or broke, what the figure came to,
and whether it says anything of what is under test at all. It plays nothing."""

from __future__ import annotations

from pubstorm.metrics import Expression
from pubstorm.metrics.evaluate import Found, evaluate
from pubstorm.result import LimitedBy, Result, SearchPoint, Status
from pubstorm.search.strategy import Outcome

EVIDENCE_MAX = 3
"""Facts that are kept of each point; its own folder has them all."""


def judged(point: SearchPoint, result: Result, figure: Expression | None) -> SearchPoint:
    """A point with what its run came to."""
    verdict = result.verdict
    found = None if figure is None else evaluate(result, figure)
    why = _why_not_counted(result)
    return point.model_copy(
        update={
            "status": verdict.status,
            "limited_by": verdict.limited_by,
            "figure": found.value if isinstance(found, Found) else None,
            "counted": why is None,
            "why": why,
            "thresholds": verdict.thresholds,
            "evidence": verdict.facts[:EVIDENCE_MAX],
            "duration_s": result.duration_s,
            "cells": tuple(result.table.values()),
        }
    )


def without_measurement(point: SearchPoint, why: str) -> SearchPoint:
    """A point whose run came to nothing."""
    return point.model_copy(update={"counted": False, "why": why})


def unfit(point: SearchPoint, why: str) -> SearchPoint:
    """A point that was not played, since this host has too little."""
    words = {"counted": False, "why": why, "limited_by": LimitedBy.HOST}
    return point.model_copy(update=words)


def outcome_of(point: SearchPoint) -> Outcome:
    """What a point tells the strategy."""
    was_played = point.status is not None or point.limited_by is None
    if not point.counted:
        return Outcome("uncounted", point.figure, final=not was_played)
    return Outcome("held" if point.held else "broken", point.figure)


def in_words(point: SearchPoint) -> str:
    """What came of a point, in few words."""
    if not point.counted:
        return f"is not counted: {point.why}"
    if point.held:
        return "holds"
    fact = f": {point.evidence[0]}" if point.evidence else ""
    return f"breaks, limited by {point.limited_by}{fact}"


def _why_not_counted(result: Result) -> str | None:
    """Why a run says nothing of what is under test; None: it does."""
    verdict = result.verdict
    fact = next(iter(verdict.evidence), "nothing was measured")
    if verdict.status is not Status.PASS and verdict.limited_by is LimitedBy.HOST:
        return f"this host was the limit: {fact}"
    if verdict.status is not Status.PASS and verdict.limited_by is LimitedBy.GENERATOR:
        return f"the load generator was the limit: {fact}"
    return f"the run is invalid: {fact}" if verdict.status is Status.INVALID else None
