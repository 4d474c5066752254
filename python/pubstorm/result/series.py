"""A series as stored in `series.json`: its steps with their verdicts, and the tables over them."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from pubstorm.contract.value import Value
from pubstorm.result.cells import Cell, Estimate
from pubstorm.result.model import LimitedBy, Status
from pubstorm.result.search import Experiment, ExperimentRow, SearchAnswer
from pubstorm.result.summary import MemoryModel, MemoryPoint

NOT_PASSED = {
    "fail": "failed",
    "open": "not found",
    "invalid": "invalid",
    "no measurement": "without a measurement",
}
"""Outcomes of steps that did not pass, in words."""
RANKED = (Status.FAIL, Status.INVALID, Status.OPEN, Status.PASS)
"""The worst outcome first."""


class StepFigure(Value):
    """Cell of one step in a table over the series."""

    estimate: Estimate | None = None
    """The figure; null: a word, or nothing."""
    word: str = ""
    """A word in place of a figure, such as a verdict."""
    limited_by: LimitedBy | None = None
    """Component that set the limit of the figure."""
    remark: str | None = None
    """Remark on the figure, or the reason why there is none."""


class SeriesCell(Cell):
    """One cell of such a table."""

    remarks: tuple[str, ...] = ()
    """Remarks in the notes of the table, such as that this host was the limit."""


class SeriesTable(Value):
    """A table over a series."""

    title: str
    columns: tuple[str, ...]
    """Headings."""
    rows: tuple[tuple[SeriesCell, ...], ...]
    """One for each step without its variants."""


class SeriesStep(ExperimentRow):
    """One step of a series. Each repetition has a number of its own."""

    label: str
    """Values in short, such as `clients 500`, and the variant."""
    base: str = ""
    """The label without the variant."""
    variant: str | None = None
    """Variant of the scenario; null without variants."""
    values: dict[str, str]
    """Values that the step sets in the scenario, by path."""
    repetitions: int = 1
    """Number of repetitions."""
    command: str
    """Command line that plays this step alone."""
    note: str
    """Free words about it."""
    problem: str | None = None
    """Reason why there is no measurement."""
    unfit: str | None = None
    """Resources that this host lacks, if the step was not run for that reason."""
    figures: dict[str, StepFigure] = Field(default_factory=dict)
    """Cells in the tables over the series, by the figures of the columns."""
    answer: SearchAnswer | None = None
    """Answer of its search; null: there is no search, or the step was not played."""
    memory: dict[str, MemoryPoint] = Field(default_factory=dict)
    """Memory of brokers, agents and kernel while the load was steady."""

    @property
    def name(self) -> str:
        """The label, with the repetition if there are several."""
        if self.repetitions == 1:
            return self.label
        return f"{self.label} ({self.repetition} of {self.repetitions})"

    @property
    def was_played(self) -> bool:
        """True if the step has a verdict, or came to no measurement."""
        return self.status is not None or self.problem is not None

    @property
    def outcome(self) -> str:
        """The verdict in a word, or the reason why there is none."""
        if self.was_played:
            return super().outcome
        return "not played" if self.unfit is None else "not run"


class Series(Experiment):
    """All steps of a sweep."""

    FORMAT: ClassVar[int] = 3

    format: Literal[3] = 3
    """Version of this format."""
    columns: tuple[str, ...]
    """Headings of the table."""
    steps: tuple[SeriesStep, ...]
    """Steps in the order of playing."""
    stopped: str | None = None
    """Condition that ended it early; with variants, each that was ended."""
    memory: tuple[MemoryModel, ...] = ()
    """Memory by connections over the steps, where a line was fitted."""
    tables: tuple[SeriesTable, ...] = ()
    """The scenario's tables over all steps, with its variants as columns."""
    text: str
    """The conclusion: the last step that passed, the first that failed; a line for each variant."""
