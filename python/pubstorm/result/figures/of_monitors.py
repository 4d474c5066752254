"""Reads figures of monitors: processes, services, the host, agents and bridges, and the lateness of
publishers under test."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pubstorm.metrics.expressions import Expression
from pubstorm.metrics.metric import Metric
from pubstorm.metrics.monitors import reading_of
from pubstorm.quantities import span_text
from pubstorm.result import Measured
from pubstorm.result.figures.reading import (
    NOTHING_MEASURED,
    Found,
    Missing,
    number_at,
)
from pubstorm.result.monitors import Watched, readings

MOVING_AVERAGE = re.compile(r"^\$SYS/.*/(\d+)min$", re.ASCII)
"""Names of the broker's moving averages, with their time constant in minutes."""
SETTLED_TIMES = 4.6
"""Time constants after which such an average is within 1 % of a load that stays the same."""
NO_GROWTH = "the source reported fewer than twice in that time, so there is no rate"
UNITS_LEFT_OUT = ("bytes", "bytes_per_s", "per_s", "us")
"""Units that the name of an expression can leave out, in the order in which they are tried."""


def read(measured: Measured, asked: Expression) -> Found | Missing:
    """Returns the worst value of the sources that the subject means."""
    subject = asked.subject
    watched = [w for w in measured.monitors if subject in {w.source, w.group}]
    if not watched:
        return Missing(unwatched(measured, subject or ""))
    full = (asked.metric, *(f"{asked.metric}_{suffix}" for suffix in UNITS_LEFT_OUT))
    metric = next((name for name in full if any(w.metric == name for w in watched)), None)
    if metric is None:
        return Missing(f"{subject} shows no {asked.metric}")
    if (unsettled := _unsettled(measured, metric, asked.span)) is not None:
        return Missing(unsettled, "not settled")
    statistic = asked.statistic or "mean"
    known = reading_of(metric)
    unit = (known.growth if statistic == "rate" else known).unit or ""
    named = [w for w in watched if w.metric == metric]
    if (gap := not_read(named, asked.span)) is not None:
        return Missing(gap, "not read")
    values = readings(named, statistic, asked.span)
    if values:
        return Found(max(values), unit)
    has_reading = any(w.over(asked.span).count for w in named)
    return Missing(NO_GROWTH if has_reading else NOTHING_MEASURED)


def not_read(named: Iterable[Watched], span: str | None) -> str | None:
    """Returns which figure was read for too small a part of a span; None if all were read."""
    for each in named:
        found = each.over(span)
        if not found.is_enough:
            return f"{each.source}.{each.metric} was {found.unread_text}"
    return None


def _unsettled(measured: Measured, metric: str, span: str | None) -> str | None:
    """Returns why a moving average of the broker says nothing of a span: the load did not last long
    enough before its end. None for other figures, and for settled averages."""
    minutes = MOVING_AVERAGE.search(metric)
    if minutes is None:
        return None
    needed_s = 60 * SETTLED_TIMES * int(minutes[1])
    lasted_s = _lasted_s(measured, span)
    if lasted_s >= needed_s:
        return None
    return (
        f"{metric} is a moving average, which comes within 1 % of a load after "
        f"{span_text(needed_s)}, and the load lasted {span_text(lasted_s)}"
    )


def _lasted_s(measured: Measured, span: str | None) -> float:
    """Returns the time for which the load of a span was the same: of the last phase, or of a stage
    without phases; without a span, of the last one under load."""
    phases = [each for each in measured.phases if span in {None, each.name, each.stage}]
    if phases:
        return phases[-1].duration_s
    stages = [each for each in measured.stages if span in {None, each.name}]
    loaded = [s for s in stages if s.kind == "publish"] or [s for s in stages if s.kind == "hold"]
    return max((stage.steady_s for stage in (loaded or stages)[-1:]), default=0.0)


def read_publisher(measured: Measured, metric: Metric, asked: Expression) -> Found | Missing:
    """Returns the worst value of the publishers that the subject means."""
    if asked.span is not None:
        return Missing(f"{asked.metric} of publishers is kept for the whole run only")
    named = [p for p in measured.publishers if asked.subject in {p.name, p.population}]
    path = (*metric.path, asked.statistic or "")
    values = [value for p in named if (value := number_at(p, path)) is not None]
    return Found(max(values), metric.unit or "") if values else Missing(NOTHING_MEASURED)


def unwatched(measured: Measured, subject: str) -> str:
    """Returns why a subject is not among the monitors."""
    for problem in measured.monitor_problems:
        if subject in {problem.source, problem.group}:
            return f"{subject} is not watched: {problem.text}"
    return f"{subject} is not watched"
