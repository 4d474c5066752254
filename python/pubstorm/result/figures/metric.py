"""A figure of a result: its name, unit, statistics, and how it is read. Statistics are fixed names
and percentiles such as `p95` and `p99.99`."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from pubstorm.quantities import UnfitError, value_text
from pubstorm.result import (
    ClientLoss,
    GroupShare,
    Latency,
    Measured,
    Phase,
    StageResult,
    Statistics,
    Watched,
)
from pubstorm.result.samples import Unit

SpanKind = Literal["stage", "phase"]

NOTHING_MEASURED = "nothing was measured"
ANY_PERCENTILE = "any percentile between p0 and p100 such as .p95 or .p99.99"
LATENCY_STATISTICS = ("mean", "min", "p50", "p90", "p99", "p999", "max")
MONITOR_STATISTICS: Mapping[str, Callable[[Statistics], float | None]] = {
    "mean": lambda span: span.mean,
    "min": lambda span: span.min,
    "max": lambda span: span.max,
    "first": lambda span: span.first,
    "last": lambda span: span.last,
    "increase": lambda span: span.last - span.first,
    "rate": lambda span: span.rate_per_s,
}


@dataclass(frozen=True, slots=True)
class Asked:
    """The parts of an expression."""

    subject: str | None
    """A population or a share of one, a monitor's source or its group; None: all populations."""
    metric: str
    statistic: str | None = None
    span: str | None = None
    """A stage, phase or fault; None: the whole run, for monitors its time under load."""


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


@dataclass(frozen=True)
class Metric(ABC):
    """One figure of the registry."""

    unit: Unit | None
    """None if only the result defines it."""
    meaning: str = ""
    statistics: tuple[str, ...] = ()
    """Statistics of which an expression needs one; empty if the figure is one number."""

    def check(self, asked: Asked) -> None:
        """Raises UnfitError unless an expression has what the figure needs, and no more."""
        check_statistic(asked.metric, asked.statistic, self.statistics)

    @abstractmethod
    def read(self, measured: Measured, asked: Asked) -> Found | Missing:
        """Returns the value of an expression in a result."""


def check_statistic(metric: str, statistic: str | None, allowed: tuple[str, ...]) -> None:
    """Raises UnfitError unless a metric has a statistic."""
    if statistic in allowed or (statistic is None and not allowed):
        return
    has_percentiles = allowed == LATENCY_STATISTICS
    if has_percentiles and statistic is not None and _share(statistic) is not None:
        return
    if not allowed:
        raise UnfitError(statistic, f"is {metric} alone: it is one number")
    found = metric if statistic is None else f"{metric}.{statistic}"
    example = "p99" if "p99" in allowed else allowed[0]
    others = f" and {ANY_PERCENTILE}" if has_percentiles else ""
    words = f"are {metric}.{', .'.join(allowed)}{others}"
    raise UnfitError(found, words, f"for example {metric}.{example}")


def metric_hint(name: str, metrics: Collection[str], shown: Collection[str]) -> str:
    """Returns metrics that a wrong name may mean, or all that there are."""
    close = get_close_matches(name, metrics, n=2, cutoff=0.7)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"there are {', '.join(shown)}"


def number_at(place: object, path: Iterable[str]) -> float | None:
    """Returns a number in a place, by its path; None if nothing was measured."""
    found = place
    for step in path:
        if isinstance(found, Latency | ClientLoss | GroupShare) and not found.count:
            return None
        found = part_of(found, step)
    return float(found) if isinstance(found, int | float) else None


def part_of(place: object, step: str) -> object:
    """Returns a part of a place. Stages and phases are rates; phases keep one latency."""
    if isinstance(place, Latency) and step in place.percentiles:
        return place.percentiles[step]
    return getattr(place, step, place if step in {"rates", "intended"} else None)


def place_of(measured: Measured, span: str | None) -> Measured | StageResult | Phase | None:
    """Returns the run, or its stage or phase of a name; None if that was not played."""
    spans: Iterable[StageResult | Phase] = (*measured.stages, *measured.phases)
    return measured if span is None else next((s for s in spans if s.name == span), None)


def readings(watched: Iterable[Watched], statistic: str, span: str | None) -> list[float]:
    """Returns a statistic of each monitor that has it in a span."""
    found = (span_of(each, span) for each in watched)
    values = (MONITOR_STATISTICS[statistic](each) for each in found if each.count)
    return [value for value in values if value is not None]


def span_of(watched: Watched, span: str | None) -> Statistics:
    """Returns the readings of a monitor in a span; without one, those under load."""
    return watched.load if span is None else watched.spans.get(span, Statistics())


def percentiles_in(text: str) -> dict[str, float]:
    """Returns the shares, by name, of the percentiles that the text of a scenario names anywhere.
    Each step of a series has the whole text."""
    found = {name: _share(name) for name in _PERCENTILES.findall(text)}
    return {name: share for name, share in found.items() if share is not None}


def split_percentile(body: str) -> tuple[str, str] | None:
    """Returns a metric and the percentile at its end; None if there is none."""
    found = _ENDING.fullmatch(body)
    return (found[1], found[2]) if found and _share(found[2]) is not None else None


def _share(name: str) -> float | None:
    """Returns the share of a percentile's name, from 0 to 1; None if the name is not one."""
    found = _PERCENTILE.fullmatch(name)
    return (float(found[1]) / 100 if found else 0.0) or None


_NUMBER = r"\d{1,2}(?:\.\d{1,4})?"
_PERCENTILE = re.compile(rf"p({_NUMBER})", re.ASCII)
_PERCENTILES = re.compile(rf"\.(p{_NUMBER})(?![\w.])", re.ASCII)
_ENDING = re.compile(rf"(.+)\.(p{_NUMBER})", re.ASCII)
