"""A report on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table as RichTable
from rich.text import Text

from pubstorm.report.console import PlainConsole
from pubstorm.report.document import Document, Item, Table, mark, word
from pubstorm.result import Status, Verdict

FILE_WIDTH = 100
"""Columns of a report that goes to no terminal."""
COLUMN_GAP = 3
"""Characters between two columns."""
STYLES = {Status.PASS: "bold green", Status.FAIL: "bold red", Status.INVALID: "bold yellow"}
MARK_STYLES = {"passed": "green", "failed": "bold red", "undecided": "bold yellow"}
BORDERS = {Status.PASS: "green", Status.FAIL: "red", Status.INVALID: "yellow"}


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
    if not table.in_parts:
        console.print(_drawn(table, Text(table.notes) if table.notes else None))
        return
    console.print(Text(table.title, style="bold"), soft_wrap=True)
    for number, part in enumerate(parts_of(table, console.width)):
        if number:
            console.print()
        console.print(_drawn(replace(part, title=""), None))
    if table.notes:
        console.print(Text(table.notes, style="dim"), soft_wrap=True)


def _drawn(table: Table, caption: Text | None) -> RichTable:
    rich = RichTable(
        title=table.title,
        title_justify="left",
        title_style="bold",
        caption=caption,
        caption_justify="left",
        caption_style="dim",
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
    """Returns a table as tables that fit into a width. Each part begins with the first column; a
    column too wide for any part stands alone with the first."""
    texts = table.texts
    widths = [
        max(len(column.name), *(len(row[place]) for row in texts)) + COLUMN_GAP
        for place, column in enumerate(table.columns)
    ]
    parts: list[list[int]] = [[]]
    for place in range(1, len(widths)):
        if parts[-1] and sum(widths[n] for n in (0, *parts[-1], place)) > width:
            parts.append([])
        parts[-1].append(place)
    return [_part(table, texts, (0, *places)) for places in parts]


def _part(table: Table, texts: Sequence[tuple[str, ...]], places: Sequence[int]) -> Table:
    """Returns some columns of a table. Its cells are texts, since marks belong to the whole."""
    return replace(table, rows=texts, note="").only(places)


def _item_line(item: Item) -> Text:
    style = "bold yellow" if item.status is None else STYLES[item.status]
    limit = "" if item.limited_by is None else f"  limited by {item.limited_by}"
    name = f"{item.number}: {item.name}"
    return Text.assemble((f"{item.outcome.upper():<6}  ", style), name, (limit, "dim"))


def _conclude(document: Document, console: Console) -> None:
    """Prints the verdict and the run directory."""
    if document.verdict is not None:
        console.print(_verdict(document.verdict))
    for statement in document.statements:
        status = document.status
        sign = () if status is None else ((f"{str(status).upper()}  ", STYLES[status]),)
        console.print(Text.assemble(*sign, statement), soft_wrap=True)
    if document.stopped is not None:
        console.print(Text(f"stopped early: {document.stopped}", style="dim"), soft_wrap=True)
    if not document.is_complete:
        resume = f"pubstorm run --resume {document.run_directory}"
        console.print(Text.assemble(("continue with  ", "dim"), resume), soft_wrap=True)
    where = Text.assemble(("run directory  ", "dim"), document.run_directory)
    console.print(where, soft_wrap=True)


def _verdict(verdict: Verdict) -> Panel:
    status = verdict.status
    lines: list[RenderableType] = [
        Text.assemble(
            (str(status).upper(), STYLES[status]),
            ("   limited by ", "dim"),
            (str(verdict.limited_by), "bold"),
        )
    ]
    if verdict.headline:
        lines.insert(0, Text(verdict.headline, style="bold"))
    for threshold in verdict.thresholds:
        sign = (f"{mark(threshold)} ", MARK_STYLES[word(threshold)])
        lines.append(Text.assemble(sign, threshold.label, (f"   {threshold.text}", "dim")))
    if verdict.evidence:
        grid = RichTable.grid(padding=(0, 1))
        for fact in verdict.evidence:
            grid.add_row(Text("•", style="dim"), Text(fact))
        lines.append(grid)
    return Panel(Group(*lines), border_style=BORDERS[status], title="verdict", title_align="left")
