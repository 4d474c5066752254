"""A data sheet as stored in `datasheet.json`: who was measured, every cell of the plan with its
figures, the cells that were left out with the reason, and the drift of the machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from pubstorm.contract import Number, Value
from pubstorm.quantities import NOTHING, value_text
from pubstorm.result.interval import Estimate
from pubstorm.result.machinery import Environment
from pubstorm.result.model import LimitedBy
from pubstorm.result.search import Experiment

Section = Literal[
    "connections",
    "memory",
    "throughput",
    "latency",
    "trouble",
    "soak",
    "features",
    "limits",
]
"""Sections in the order of the sheet, after the identity."""
SECTIONS: dict[Section, str] = {
    "connections": "Connections",
    "memory": "Memory of an object",
    "throughput": "Throughput",
    "latency": "Latency",
    "trouble": "Trouble",
    "soak": "Over hours",
    "features": "Features",
    "limits": "Limits found by trying",
}
"""Their titles."""
Better = Literal["more", "less", ""]
"""Direction in which a figure is better; empty: in none."""
CellState = Literal["measured", "without figures", "left out", "not played"]
MQTT = "MQTT"
"""Protocol of a sheet by default."""
OURS = (LimitedBy.GENERATOR, LimitedBy.HOST)
"""Limits of ours: such a figure is a lower bound of what is under test."""


class SheetFigure(Value):
    """One figure of a cell."""

    name: str
    """Name within its cell, such as `messages a second`."""
    estimate: Estimate | None = None
    """The figure with its interval; null: a word, or nothing."""
    word: str = ""
    """A word in place of a figure, such as a verdict."""
    better: Better = ""
    """Direction in which it is better."""
    limited_by: LimitedBy | None = None
    """Component that set the limit; null: unknown, or none was looked for."""
    r_squared: Number | None = None
    """Share of the scatter that the line of a slope explains; null: it is no slope."""
    remarks: tuple[str, ...] = ()
    """Remarks, such as that this host was the limit, that the figure is extrapolated, or the reason
    why there is none."""

    @property
    def is_ours(self) -> bool:
        """True if this host or the load generator set the limit."""
        return self.limited_by in OURS

    @property
    def is_bound(self) -> bool:
        """True if the figure of what is under test may be better: a limit of ours set it, or more
        was not asked."""
        at_least = self.estimate is not None and self.estimate.bound == "at_least"
        return self.is_ours or at_least

    @property
    def text(self) -> str:
        """The figure as it is shown. A figure that may be better has no interval; the interval of
        others is a share of the value."""
        found = self.estimate
        if found is None:
            return self.word or NOTHING
        shown = value_text(found.value, found.unit)
        if self.is_bound and self.better:
            return f"{'≤' if self.better == 'less' else '≥'} {shown}"
        half = max(found.high - found.value, found.value - found.low)
        if found.bound != "exact" or found.unit == "share" or found.value <= 0 or not half:
            return found.text
        percent = max(100 * half / found.value, 0.1)
        return f"{shown} ± {percent:.{0 if percent >= 9.95 else 1}f} %"


class SheetCell(Value):
    """One cell of the plan."""

    name: str
    """Name of the cell in the plan."""
    section: Section
    """Section that shows it."""
    title: str
    """Description of the load, such as `1:1, QoS 1, 256 B`."""
    state: CellState = "not played"
    """measured; without figures: it was played and found none; left out: for want of time, or since
    this broker cannot have it; not played: the sheet has not come to it."""
    why: str = ""
    """Reason for a state other than measured."""
    load: str = ""
    """Load at which the figures were found."""
    folder: str = ""
    """Its folder, in that of the sheet; empty: it was not played."""
    command: str = ""
    """Command line that plays it alone."""
    took_s: Number = 0.0
    """Time that it took."""
    answer: Number | None = None
    """Answer of its search in the unit that was varied, for cells that use it; null: none."""
    figures: tuple[SheetFigure, ...] = ()
    """Its figures in the order of the plan."""
    evidence: tuple[str, ...] = ()
    """The answer of its search, or the facts of the verdicts of its runs."""
    says: str = ""
    """Its part of the sentence that opens the sheet, with `{}` for the first figure; empty: it has
    none."""

    @property
    def was_played(self) -> bool:
        """True if the cell was played, also if it found nothing."""
        return self.state in ("measured", "without figures")


class Identity(Value):
    """The broker and its terms."""

    broker: str
    """Name of the broker, or its address."""
    version: str = ""
    """Version; empty if it is not known."""
    protocol: str = MQTT
    """Protocol of the clients."""
    words: tuple[str, ...] = ()
    """Meanings of the words of MQTT in another protocol, each in a sentence."""
    recipe: str | None = None
    """Name of the recipe; null: the broker was running."""
    source: str = ""
    """Origin of the program, in the words of the recipe."""
    settings: str = ""
    """The entry of the topology in full, as YAML; empty for a broker that was running."""
    changed: tuple[str, ...] = ()
    """Differences from the maker's defaults."""
    known: tuple[str, ...] = ()
    """Known limits of the broker, in the words of the recipe."""
    cpus: tuple[int, ...] = ()
    """Processors that it may use; empty: all."""
    memory_bytes: int | None = None
    """Memory that it may use; null: all."""
    garbage: bool = False
    """True if its memory contains garbage."""
    environment: Environment | None = None
    """The machine and the programs; null until a cell was played."""

    def named(self, name: str, *, always: bool = False) -> str:
        """Returns a name of the broker with the protocol, if it is not MQTT, or always."""
        return f"{name} ({self.protocol})" if always or self.protocol != MQTT else name


