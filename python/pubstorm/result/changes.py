"""Change points of a few values over time: a permutation test of ranks finds them, the medians of
both sides place them. It expects no distribution of the values. Pure arithmetic."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import mul
from statistics import median

RUNS_MIN = 3
"""Values that a level lasts at least: fewer are outliers."""
PERMUTATIONS = 999
"""Random orders that the true order is compared with: the smallest probability is 1/1000."""
ROUNDING = 1e-9
"""Relative error of sums in another order."""


def change_points(values: Sequence[float], level: float) -> list[int]:
    """Returns the places of the first values of new levels, in order.

    Values without a change, in any order equally probable, have a change point with a probability
    of `level` at most. Each part between change points is examined again with the same level.
    """
    places = [*_found(values, 0, level)]
    for n in range(len(places)):  # a first place was found among further levels, which shift it
        start, end = [0, *places][n], [*places, len(values)][n + 1]
        places[n] = start + _place(values[start:end])
    return places


def _found(values: Sequence[float], offset: int, level: float) -> Iterator[int]:
    if len(values) >= 2 * RUNS_MIN and _is_changed(values, level):
        place = _place(values)
        yield from _found(values[:place], offset, level)
        yield offset + place
        yield from _found(values[place:], offset + place, level)


def _is_changed(values: Sequence[float], level: float) -> bool:
    """Returns True if at most the share `level` of random orders has two parts that differ as much
    in their ranks. Ranks, since an outlier weighs as much as any other value."""
    count, ranks = len(values), _ranks(values)
    weights = [1 / math.sqrt(place * (count - place)) for place in _places(values)]
    least = _strongest(ranks, weights) * (1 - ROUNDING)
    chance, allowed = random.Random(0), level * (PERMUTATIONS + 1)
    as_strong = 1
    for _ in range(PERMUTATIONS):
        chance.shuffle(ranks)
        as_strong += _strongest(ranks, weights) >= least
        if as_strong > allowed:
            return False
    return True


def _places(values: Sequence[float]) -> range:
    """Returns the places that divide values into two parts that are long enough."""
    return range(RUNS_MIN, len(values) - RUNS_MIN + 1)


def _ranks(values: Sequence[float]) -> list[float]:
    """Returns ranks less their mean; equal values have the mean of their ranks."""
    ordered = sorted(values)
    first = {value: place for place, value in reversed([*enumerate(ordered)])}
    last = {value: place for place, value in enumerate(ordered)}
    return [(first[value] + last[value] - len(values) + 1) / 2 for value in values]


def _strongest(ranks: Sequence[float], weights: Sequence[float]) -> float:
    """Returns the largest difference of the mean ranks of two parts, in units of its error."""
    sums = [*accumulate(ranks)][RUNS_MIN - 1 : len(ranks) - RUNS_MIN]
    strengths: list[float] = [*map(mul, map(abs, sums), weights)]
    return max(strengths)


def _place(values: Sequence[float]) -> int:
    """Returns the place whose two parts lie closest to their medians."""
    return min(_places(values), key=lambda n: _spread(values[:n]) + _spread(values[n:]))


def _spread(values: Sequence[float]) -> float:
    middle = median(values)
    return math.fsum(abs(value - middle) for value in values)
