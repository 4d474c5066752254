"""Reads figures of a run (targets, memory and stages), of its phases and of its faults."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import dropwhile

from pubstorm.metrics.expressions import Expression
from pubstorm.metrics.metric import RunMetric
from pubstorm.result import FaultResult, Measured, Phase, PhaseStatus
from pubstorm.result.cells import NOTHING_MEASURED, Found, Missing
from pubstorm.result.figures.of_monitors import unwatched


def read_run(measured: Measured, metric: RunMetric, asked: Expression) -> Found | Missing:
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
    if problems:
        return Missing(f"{subject}: {problems[0]}")
    return Missing(unwatched(measured, subject, {subject}))


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


def read_fault(measured: Measured, metric: RunMetric, asked: Expression) -> Found | Missing:
    """Returns the figure of the fault that the span names. If nothing was lost, it was back at
    once."""
    fault = next((f for f in measured.faults if f.name == asked.span), None)
    if fault is None:
        return Missing(f"{asked.span} did not happen")
    if fault.failed is not None:
        return Missing(f"{asked.span} failed: {fault.failed}")
    noun = metric.path[0]
    if noun == "bridges" and all(bridge.up is None for bridge in measured.bridges):
        return Missing("no bridges were counted")
    if noun in {"clients", "bridges"}:
        found = _recovery(fault, noun, asked.statistic)
    else:
        found = _backlog(fault, noun)
    return found if isinstance(found, Missing) else Found(found, metric.unit or "")


def _recovery(fault: FaultResult, noun: str, statistic: str | None) -> float | Missing:
    """Returns the number that was lost, or by a statistic the time until so many were back."""
    found = fault.clients if noun == "clients" else fault.bridges
    if found is None:
        return 0.0
    if statistic is None:
        return float(found.before - found.lowest)
    back_s: float | None = getattr(found, f"{statistic}_s")
    late = Missing(f"{noun} were not back in stage {fault.stage}")
    return late if back_s is None else back_s


def _backlog(fault: FaultResult, field: str) -> float | Missing:
    if fault.backlog_peak is None:
        return Missing(NOTHING_MEASURED)
    value: float | None = getattr(fault, field)
    late = Missing(f"the backlog was not gone in stage {fault.stage}")
    return late if value is None else float(value)


def read_phase(measured: Measured, metric: RunMetric, asked: Expression) -> Found | Missing:
    """Returns the time until the load was carried again, which may be in a later phase of the
    stage."""
    phases = list(_phases_from(measured, asked.span))
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
    return Missing(f"the load was not carried again in stage {phases[0].stage}")


def _phases_from(measured: Measured, name: str | None) -> Iterator[Phase]:
    """Yields the phase of a name and the later ones of its stage."""
    phases = list(dropwhile(lambda phase: phase.name != name, measured.phases))
    yield from (phase for phase in phases if phase.stage == phases[0].stage)
