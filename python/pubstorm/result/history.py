"""A history: figures of many runs over time, and the runs since which a figure changed. A
permutation test of ranks finds the change points, and the medians of both sides place them: it
expects no distribution of the values."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import mul
from statistics import median
from typing import Literal

from pubstorm.contract import Number, Probability, Value
from pubstorm.metrics.expressions import Expression, parse_expression
from pubstorm.quantities import Unit
from pubstorm.result.comparison import better_sign
from pubstorm.result.interval import CONFIDENCE

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


class HistoryPoint(Value):
    """A run in a history."""

    run: str
    """Run directory."""
    started: str
    """Wall-clock start in UTC, ISO 8601."""
    value: Number | None
    """The figure, in the unit of the series; null: the run has none."""
    left_out: str = ""
    """Reason why no change point is computed with this run; empty: one is."""


class HistoryChange(Value):
    """A change of level."""

    run: str
    """First run of the new level."""
    started: str
    """Start of that run."""
    before: Number
    """Median of the level before."""
    after: Number
    """Median of the new level."""
    outcome: Literal["better", "worse", "different"]
    """different: the figure has no better direction."""
    unlike: tuple[str, ...] = ()
    """Differences between the runs of both levels, such as the version of Pubstorm."""


class HistorySeries(Value):
    """A figure of all runs of one scenario."""

    scenario: str
    """Name of the scenario."""
    figure: str
    """The figure as a threshold names it, such as `latency.p99`."""
    unit: Unit
    """Unit of the values."""
    points: tuple[HistoryPoint, ...]
    """The runs in the order of time."""
    changes: tuple[HistoryChange, ...] = ()
    """Changes in the order of time."""

    @property
    def counted(self) -> tuple[HistoryPoint, ...]:
        """The runs that change points are computed with."""
        return tuple(point for point in self.points if not point.left_out)

    def levels(self) -> list[tuple[HistoryPoint, ...]]:
        """Returns the counted runs between changes."""
        points = self.counted
        starts = {change.run for change in self.changes}
        edges = [0, *(n for n, point in enumerate(points) if point.run in starts), len(points)]
        pairs = itertools.pairwise(edges)
        return [points[first:end] for first, end in pairs if first < end]


class History(Value):
    """Figures of many runs over time."""

    format: Literal[1] = 1
    """Version of this format."""
    confidence: Probability
    """Probability that no series has a change point, if no level changed."""
    series: tuple[HistorySeries, ...]
    """A series for each scenario and figure."""
    unread: tuple[str, ...] = ()
    """Folders that are no run of this history, each with the reason."""


def history(series: Sequence[HistorySeries], unread: Sequence[str] = ()) -> History:
    """Returns series with their changes. All series together have a change point with a
    probability of 1 - CONFIDENCE at most, if no level changed (Bonferroni)."""
    level = (1 - CONFIDENCE) / max(len(series), 1)
    found = tuple(each.model_copy(update={"changes": changes_of(each, level)}) for each in series)
    return History(confidence=CONFIDENCE, series=found, unread=tuple(unread))


def changes_of(series: HistorySeries, level: float) -> tuple[HistoryChange, ...]:
    """Returns the changes of a series."""
    points = series.counted
    values = [point.value for point in points if point.value is not None]
    assert len(values) == len(points), "a run without a value is left out"
    places = change_points(values, level)
    edges = (0, *places, len(values))
    medians = [median(values[a:b]) for a, b in itertools.pairwise(edges) if a < b]
    return tuple(
        HistoryChange(
            run=points[place].run,
            started=points[place].started,
            before=before,
            after=after,
            outcome=_outcome(parse_expression(series.figure), after - before),
        )
        for place, before, after in zip(places, medians, medians[1:], strict=False)
    )


def _outcome(figure: Expression, rise: float) -> Literal["better", "worse", "different"]:
    sign = better_sign(figure)
    if not sign or not rise:
        return "different"
    return "better" if rise * sign > 0 else "worse"
