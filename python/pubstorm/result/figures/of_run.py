"""Figures of a run as a whole: of its targets, its memory and its stages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pubstorm.quantities import UnfitError
from pubstorm.result import Measured
from pubstorm.result.figures.metric import Asked, Found, Metric, Missing
from pubstorm.result.figures.of_monitors import unwatched

ENGINES = "engines"
"""Subject of all agents together."""


@dataclass(frozen=True)
class RunMetric(Metric):
    """A figure of a run."""

    subject: Literal["none", "broker", "memory"] = "none"
    """none; the name of brokers, if any; or, always, something whose memory was read."""
    span: Literal["none", "stage", "any stage"] = "none"
    """none; a stage, always; or a stage, if any."""

    def check(self, asked: Asked) -> None:
        """Raises UnfitError unless the expression has the subject and the span of the figure."""
        super().check(asked)
        name, subject, span = asked.metric, asked.subject, asked.span
        if self.subject == "memory" and subject is None:
            raise UnfitError(
                name, f"is SUBJECT.{name}", f"for example broker.{name} or host.{name}"
            )
        if self.subject == "none" and subject is not None:
            raise UnfitError(subject, f"is {name} without a subject")
        if self.span == "stage" and span is None:
            raise UnfitError(name, f"is {name}@STAGE", f"for example {name}@connect")
        if self.span == "none" and span is not None:
            raise UnfitError(span, f"is {name} without a span")

    def read(self, measured: Measured, asked: Asked) -> Found | Missing:
        """Returns the figure of a run."""
        if self.subject == "memory":
            found = _memory(measured, asked.subject or "")
        elif self.subject == "broker":
            found = _balance(measured, asked.subject)
        elif asked.metric in _PEAKS:
            found = _peak(measured, _PEAKS[asked.metric])
        else:
            found = _stages(measured, asked)
        return found if isinstance(found, Missing) else Found(found, self.unit or "")


RUN_METRICS: Mapping[str, RunMetric] = {
    "bytes_per_connection": RunMetric(
        "bytes",
        "Memory that each connection adds, of a broker, or of the kernel of `host` without caches "
        "that it can reclaim.",
        subject="memory",
    ),
    "balance": RunMetric(
        "share",
        "Connections of the fullest target of a name, by those of a target if all had the same: "
        "1 or 100 % is even.",
        subject="broker",
    ),
    "arrivals_per_s": RunMetric(
        "per_s",
        "Messages received a second in publish stages, until the last message of a stage. It "
        "includes what queues deliver in the drain.",
        span="any stage",
    ),
    "connects_per_s": RunMetric(
        "per_s", "Connections accepted a second in connect stages.", span="any stage"
    ),
    "disconnects_per_s": RunMetric(
        "per_s",
        "Clients a second that were connected before disconnect stages and not after them.",
        span="any stage",
    ),
    "connected_after": RunMetric(
        "", "Clients of all populations that were connected when a stage ended.", span="stage"
    ),
    **{
        f"peak_qos{level}_per_s": RunMetric(
            "per_s", f"Largest rate of deliveries of QoS {level} in an interval of the run."
        )
        for level in range(3)
    },
    "took": RunMetric("s", "Duration of a stage, with its drain.", span="stage"),
}


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


def _stages(measured: Measured, asked: Asked) -> float | Missing:
    """Returns a figure of one stage, or of all stages of its kind, weighted by their duration."""
    metric, span = asked.metric, asked.span
    if span is not None:
        stage = next((stage for stage in measured.stages if stage.name == span), None)
        if stage is None:
            return Missing(f"{span} was not played")
        return float(getattr(stage, _STAGE_FIELDS.get(metric, metric)))
    kind, took = _KINDS[metric]
    stages = [stage for stage in measured.stages if stage.kind == kind]
    took_s = math.fsum(getattr(stage, took) for stage in stages)
    if not took_s:
        return Missing("nothing arrived" if stages else f"no {kind} stage was played")
    total = math.fsum(getattr(stage, metric) * getattr(stage, took) for stage in stages)
    return round(total / took_s, 2)


_PEAKS = {f"peak_qos{level}_per_s": str(level) for level in range(3)}
"""QoS of each peak."""
_KINDS = {
    "arrivals_per_s": ("publish", "arrived_s"),
    "connects_per_s": ("connect", "duration_s"),
    "disconnects_per_s": ("disconnect", "duration_s"),
}
"""Kind of the stages of a rate, and the time that it is over."""
_STAGE_FIELDS = {"connected_after": "connected", "took": "duration_s"}
"""Fields of a stage whose name differs from the figure's."""
