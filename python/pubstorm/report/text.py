"""A report on the terminal. The console of rich that all tables and the live display are drawn
on."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.panel import Panel
from rich.segment import Segment
from rich.table import Table as RichTable
from rich.text import Text

from pubstorm.output import visible
from pubstorm.report.document import Document, Item, KeyFigure, mark, word
from pubstorm.report.layout import Table
from pubstorm.result import Status, Verdict

ColorSystem = Literal["auto", "standard", "256", "truecolor", "windows"]
"""Names that rich has for what a terminal can show."""


class PlainConsole(Console):
    """A console that shows control characters of the drawn text instead of obeying them. With
    NO_COLOR in the environment it draws without styles: no colour, nothing dim or bold."""

    def __init__(self, *, color_system: ColorSystem | None = "auto", **more: Any) -> None:
        system = None if os.environ.get("NO_COLOR") else color_system
        super().__init__(color_system=system, **more)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The segments, without control characters that are not the console's own."""
        for segment in super().render(renderable, options):
            if segment.control is None and (text := visible(segment.text)) != segment.text:
                yield Segment(text, segment.style)
            else:
                yield segment


FILE_WIDTH = 100
"""Columns of a report that goes to no terminal."""
SCREEN_ROWS = 20
"""Longest table of steps that is part of one screen."""
SCREEN_LINES = 8
"""Thresholds, and facts of the evidence, on one screen."""
COLUMN_GAP = 3
"""Characters between two columns."""
WORDS_MIN = 24
"""Width to which a column of words is wrapped before a table is drawn in parts."""
COLOURS = {
    Status.PASS: "green",
    Status.FAIL: "red",
    Status.OPEN: "yellow",
    Status.INVALID: "yellow",
}
MARK_STYLES = {"passed": "green", "failed": "bold red", "undecided": "bold yellow"}


def render(document: Document, console: Console) -> None:
    """Prints the whole report."""
    console = _wide_enough(console)
    console.print()
    console.print(Text(document.title, style="bold"), soft_wrap=True)
    width = max([12, *(len(fact.name) + 1 for fact in document.facts)])
    for fact in document.facts:
        console.print(Text.assemble((f"  {fact.name:<{width}}", "dim"), fact.value), soft_wrap=True)
    for table in document.tables:
        console.print()
        _draw(table, console)
    for item in document.items:
        if item.is_notable:
            console.print()
            console.print(_item_line(item), soft_wrap=True)
            for line in item.facts:
                console.print(Text(f"  {line}"), soft_wrap=True)
    console.print()
    _conclude(document, console)


def render_screen(document: Document, console: Console) -> None:
    """Prints one screen: the steps of a short series, or the tables of a data sheet, the outcome,
    the key figures, and the folder."""
    console = _wide_enough(console)
    steps = document.tables[:1] if document.kind == "series" else ()
    short = [table for table in steps if len(table.rows) <= SCREEN_ROWS]
    tables = document.tables if document.kind == "data sheet" else short
    for table in tables:
        console.print()
        _draw(table, console)
    if tables:
        console.print()
    _conclude(document, console, of=SCREEN_LINES)


def render_brief(document: Document, console: Console) -> None:
    """Prints the conclusion, and for a series a line for each step."""
    console = _wide_enough(console)
    for item in document.items if document.kind == "series" else ():
        console.print(_item_line(item), soft_wrap=True)
    _conclude(document, console)


def _wide_enough(console: Console) -> Console:
    """Returns a console without a narrow width of its own, for a file or a pipe."""
    if console.is_terminal or console.width >= FILE_WIDTH:
        return console
    return PlainConsole(file=console.file, width=FILE_WIDTH)


def _draw(table: Table, console: Console) -> None:
    console.print(Text(table.title, style="bold"), soft_wrap=True)
    for number, part in enumerate(parts_of(table, console.width)):
        if number:
            console.print()
        console.print(_drawn(part))
    if table.notes:
        console.print(Text(table.notes, style="dim"))


def _drawn(table: Table) -> RichTable:
    rich = RichTable(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        header_style="dim",
        pad_edge=False,
        padding=(0, 1),
    )
    for column in table.columns:
        rich.add_column(
            column.name, justify="right" if column.right else "left", no_wrap=column.right
        )
    for row in table.texts:
        rich.add_row(*map(Text, row))
    return rich


