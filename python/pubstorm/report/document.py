"""A report before it is rendered: verdict, facts, tables with typed cells, plots and evidence.
Runs, series and searches each have one builder; every format has one renderer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from pubstorm.quantities import (
    NOTHING,
    bytes_text,
    count_text,
    duration_text,
    rate_text,
    share_text,
    span_text,
)
from pubstorm.report.plot import Part, Plot
from pubstorm.result import LimitedBy, SeriesCell, Status, ThresholdOutcome, Verdict

BOUND = "±"
"""Heading of the largest error of latencies that clocks of several hosts made."""
BOUND_NOTE = "±: the times are off by this much at most, since clocks of several hosts made them."

KEY_FIGURES_MAX = 6
"""Key figures that stand beside the headline."""

Unit = Literal[
    "word", "bar", "count", "rate", "signed rate", "us", "s", "share", "bytes", "bytes_per_s"
]
"""Unit of the numbers of a column; `word` for a column of words, `bar` for characters of one
width."""
MARKS = "¹²³⁴⁵⁶⁷⁸⁹"
"""Marks of remarks in their order; beyond them the number in brackets."""


class HasUnit(Protocol):
    """A figure that has a unit of its own."""

    @property
    def text(self) -> str:
        """The figure as it is shown."""
        ...


Value = HasUnit | float | str | None
"""A cell: a figure, a number in the unit of its column, a word, or nothing."""


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    unit: Unit = "count"

    @property
    def right(self) -> bool:
        """True if the cells are numbers, set flush right."""
        return self.unit not in ("word", "bar")

    @property
    def style(self) -> str:
        """Class of the cells on the page; empty for words."""
        return "number" if self.right else self.unit.replace("word", "")

    def text(self, value: Value) -> str:
        """Returns a cell as it is shown."""
        if value is None:
            return NOTHING
        if isinstance(value, int | float):
            return _WRITERS[self.unit](value)
        return value if isinstance(value, str) else value.text


@dataclass(frozen=True)
class Shown:
    """A text in a column of numbers."""

    text: str


def columns(unit: Unit, *names: str) -> tuple[Column, ...]:
    """Returns columns of one unit."""
    return tuple(Column(name, unit) for name in names)


@dataclass(frozen=True)
class Table:
    """A table."""

    title: str
    columns: tuple[Column, ...]
    rows: Sequence[tuple[Value, ...]]
    note: str = ""
    """Text below the table; the remarks of its cells follow."""
    links: tuple[str, ...] = ()
    """Part of the page that each row links to; empty for none."""
    part: Part = "details"
    """Section of the page that has the table."""

    @property
    def texts(self) -> tuple[tuple[str, ...], ...]:
        """The rows as they are shown."""
        marks = self._marks
        return tuple(
            tuple(
                " ".join(
                    [column.text(value), *(["".join(marks[r] for r in found)] if found else [])]
                )
                for column, value in zip(self.columns, row, strict=True)
                for found in [_remarks(value)]
            )
            for row in self.rows
        )

    @property
    def notes(self) -> str:
        """The note and the remarks of the cells, each with its mark."""
        remarks = "; ".join(f"{mark} {remark}" for remark, mark in self._marks.items())
        return " ".join(filter(None, (self.note, remarks)))

    @property
    def _marks(self) -> dict[str, str]:
        found = dict.fromkeys(
            remark for row in self.rows for cell in row for remark in _remarks(cell)
        )
        return {
            remark: MARKS[n] if n < len(MARKS) else f"[{n + 1}]" for n, remark in enumerate(found)
        }

    def with_bounds(self, bounds_us: Sequence[float]) -> Table:
        """Returns the table with a last column: the largest error of the latencies of each row.
        Returns the table itself if one clock made all latencies."""
        if not any(bounds_us):
            return self
        rows = [(*row, bound or None) for row, bound in zip(self.rows, bounds_us, strict=True)]
        note = f"{self.note} {BOUND_NOTE}".strip()
        return replace(self, columns=(*self.columns, Column(BOUND, "us")), rows=rows, note=note)

    def without_empty(self) -> Table:
        """Returns the table without empty columns."""
        kept = [
            place
            for place in range(len(self.columns))
            if not self.rows or any(row[place] is not None for row in self.rows)
        ]
        return self.only(kept)

    def only(self, places: Sequence[int]) -> Table:
        """Returns the table with some of its columns."""
        rows = [tuple(row[place] for place in places) for row in self.rows]
        return replace(self, columns=tuple(self.columns[place] for place in places), rows=rows)


@dataclass(frozen=True)
class Fact:
    """A name with its value, in words."""

    name: str
    value: str
    is_code: bool = False
    """True if the value can be copied into a shell."""


@dataclass(frozen=True)
class KeyFigure:
    """One figure with what it says."""

    name: str
    value: str
    note: str
    """Period or total of the figure."""
    metrics: tuple[str, ...] = ()
    """Metrics of thresholds that are about it."""
    status: Status | None = None
    """Good or bad; None if nothing says so."""


@dataclass(frozen=True)
class Item:
    """One run of a series or a search."""

    number: int
    name: str
    outcome: str
    """The verdict in a word, or the reason why there is none."""
    status: Status | None
    limited_by: LimitedBy | None
    facts: tuple[str, ...]
    folder: str
    """Run directory, in that of the experiment."""
    is_notable: bool = True
    """True if the run is listed outside the page, with its facts."""
    note: str = ""
    """The user's words about the run."""
    plots: tuple[Plot, ...] = ()
    missing: str | None = None
    """The reason why the page has no plot of the run; None if it needs none."""
    command: str = ""
    """Command line that plays this run alone; empty if the report shows none."""
    page: str | None = None
    """Page of the run, as a path from the folder of the experiment; None if there is none."""


