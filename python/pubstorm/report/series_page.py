"""The page of a series, `report.html` in its folder: one table and plots over all steps, then each
step by itself. It reads the series and the folders of its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pubstorm.errors import StoredRunError
from pubstorm.report.answers import answer_plots
from pubstorm.report.grid import Grid, grid_of
from pubstorm.report.page import figures, library, page
from pubstorm.report.pivot import pivot_tables
from pubstorm.report.plot import (
    GRID,
    HOVER,
    NO_MORE,
    Plot,
    figure,
    looks,
    plotted,
    rounded,
    value_axis,
)
from pubstorm.report.search_page import search_plots
from pubstorm.report.stored import SEARCH_FILE, load_result, load_search, load_tracks
from pubstorm.report.summary import memory_table
from pubstorm.report.timeline import timeline
from pubstorm.report.watched import broker_sources
from pubstorm.result import (
    Latency,
    Result,
    SearchPoint,
    Series,
    SeriesStep,
    Status,
    are_figures,
)

STEP_PANELS = ("load", "process-cpu")
"""Plots over time that each step shows here; the rest is in its own report."""
SIGNS = {Status.PASS: "circle", Status.FAIL: "x", Status.INVALID: "triangle-up-open"}
"""Shape of a point by the verdict of its step; its colour is that of its line."""
LABEL_CHARS_MAX = 100
"""Characters of all labels together that there is room for below a plot."""
SHOWN_BY_ITSELF = ("step", "verdict")
"""Columns that each row of the page begins with, in a form of their own."""


@dataclass(frozen=True)
class OwnColumn:
    """A column of the series' table."""

    place: int
    """Its place among the cells of a step."""
    name: str
    is_number: bool


@dataclass(frozen=True)
class StepPart:
    """A step as the page shows it: what the series says of it, and its plots."""

    step: SeriesStep
    result: Result | None
    """Its own result; None where it came to none."""
    plots: tuple[Plot, ...]
    tracks_problem: str | None
    """Why it has no plot; None: it has, or it was not played."""
    page: str | None
    """Its own report, as a path from the folder of the series."""


@dataclass(frozen=True)
class Line:
    """A figure of each step, as a line over all of them."""

    name: str
    read: Callable[[Result], float | None]
    """The figure of a step; None: there is none."""


@dataclass(frozen=True)
class Point:
    """A figure of one step."""

    at: str
    """Its place on the horizontal axis."""
    status: Status
    """The verdict of the step."""
    value: float


def series_page(directory: Path, series: Series) -> str:
    """The text of `report.html`."""
    steps = [_part(directory, step) for step in series.steps]
    answers, overview = list(answer_plots(series)), _overview(steps)
    plots = [*answers, *overview, *(plot for step in steps for plot in step.plots)]
    return page(
        "series.html.j2",
        title=series.name,
        series=series,
        steps=steps,
        columns=_own_columns(series),
        memory=memory_table(series.memory, "steps"),
        tables=pivot_tables(series),
        answers=answers,
        overview=overview,
        facts=[
            ("started", series.started),
            ("ended", series.ended),
            *(("changed by", override) for override in series.overrides),
            ("folder", str(directory)),
        ],
        figures=figures(plots),
        library=library() if plots else "",
    )


def _part(directory: Path, step: SeriesStep) -> StepPart:
    folder = directory / step.folder
    if not folder.resolve().is_relative_to(directory.resolve()):
        return StepPart(step, None, (), f"{step.folder} lies outside the series", None)
    own_page = f"{step.folder}/report.html" if (folder / "report.html").exists() else None
    if (folder / SEARCH_FILE).exists():
        return _search_part(folder, step, own_page)
    try:
        result = load_result(folder)
    except StoredRunError as error:
        return StepPart(step, None, (), error.message if step.status else None, own_page)
    tracks, problem = load_tracks(folder)
    plots = tuple(
        Plot(f"step-{step.number}-{plot.key}", plot.title, "", plot.figure)
        for plot in timeline(result, tracks)
        if plot.key in STEP_PANELS
    )
    return StepPart(step, result, plots, problem, own_page)


def _search_part(folder: Path, step: SeriesStep, own_page: str | None) -> StepPart:
    """A step that is a search: its plots over the values, and the result of the point that shows
    its answer."""
    try:
        search = load_search(folder)
    except StoredRunError as error:
        return StepPart(step, None, (), error.message, own_page)
    plots = tuple(
        replace(plot, key=f"step-{step.number}-{plot.key}", caption="")
        for plot in search_plots(search)
    )
    best = search.answer.best_point
    shown = next((point for point in search.points if point.number == best), None)
    return StepPart(step, _result_of(folder, shown), plots, None, own_page)


def _result_of(folder: Path, point: SearchPoint | None) -> Result | None:
    """The result of a point; None where there is none any more."""
    if point is None or not (folder / point.folder).resolve().is_relative_to(folder.resolve()):
        return None
    try:
        return load_result(folder / point.folder)
    except StoredRunError:
        return None


