"""A result on the terminal: what was run, tables, verdict, and where it is kept."""

from __future__ import annotations

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table as RichTable
from rich.text import Text

from pubstorm.console import PlainConsole
from pubstorm.report.outcomes import mark, word
from pubstorm.report.table import Table
from pubstorm.report.tables import facts, tables
from pubstorm.result import Result, Status, Verdict

FILE_WIDTH = 100
"""Columns of a report that goes to no terminal."""
STYLES = {Status.PASS: "bold green", Status.FAIL: "bold red", Status.INVALID: "bold yellow"}
MARK_STYLES = {"passed": "green", "failed": "bold red", "undecided": "bold yellow"}
BORDERS = {Status.PASS: "green", Status.FAIL: "red", Status.INVALID: "yellow"}


def render(result: Result, console: Console) -> None:
    """Prints everything."""
    console = wide_enough(console)
    console.print()
    console.print(Text(result.name, style="bold"))
    for name, value in facts(result):
        console.print(Text.assemble((f"  {name:<12}", "dim"), value), soft_wrap=True)
    for table in tables(result):
        console.print()
        console.print(drawn_table(table))
    console.print()
    render_verdict(result, console)


def render_verdict(result: Result, console: Console) -> None:
    """Prints verdict and run directory only."""
    console = wide_enough(console)
    console.print(_verdict(result.verdict))
    console.print(Text.assemble(("run directory  ", "dim"), result.run_directory), soft_wrap=True)


def wide_enough(console: Console) -> Console:
    """A file or a pipe has no width of its own, so nothing needs to be cut there."""
    if console.is_terminal or console.width >= FILE_WIDTH:
        return console
    return PlainConsole(file=console.file, width=FILE_WIDTH)


def drawn_table(table: Table) -> RichTable:
    """A table as it is drawn."""
    rich = RichTable(
        title=table.title,
        title_justify="left",
        title_style="bold",
        caption=Text(table.note) if table.note else None,
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
    for row in table.rows:
        rich.add_row(*map(Text, row))
    return rich


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
        lines.append(_evidence(verdict))
    return Panel(Group(*lines), border_style=BORDERS[status], title="verdict", title_align="left")


def _evidence(verdict: Verdict) -> RichTable:
    grid = RichTable.grid(padding=(0, 1))
    for fact in verdict.evidence:
        grid.add_row(Text("•", style="dim"), Text(fact))
    return grid
