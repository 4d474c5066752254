"""The report of a series: the table of all steps, the conclusion, and the evidence of steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from pubstorm.report.courses import HOW_COURSES, compared
from pubstorm.report.document import Case, Document, Item, Plots
from pubstorm.report.experiment_figures import (
    experiment_settings,
    series_figures,
    series_headline,
)
from pubstorm.report.layout import Table, Value, cell_columns
from pubstorm.report.series_plots import StepPlots, answer_plots, overview, step_plots
from pubstorm.report.summary import memory_layout
from pubstorm.result import Cell, Series, SeriesStep, Status, are_figures

HOW_STEPS = (
    "Each point is a step, its sign the verdict: a circle passed, a cross failed, an open triangle "
    "is invalid."
)


@dataclass(frozen=True)
class Range:
    """The figures of several repeats."""

    ordered: tuple[Cell, ...]

    @property
    def text(self) -> str:
        """The range, after the median if the number of figures is odd."""
        half, is_odd = divmod(len(self.ordered), 2)
        span = f"{self.ordered[0].text} … {self.ordered[-1].text}"
        return f"{self.ordered[half].text} ({span})" if is_odd else span


def series_document(series: Series, directory: Path | None = None) -> Document:
    """Builds the report of a series. `directory` is its folder; without one there are no plots."""
    drawn = [StepPlots() if directory is None else step_plots(directory, s) for s in series.steps]
    results = [each.result for each in drawn]
    memory = memory_layout("steps").table(series)
    return Document(
        kind="series",
        title=series.name,
        started=series.started,
        run_directory=series.run_directory,
        status=None,
        headline=series_headline(series),
        key_figures=series_figures(series),
        statements=tuple(series.text.splitlines()),
        settings=experiment_settings(series),
        tables=(
            *(
                Table(own.title, cell_columns(own.columns, own.rows), own.rows)
                for own in series.tables
            ),
            steps_table(series),
            *([memory] if memory.rows else []),
        ),
        items=tuple(_step_item(step, each) for step, each in zip(series.steps, drawn, strict=True)),
        plots=(
            Plots("Answers", "What the searches found", tuple(answer_plots(series))),
            Plots(
                "Plots",
                "Over the steps",
                tuple(overview(series.steps, results)),
                HOW_STEPS,
                "No step has a result yet.",
            ),
            Plots(
                "Compare",
                "The steps over time",
                tuple(compared([each.course for each in drawn if each.course is not None])),
                HOW_COURSES,
            ),
        ),
        cases=tuple(map(_case, series.steps)),
        output=(series.text,),
        is_complete=series.complete,
        stopped=series.stopped,
    )


def steps_table(series: Series) -> Table:
    """Returns one row for each step, and after the repeats of a step a row that sums them up."""
    rows: list[tuple[Value, ...]] = []
    links: list[str] = []
    for _, group in groupby(series.steps, key=lambda step: step.label):
        steps = list(group)
        rows += [step.cells for step in steps]
        links += [str(step.number) for step in steps]
        measured = [step for step in steps if step.status is not None]
        if len(measured) > 1:
            rows.append(tuple(_summary(measured)))
            links.append("")
    heads = cell_columns(series.columns, [step.cells for step in series.steps])
    return Table("Steps", heads, rows, links=tuple(links))


def _summary(steps: Sequence[SeriesStep]) -> Iterator[Value]:
    """Yields the range of each column of figures, and the common word of other columns."""
    for place, column in enumerate(zip(*(step.cells for step in steps), strict=True)):
        if len({cell.text for cell in column}) == 1:
            yield column[0]
        elif are_figures(column):
            known = [cell for cell in column if cell.value is not None]
            yield Range(tuple(sorted(known, key=lambda cell: cell.value or 0.0)))
        else:
            yield "" if place else f"{steps[0].label}: {len(steps)} repeats"


def _step_item(step: SeriesStep, drawn: StepPlots) -> Item:
    problem = () if step.problem is None else tuple(step.problem.splitlines())
    return Item(
        number=step.number,
        name=step.name,
        outcome=step.outcome,
        status=step.status,
        limited_by=step.limited_by,
        facts=problem or step.evidence,
        folder=step.folder,
        is_notable=step.status not in {Status.PASS, None} or step.problem is not None,
        note=step.note,
        plots=drawn.plots,
        missing=drawn.problem and f"There is no plot over time: {drawn.problem}.",
        command=step.command,
        page=drawn.page,
    )


def _case(step: SeriesStep) -> Case:
    name = f"{step.number}: {step.name}"
    if step.status is None and step.problem is None:
        return Case(name, skipped=step.unfit or step.outcome)
    facts = "\n".join((step.outcome, *((step.problem,) if step.problem else step.evidence)))
    return Case(name, None if step.status is Status.PASS else facts, took_s=step.duration_s)
