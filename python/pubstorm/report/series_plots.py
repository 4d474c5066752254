"""The plots of a series: each step over time, figures over the steps, and the answers of searches
over the steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from operator import mul
from pathlib import Path
from typing import Any

from pubstorm.contract import HOST
from pubstorm.errors import StoredRunError
from pubstorm.files import lies_in
from pubstorm.metrics import OF_POPULATIONS, columns_of
from pubstorm.metrics.charts import SCALES, UNITS
from pubstorm.metrics.metric import Metric
from pubstorm.quantities import shortened
from pubstorm.report.overlay import Course, course
from pubstorm.report.plot import (
    CAPTION,
    HOVER,
    INVALID,
    NO_MORE,
    OF_REPEATS,
    Plot,
    category_axis,
    figure,
    heat_map,
    log_ticks,
    looks,
    plotted,
    scatter,
    value_axis,
)
from pubstorm.report.search_plots import search_plots
from pubstorm.report.stored import SEARCH_FILE, holds, load_result, load_search, load_tracks
from pubstorm.report.timeline import AXES, timeline
from pubstorm.report.watched import broker_sources
from pubstorm.result import (
    Estimate,
    RunResult,
    SearchAnswer,
    Series,
    SeriesStep,
    StageResult,
    Status,
    Trial,
)
from pubstorm.result.figures import together
from pubstorm.result.figures.of_monitors import hosts_of

STEP_PANELS = ("load", "process-cpu")
"""Plots over time that each step shows here; the rest is in its own report."""
SIGNS = {
    Status.PASS: "circle",
    Status.FAIL: "x",
    Status.OPEN: "triangle-up-open",
    Status.INVALID: "triangle-up-open",
}
"""Shape of a point by the verdict of its step; its colour is that of its line."""
LABEL_CHARS_MAX = 100
"""Characters of all labels together that there is room for below a plot."""
BEST = ("answer-best", "The largest value that passes")
MOST = ("answer-most", "The largest figure")
ANSWER_CAPTION = (
    "Bars are the intervals of the searches. A triangle is a lower bound: no larger value could be "
    "counted, or was to be tried. The scale is logarithmic."
)


@dataclass(frozen=True)
class StepPlots:
    """The part of the page that comes from the folder of a step."""

    result: RunResult | None = None
    """The result of the step; None if there is none."""
    plots: tuple[Plot, ...] = ()
    problem: str | None = None
    """The reason why the step has no plot; None if it has some, or was not played."""
    page: str | None = None
    """The page of the step, as a path from the folder of the series."""
    course: Course | None = None
    """The step over time, to compare it with others."""


@dataclass(frozen=True)
class StepLine:
    """A figure of each step, as a line over all of them."""

    name: str
    read: Callable[[RunResult], float | None]
    """Returns the figure of a step; None if there is none."""


@dataclass(frozen=True)
class StepPoint:
    """A figure of one step."""

    at: str
    """Place on the horizontal axis."""
    status: Status
    """The verdict of the step."""
    value: float


def answer_plots(series: Series) -> Iterator[Plot]:
    """A plot of the largest values, and one of the largest figures, where searches found any."""
    yield from _answer_plot(series, BEST, lambda answer: answer.best)
    yield from _answer_plot(series, MOST, lambda answer: answer.most)


def _answer_plot(
    series: Series, named: tuple[str, str], read: Callable[[SearchAnswer], Estimate | None]
) -> Iterator[Plot]:
    lines: dict[str, list[tuple[SeriesStep, Estimate]]] = {}
    for step in series.steps:
        found = read(step.answer) if step.answer is not None else None
        if found is not None and found.value > 0:
            lines.setdefault(step.variant or "", []).append((step, found))
    if not lines:
        return
    units = {found.unit for line in lines.values() for _, found in line}
    axis = AXES[units.pop()] if len(units) == 1 else "value"
    labels = dict.fromkeys(plotted(step.base or step.label) for step in series.steps)
    key, title = named
    own = looks((n, n) for n in range(len(lines)))
    traces = [
        _answer_trace(name or title, line, look)
        for (name, line), look in zip(lines.items(), own, strict=True)
    ]
    values = [value for trace in traces for value in trace["y"]]
    y_axis = value_axis(axis, log=True) | log_ticks(min(values), max(values))
    yield Plot(key, title, ANSWER_CAPTION, figure(traces, category_axis("step", labels), y_axis))


def _answer_trace(
    name: str, line: list[tuple[SeriesStep, Estimate]], look: tuple[str, str]
) -> dict[str, Any]:
    hue, dash = look
    found = [estimate for _, estimate in line]
    symbols = ["triangle-up" if each.bound == "at_least" else "circle" for each in found]
    return scatter(
        name,
        [plotted(step.base or step.label) for step, _ in line],
        [_scaled(each, each.value) for each in found],
        mode="lines+markers",
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [_reach(each, each.high) for each in found],
            "arrayminus": [_reach(each, each.low) for each in found],
            "thickness": 1.5,
        },
        text=[each.text for each in found],
        hovertemplate=f"{HOVER}{UNITS.get(found[0].unit, '')} at %{{x}} (%{{text}}){NO_MORE}",
        line={"color": hue, "width": 1.5, "dash": dash},
        marker={"size": 9, "symbol": symbols},
    )


def _reach(estimate: Estimate, end: float) -> float | int:
    """Returns the reach of an interval to one side; 0 for a bound."""
    return 0 if estimate.bound == "at_least" else _scaled(estimate, abs(end - estimate.value))


def _scaled(estimate: Estimate, value: float) -> float | int:
    return shortened(value * SCALES.get(estimate.unit, 1.0))


def step_plots(directory: Path, step: SeriesStep) -> StepPlots:
    """Reads the folder of a step."""
    folder = directory / step.folder
    if not lies_in(folder, directory):
        return StepPlots(None, (), f"{step.folder} lies outside the series", None)
    own_page = f"{step.folder}/report.html" if holds(folder, "report.html") else None
    if holds(folder, SEARCH_FILE):
        return _search_part(folder, step, own_page)
    try:
        result = load_result(folder)
    except StoredRunError as error:
        return StepPlots(None, (), error.message if step.status else None, own_page)
    tracks, problem = load_tracks(folder)
    plots = tuple(
        Plot(f"step-{step.number}-{plot.key}", plot.title, "", plot.figure)
        for plot in timeline(result, tracks)
        if plot.key in STEP_PANELS
    )
    return StepPlots(result, plots, problem, own_page, course(step.name, result, tracks))


def _search_part(folder: Path, step: SeriesStep, own_page: str | None) -> StepPlots:
    """A step that is a search: its plots over the values, and the result of the trial that shows
    its answer."""
    try:
        search = load_search(folder)
    except StoredRunError as error:
        return StepPlots(None, (), error.message, own_page)
    plots = tuple(
        replace(plot, key=f"step-{step.number}-{plot.key}", caption="")
        for plot in search_plots(search)
    )
    best = search.answer.best_trial
    shown = next((trial for trial in search.trials if trial.number == best), None)
    return StepPlots(_result_of(folder, shown), plots, None, own_page)


def _result_of(folder: Path, trial: Trial | None) -> RunResult | None:
    if trial is None or not lies_in(folder / trial.folder, folder):
        return None
    try:
        return load_result(folder / trial.folder)
    except StoredRunError:
        return None


Played = tuple[SeriesStep, RunResult | None]


def overview(steps: Sequence[SeriesStep], results: Sequence[RunResult | None]) -> list[Plot]:
    """Returns throughput, latency and CPU over the steps: CPU of the publisher if there is one,
    else of the broker."""
    tested = "publisher" if any(result and result.publishers for result in results) else "broker"
    played = list(zip(steps, results, strict=True))
    plots = [
        _over_steps(
            played,
            Plot("throughput", "Throughput", "Rates over the steady windows of each step.", {}),
            ("messages per second", "/s"),
            _lines("throughput"),
        ),
        _over_steps(
            played,
            Plot(
                "slowest",
                "Latency p99",
                "Of all populations the slowest, from the instant a message was scheduled.",
                {},
            ),
            ("latency p99 (ms)", " ms"),
            _lines("slowest"),
        ),
        _over_steps(
            played,
            Plot(
                "cpu",
                f"CPU of the {tested} and the host",
                f"Means under load. For the {tested} 100 % is one core, for the host all of them.",
                {},
            ),
            ("CPU (%)", " %"),
            [
                StepLine(
                    f"{tested} (of one core)",
                    lambda result: _cpu_percent(result, broker_sources(result)),
                ),
                StepLine(
                    "host (of all cores)",
                    lambda result: _cpu_percent(result, _hosts_under_test(result)),
                ),
            ],
        ),
    ]
    return [*_heat_maps(played), *(plot for plot in plots if plot.figure["data"])]


def _heat_maps(played: Sequence[Played]) -> Iterator[Plot]:
    grid = grid_of([step for step, _ in played])
    if grid.path is None or len(grid.others) != 1 or any(s.variant for s, _ in played):
        return
    across, down = grid.path, grid.others[0]
    pairs = dict.fromkeys((step.values[across], step.values[down]) for step, _ in played)
    valid = [pair for pair in played if pair[0].status is not Status.INVALID]
    caption = CAPTION + OF_REPEATS if len(pairs) < len(played) else CAPTION
    caption += INVALID if len(valid) < len(played) else ""
    for key, title, unit, read in HEATED:
        cells: dict[tuple[str, str], float | None] = dict(pairs)
        for step, result in valid:
            value = read(result) if result else None
            if value is not None:
                place = (step.values[across], step.values[down])
                cells[place] = max(shortened(value), cells[place] or 0)
        plot = heat_map(Plot(key, title, caption, {}), (_name(across), _name(down)), unit, cells)
        if plot is not None:
            yield plot


def _over_steps(
    played: Sequence[Played], plot: Plot, axis: tuple[str, str], lines: Sequence[StepLine]
) -> Plot:
    """Returns a plot over the steps. `axis` is the title of the axis, and the unit after a value.
    In a grid each value of the other variables has its own line; so has each variant."""
    grid = grid_of([step for step, _ in played])
    groups = list(dict.fromkeys(grid.group(step) for step, _ in played))
    found = [
        (place, number, line.name, group, points)
        for place, group in enumerate(groups)
        for number, line in enumerate(lines)
        if (points := list(_points(played, line, grid, group)))
    ]
    single = len(groups) == 1
    kept: list[tuple[StepLook, list[StepPoint]]] = []
    names: list[dict[str, list[str]]] = []
    for place, number, name, group, points in found:
        same = next((n for n, (_, line) in enumerate(kept) if _are_equal(line, points)), len(kept))
        if same == len(kept):
            kept.append(((number, number) if single else (place, number), points))
            names.append({})
        names[same].setdefault(group, []).append(name)
    traces = [
        _trace(_joined(own), points, look, axis[1])
        for own, (_, points), look in zip(names, kept, looks(n for n, _ in kept), strict=True)
    ]
    return replace(
        plot,
        caption=plot.caption + (ONCE if len(kept) < len(found) else ""),
        figure=figure(traces, _steps_axis([step for step, _ in played], grid), value_axis(axis[0])),
    )


ONCE = " Lines that lie on each other are drawn once."
SAME = 0.005
"""Largest difference of two values that lie on each other, as a share of the larger one."""
StepLook = tuple[int, int]
"""Numbers of the colour and the dash that a line should have."""


def _are_equal(line: Sequence[StepPoint], other: Sequence[StepPoint]) -> bool:
    pairs = zip_longest(line, other)
    return all(
        a
        and b
        and a.at == b.at
        and abs(a.value - b.value) <= SAME * max(abs(a.value), abs(b.value))
        for a, b in pairs
    )


def _joined(names: Mapping[str, Sequence[str]]) -> str:
    """Returns the name of lines that lie on each other, by their group: `qos 0 sent, acked`."""
    groups: dict[str, list[str]] = {}
    for group, own in names.items():
        groups.setdefault(", ".join(own), []).append(group)
    return "; ".join(" ".join(filter(None, (", ".join(g), own))) for own, g in groups.items())


def _steps_axis(steps: Sequence[SeriesStep], grid: StepGrid) -> dict[str, Any]:
    numbers: dict[str, int] = {}
    for step in steps:
        numbers.setdefault(plotted(grid.at(step)), step.number)
    axis = category_axis(plotted(grid.title), numbers)
    if sum(map(len, numbers)) > LABEL_CHARS_MAX and grid.path is None:
        axis |= {
            "tickvals": list(numbers),
            "ticktext": [str(number) for number in numbers.values()],
            "title": {"text": "number of the step"},
        }
    return axis


def _points(
    played: Sequence[Played], line: StepLine, grid: StepGrid, group: str
) -> Iterator[StepPoint]:
    for step, result in played:
        value = line.read(result) if result else None
        if result is not None and value is not None and grid.group(step) == group:
            yield StepPoint(plotted(grid.at(step)), result.verdict.status, shortened(value))


def _trace(
    name: str, points: Sequence[StepPoint], look: tuple[str, str], unit: str
) -> dict[str, Any]:
    hue, dash = look
    return scatter(
        name,
        [point.at for point in points],
        [point.value for point in points],
        mode="lines+markers",
        text=[str(point.status).upper() for point in points],
        hovertemplate=f"{HOVER}{unit} at %{{x}} (%{{text}}){NO_MORE}",
        line={"color": hue, "width": 1.5, "dash": dash},
        marker={"size": 11, "symbol": [SIGNS[point.status] for point in points], "color": hue},
    )


def _lines(table: str) -> list[StepLine]:
    """Returns a line for each column that the registry has of a plot over the steps."""
    return [
        StepLine(head, partial(_figure, metric=metric, statistic=statistic))
        for metric, column in columns_of(table)
        for head, statistic in column.named(metric.name)
    ]


def _figure(result: RunResult, metric: Metric, statistic: str = "") -> float | None:
    """Returns a figure of all populations, scaled as in plots; None if it is zero or was not
    measured. A ramp is left out: a publish stage in which clients join, before one without."""
    stages = _without_ramps(result)
    if stages:
        values = [together(metric, s.populations.values(), statistic) or 0.0 for s in stages]
        weights = [stage.steady_s for stage in stages]
        is_rate = metric.path[0] == "rates"
        found = sum(map(mul, values, weights)) / sum(weights) if is_rate else max(values)
    else:
        found = together(metric, result.populations.values(), statistic) or 0.0
    return found * SCALES.get(metric.unit or "", 1.0) or None


def _hosts_under_test(result: RunResult) -> set[str]:
    """Returns the hosts of the sources under test; the controller's if they have none."""
    found = (hosts_of(result, source) for source in broker_sources(result))
    return set[str]().union(*found) or {HOST}


