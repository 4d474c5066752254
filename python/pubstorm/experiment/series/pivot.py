"""The scenario's tables over a series: a row for each step without its variants, columns taken from
the figures of its variants. A pure function of the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from pubstorm.experiment.series.row import value_cell
from pubstorm.result import (
    Cell,
    Estimate,
    LimitedBy,
    SeriesCell,
    SeriesStep,
    SeriesTable,
    StepFigure,
)
from pubstorm.result.interval import estimate_of
from pubstorm.scenario import Sweep
from pubstorm.scenario.sweep import STEP, TableColumn

Columns = Mapping[str, TableColumn]
LIMITS = {
    LimitedBy.GENERATOR: "the load generator set the limit",
    LimitedBy.HOST: "this host set the limit",
}
"""Limits that a figure shows of something other than what is under test."""


def pivoted(
    tables: Mapping[str, Columns], sweep: Sweep, steps: Sequence[SeriesStep]
) -> tuple[SeriesTable, ...]:
    """The tables as far as the steps have been played; columns of variants that are not played are
    left out, and tables of such columns alone."""
    of_played = {title: _of_played(columns, sweep) for title, columns in tables.items()}
    return tuple(
        _table(title, columns, sweep, steps)
        for title, columns in of_played.items()
        if any(column.variant is not None for column in columns.values()) or not sweep.variants
    )


def asked_of(tables: Mapping[str, Columns], step: SeriesStep) -> set[str]:
    """Returns the figures of a step that any table shows."""
    columns = [column for table in tables.values() for column in table.values()]
    return {column.metric for column in columns if column.variant == step.variant}


def _of_played(columns: Columns, sweep: Sweep) -> Columns:
    return {
        heading: column
        for heading, column in columns.items()
        if column.variant is None or column.variant in sweep.played
    }


def _table(title: str, columns: Columns, sweep: Sweep, steps: Sequence[SeriesStep]) -> SeriesTable:
    rows = [list(group) for _, group in groupby(steps, key=lambda step: step.base)]
    return SeriesTable(
        title=title,
        columns=tuple(columns),
        rows=tuple(tuple(_cell(column, sweep, row) for column in columns.values()) for row in rows),
    )


def _cell(column: TableColumn, sweep: Sweep, row: Sequence[SeriesStep]) -> SeriesCell:
    if column.metric == STEP:
        return SeriesCell(word=row[0].base)
    if column.shows_step(sweep.names):
        paths = (path for path, name in sweep.names.items() if column.metric in {path, name})
        cell = value_cell(row[0].values.get(next(paths), ""))
        return SeriesCell(value=cell.value, word=cell.word)
    steps = [step for step in row if step.variant == column.variant]
    figures = [step.figures[column.metric] for step in steps if column.metric in step.figures]
    remarks = [remark for step in steps if (remark := _unmeasured(step)) is not None]
    remarks += [remark for figure in figures for remark in _remarks(figure)]
    estimate = _together([f.estimate for f in figures if f.estimate is not None])
    words = dict.fromkeys(figure.word for figure in figures if figure.word)
    cell = Cell.of(estimate, ", ".join(words))
    return SeriesCell(**dict(cell), remarks=tuple(dict.fromkeys(remarks)))


def _unmeasured(step: SeriesStep) -> str | None:
    if step.unfit is not None:
        return f"not run: {step.unfit}"
    return None if step.problem is None else "it came to no measurement"


def _remarks(figure: StepFigure) -> list[str]:
    limit = LIMITS.get(figure.limited_by) if figure.limited_by is not None else None
    return [remark for remark in (limit, figure.remark) if remark is not None]


def _together(estimates: Sequence[Estimate]) -> Estimate | None:
    """One estimate of all repeats of a step: at least their mean, where one is a lower bound."""
    if len(estimates) < 2:
        return estimates[0] if estimates else None
    mean = estimate_of([estimate.value for estimate in estimates], estimates[0].unit)
    is_bound = any(estimate.bound == "at_least" for estimate in estimates)
    return mean.model_copy(update={"bound": "at_least"}) if is_bound else mean
