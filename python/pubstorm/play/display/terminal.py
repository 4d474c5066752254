"""The display on a terminal: stage with a bar, a row for each population, latency, errors and the
generator's own load, drawn in place."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live as RichLive
from rich.measure import Measurement
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pubstorm.metrics import columns_of
from pubstorm.metrics.metric import Metric
from pubstorm.play.display import Live, PopulationSummary, StageTime, Summary
from pubstorm.quantities import count_text, duration_text, rate_text, share_text, span_text
from pubstorm.result import Latency

BAR_WIDTH = 40
BUSY_WARNING = 0.7
"""Busy share from which the figure is shown as a warning."""


COLUMNS = [each for each in columns_of("live") if each[1].rank]
"""The columns of numbers. A narrow terminal leaves out those of the largest ranks."""
RANKS = sorted((column.rank for _, column in COLUMNS), reverse=True)
WIDEST = 1000

KEYS = (("p", "pause"), ("+ -", "rate by 10 %"), ("s", "end the stage"), ("q", "end the run"))
"""Keys with their effects."""


class TerminalLive(Live):
    """Draws each summary over the one before."""

    takes_keys = True

    def __init__(self, console: Console) -> None:
        self._console = console
        self._name = ""
        self._live: RichLive | None = None

    def begin(self, name: str, _folder: Path) -> None:
        """Opens the display."""
        self._name = name
        self._live = RichLive(
            _start(name, "starting"),
            console=self._console,
            auto_refresh=False,
            transient=True,
        )
        self._live.start()

    def step(self, text: str) -> None:
        """Prints a line that stays."""
        self._console.print(Text(text, style="bold"), soft_wrap=True)

    def starting(self, text: str) -> None:
        """Draws how far the start is."""
        if self._live is not None:
            self._live.update(_start(self._name, text), refresh=True)

    def show(self, summary: Summary) -> None:
        """Draws a summary."""
        if self._live is not None:
            self._live.update(drawn(self._name, summary, self.after_s), refresh=True)

    def note(self, text: str) -> None:
        """Prints a line above the display."""
        self._console.print(Text.assemble(("! ", "bold yellow"), text), soft_wrap=True)

    def suspend(self) -> None:
        """Takes the display away until the process continues."""
        if self._live is not None:
            self._live.stop()

    def resume(self) -> None:
        """Opens the display again."""
        if self._live is not None:
            self._live.start()

    def end(self) -> None:
        """Takes the display away."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def drawn(name: str, summary: Summary, after_s: float = 0.0) -> RenderableType:
    """A summary as it is drawn. `after_s` is the time that further runs take."""
    parts: list[RenderableType] = [
        _stage(summary.time),
        Text(),
        _Populations(summary),
        Text(),
        *_totals(summary),
        _figures(summary),
    ]
    if summary.outcomes:
        parts.append(_outcomes(summary))
    if sys.stdin is not None and sys.stdin.isatty():
        keys = (part for key, what in KEYS for part in (key, (f" {what}   ", "dim")))
        parts += [Text(), Text.assemble(*keys)]
    elapsed = f"{span_text(summary.elapsed_s)}, {summary.time.left_text(after_s)}"
    return Panel(
        Group(*parts),
        title=Text(name, style="bold"),
        subtitle=elapsed,
        title_align="left",
        subtitle_align="right",
        border_style="cyan",
    )


def _start(name: str, text: str) -> RenderableType:
    return Text(f"{name}: {text}", style="dim")


def _stage(time: StageTime) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_row(
        Text(f"{time.number}/{time.stages}", style="dim"),
        Text(time.name, style="bold"),
        ProgressBar(total=1.0, completed=time.share, width=BAR_WIDTH),
        Text(share_text(round(time.share, 2))),
        Text("" if time.left_s is None else f"{span_text(time.left_s)} left", style="dim"),
    )
    return grid


@dataclass(frozen=True, slots=True)
class _Populations:
    """The table of populations, with the columns that fit."""

    summary: Summary

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        unbounded = options.update(max_width=WIDEST)
        for rank in RANKS:
            table = _populations(self.summary, rank)
            if Measurement.get(console, unbounded, table).maximum <= options.max_width:
                break
        yield table


def _populations(summary: Summary, rank_max: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, header_style="dim", pad_edge=False)
    table.add_column("population", no_wrap=True)
    columns = [
        (metric, column)
        for metric, column in COLUMNS
        if column.rank <= rank_max
        and (column.when == "always" or any(_value(metric, p) for p in summary.populations))
    ]
    for _, column in columns:
        table.add_column(column.head, justify="right", no_wrap=True, min_width=10)
    for population in summary.populations:
        cells = (_cell(metric, population) for metric, _ in columns)
        table.add_row(Text(population.name), *cells)
    return table


def _cell(metric: Metric, population: PopulationSummary) -> RenderableType:
    value = _value(metric, population)
    if metric.unit == "per_s":
        return rate_text(value)
    if metric.of_a_size:
        all_there = value >= population.clients
        text = f"{count_text(value)} / {count_text(population.clients)}"
        return Text(text, style="green" if all_there else "yellow")
    return Text(count_text(value), style="red" if value else "")


def _value(metric: Metric, population: PopulationSummary) -> float:
    return population.figures.get(metric.name, 0)


def _totals(summary: Summary) -> Iterator[Text]:
    """Yields the line of messages since the start, once there are some."""
    totals = ((name, count) for name, count in summary.totals.items() if count)
    parts = [part for n, count in totals for part in ((f"{n} ", "dim"), f"{count_text(count)}   ")]
    if parts:
        yield Text.assemble(("so far ", "dim"), *parts)


def _figures(summary: Summary) -> Text:
    busy_style = "bold yellow" if summary.busy_share >= BUSY_WARNING else "bold"
    trips = _durations("round trip", summary.round_trip) if summary.round_trip.count else ()
    return Text.assemble(
        *trips,
        *_durations("latency", summary.latency),
        ("agent busy ", "dim"),
        (share_text(round(summary.busy_share, 2)), busy_style),
    )


def _durations(name: str, latency: Latency) -> tuple[tuple[str, str], ...]:
    """Returns the parts of a line that show a distribution."""
    return (
        (f"{name} p50 ", "dim"),
        (_duration(latency, latency.p50), "bold"),
        ("  p99 ", "dim"),
        (_duration(latency, latency.p99), "bold"),
        ("   ", ""),
    )


def _duration(latency: Latency, duration_us: float) -> str:
    return duration_text(duration_us) if latency.count else "–"


def _outcomes(summary: Summary) -> Text:
    parts: list[tuple[str, str]] = []
    for reason, count in sorted(summary.outcomes.items(), key=lambda item: -item[1]):
        parts += [(f"{reason} ", "dim"), (f"{count_text(count)}   ", "bold red")]
    return Text.assemble(*parts)
