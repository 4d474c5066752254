"""A figure with its unit and certainty, or the reason why there is none. Stored cells of tables,
which are figures or words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pubstorm.contract.value import Number, Value
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