class SheetDrift(Value):
    """The anchor figure over the sheet."""

    figure: str
    """Title of the anchor cell."""
    values: tuple[Estimate, ...]
    """The anchor at begin, middle and end, as far as it was played."""
    spread: Number
    """Largest less smallest value, as a share of the mean."""


class Datasheet(Experiment):
    """One broker, characterised."""

    FORMAT: ClassVar[int] = 1

    format: Literal[1] = 1
    """Version of this format."""
    identity: Identity
    """The broker and its terms."""
    plan: str
    """The plan of the sheet as the command line named it."""
    for_s: Number
    """Time that the sheet was given, in seconds."""
    only: tuple[str, ...] = ()
    """Cells and sections that were asked for; empty: all."""
    skip: tuple[str, ...] = ()
    """Cells and sections that were not wanted."""
    persistent: bool = False
    """True if the broker keeps its state on the disk."""
    soak_s: Number | None = None
    """Length of the soak; null: the plan has none."""
    restart: str = ""
    """The line that restarts a broker that the sheet did not start; empty: none was given."""
    spent_s: Number = 0.0
    """Time that its cells took, in seconds."""
    cells: tuple[SheetCell, ...] = ()
    """Every cell of the plan, in the order of playing."""
    drift: SheetDrift | None = None
    """The anchor figure over the sheet; null: it was measured at most once."""
    remarks: tuple[str, ...] = Field(default=())
    """Remarks on the sheet as a whole, such as a busy host."""

    @property
    def name_of_broker(self) -> str:
        """The broker with its version, and the protocol if it is not MQTT."""
        return self.identity.named(f"{self.identity.broker} {self.identity.version}".strip())

    @property
    def anchored_again(self) -> frozenset[str]:
        """Names of the cells that measured the anchor figure once more."""
        again = () if self.drift is None else self.drift.values[1:]
        firsts = ((cell.name, cell.figures[0].estimate) for cell in self.cells if cell.figures)
        return frozenset(name for name, estimate in firsts if estimate in again)

    @property
    def figures(self) -> Iterator[tuple[SheetCell, SheetFigure]]:
        """Yields every figure with its cell."""
        return ((cell, figure) for cell in self.cells for figure in cell.figures)

    def of(self, section: Section) -> Iterator[SheetCell]:
        """Yields the cells of a section that were played."""
        return (cell for cell in self.cells if cell.section == section and cell.folder)

    @property
    def left_out(self) -> tuple[SheetCell, ...]:
        """The cells that have no figures, for whatever reason."""
        return tuple(cell for cell in self.cells if cell.state != "measured")