def parts_of(table: Table, width: int) -> list[Table]:
    """Returns a table as tables that fit into a width, perhaps with words wrapped. Each part begins
    with the first column; a column too wide for any part stands alone with the first."""
    texts = table.texts
    widths = []
    for place, column in enumerate(table.columns):
        widest = max(len(column.name), *(len(row[place]) for row in texts), 0)
        widths.append(COLUMN_GAP + (widest if column.right else min(widest, WORDS_MIN)))
    parts: list[list[int]] = [[]]
    for place in range(1, len(widths)):
        if parts[-1] and sum(widths[n] for n in (0, *parts[-1], place)) > width:
            parts.append([])
        parts[-1].append(place)
    return [replace(table, rows=texts, note="").only((0, *places)) for places in parts]


def _item_line(item: Item) -> Text:
    style = f"bold {COLOURS[item.status or Status.INVALID]}"
    limit = "" if item.limited_by is None else f"  limited by {item.limited_by}"
    name = f"{item.number}: {item.name}"
    return Text.assemble((f"{item.outcome.upper():<6}  ", style), name, (limit, "dim"))


def _conclude(document: Document, console: Console, of: int | None = None) -> None:
    """Prints the verdict and the run directory. With `of`, the key figures too, and at most that
    many thresholds and facts."""
    if document.verdict is not None:
        console.print(_verdict(document.verdict, of))
    for number, statement in enumerate(document.outcome):
        status = document.status
        sign = (
            ()
            if status is None or number
            else ((f"{document.status_word.upper()}  ", f"bold {COLOURS[status]}"),)
        )
        console.print(Text.assemble(*sign, statement), soft_wrap=True)
    if document.stopped is not None:
        console.print(Text(f"stopped early: {document.stopped}", style="dim"), soft_wrap=True)
    if not document.is_complete:
        resume = f"pubstorm run --resume {document.run_directory}"
        console.print(Text.assemble(("continue with  ", "dim"), resume), soft_wrap=True)
    if of is not None and document.key_figures:
        console.print(_figures(document.key_figures))
    if document.run_directory and document.kind != "history":
        where = Text.assemble(("run directory  ", "dim"), document.run_directory)
        console.print(where, soft_wrap=True)
    if of is not None:
        more = Text.assemble(
            ("all tables     ", "dim"), f"pubstorm report {document.run_directory}"
        )
        console.print(more, soft_wrap=True)


def _figures(figures: Sequence[KeyFigure]) -> RichTable:
    grid = RichTable.grid(padding=(0, 2))
    grid.add_column(style="dim", overflow="fold")
    grid.add_column(justify="right", overflow="fold")
    grid.add_column(style="dim", overflow="fold")
    for each in figures:
        style = "bold" if each.status is None else f"bold {COLOURS[each.status]}"
        grid.add_row(Text(each.name), Text(each.value, style=style), Text(each.note))
    return grid


def _verdict(verdict: Verdict, of: int | None) -> Panel:
    status = verdict.status
    lines: list[RenderableType] = [
        Text.assemble(
            (str(status).upper(), f"bold {COLOURS[status]}"),
            ("   limited by ", "dim"),
            (str(verdict.limited_by), "bold"),
        )
    ]
    if verdict.headline:
        lines.insert(0, Text(verdict.headline, style="bold"))
    ordered = sorted(verdict.thresholds, key=lambda threshold: threshold.passed)
    thresholds = verdict.thresholds if of is None or len(ordered) <= of else ordered[:of]
    for threshold in thresholds:
        sign = (f"{mark(threshold)} ", MARK_STYLES[word(threshold)])
        lines.append(Text.assemble(sign, threshold.label, (f"   {threshold.text}", "dim")))
    if verdict.evidence:
        grid = RichTable.grid(padding=(0, 1))
        for fact in verdict.evidence[:of]:
            grid.add_row(Text("•", style="dim"), Text(fact))
        lines.append(grid)
    left = len(verdict.thresholds) - len(thresholds) + len(verdict.evidence[of:] if of else ())
    if left:
        lines.append(Text(f"… {left} more", style="dim"))
    return Panel(Group(*lines), border_style=COLOURS[status], title="verdict", title_align="left")
