"""Reads figures of faults."""

from __future__ import annotations

from pubstorm.metrics.expressions import Expression
from pubstorm.metrics.metric import RunMetric
from pubstorm.result import FaultResult, Measured
from pubstorm.result.figures.reading import NOTHING_MEASURED, Found, Missing


def read(measured: Measured, metric: RunMetric, asked: Expression) -> Found | Missing:
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
    late = Missing(f"{noun} were not back before stage {fault.stage} ended")
    return late if back_s is None else back_s


def _backlog(fault: FaultResult, field: str) -> float | Missing:
    if fault.backlog_peak is None:
        return Missing(NOTHING_MEASURED)
    value: float | None = getattr(fault, field)
    late = Missing(f"the backlog was not gone before stage {fault.stage} ended")
    return late if value is None else float(value)
