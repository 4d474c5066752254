"""Plans of data sheets: the cells that a sheet measures, in the order of their worth. A plan is a
YAML file that comes with Pubstorm, or one of a user. All problems of a file are reported together,
each with its line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationError

from pubstorm.errors import ScenarioError
from pubstorm.metrics.expressions import parse_expression
from pubstorm.quantities import UnfitError, Unit
from pubstorm.result.datasheet import Better, Section
from pubstorm.scenario.base import Part, broken_rules
from pubstorm.scenario.document import Finding
from pubstorm.scenario.fields import Flag, Name, SharePositive, SmallCount, SomeText, Text
from pubstorm.scenario.load import mapping_in, named_file, text_of
from pubstorm.scenario.problems import explain
from pubstorm.scenario.recipes import problems_of

BEST, VERDICT = "search.best", "verdict"
"""Figures that are no metric: the answer of a search, and the verdict of each step of a sweep."""
Need = Literal["started", "tls", "websocket", "persistent"]
"""Properties of a broker that a cell needs: the sheet starts it, or it serves a transport."""


class PlannedFigure(Part):
    """A figure of a cell: a metric of its runs, or a quotient of two."""

    SHORT_FOR: ClassVar[str | None] = "of"

    name: Text = ""
    """Its name in the sheet. Default: the metric."""
    of: SomeText
    """A metric as in thresholds; `search.best`, the answer of the search in the unit of the whole
    load; or `verdict`, of each step of a sweep. In a search, metrics are those of the trials that
    passed with at least 70 % of the answer."""
    per: SomeText | None = None
    """Another metric, which divides it."""
    times: SmallCount = 1
    """Factor of the figure."""
    unit: Unit | None = None
    """Unit of a quotient; `us` of a quotient in seconds. Default: that of `of`."""
    better: Better = ""
    """`more` or `less`, if the figure has a good direction."""

    def rules(self) -> Iterator[Finding]:
        """Yields figures that are none."""
        for key, written in (("of", self.of), ("per", self.per)):
            if written in (None, BEST) or (key == "of" and written == VERDICT):
                continue
            try:
                parse_expression(written)
            except UnfitError as unfit:
                yield (key,), str(unfit), unfit.hint


class PlannedSlope(Part):
    """A line through readings at several numbers of objects: its slope is what an object takes."""

    name: SomeText
    """Its name in the sheet."""
    of: SomeText
    """Metric of a monitor, without its span."""
    at: Mapping[str, int]
    """The stages that hold the load steady, at least four, with the number of objects in each."""
    back: SomeText | None = None
    """The stage after the objects are gone: the sheet says what is given back."""
    many: Text = ""
    """Words such as `1M sessions`, for which the figure is extrapolated."""

    def rules(self) -> Iterator[Finding]:
        """Yields a line through too few numbers."""
        if len(set(self.at.values())) < POINTS_MIN:
            found = f"found {len(set(self.at.values()))} numbers of objects"
            yield ("at",), f"{found}, needed are {POINTS_MIN}", "a line needs points"


POINTS_MIN = 4
"""Numbers of objects from which a line is fitted."""


class PartOfAnswer(Part):
    """A part of the answer of a cell that comes before."""

    of: Name
    """The cell; its scenario has a search."""
    part: SharePositive
    """The part, such as `50%`."""


class PlannedCell(Part):
    """A ready scenario, with what changes it and the figures that it gives."""

    cell: Name
    """Name of the cell."""
    section: Section
    """Section of the sheet that shows it."""
    title: SomeText
    """Description of the load."""
    scenario: Text = ""
    """Name of a ready scenario, or a file, with a `search` or a `sweep`."""
    probe: Literal["", "limits"] = ""
    """Instead of a scenario: `limits` finds limits by trying."""
    values: Mapping[str, Any] = Field(default_factory=dict)
    """Values by the names that the plan has for paths of scenarios."""
    set: Mapping[str, Any] = Field(default_factory=dict)
    """Values by path, as for `--set`."""
    start: PartOfAnswer | None = None
    """First value of the search."""
    load: PartOfAnswer | None = None
    """Rate of the publishers."""
    warm_up: Flag = True
    """The broker warms up first, for as long as its recipe says, if the runs share it."""
    needs: tuple[Need, ...] = ()
    """Properties of the broker without which the cell is left out."""
    by_command: Mapping[str, Any] = Field(default_factory=dict)
    """Faults by path that take the place of those of the scenario where `--restart-command`
    restarts a broker that the sheet did not start. The sheet adds the command."""
    soaks: Text = ""
    """Path of the length that `--soak` sets."""
    figures: tuple[PlannedFigure, ...] = ()
    """Figures of the cell."""
    slope: PlannedSlope | None = None
    """A line through the stages of its run."""
    says: Text = ""
    """Its part of the sentence that opens the sheet, with `{}` for the first figure, such as
    `holds {} messages a second`."""
    anchors: Flag = False
    """The first figure is the anchor once more: its spread is the drift of the machine."""
    is_last: Flag = False
    """The sheet keeps time for it, and plays it last."""

    def rules(self) -> Iterator[Finding]:
        """Yields a cell that plays nothing or two things, or that gives nothing."""
        if bool(self.scenario) == bool(self.probe):
            yield (), f"found the cell {self.cell!r} with none or both of scenario and probe", None
        if self.scenario and not self.figures and self.slope is None:
            yield (), f"found the cell {self.cell!r} without figures and slope", None


class SheetPlan(Part):
    """The cells of a data sheet."""

    description: Text = ""
    """One line about the plan."""
    anchor: Name
    """The cell whose first figure is the anchor."""
    values: Mapping[str, tuple[SomeText, ...]] = Field(default_factory=dict)
    """Names for paths of scenarios, which `values` of the cells use."""
    cells: tuple[PlannedCell, ...]
    """The cells in the order of playing."""

    def rules(self) -> Iterator[Finding]:
        """Yields names that mean no cell or two, and cells that refer to later ones."""
        before: set[str] = set()
        for number, cell in enumerate(self.cells):
            place = ("cells", number)
            if cell.cell in before:
                yield (*place, "cell"), f"found the cell {cell.cell!r} twice", None
            for key, part in (("start", cell.start), ("load", cell.load)):
                if part is not None and part.of not in before:
                    message = f"found {part.of!r}, which is no cell before {cell.cell!r}"
                    yield (*place, key, "of"), message, "a cell uses answers that are known"
            for name in cell.values:
                if name not in self.values:
                    allowed = ", ".join(self.values) or "none"
                    yield (*place, "values", name), f"found {name!r}, allowed are {allowed}", None
            before.add(cell.cell)
        if self.anchor not in before:
            yield ("anchor",), f"found {self.anchor!r}, which is no cell", None

    def overrides(self, cell: PlannedCell) -> dict[str, Any]:
        """Returns the values of a cell by path."""
        named = {path: value for name, value in cell.values.items() for path in self.values[name]}
        return {**named, **cell.set}


def load_plan(path: FilePath) -> SheetPlan:
    """Reads a plan; raises ScenarioError with every problem."""
    return parse_plan(text_of(path, PLAN_HINT), str(path))


def parse_plan(text: str, file: str) -> SheetPlan:
    """Reads a plan from text that came from `file`."""
    document, plan = mapping_in(text, file, SheetPlan, PLAN_HINT), None
    try:
        plan = SheetPlan.model_validate(document.data)
        findings = [*broken_rules(plan)]
    except ValidationError as error:
        findings = explain(error, SheetPlan)
    problems = [*problems_of(document, file, findings)]
    if plan is None or problems:
        raise ScenarioError(problems)
    return plan


def find_plan(name: str) -> FilePath:
    """Returns the file that a user means by a path or by the name of a plan of Pubstorm."""
    return named_file(name, "sheets", "found no plan")


PLAN_HINT = "the folder sheets of Pubstorm has a plan to start from"
