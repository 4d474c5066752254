"""A comparison as stored in `comparison.json`: two sides with their runs, and the difference of
each figure with its interval."""

from __future__ import annotations

from typing import ClassVar, Literal

from pubstorm.contract import Number, Probability, Value
from pubstorm.quantities import Unit
from pubstorm.result.model import Status

Outcome = Literal["better", "worse", "different", "equal", "no difference detectable", "not known"]
"""different: the figure has no better direction; equal: every run has the same value; not known:
too few runs have the figure."""


class Side(Value):
    """One of the two things that are compared."""

    name: str
    """Name in reports."""
    runs: tuple[str, ...]
    """Run directories in the order of playing, those left out among them."""
    left_out: tuple[str, ...] = ()
    """Runs that are not compared, each with the reason."""


class ComparedFigure(Value):
    """A figure of both sides."""

    figure: str
    """The figure as a threshold names it, such as `latency.p99`."""
    step: str = ""
    """Step of series; empty: runs or searches are compared as a whole."""
    unit: Unit
    """Unit of its values."""
    baseline: tuple[Number, ...]
    """Value of each run of the baseline that has one."""
    candidate: tuple[Number, ...]
    """Value of each run of the candidate that has one."""
    relative: bool = False
    """True if `difference`, `low`, `high` and `smallest` are shares of the baseline, from geometric
    means; false: they are in the unit, from arithmetic means."""
    means: tuple[Number | None, Number | None] = (None, None)
    """Mean of the baseline and of the candidate, in the unit."""
    difference: Number | None = None
    """Candidate less baseline; null: too few runs."""
    low: Number | None = None
    """Lower end of the confidence interval of the difference."""
    high: Number | None = None
    """Upper end of the interval."""
    smallest: Number | None = None
    """Smallest difference that these runs would have shown with a probability of 80 %."""
    error: Number | None = None
    """Standard error of the difference, of its logarithm if it is relative; null: none is known."""
    degrees: Number | None = None
    """Degrees of freedom of the error."""
    repeats: int | None = None
    """Repeats of each side that would show a difference of the size found, with a probability of
    80 %; null: it is shown, or more than 1000 would be needed."""
    pairs: int = 0
    """Pairs of runs, one of each side."""
    pairs_higher: int = 0
    """Pairs of which the candidate has the higher value."""
    outcome: Outcome
    """Result of the interval."""
    note: str = ""
    """Reason why there is no difference; empty if there is one."""

    @property
    def name(self) -> str:
        """The figure with its step."""
        return f"{self.figure} ({self.step})" if self.step else self.figure


class ComparedCondition(Value):
    """A condition of `--fail-if`, evaluated."""

    expression: str
    """The condition as written."""
    status: Status
    """fail: it is so; pass: the interval excludes it; invalid: the interval decides neither."""
    text: str
    """The difference found, in words."""


class Comparison(Value):
    """Two sides, and the differences of their figures."""

    FORMAT: ClassVar[int] = 1

    format: Literal[1] = 1
    """Version of this format."""
    baseline: Side
    """The side that the other one is measured by."""
    candidate: Side
    """The side that may be better or worse."""
    run_directory: str = ""
    """Folder of the comparison; empty: it is not stored."""
    started: str
    """Wall-clock start, ISO 8601 with offset."""
    confidence: Probability
    """Confidence with which all intervals together hold, from 0 to 1."""
    unlike: tuple[str, ...] = ()
    """Further differences between the sides, such as the host."""
    figures: tuple[ComparedFigure, ...]
    """Figures in the order asked for."""
    conditions: tuple[ComparedCondition, ...] = ()
    """Conditions of `--fail-if`."""
    interrupted: bool = False
    """True if the user ended the runs early."""
    text: str
    """The outcome in one sentence."""

    @property
    def status(self) -> Status | None:
        """The worst outcome of the conditions; None without conditions."""
        order = (Status.FAIL, Status.INVALID, Status.PASS)
        found = {condition.status for condition in self.conditions}
        return next((status for status in order if status in found), None)

    def to_json(self) -> str:
        """Returns the text of the stored file."""
        return self.model_dump_json(indent=2) + "\n"
