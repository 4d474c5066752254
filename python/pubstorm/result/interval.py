"""Confidence intervals of a few repeats, by Student's t distribution: of a mean, and of the
difference of two means. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from pubstorm.quantities import Unit
from pubstorm.result.cells import Estimate


def interval(values: Sequence[float], confidence: float) -> tuple[float, float, float]:
    """The mean of repeats with the lower and upper end of its confidence interval; of a single
    one that value, three times."""
    mean = fmean(values)
    if len(values) < 2:
        return mean, mean, mean
    half = t_quantile(confidence, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def t_quantile(confidence: float, degrees: int) -> float:
    """The t that a value of Student's distribution with so many degrees of freedom exceeds, in one
    direction or the other, with a probability of 1 - confidence; confidence is below 1."""
    low, high = 0.0, 1.0
    while two_sided(high, degrees) < confidence:
        low, high = high, 2 * high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided(middle, degrees) < confidence else (low, middle)
    return high


def two_sided(t: float, degrees: int) -> float:
    """The probability that a value lies between -t and t: the finite sums of Abramowitz and Stegun,
    Handbook of Mathematical Functions, 26.7.3 for odd and 26.7.4 for even degrees of freedom."""
    angle = math.atan2(t, math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = degrees % 2 == 1
    term = cosine if is_odd else 1.0
    total = term if degrees > 1 else 0.0
    for n in range(2 if is_odd else 1, degrees - 1, 2):
        term *= cosine**2 * n / (n + 1)
        total += term
    return 2 / math.pi * (angle + sine * total) if is_odd else sine * total


HALVINGS = 60
"""Halvings from a span of at most half the quantile to the last digit of a float."""


CONFIDENCE = 0.95
"""Confidence of the intervals of repeats, and of figures at trials of a search."""


def estimate_of(values: Sequence[float], unit: Unit) -> Estimate:
    """The mean with its interval; of one value the value alone."""
    mean, low, high = interval(values, CONFIDENCE)
    if len(values) == 1:
        return Estimate(value=mean, low=low, high=high, bound="none", unit=unit)
    return Estimate(value=mean, low=low, high=high, repeats=len(values), unit=unit)


ROUNDING = 1e-9
"""Error of degrees of freedom that are whole."""
POWER = 0.8
"""Probability with which a difference of the size `Difference.smallest` is found."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of two means, the second less the first, with its confidence interval."""

    value: float
    low: float
    high: float
    smallest: float
    """Smallest difference that repeats with this spread show with a probability of POWER."""

    @property
    def is_shown(self) -> bool:
        """True if the interval excludes zero."""
        return self.low > 0 or self.high < 0


def difference(
    first: Sequence[float], second: Sequence[float], confidence: float, step: float = 0.0
) -> Difference:
    """Returns the difference of two groups of at least two repeats each, by Welch's method: Welch,
    Biometrika 34 (1947), with degrees of freedom rounded down.

    `step` is the distance of neighbouring values, if they are rounded: equal values then have the
    deviation that rounding hides.
    """
    parts = [(stdev(group) ** 2 + step**2 / 12) / len(group) for group in (first, second)]
    value, squared = fmean(second) - fmean(first), math.fsum(parts)
    if not squared:
        return Difference(value, value, value, 0.0)
    counts = (len(first), len(second))
    weight = math.fsum(
        (part / squared) ** 2 / (n - 1) for part, n in zip(parts, counts, strict=True)
    )
    degrees = math.floor(1 / weight + ROUNDING)
    error = math.sqrt(squared)
    half = t_quantile(confidence, degrees) * error
    smallest = half + t_quantile(2 * POWER - 1, degrees) * error
    return Difference(value, value - half, value + half, smallest)
