"""A result as Python programs read it: verdict, thresholds, figures, runs and frames. Tables of a
result as DataFrames of pandas."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from pubstorm.errors import StoredRunError, UsageError, extra_hint
from pubstorm.metrics.expressions import parse_expression, parse_threshold
from pubstorm.quantities import UnfitError, Unit, value_text
from pubstorm.report.data import data_table
from pubstorm.report.stored import load_stored
from pubstorm.result import RunResult, SearchResult, Series, Status, ThresholdOutcome
from pubstorm.result.comparison import Comparison
from pubstorm.result.datasheet import Datasheet
from pubstorm.result.datasheet_comparison import SheetComparison
from pubstorm.result.figures import Found, evaluate, evaluate_threshold
from pubstorm.result.search import RANKED

if TYPE_CHECKING:
    import pandas


class Quantity(float):
    """A figure with its unit, which is a number in calculations and comparisons."""

    unit: Unit
    """`us`, `s`, `per_s`, `bytes`, `bytes_per_s`, `share` from 0 to 1, or empty for a count; of a
    slope, `bytes_per_h` and so on."""

    def __new__(cls, value: float, unit: Unit) -> Quantity:
        """Makes a figure of a number and its unit."""
        made = super().__new__(cls, value)
        made.unit = unit
        return made

    @property
    def text(self) -> str:
        """The figure as reports show it."""
        return value_text(float(self), self.unit)

    def __repr__(self) -> str:
        return f"<{self.text}>"

    def __eq__(self, other: object) -> bool:
        return float(self) == other

    __hash__ = float.__hash__


class Result:
    """The result of a run, a series or a search."""

    def __init__(self, stored: RunResult | Series | SearchResult) -> None:
        self.stored = stored
        """Everything that was stored, as in `result.json`, `series.json` or `search.json`."""

    def __repr__(self) -> str:
        return f"<Result {self.name}: {self.status or 'no verdict'}: {self.headline}>"

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return self.stored.name

    @property
    def path(self) -> Path:
        """The run directory."""
        return Path(self.stored.run_directory)

    @property
    def status(self) -> Status | None:
        """pass, fail or invalid, of a search also open. Of a series the worst of its steps; None if
        no step was played."""
        if isinstance(self.stored, Series):
            found = {step.status or Status.INVALID for step in self.stored.steps if step.was_played}
            return next((status for status in RANKED if status in found), None)
        if isinstance(self.stored, SearchResult):
            return self.stored.status
        return self.stored.verdict.status

    @property
    def passed(self) -> bool:
        """True if every threshold passed, and the figures are evidence. Of a series: every step."""
        return self.status is Status.PASS

    @property
    def headline(self) -> str:
        """The outcome in one sentence."""
        from pubstorm.report import document_of

        return document_of(self.stored).headline

    @property
    def evidence(self) -> tuple[str, ...]:
        """The facts behind the verdict of a run; empty for a series or a search."""
        return self.stored.verdict.evidence if isinstance(self.stored, RunResult) else ()

    @property
    def thresholds(self) -> tuple[ThresholdOutcome, ...]:
        """The thresholds of a run, each with the value found, the limit and `passed`."""
        return self.stored.verdict.thresholds if isinstance(self.stored, RunResult) else ()

    @property
    def runs(self) -> tuple[Result, ...]:
        """The runs of a series or a search that have a result, in the order of playing."""
        if isinstance(self.stored, RunResult):
            return ()
        parts = self.stored.steps if isinstance(self.stored, Series) else self.stored.played
        return tuple(load(self.path / part.folder) for part in parts if part.status is not None)

    def figure(self, expression: str) -> Quantity:
        """Returns a figure of a run by its expression, as in thresholds: `device.latency.p99`.
        Latencies are in microseconds. Raises UsageError if there is no such figure."""
        run = self._run("figure")
        try:
            found = evaluate(run, parse_expression(expression))
        except UnfitError as error:
            raise UsageError(f"figure {expression!r}: {error}", error.hint) from None
        if not isinstance(found, Found):
            raise UsageError(f"figure {expression!r}: {found.reason}")
        return Quantity(found.value, found.unit)

    def meets(self, threshold: str) -> bool:
        """Returns True if a run certainly meets a threshold, such as `device.latency.p99 < 50ms`.
        Raises UsageError if there is no such figure."""
        run = self._run("meets")
        try:
            parsed = parse_threshold(threshold)
        except UnfitError as error:
            raise UsageError(f"threshold {threshold!r}: {error}", error.hint) from None
        self.figure(str(parsed.expression))
        return evaluate_threshold(run, parsed).passed

    def frame(self, name: str = "samples") -> pandas.DataFrame:
        """Returns a table of a run as a DataFrame of pandas, which is an extra:
        `pip install 'WHEEL[pandas]'`. Raises UsageError without it."""

        return frame(self.stored, self.path, name)

    def report(self) -> Path:
        """Makes the reports of the result again and returns the path of the page."""
        from pubstorm.play.directory import RunDirectory
        from pubstorm.report import write_reports

        problems = list(write_reports(self.path, RunDirectory(self.path).write))
        if problems:
            raise UsageError("; ".join(problems))
        return self.path / "report.html"

    def _run(self, what: str) -> RunResult:
        if isinstance(self.stored, RunResult):
            return self.stored
        kind = "series" if isinstance(self.stored, Series) else "search"
        raise UsageError(f"{what} is of one run, and this is a {kind}", "see its .runs")


def load(path: str | PathLike[str]) -> Result:
    """Reads the stored result of a run, a series or a search. Raises StoredRunError if the folder
    has none."""
    folder = Path(path)
    stored = load_stored(folder)
    if isinstance(stored, Comparison):
        hint = "read comparison.json, or load the runs that it compares"
        raise StoredRunError(f"{folder} is a comparison, and no run, series or search", hint)
    if isinstance(stored, Datasheet | SheetComparison):
        hint = "read its figures.csv, or load the runs of the cells of a sheet"
        raise StoredRunError(f"{folder} has data sheets, and no run, series or search", hint)
    return Result(stored.model_copy(update={"run_directory": str(folder)}))


def frame(stored: RunResult | Series | SearchResult, folder: Path, name: str) -> pandas.DataFrame:
    """Returns a table by its name. Raises UsageError without pandas."""
    try:
        import pandas
    except ImportError:
        raise UsageError("frames need pandas", extra_hint("pandas")) from None
    return pandas.DataFrame(data_table(stored, folder, name))
