"""Reads figures of a run as a whole: of its targets, its memory and its stages."""

from __future__ import annotations

import math

from pubstorm.metrics.expressions import Expression
from pubstorm.metrics.metric import RunMetric
from pubstorm.result import Measured
from pubstorm.result.figures.of_monitors import unwatched
from pubstorm.result.figures.reading import Found, Missing


def read(measured: Measured, metric: RunMetric, asked: Expression) -> Found | Missing:
    """Returns the figure of a run."""
    match metric.path[0]:
        case "memory":
            found = _memory(measured, asked.subject or "")
        case "balance":
            found = _balance(measured, asked.subject)
        case "peaks":
            found = _peak(measured, metric.path[1])
        case _:
            found = _stages(measured, metric, asked.span)
    return found if isinstance(found, Missing) else Found(found, metric.unit or "")


def _memory(measured: Measured, subject: str) -> float | Missing:
    """Returns the largest line of the subjects of a name."""
    named = [m for m in measured.memory if subject in {m.subject, m.group}]
    slopes = [m.bytes_per_connection for m in named if m.bytes_per_connection is not None]
    if slopes:
        return max(slopes)
    problems = [model.problem for model in named if model.problem is not None]
    return Missing(f"{subject}: {problems[0]}" if problems else unwatched(measured, subject))


def _balance(measured: Measured, group: str | None) -> float | Missing:
    """Returns the balance of a name, or the worst of all names."""
    shares: dict[str, list[float]] = {}
    for target in measured.balance:
        if group in {None, target.group}:
            shares.setdefault(target.group, []).append(target.share)
    if not any(map(sum, shares.values())):
        return Missing("no name has several targets that clients were connected to")
    return round(max(max(each) * len(each) for each in shares.values()), 4)


def _peak(measured: Measured, qos: str) -> float | Missing:
    """Returns the largest rate of deliveries of a QoS."""
    peak = measured.peaks.received_by_qos.get(qos)
    if peak is not None and peak.at_s is not None:
        return peak.value
    if "mixed" in measured.peaks.received_by_qos:
        return Missing("some populations receive at several QoS, which share one rate")
    return Missing(f"nothing came with QoS {qos}")


def _stages(measured: Measured, metric: RunMetric, span: str | None) -> float | Missing:
    """Returns a figure of one stage, or of all stages of its kind, weighted by their duration."""
    field = metric.path[1]
    if span is not None:
        stage = next((stage for stage in measured.stages if stage.name == span), None)
        if stage is None:
            return Missing(f"{span} was not played")
        return float(getattr(stage, field))
    stages = [stage for stage in measured.stages if stage.kind == metric.stage_kind]
    took_s = math.fsum(getattr(stage, metric.weight) for stage in stages)
    if not took_s:
        return Missing("nothing arrived" if stages else f"no {metric.stage_kind} stage was played")
    total = math.fsum(getattr(stage, field) * getattr(stage, metric.weight) for stage in stages)
    return round(total / took_s, 2)
