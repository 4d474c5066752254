"""Metrics of a run as a whole: of its targets, its memory and its stages. Their values stand in no
population; it knows no result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pubstorm.samples import Unit
from pubstorm.units import UnfitError

ENGINES = "engines"
"""What all engines together are called."""


@dataclass(frozen=True, slots=True)
class RunMetric:
    """A metric of a run."""

    meaning: str
    unit: Unit
    subject: Literal["none", "broker", "memory"]
    """Whether it has a subject: none; the name of brokers, if one is given; or, always, something
    whose memory was read."""
    span: Literal["none", "stage", "any stage"]
    """Whether it has a stage as its span: never, always, or if one is given."""


RUN_METRICS: Mapping[str, RunMetric] = {
    "bytes_per_connection": RunMetric(
        "Memory that each connection adds, of a broker, or of the kernel of `host` without caches "
        "that it can reclaim.",
        "bytes",
        "memory",
        "none",
    ),
    "balance": RunMetric(
        "Connections of the fullest target of a name, by those of a target if all had the same: "
        "1 or 100 % is even.",
        "share",
        "broker",
        "none",
    ),
    "arrivals_per_s": RunMetric(
        "Messages received a second in publish stages, until the last of a stage has come: what "
        "queues carry in the drain counts too.",
        "per_s",
        "none",
        "any stage",
    ),
    "connects_per_s": RunMetric(
        "Connections accepted a second in connect stages.", "per_s", "none", "any stage"
    ),
    "disconnects_per_s": RunMetric(
        "Clients a second that were there before disconnect stages and not after them.",
        "per_s",
        "none",
        "any stage",
    ),
    "connected_after": RunMetric(
        "Clients of all populations that were connected when a stage ended.", "", "none", "stage"
    ),
    "took": RunMetric("How long a stage took, with its drain.", "s", "none", "stage"),
}


def check_run_metric(
    name: str, subject: str | None, statistic: str | None, span: str | None
) -> None:
    """Raises UnfitError unless a metric of runs is written with what it needs and no more."""
    metric = RUN_METRICS[name]
    if statistic is not None:
        raise UnfitError(statistic, f"is {name} alone: it is one number")
    if metric.subject == "memory" and subject is None:
        hint = f"for example broker.{name} or host.{name}"
        raise UnfitError(name, f"is SUBJECT.{name}", hint)
    if metric.subject == "none" and subject is not None:
        raise UnfitError(subject, f"is {name} without a subject")
    if metric.span == "stage" and span is None:
        raise UnfitError(name, f"is {name}@STAGE", f"for example {name}@connect")
    if metric.span == "none" and span is not None:
        raise UnfitError(span, f"is {name} without a span")
