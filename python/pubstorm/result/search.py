"""A search as it is stored in `search.json`: the points that were played, what each is worth, and
the answer. It plays nothing and decides nothing."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from pubstorm.result.cells import Cell, Estimate
from pubstorm.result.model import LimitedBy, Status, ThresholdOutcome
from pubstorm.samples import Unit
from pubstorm.value import Value

PointPhase = Literal["grow", "bisect", "repeat", "most", "confirm"]
"""What a point was played for: to find where it breaks; to come closer; to look for the answer
anew; for the largest figure; to see whether the answer holds."""


class SearchPoint(Value):
    """One playing of the scenario with one value."""

    number: int
    """From 1, in the order of playing."""
    value: float
    """The value that was tried, in the unit of the search."""
    written: str
    """The same as the scenario has it, such as `1000/s`."""
    folder: str
    """Its run directory, in that of the search."""
    phase: PointPhase
    """What it was played for."""
    repetition: int = 1
    """Which repeat of that, from 1."""
    attempt: int = 1
    """From 1; more where the same point was played before and not counted."""
    figure: float | None = None
    """What the figure came to, in its unit; null: there is none, or it was not measured."""
    status: Status | None = None
    """The verdict of its run; null: it came to no measurement."""
    limited_by: LimitedBy | None = None
    """Who set the limit."""
    counted: bool = True
    """Whether it says anything of what is under test."""
    why: str | None = None
    """Why it is not counted."""
    thresholds: tuple[ThresholdOutcome, ...] = ()
    """The conditions, judged."""
    evidence: tuple[str, ...] = ()
    """The first facts behind its verdict."""
    duration_s: float = 0.0
    """How long its run took."""
    cells: tuple[Cell, ...] = ()
    """Its row of the scenario's own table."""

    @property
    def held(self) -> bool:
        """Whether the scenario held at this value."""
        return self.counted and self.status is Status.PASS

    @property
    def broken(self) -> bool:
        """Whether it broke at this value, through what is under test."""
        return self.counted and self.status is Status.FAIL


class SearchAnswer(Value):
    """What the points say."""

    best: Estimate | None = None
    """The largest value at which the scenario holds; null: no value was found that holds."""
    most: Estimate | None = None
    """The largest value of the figure; null: there is no figure, or it was never measured."""
    limited_by: LimitedBy | None = None
    """Who set the limit at the smallest value beyond the answer; none: the bound of the search was
    reached; null: nothing could be counted."""
    confirmed: bool | None = None
    """True if the value of `best` held when it was played again; null: it was not."""
    confirmed_at: float | None = None
    """The value at which it held then, in the unit of the search, with the digits of a trial."""
    best_point: int | None = None
    """Number of the point that shows the scenario at the answer: the one that confirmed it, or the
    largest that held."""
    most_point: int | None = None
    """Number of the point that shows it at the largest figure."""
    points: int = 0
    """How many points were played for it."""
    text: str = ""
    """It in a sentence."""


class SearchResult(Value):
    """The largest value at which a scenario holds, and every point that says so."""

    FORMAT: ClassVar[int] = 2

    format: Literal[2] = 2
    """Version of this format."""
    name: str
    """The scenario's name."""
    scenario: str
    """The scenario as the command line named it."""
    target: str | None = None
    """The target of the command line; null: there was none."""
    run_directory: str
    """Folder that the search was written to."""
    started: str
    """Wall-clock start, ISO 8601 with offset."""
    ended: str
    """Wall-clock end of the last point so far."""
    overrides: tuple[str, ...] = ()
    """Settings of the command line, for `--resume`."""
    vary: str
    """Path of the value that was searched."""
    unit: Unit
    """Unit of the points' values."""
    figure: str | None = None
    """The figure that growth was watched of; null: none."""
    figure_unit: Unit = ""
    """Unit of the points' figures."""
    thresholds: tuple[str, ...] = ()
    """The scenario's conditions that say whether a point holds."""
    defaults: tuple[str, ...] = ()
    """Default conditions beside them."""
    confidence: float = 0.95
    """Of the intervals, from 0 to 1."""
    columns: tuple[str, ...] = ()
    """Headings of the points' cells: those of the scenario's own table that a run can fill."""
    points: tuple[SearchPoint, ...] = ()
    """In the order of playing."""
    answer: SearchAnswer = Field(default_factory=SearchAnswer)
    """What they say so far."""
    complete: bool = False
    """Whether the search came to its end."""
    interrupted: bool = False
    """Whether the user ended it."""

    @property
    def status(self) -> Status:
        """pass: an answer was found and, where it was played again, held; fail: no value held;
        invalid: nothing could be counted."""
        if not any(point.counted for point in self.points):
            return Status.INVALID
        if self.answer.best is None or self.answer.confirmed is False:
            return Status.FAIL
        return Status.PASS

    def to_json(self) -> str:
        """The text of `search.json`."""
        return self.model_dump_json(indent=2) + "\n"
