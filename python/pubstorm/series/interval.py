"""The mean of a few values with its confidence interval, as an estimate."""

from __future__ import annotations

from collections.abc import Sequence

from pubstorm.result import Estimate
from pubstorm.samples import Unit
from pubstorm.search.student import interval

CONFIDENCE = 0.95
"""Of the intervals of repeats and of figures at points of a search."""


def estimate_of(values: Sequence[float], unit: Unit) -> Estimate:
    """The mean with its interval; of one value the value alone."""
    mean, low, high = interval(values, CONFIDENCE)
    if len(values) == 1:
        return Estimate(value=mean, low=low, high=high, bound="none", unit=unit)
    return Estimate(value=mean, low=low, high=high, repeats=len(values), unit=unit)