@dataclass(frozen=True)
class Plots:
    """A section of the page with plots."""

    name: str
    title: str
    plots: tuple[Plot, ...]
    how: str = ""
    """Text that explains the plots."""
    missing: str | None = None
    """Text in place of the plots; None if a section without plots is left out."""


@dataclass(frozen=True)
class Case:
    """A test case of JUnit."""

    name: str
    failure: str | None = None
    """Evidence that the case failed; None if it did not."""
    skipped: str | None = None
    """Reason why nothing was tested; None if something was."""
    took_s: float = 0.0


@dataclass(frozen=True)
class Document:
    """The report of a run, an experiment, a comparison or a history."""

    kind: Literal["run", "series", "search", "comparison", "history"]
    title: str
    started: str
    """Wall-clock start, ISO 8601 with offset."""
    run_directory: str
    status: Status | None
    """The verdict; None for a series, whose steps have one each."""
    limited_by: LimitedBy | None = None
    headline: str = ""
    """The outcome in one sentence; empty only if the result has none."""
    key_figures: tuple[KeyFigure, ...] = ()
    """The figures that say most, at most KEY_FIGURES_MAX."""
    more_figures: tuple[KeyFigure, ...] = ()
    """Key figures beyond that number."""
    statements: tuple[str, ...] = ()
    """The outcome of an experiment, with a sentence for each variant."""
    verdict: Verdict | None = None
    """Thresholds and evidence of a run; None for experiments."""
    facts: tuple[Fact, ...] = ()
    settings: tuple[Fact, ...] = ()
    """Facts about the start; only on the page."""
    tables: tuple[Table, ...] = ()
    details: tuple[Table, ...] = ()
    """Tables that the terminal does not show and the page keeps closed."""
    items: tuple[Item, ...] = ()
    """The runs of an experiment."""
    plots: tuple[Plots, ...] = ()
    cases: tuple[Case, ...] = ()
    output: tuple[str, ...] = ()
    """Output of the test suite."""
    is_complete: bool = True
    """False if `--resume` can continue it."""
    stopped: str | None = None
    """Condition that ended a series early; None if none did."""

    @property
    def status_word(self) -> str:
        """Word for the status. A comparison whose conditions are open is not invalid."""
        if self.kind == "comparison" and self.status is Status.INVALID:
            return "not decided"
        return str(self.status or "")

    @property
    def outcome(self) -> tuple[str, ...]:
        """The outcome of an experiment, empty for a run: the headline, unless a statement says the
        same, and the statements."""
        if self.verdict is not None:
            return ()
        is_said = self.headline in map(sentence, self.statements)
        return (
            self.statements if is_said or not self.headline else (self.headline, *self.statements)
        )


def _remarks(value: Value) -> tuple[str, ...]:
    return value.remarks if isinstance(value, SeriesCell) else ()


_WRITERS: Mapping[Unit, Callable[[float], str]] = {
    "word": count_text,
    "bar": count_text,
    "count": count_text,
    "rate": rate_text,
    "signed rate": lambda value: f"{'+' if value > 0 else ''}{rate_text(value)}",
    "us": duration_text,
    "s": span_text,
    "share": share_text,
    "bytes": bytes_text,
    "bytes_per_s": lambda value: f"{bytes_text(value)}/s",
}


def sentence(text: str) -> str:
    """Returns a statement with a capital at its start and a full stop; empty if it is empty."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}" if text else ""


def mark(outcome: ThresholdOutcome) -> str:
    """Returns ✓, ✗, or ? if the threshold is undecided."""
    return {"passed": "✓", "failed": "✗", "undecided": "?"}[word(outcome)]


def word(outcome: ThresholdOutcome) -> str:
    """Returns passed, failed or undecided."""
    if outcome.undecided:
        return "undecided"
    return "passed" if outcome.passed else "failed"