def _own_columns(series: Series) -> list[OwnColumn]:
    """The columns of the series' table, but for what the page shows of each step by itself."""
    return [
        OwnColumn(place, name, are_figures([step.cells[place] for step in series.steps]))
        for place, name in enumerate(series.columns)
        if name not in SHOWN_BY_ITSELF
    ]


def _overview(steps: Sequence[StepPart]) -> list[Plot]:
    """The three questions of a series: how much, how slow, and how hard the broker worked, or the
    publisher where there is none."""
    tested = "publisher" if any(s.result and s.result.publishers for s in steps) else "broker"
    plots = [
        _over_steps(
            steps,
            Plot("throughput", "Throughput", "Rates over the steady windows of each step.", {}),
            ("messages per second", "/s"),
            [
                Line("sent", lambda result: _rate(result, "sent_per_s")),
                Line("acked", lambda result: _rate(result, "acked_per_s")),
                Line("received", lambda result: _rate(result, "received_per_s")),
            ],
        ),
        _over_steps(
            steps,
            Plot(
                "slowest",
                "Latency p99",
                "Of all populations the slowest, from the instant a message was due.",
                {},
            ),
            ("latency p99 (ms)", " ms"),
            [
                Line("delivery", lambda result: _p99_ms(result, "latency_us")),
                Line("acknowledgement", lambda result: _p99_ms(result, "ack_latency_us")),
            ],
        ),
        _over_steps(
            steps,
            Plot(
                "cpu",
                f"CPU of the {tested} and the host",
                f"Means under load. For the {tested} 100 % is one core, for the host all of them.",
                {},
            ),
            ("CPU (%)", " %"),
            [
                Line(
                    f"{tested} (of one core)",
                    lambda result: _cpu_percent(result, broker_sources(result)),
                ),
                Line("host (of all cores)", lambda result: _cpu_percent(result, {"host"})),
            ],
        ),
    ]
    return [plot for plot in plots if plot.figure["data"]]


def _over_steps(
    steps: Sequence[StepPart], plot: Plot, axis: tuple[str, str], lines: Sequence[Line]
) -> Plot:
    """A plot over the steps; `axis` is what it counts, and the unit behind a value. Of a grid each
    value of the other variables has a line of its own, and so has each variant."""
    grid = grid_of([part.step for part in steps])
    groups = list(dict.fromkeys(grid.group(part.step) for part in steps))
    found = [
        (place, number, line.name, group, points)
        for place, group in enumerate(groups)
        for number, line in enumerate(lines)
        if (points := list(_points(steps, line, grid, group)))
    ]
    single = len(groups) == 1
    own = looks((number, number) if single else (place, number) for place, number, *_ in found)
    traces = [
        _trace(" ".join(filter(None, (group, name))), points, look, axis[1])
        for (_, _, name, group, points), look in zip(found, own, strict=True)
    ]
    return replace(plot, figure=figure(traces, _steps_axis(steps, grid), value_axis(axis[0])))


def _steps_axis(steps: Sequence[StepPart], grid: Grid) -> dict[str, Any]:
    numbers: dict[str, int] = {}
    for part in steps:
        numbers.setdefault(plotted(grid.at(part.step)), part.step.number)
    axis = {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": list(numbers),
        "title": {"text": plotted(grid.title)},
        "gridcolor": GRID,
    }
    if sum(map(len, numbers)) > LABEL_CHARS_MAX and grid.path is None:
        axis |= {
            "tickvals": list(numbers),
            "ticktext": [str(number) for number in numbers.values()],
            "title": {"text": "number of the step"},
        }
    return axis


def _points(steps: Sequence[StepPart], line: Line, grid: Grid, group: str) -> Iterator[Point]:
    for part in steps:
        value = line.read(part.result) if part.result else None
        if part.result is not None and value is not None and grid.group(part.step) == group:
            yield Point(plotted(grid.at(part.step)), part.result.verdict.status, rounded(value))


def _trace(name: str, points: Sequence[Point], look: tuple[str, str], unit: str) -> dict[str, Any]:
    hue, dash = look
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": plotted(name),
        "x": [point.at for point in points],
        "y": [point.value for point in points],
        "text": [str(point.status).upper() for point in points],
        "hovertemplate": f"{HOVER}{unit} at %{{x}} (%{{text}}){NO_MORE}",
        "line": {"color": hue, "width": 1.5, "dash": dash},
        "marker": {"size": 11, "symbol": [SIGNS[point.status] for point in points], "color": hue},
    }


def _rate(result: Result, name: str) -> float | None:
    rate: float = sum(getattr(p.rates, name) for p in result.populations.values())
    return rate or None


def _p99_ms(result: Result, field: str) -> float | None:
    found: list[Latency] = [getattr(p, field).intended for p in result.populations.values()]
    return max((latency.p99 / 1000 for latency in found if latency.count), default=None)


def _cpu_percent(result: Result, sources: set[str]) -> float | None:
    means = [
        100 * each.load.mean
        for each in result.monitors
        if each.metric == "cpu" and each.source in sources and each.load.count
    ]
    return max(means, default=None)
