"""A report before it is rendered: verdict, facts, tables, plots and evidence. Each kind of result
has one builder; every format has one renderer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from pubstorm.report.layout import Table
from pubstorm.report.plot import Plot
from pubstorm.result import LimitedBy, Status, ThresholdOutcome, Verdict

KEY_FIGURES_MAX = 6
"""Key figures that stand beside the headline."""


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
    """Metrics, with their statistics, whose thresholds are about it."""
    status: Status | None = None
    """Good or bad; None if nothing says so."""
    subject: str | None = None
    """Population of the figure; None: all of them."""


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
    """The report of a run, an experiment, a comparison, a history or a data sheet."""

    kind: Literal["run", "series", "search", "comparison", "history", "data sheet", "data sheets"]
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


def unstored(document: Document, reason: str) -> Document:
    """Returns the report of what is not stored: nothing can show its figures later."""
    return replace(
        document,
        headline=f"Invalid: the {document.kind} is not stored: {reason}.",
        status=None if document.status is None else Status.INVALID,
        verdict=None if document.verdict is None else document.verdict.unstored(reason),
        statements=(),
        key_figures=tuple(
            replace(each, status=None) if each.status is Status.PASS else each
            for each in document.key_figures
        ),
    )


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
