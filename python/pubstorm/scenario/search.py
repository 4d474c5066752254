"""Search: the largest value at which a scenario holds, looked for by playing it. The docstrings are
the reference that users read. It says between which values and how, and tries none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from pubstorm.quantities import (
    KINDS,
    Notation,
    UnfitError,
    Unit,
    bits_per_s,
    count,
    duration_ns,
    factor,
    rate_per_s,
    size_bytes,
)
from pubstorm.scenario.base import Part
from pubstorm.scenario.fields import (
    Amount,
    Confidence,
    Duration,
    GrowFactor,
    MetricName,
    Precision,
    Retries,
    SearchRepeat,
    SharePositive,
    Text,
)


class Search(Part):
    """Looks for the largest value at which the scenario passes: grows it until it does not, then
    comes closer from both sides. Each value is played as a run of its own, a trial."""

    vary: Text
    """Path of the value, as for `--set`: `populations.device.publications.0.rate`, or
    `populations.device.clients`. The load must grow with it."""
    from_: Amount = Field(alias="from")
    """The first value. Where not even that holds, it looks down to a thousandth of it."""
    to: Amount
    """Largest value."""
    grow: GrowFactor = 2.0
    """Factor from one value to the next while it grows."""
    figure: MetricName | None = None
    """A metric whose largest value is looked for too, such as `backend.received_per_s`: the search
    grows beyond the first value that fails, until the metric grows no more. Default: none."""
    growth: SharePositive = 0.02
    """By less than that from one value to the next, the figure grows no more."""
    precision: Precision = 0.02
    """Distance between a value that passes and one that fails, as a share of the value."""
    repeat: SearchRepeat = 3
    """Searches of the answer, for its confidence interval."""
    retries: Retries = 2
    """Repetitions of an invalid trial: no measurement, an invalid run, or a failure of the load
    generator or this host."""
    confidence: Confidence = 0.95
    """Of the intervals."""
    broker: Literal["fresh", "same"] = "fresh"
    """`fresh`: each trial has brokers of its own; `same`: all use those started for the first."""
    pause: Duration = 0
    """Wait between two trials."""

    @property
    def span(self) -> SearchSpan:
        """Its values as numbers; raises UnfitError where there is no kind that both are of."""
        return span_of(self.from_, self.to)


@dataclass(frozen=True, slots=True)
class Measure:
    """A kind of numbers: its parser and its unit."""

    parse: Callable[[object], int | float]
    unit: Unit = ""
    """Unit for people."""
    per_unit: float = 1.0
    """Size of that unit in the parser's unit."""

    @property
    def kind(self) -> Notation:
        """The written form of the numbers."""
        return KINDS[self.parse]

    @property
    def is_whole(self) -> bool:
        """True if there are whole numbers only."""
        return self.parse in {count, size_bytes}

    def written(self, number: float) -> str:
        """A number as the scenario has it."""
        if self.is_whole:
            return self.kind.write(number) if self.parse is not count else str(round(number))
        return self.kind.write(number)


@dataclass(frozen=True, slots=True)
class SearchSpan:
    """The values that a search may try, in the unit of their parser."""

    measure: Measure
    low: float
    high: float


def span_of(low: object, high: object) -> SearchSpan:
    """The span from one written value to another; raises UnfitError."""
    for measure in MEASURES:
        try:
            return SearchSpan(measure, float(measure.parse(low)), float(measure.parse(high)))
        except UnfitError:
            continue
    raise UnfitError(high, f"is a quantity of the same kind as from: {low}")


MEASURES = (
    Measure(count),
    Measure(size_bytes, "bytes"),
    Measure(duration_ns, "us", 1000),
    Measure(rate_per_s, "per_s"),
    Measure(bits_per_s, "bytes_per_s", 8),
    Measure(factor),
)
"""Kinds of quantities that can be searched; a share is a factor."""
