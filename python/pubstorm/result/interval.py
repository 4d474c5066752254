"""A figure with its unit and certainty, or the reason why there is none. The confidence intervals
of a few repeats, of a mean and of the difference of two means, follow from Student's t
distribution."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from statistics import fmean, stdev
from typing import Literal

from pubstorm.contract import Number, Value
from pubstorm.quantities import NOTHING, SLOPES, Unit, value_text

NOTHING_MEASURED = "nothing was measured"
Bound = Literal["exact", "at_least", "none"]


@dataclass(frozen=True, slots=True)
class Found:
    """The value of an expression."""

    value: float
    """Value in the unit."""
    unit: Unit
    """Shares are from 0 to 1."""
    bound: float = 0.0
    """Largest error of the value, since clocks of several hosts made it; of a slope, half the width
    of its confidence interval."""

    @property
    def is_slope(self) -> bool:
        """True for a slope over time."""
        return self.unit in SLOPES.values()

    @property
    def ends(self) -> tuple[float, float]:
        """The smallest and the largest value within the bound. Only slopes are below zero."""
        low = self.value - self.bound
        return low if self.is_slope else max(low, 0.0), self.value + self.bound

    def __str__(self) -> str:
        shown = value_text(self.value, self.unit)
        return f"{shown} ± {value_text(self.bound, self.unit)}" if self.bound else shown


@dataclass(frozen=True, slots=True)
class Missing:
    """Reason why an expression has no value."""

    reason: str
    word: str = ""
    """The reason as a cell of a table shows it; empty for none."""


class Estimate(Value):
    """The answer of a search, with its certainty."""

    value: Number
    """Value in the unit; the mean of several repeats."""
    low: Number
    """Lower end of the interval: of the confidence interval, or what held, where it was looked for
    once."""
    high: Number
    """Upper end: of the confidence interval, or the smallest value that broke."""
    repeats: int = 1
    """Number of searches."""
    bound: Bound = "exact"
    """at_least: more could not be asked of this machine, or was not wanted; none: looked for once,
    or the answer did not pass again: `low` and `high` are no confidence interval."""
    unit: Unit = ""
    """Unit of all three values."""

    def times(self, factor: float) -> Estimate:
        """Returns the estimate of a multiple."""
        ends = {name: factor * getattr(self, name) for name in ("value", "low", "high")}
        return self.model_copy(update=ends)

    @property
    def text(self) -> str:
        """The estimate in short: 12 300/s ± 150/s, 12 300/s … 12 500/s, ≥ 40 000/s."""
        shown = value_text(self.value, self.unit)
        if self.bound == "at_least":
            return f"≥ {shown}"
        if self.bound == "none":
            high = value_text(self.high, self.unit)
            return shown if high == shown else f"{shown} … {high}"
        half = max(self.high - self.value, self.value - self.low)
        return f"{shown} ± {value_text(half, self.unit)}" if half else shown


class Cell(Value):
    """One cell of a scenario's own table."""

    value: Number | None = None
    """The figure; null: a word, or nothing was measured."""
    unit: Unit = ""
    """Unit of the figure."""
    bound: Number = 0.0
    """The figure is off by this much at most, since clocks of several hosts made it."""
    estimate: Estimate | None = None
    """The figure with its interval, where a search or repeats found it."""
    word: str = ""
    """A word in place of a figure, such as a verdict."""

    @classmethod
    def of(cls, estimate: Estimate | None, word: str = "") -> Cell:
        """A cell of an estimate, or of a word where there is none."""
        if estimate is None:
            return cls(word=word)
        return cls(value=estimate.value, unit=estimate.unit, estimate=estimate)

    @classmethod
    def found(cls, found: Found | Missing) -> Cell:
        """A cell of the value of an expression, or of the word of the reason for none."""
        if isinstance(found, Missing):
            return cls(word=found.word)
        return cls(value=found.value, unit=found.unit, bound=found.bound)

    @property
    def text(self) -> str:
        """The cell as it is shown."""
        if self.estimate is not None:
            return self.estimate.text
        if self.value is None:
            return self.word or NOTHING
        return str(Found(self.value, self.unit, self.bound))

    @property
    def is_empty(self) -> bool:
        """True if the cell is empty."""
        return self.value is None and not self.word


def are_figures(cells: Sequence[Cell]) -> bool:
    """Returns True if a column is set flush right: it has figures, and no word."""
    said = [cell for cell in cells if not cell.is_empty]
    return bool(said) and all(cell.value is not None for cell in said)


def interval(
    values: Sequence[float], confidence: float, hidden: float = 0.0
) -> tuple[float, float, float]:
    """The mean of repeats with the lower and upper end of its confidence interval; of a single
    one that value, three times. `hidden` is the variance that the precision of a value hides."""
    mean = fmean(values)
    if len(values) < 2:
        return mean, mean, mean
    error = math.sqrt((stdev(values) ** 2 + hidden) / len(values))
    half = t_quantile(confidence, len(values) - 1) * error
    return mean, mean - half, mean + half