def _without_ramps(result: RunResult) -> list[StageResult]:
    """Returns the publish stages without ramps; nothing if there is no ramp to leave out."""
    before = [0, *(stage.connected for stage in result.stages)]
    publish = [
        (stage, stage.connected > connected)
        for stage, connected in zip(result.stages, before, strict=False)
        if stage.kind == "publish" and stage.steady_s
    ]
    calm = [place for place, (_, is_ramp) in enumerate(publish) if not is_ramp]
    ramps = [place for place, (_, is_ramp) in enumerate(publish) if is_ramp]
    if not calm or not ramps or ramps[0] > calm[-1]:
        return []
    return [stage for stage, is_ramp in publish if not is_ramp]


def _cpu_percent(result: RunResult, sources: set[str]) -> float | None:
    means = [
        100 * each.load.mean
        for each in result.monitors
        if each.metric == "cpu" and each.source in sources and each.load.count
    ]
    return max(means, default=None)


@dataclass(frozen=True)
class StepGrid:
    """The axis and the lines of a series."""

    path: str | None
    """The variable on the axis; None: its steps by their labels."""
    others: tuple[str, ...] = ()
    """Variables that have a line for each of their values."""

    @property
    def title(self) -> str:
        """Name of the axis."""
        return "step" if self.path is None else _name(self.path)

    def at(self, step: SeriesStep) -> str:
        """The place of a step on the axis."""
        return (step.base or step.label) if self.path is None else step.values[self.path]

    def group(self, step: SeriesStep) -> str:
        """The line that a step belongs to; empty if there is one line."""
        values = (f"{_name(path)} {step.values[path]}" for path in self.others)
        return ", ".join((*values, *([step.variant] if step.variant else ())))


