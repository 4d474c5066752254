"""A series on the terminal and as Markdown: one table over all steps, what the series says, and the
evidence of each step that did not pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from rich.console import Console
from rich.text import Text

from pubstorm.report.markdown import escaped, table_lines
from pubstorm.report.pivot import pivot_tables
from pubstorm.report.summary import memory_table
from pubstorm.report.table import Column, Table
from pubstorm.report.text import STYLES, drawn_table, wide_enough
from pubstorm.result import Cell, Series, SeriesStep, Status, are_figures


def render_series(series: Series, console: Console) -> None:
    """Prints everything."""
    console = wide_enough(console)
    for part in parts_of(series_table(series), console.width):
        console.print()
        console.print(drawn_table(part))
    if series.memory:
        console.print()
        console.print(drawn_table(memory_table(series.memory, "steps")))
    for table in pivot_tables(series):
        _draw_whole(table, console)
    for step in _broken(series):
        console.print()
        console.print(_step_line(step))
        for fact in _facts(step):
            console.print(Text(f"  {fact}"), soft_wrap=True)
    console.print()
    _conclude(series, console)


def _draw_whole(table: Table, console: Console) -> None:
    """Draws a table in parts that fit; title and notes may be wider than it is."""
    console.print()
    console.print(Text(table.title, style="bold"), soft_wrap=True)
    for number, part in enumerate(parts_of(replace(table, title=""), console.width)):
        if number:
            console.print()
        console.print(drawn_table(part))
    if table.note:
        console.print(Text(table.note, style="dim"), soft_wrap=True)


def render_verdicts(series: Series, console: Console) -> None:
    """Prints a line for each step, what the series says, and where it is kept."""
    console = wide_enough(console)
    for step in series.steps:
        console.print(_step_line(step), soft_wrap=True)
    _conclude(series, console)


def series_markdown(series: Series) -> str:
    """The text of a series' `report.md`."""
    table = series_table(series)
    lines = [f"# {escaped(series.name)}"]
    for said in series.text.splitlines():
        lines += ["", escaped(said)]
    for pivot in pivot_tables(series):
        lines += ["", f"## {escaped(pivot.title)}", "", *table_lines(pivot)]
    lines += ["", "## Steps"] if series.tables else []
    lines += ["", *table_lines(table)]
    if series.memory:
        memory = memory_table(series.memory, "steps")
        lines += ["", f"## {memory.title}", "", *table_lines(memory)]
    for step in _broken(series):
        lines += ["", f"## {escaped(step.name)}: {step.outcome}", ""]
        lines += [f"- {escaped(fact)}" for fact in _facts(step)]
    lines += ["", "## Commands", "", "```sh", *(step.command for step in series.steps), "```"]
    return "\n".join(lines) + "\n"


def series_table(series: Series) -> Table:
    """One row for each step; after the repeats of a step, one that sums them up."""
    rows: list[tuple[str, ...]] = []
    for _, group in groupby(series.steps, key=lambda step: step.label):
        steps = list(group)
        rows += [tuple(cell.text for cell in step.cells) for step in steps]
        measured = [step for step in steps if step.status is not None]
        if len(measured) > 1:
            rows.append(_summary(measured))
    columns = tuple(
        Column(name, right=are_figures([step.cells[place] for step in series.steps]))
        for place, name in enumerate(series.columns)
    )
    return Table(series.name, columns, tuple(rows))


def parts_of(table: Table, width: int) -> list[Table]:
    """A table as tables that fit into a width, one below the other: each begins with the first
    column, and a column too wide for any stands alone with it."""
    widths = [
        max(len(column.name), *(len(row[place]) for row in table.rows)) + COLUMN_GAP
        for place, column in enumerate(table.columns)
    ]
    parts: list[list[int]] = [[]]
    for place in range(1, len(widths)):
        if parts[-1] and sum(widths[n] for n in (0, *parts[-1], place)) > width:
            parts.append([])
        parts[-1].append(place)
    return [_part(table, (0, *places), number) for number, places in enumerate(parts)]


def _part(table: Table, places: Sequence[int], number: int) -> Table:
    return Table(
        "" if number else table.title,
        tuple(table.columns[place] for place in places),
        tuple(tuple(row[place] for place in places) for row in table.rows),
    )


def _summary(steps: Sequence[SeriesStep]) -> tuple[str, ...]:
    """Of each column that is all figures its range, and of an odd number of them the median before
    it; of other columns what all repeats agree on."""
    cells: list[str] = []
    for column in zip(*(step.cells for step in steps), strict=True):
        texts = {cell.text for cell in column}
        if len(texts) == 1:
            cells.append(texts.pop())
        elif are_figures(column):
            cells.append(_spread(column))
        else:
            cells.append("")
    return (cells[0] or f"{steps[0].label}: {len(steps)} repeats", *cells[1:])


def _spread(column: Sequence[Cell]) -> str:
    by_value = [(cell.value, cell.text) for cell in column if cell.value is not None]
    ordered = [text for _, text in sorted(by_value)]
    half, is_odd = divmod(len(ordered), 2)
    span = f"{ordered[0]} … {ordered[-1]}"
    return f"{ordered[half]} ({span})" if is_odd else span


def _conclude(series: Series, console: Console) -> None:
    console.print(Text(series.text), soft_wrap=True)
    if series.stopped is not None:
        console.print(Text(f"stopped as told: {series.stopped}", style="dim"), soft_wrap=True)
    if not series.complete:
        resume = f"pubstorm run --resume {series.run_directory}"
        console.print(Text.assemble(("continue with  ", "dim"), resume), soft_wrap=True)
    console.print(Text.assemble(("run directory  ", "dim"), series.run_directory), soft_wrap=True)


def _step_line(step: SeriesStep) -> Text:
    style = STYLES[step.status] if step.status is not None else "bold yellow"
    limit = "" if step.limited_by is None else f"  limited by {step.limited_by}"
    return Text.assemble((f"{step.outcome.upper():<6}  ", style), step.name, (limit, "dim"))


def _broken(series: Series) -> Iterator[SeriesStep]:
    """The steps that were played and did not pass."""
    for step in series.steps:
        if step.status not in {Status.PASS, None} or step.problem is not None:
            yield step


def _facts(step: SeriesStep) -> tuple[str, ...]:
    return step.evidence if step.problem is None else tuple(step.problem.splitlines())


COLUMN_GAP = 3
"""Characters between two columns on the terminal."""
