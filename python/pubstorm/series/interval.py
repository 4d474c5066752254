"""The mean of a few values and its confidence interval, by Student's t distribution."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import fmean, stdev

from pubstorm.result import Estimate
from pubstorm.samples import Unit

STUDENT_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Quantiles t(0.975) for 1, 2, 3 … degrees of freedom: NIST/SEMATECH Engineering Statistics
Handbook, section 1.3.6.7.2. Beyond them the last, which is a little too wide."""


def estimate_of(values: Sequence[float], unit: Unit) -> Estimate:
    """The mean with its interval at 95 %; of one value the value alone."""
    mean, count = fmean(values), len(values)
    if count == 1:
        return Estimate(value=mean, low=mean, high=mean, bound="none", unit=unit)
    student = STUDENT_95[min(count - 1, len(STUDENT_95)) - 1]
    half = student * stdev(values) / sqrt(count)
    return Estimate(value=mean, low=mean - half, high=mean + half, repeats=count, unit=unit)