def grid_of(steps: Sequence[SeriesStep]) -> StepGrid:
    """The grid of a series: of several variables, if every value of the first one is played with
    every combination of the others. Otherwise the steps stand side by side."""
    paths = [path for path in _shared_paths(steps) if len({s.values[path] for s in steps}) > 1]
    if len(paths) < 2:
        return StepGrid(None)
    first, *others = paths
    rows = {step.values[first] for step in steps}
    lines = {tuple(step.values[path] for path in others) for step in steps}
    played = {tuple(step.values[path] for path in paths) for step in steps}
    if len(lines) < 2 or len(played) != len(rows) * len(lines):
        return StepGrid(None)
    return StepGrid(first, tuple(others))


def _shared_paths(steps: Sequence[SeriesStep]) -> list[str]:
    """Paths that every step gives a value, without those that variants differ in."""
    variants = {step.variant for step in steps}
    of_variant = [s for s in steps if s.variant == next(iter(variants), None)]
    return [
        path
        for path in (of_variant[0].values if of_variant else ())
        if all(path in step.values for step in steps)
        and len({s.values[path] for s in of_variant}) > 1
    ]


def _name(path: str) -> str:
    """The last word of a path that is no number: `clients`, `qos`."""
    words = [word for word in path.split(".") if not word.isdigit()]
    return words[-1] if words else path


HEATED: tuple[tuple[str, str, str, Callable[[RunResult], float | None]], ...] = (
    (
        "heat-received",
        "Messages received a second",
        "/s",
        lambda result: _figure(result, OF_POPULATIONS["received_per_s"]),
    ),
    (
        "heat-p99",
        "Latency p99 (ms)",
        " ms",
        lambda result: next(filter(None, (line.read(result) for line in _lines("slowest"))), None),
    ),
)
"""Figures with a heat map: key, title, unit, and the figure of a step."""
