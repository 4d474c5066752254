"""All rounds of a case as a row, and the rows as a table.

The table is text on a terminal and Markdown at once, so that `docs/benchmarks.md` can hold it as it
was printed.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from benches.cases import Case, Sample

HEADER = ("case", "load", "unit", "reference", "cost", "engine", "ratio", "target", "")


@dataclass
class Row:
    """All rounds of a case."""

    case: Case
    reference: list[Sample] = field(default_factory=list)
    engine: list[Sample] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """Engine over reference, pair by pair."""
        pairs = zip(self.reference, self.engine, strict=True) if self.reference else ()
        return [engine.cost / reference.cost for reference, engine in pairs]

    @property
    def is_met(self) -> bool:
        """True if the median meets the target."""
        target = self.case.target
        values = self.ratios if target.relative else [sample.cost for sample in self.engine]
        return statistics.median(values) <= target.limit

    @property
    def wrong(self) -> list[str]:
        """Counts that did not agree, in any round."""
        return [text for sample in self.reference + self.engine for text in sample.wrong]

    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        case = self.case
        digits = 0 if case.unit.startswith("bytes") else 2
        return (
            case.name,
            case.load,
            case.unit,
            case.reference_name if self.reference else "–",
            _spread([sample.cost for sample in self.reference], digits),
            _spread([sample.cost for sample in self.engine], digits),
            _spread(self.ratios, 2),
            str(case.target),
            "WRONG" if self.wrong else "met" if self.is_met else "missed",
        )

    def lateness(self) -> str | None:
        """Returns the lateness of the engine; None if no sample has one."""
        values = [s.lateness_us for s in self.engine if s.lateness_us is not None]
        return f"{self.case.name} {statistics.median(values):.0f} µs" if values else None


def lines(rows: Sequence[Row]) -> list[str]:
    """The table, a line for each row after its head."""
    cells = [HEADER, *(row.cells() for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(HEADER))]
    rule = tuple("-" * width for width in widths)
    return [
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))} |"
        for row in (cells[0], rule, *cells[1:])
    ]


def _spread(values: Sequence[float], digits: int) -> str:
    if not values:
        return "–"
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:.{digits}f} ({least:.{digits}f}–{most:.{digits}f})"