def t_quantile(confidence: float, degrees: float) -> float:
    """The t that a value of Student's distribution with some degrees of freedom, of at least 1,
    exceeds in one direction or the other with a probability of 1 - confidence, which is below 1.
    Between whole degrees it is interpolated over their inverse, and never too small."""
    below = math.floor(degrees + ROUNDING) if math.isfinite(degrees) else DEGREES_MAX
    below = min(below, DEGREES_MAX)
    lower = _t_quantile(confidence, below)
    if degrees - below <= ROUNDING or below == DEGREES_MAX:
        return lower
    share = (1 / below - 1 / degrees) / (1 / below - 1 / (below + 1))
    return lower + share * (_t_quantile(confidence, below + 1) - lower)


@lru_cache(maxsize=1024)
def _t_quantile(confidence: float, degrees: int) -> float:
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


ROUNDING = 1e-9
"""Error of degrees of freedom that are whole."""
DEGREES_MAX = 200
"""Degrees of freedom above which the normal distribution is as good."""
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


POWER = 0.8
"""Probability with which a difference of the size `Difference.smallest` is found."""
REPEATS_MAX = 1000
"""Repeats of a side above which none are proposed."""
MIXED_MAX = 0.2
"""Share of the spread of the order of play that the sides may explain. Above it, a drift and a
difference of the sides look alike."""


@dataclass(frozen=True, slots=True)
class Repeats:
    """The values of one side."""

    values: Sequence[float]
    turns: Sequence[float] = ()
    """Place of each in the order of play of both sides; empty: not known."""
    least: float = 0.0
    """Smallest variance of a value: its own error, as far as that is known."""
    hidden: float = 0.0
    """Variance that rounding hides."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of two means, the second less the first, with its confidence interval."""

    value: float
    low: float
    high: float
    smallest: float
    """Smallest difference that repeats with this spread show with a probability of POWER."""
    error: float = 0.0
    """Standard error of the difference."""
    degrees: float = math.inf
    """Degrees of freedom of the error."""

    @property
    def is_shown(self) -> bool:
        """True if the interval excludes zero."""
        return self.low > 0 or self.high < 0

    def repeats(self, target: float, confidence: float, repeats: int) -> int | None:
        """Returns the repeats of a side with which the interval is probably (POWER) shorter than
        `target` on each side, if they spread as the present ones do; None if these are more than
        REPEATS_MAX."""
        if target <= 0 or not self._decides(target, confidence, REPEATS_MAX / repeats):
            return None
        low, high = repeats, REPEATS_MAX
        while high - low > 1:
            middle = (low + high) // 2
            is_enough = self._decides(target, confidence, middle / repeats)
            low, high = (low, middle) if is_enough else (middle, high)
        return high

    def _decides(self, target: float, confidence: float, times: float) -> bool:
        """Returns True if a multiple of the repeats makes the interval short enough."""
        degrees = self.degrees * times
        factor = t_quantile(confidence, degrees) + t_quantile(2 * POWER - 1, degrees)
        return factor * self.error <= target * math.sqrt(times)


def difference(first: Repeats, second: Repeats, confidence: float) -> Difference:
    """Returns the difference of two sides of at least two repeats each, by Welch's method: Welch,
    Biometrika 34 (1947). Where the sides were played in turn, a drift that is linear in the order
    of play is taken out of both, which costs a degree of freedom."""
    drift = _drift(first, second)
    means = [fmean(each.values) for each in (first, second)]
    value = means[1] - means[0] - drift.shift
    sides = (first, second)
    parts = [
        (squares / degrees + side.hidden) / len(side.values)
        for side, squares, degrees in zip(sides, drift.squares, drift.degrees, strict=True)
    ]
    least = math.fsum((side.least + side.hidden) / len(side.values) for side in sides)
    if math.fsum(parts) < least:
        parts = [least / 2] * 2
    return of_parts(value, parts, drift.degrees, confidence, drift.inflation)


def of_parts(
    value: float,
    parts: Sequence[float],
    degrees: Sequence[float],
    confidence: float,
    inflation: float = 1.0,
) -> Difference:
    """Returns a difference with the squared errors of both means and their degrees of freedom."""
    squared = math.fsum(parts)
    if not squared:
        return Difference(value, value, value, 0.0)
    weight = math.fsum((part / squared) ** 2 / n for part, n in zip(parts, degrees, strict=True))
    together, error = max(1 / weight, 1.0), math.sqrt(squared * inflation)
    half = t_quantile(confidence, together) * error
    smallest = half + t_quantile(2 * POWER - 1, together) * error
    return Difference(value, value - half, value + half, smallest, error, together)


@dataclass(frozen=True, slots=True)
class _Drift:
    """The spread of two sides without their common drift."""

    squares: tuple[float, float]
    """Sum of the squared deviations of each side."""
    degrees: tuple[float, float]
    """Degrees of freedom of each side: the drift takes half of one from both."""
    shift: float = 0.0
    """Difference of the means that the drift makes."""
    inflation: float = 1.0
    """Factor of the squared error, since the sides are not exactly balanced in time."""


