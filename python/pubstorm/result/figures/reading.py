"""The value of an expression in a result, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pubstorm.metrics.metric import LEAST_IS_WORST, Metric
from pubstorm.quantities import Unit, value_text
from pubstorm.result import (
    ClientLoss,
    GroupShare,
    Latency,
    Measured,
    Phase,
    StageResult,
)

NOTHING_MEASURED = "nothing was measured"


@dataclass(frozen=True, slots=True)
class Found:
    """The value of an expression."""

    value: float
    """Value in the unit."""
    unit: Unit
    """Shares are from 0 to 1."""
    bound: float = 0.0
    """Largest error of the value, since clocks of several hosts made it."""

    def __str__(self) -> str:
        shown = value_text(self.value, self.unit)
        return f"{shown} ± {value_text(self.bound, self.unit)}" if self.bound else shown


@dataclass(frozen=True, slots=True)
class Missing:
    """Reason why an expression has no value."""

    reason: str
    word: str = ""
    """The reason as a cell of a table shows it; empty for none."""


def number_at(place: object, path: Iterable[str]) -> float | None:
    """Returns a number in a place, by its path; None if nothing was measured."""
    found = place
    for step in path:
        if isinstance(found, Latency | ClientLoss | GroupShare) and not found.count:
            return None
        found = part_of(found, step)
    return float(found) if isinstance(found, int | float) else None


def together(metric: Metric, places: Iterable[object], statistic: str = "") -> float | None:
    """Returns a figure of several places, such as populations: the sum, or the worst; None if
    nothing was measured."""
    path = (*metric.path, *filter(None, (statistic,)))
    return joined(metric, (number_at(place, path) for place in places), statistic)


def joined(metric: Metric, found: Iterable[float | None], statistic: str) -> float | None:
    """Returns the figures of several places as one; None if there is none."""
    values = [value for value in found if value is not None]
    if not values:
        return None
    worst = min if statistic in LEAST_IS_WORST else max
    return sum(values) if metric.over_all == "sum" else worst(values)


def part_of(place: object, step: str) -> object:
    """Returns a part of a place. Stages and phases are rates; phases keep one latency."""
    if isinstance(place, Latency) and step in place.percentiles:
        return place.percentiles[step]
    return getattr(place, step, place if step in {"rates", "intended"} else None)


def place_of(measured: Measured, span: str | None) -> Measured | StageResult | Phase | None:
    """Returns the run, or its stage or phase of a name; None if that was not played."""
    spans: Iterable[StageResult | Phase] = (*measured.stages, *measured.phases)
    return measured if span is None else next((s for s in spans if s.name == span), None)
