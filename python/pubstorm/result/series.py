"""A series of runs as it is stored in `series.json`: the steps with their verdicts, and one table
over all. It runs nothing."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from pubstorm.result.cells import Cell
from pubstorm.result.model import LimitedBy, Status
from pubstorm.result.search import SearchAnswer
from pubstorm.result.summary import MemoryModel, MemoryPoint
from pubstorm.result.tables import Figure, SeriesTable
from pubstorm.value import Value


class SeriesStep(Value):
    """One step of a series."""

    number: int
    """From 1, repeats included."""
    label: str
    """Its values in short, such as `clients 500`, and the variant."""
    base: str = ""
    """The label without the variant."""
    variant: str | None = None
    """Which variant of the scenario it plays; null: there are none."""
    values: dict[str, str]
    """What it changes in the scenario, by path."""
    repetition: int = 1
    """From 1."""
    repetitions: int = 1
    """How often it is played."""
    folder: str
    """Its run directory, in that of the series."""
    command: str
    """What plays this step alone."""
    note: str
    """Free words about it."""
    status: Status | None = None
    """Its verdict; null: it came to no measurement, or has not been played."""
    limited_by: LimitedBy | None = None
    """Who set the limit."""
    evidence: tuple[str, ...] = ()
    """The facts behind its verdict, with the conditions that it missed."""
    problem: str | None = None
    """Why it came to no measurement."""
    unfit: str | None = None
    """What it needs that this host does not have, so that it was not run."""
    duration_s: float = 0.0
    """Duration of its run, or of the runs of its search; 0: it came to no measurement."""
    cells: tuple[Cell, ...] = ()
    """Its row of the table."""
    figures: dict[str, Figure] = Field(default_factory=dict)
    """What the tables over the series show of it, by their words for it."""
    answer: SearchAnswer | None = None
    """What its search found; null: the scenario searches nothing, or it was not played."""
    memory: dict[str, MemoryPoint] = Field(default_factory=dict)
    """Memory of brokers, engines and kernel while the load was steady."""

    @property
    def name(self) -> str:
        """Its label, with the repetition where there are several."""
        if self.repetitions == 1:
            return self.label
        return f"{self.label} ({self.repetition} of {self.repetitions})"

    @property
    def outcome(self) -> str:
        """Its verdict in a word, or why it has none."""
        if self.status is not None:
            return str(self.status)
        if self.unfit is not None:
            return "not run"
        return "no measurement" if self.problem is not None else "not played"


class Series(Value):
    """All steps of a sweep."""

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
    """Folder that the series was written to."""
    started: str
    """Wall-clock start, ISO 8601 with offset."""
    ended: str
    """Wall-clock end of the last step so far."""
    overrides: tuple[str, ...] = ()
    """Settings of the command line, for `--resume`."""
    columns: tuple[str, ...]
    """Headings of the table."""
    steps: tuple[SeriesStep, ...]
    """In the order of playing."""
    complete: bool
    """Whether every step was played or the series stopped as told."""
    interrupted: bool = False
    """Whether the user ended it."""
    stopped: str | None = None
    """Which condition ended it early; with variants, each that was ended."""
    memory: tuple[MemoryModel, ...] = ()
    """Memory by connections over the steps, where a line was fitted."""
    tables: tuple[SeriesTable, ...] = ()
    """The scenario's tables over all steps, with its variants as columns."""
    text: str
    """What the series says: up to where it held, and what broke; of each variant a line."""

    def to_json(self) -> str:
        """The text of `series.json`."""
        return self.model_dump_json(indent=2) + "\n"