def _drift(first: Repeats, second: Repeats) -> _Drift:
    """Returns the least squares of two levels with a common slope over the order of play; without
    the slope if the order is not known, or does not mix the sides."""
    sides = (first, second)
    deviations = [_deviations(side.values) for side in sides]
    turns = [_deviations(side.turns) for side in sides]
    counts = [len(side.values) for side in sides]
    plain = _Drift(_squares(deviations), (counts[0] - 1.0, counts[1] - 1.0))
    if not all(turns) or min(counts) < RUNS_OF_DRIFT:
        return plain
    within = math.fsum(x * x for each in turns for x in each)
    apart = fmean(second.turns) - fmean(first.turns)
    between = apart * apart * counts[0] * counts[1] / sum(counts)
    if between > MIXED_MAX * (within + between):
        return plain
    pairs = [zip(x, y, strict=True) for x, y in zip(turns, deviations, strict=True)]
    slope = math.fsum(x * y for each in pairs for x, y in each) / within
    rest = [
        [y - slope * x for x, y in zip(*each, strict=True)]
        for each in zip(turns, deviations, strict=True)
    ]
    degrees = (counts[0] - 1.5, counts[1] - 1.5)
    inflation = 1 + apart * apart / within / math.fsum(1 / count for count in counts)
    return _Drift(_squares(rest), degrees, slope * apart, inflation)


RUNS_OF_DRIFT = 3
"""Repeats of each side from which a drift is taken out."""


def _deviations(values: Sequence[float]) -> list[float]:
    mean = fmean(values) if values else 0.0
    return [value - mean for value in values]


def _squares(groups: Sequence[Sequence[float]]) -> tuple[float, float]:
    first, second = (math.fsum(value * value for value in group) for group in groups)
    return first, second


SLOPE_MIN_S = 3600.0
"""Shortest time for which a slope is computed: what a start takes is over then."""
BLOCKS = 48
"""Parts of equal length into which that time is cut. Their means hardly depend on each other."""
BLOCKS_MIN = 24
"""Parts with readings that a slope needs."""
INDEPENDENT_MIN = 6.0
"""Independent means that a slope needs: fewer are those of readings that wander."""
SLOPE_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Slope:
    """The slope of a line through readings, with half the width of its confidence interval."""

    per_h: float
    bound_per_h: float

    def fields(self) -> dict[str, float]:
        """Returns the fields of statistics."""
        per_h, bound_per_h = (float(f"{each:.6g}") for each in (self.per_h, self.bound_per_h))
        return {"slope_per_h": per_h, "slope_bound_per_h": bound_per_h}


def slope(readings: Iterable[tuple[float, float, int]]) -> Slope | None:
    """Returns the slope of readings over time: `(instant in seconds, mean, number of readings)`, in
    the order of time. Least squares on the means of blocks. The number of independent means follows
    from the correlation of neighbours, without its bias in a short series. None if too little was
    measured, or if readings depend too much on those before them."""
    found = list(readings)
    length_s = found[-1][0] - found[0][0] if found else 0.0
    if length_s < SLOPE_MIN_S:
        return None
    blocks = [(0.0, 0.0, 0)] * BLOCKS
    for at_s, mean, count in found:
        place = min(int((at_s - found[0][0]) / length_s * BLOCKS), BLOCKS - 1)
        time, total, number = blocks[place]
        blocks[place] = time + at_s * count, total + mean * count, number + count
    means = [(time / n, total / n) if n else None for time, total, n in blocks]
    known = [mean for mean in means if mean is not None]
    if len(known) < BLOCKS_MIN:
        return None
    mean_s, middle = fmean(at_s for at_s, _ in known), fmean(value for _, value in known)
    spread = math.fsum((at_s - mean_s) ** 2 for at_s, _ in known)
    per_s = math.fsum((at_s - mean_s) * (value - middle) for at_s, value in known) / spread
    rests = [m and m[1] - middle - per_s * (m[0] - mean_s) for m in means]
    squares = math.fsum(rest**2 for rest in rests if rest is not None)
    if squares <= (ROUNDING * abs(middle)) ** 2 * len(known):
        return Slope(3600 * per_s, 0.0)
    pairs = [(a, b) for a, b in pairwise(rests) if a is not None and b is not None]
    count = len(known)
    raw = math.fsum(a * b for a, b in pairs) / squares * count / max(len(pairs), 1)
    correlation = min(max(raw + (1 + 4 * max(raw, 0.0)) / count, 0.0), 0.99)
    independent = count * (1 - correlation) / (1 + correlation)
    if independent < INDEPENDENT_MIN:
        return None
    error = math.sqrt(squares / (independent - 2) / spread)
    return Slope(3600 * per_s, 3600 * error * t_quantile(SLOPE_CONFIDENCE, independent - 2))
