"""The plots of data sheets: throughput by size, latency by load, and bars with intervals, a colour
for each broker. A figure that may be better than the sheet shows is grey, with a triangle."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pubstorm.metrics.charts import SCALES
from pubstorm.quantities import Unit, shortened, size_bytes
from pubstorm.report.document import Plots
from pubstorm.report.plot import (
    DASHES,
    GREY,
    GRID,
    NO_MORE,
    PALETTE,
    Plot,
    category_axis,
    colour,
    figure,
    heat_map,
    log_ticks,
    plotted,
    scatter,
    value_axis,
)
from pubstorm.report.timeline import AXES
from pubstorm.result import Estimate
from pubstorm.result.datasheet import Datasheet, Section, SheetCell, SheetFigure
from pubstorm.result.datasheet_comparison import SheetComparison, SheetRow

PLACE = re.compile(r"(?P<shape>.+), (?P<qos>QoS [012]), (?P<size>\d+\s?[kM]?B)")
"""Title of a cell of throughput."""
BAR_PX, GAP_PX, HEAD_PX = 16, 14, 12
"""Heights of a bar, of the gap after the bars of a row, and above all of them."""
CELL_PX = 24
"""Height of a row of a heat map."""
FROM_SCHEDULE = "From the scheduled instant of a message to its delivery."
LATENCY_CAPTION = f"{FROM_SCHEDULE[:-1]}, on a logarithmic scale."
LINE_MIN = 2
"""Places that a line needs; a sheet with fewer has bars."""
GREY_CAPTION = "Grey: the broker may be better, since a limit of ours came first."
OWN_AXES: Mapping[str, tuple[str, float]] = {"bytes": ("kB", 1e-3)}
"""Axes that differ from those of runs, with the factor from the unit."""
BARS: tuple[tuple[Section, Unit, str, str], ...] = (
    ("connections", "per_s", "Connections", "Connects a second."),
    ("memory", "bytes", "Memory of an object", "Memory that each object takes."),
    ("trouble", "s", "Times of recovery", "Times until the broker and its clients recovered."),
)
"""Section, unit, title and caption of the plots with bars."""


@dataclass(frozen=True)
class SheetMark:
    """A figure in a plot."""

    at: str
    """Its place on the axis of names."""
    estimate: Estimate
    text: str
    is_bound: bool = False
    """True if the broker may be better."""

    @classmethod
    def of(cls, at: str, found: SheetFigure) -> SheetMark | None:
        """Returns the mark of a figure; None if it has no value."""
        if found.estimate is None:
            return None
        return cls(at, found.estimate, found.text, found.is_bound)


def sheet_plots(sheet: Datasheet) -> Iterator[Plots]:
    """Yields the sections with plots of a sheet."""
    cells = [cell for cell in sheet.cells if cell.section == "throughput" and cell.figures]
    lines = throughput_lines(cells) or throughput_bars(sheet, cells)
    throughput = tuple(plot for plot in (throughput_grid(cells), lines) if plot is not None)
    yield Plots("Throughput", "Throughput by size and QoS", throughput)
    latency = latency_plot(sheet)
    yield Plots("Latency", "Latency by load", () if latency is None else (latency,))
    drawn = []
    for section, unit, title, caption in BARS:
        marks = section_marks(sheet, section, unit)
        if marks:
            plot = Plot(f"{section}-bars", title, f"{caption} {GREY_CAPTION}", {})
            drawn.append(bars(plot, {sheet.name_of_broker: marks}, unit))
    yield Plots("Memory", "Connections, memory and recovery", tuple(drawn))


def compared_plots(found: SheetComparison) -> Iterator[Plots]:
    """Yields the sections with plots of data sheets side by side."""
    names = [column.name for column in found.columns]
    grid = relative_grid(found, names)
    yield Plots("Throughput", "Throughput relative to the best", () if grid is None else (grid,))
    yield Plots("Latency", "Latency by load", tuple(_compared_latency(found, names)))
    drawn = []
    for section, unit, title, caption in BARS:
        rows = [row for row in found.rows if row.section == section and row.unit == unit]
        if rows:
            several = len({row.figure for row in rows}) > 1
            groups = {
                name: [m for row in rows if (m := _mark(row, place, several)) is not None]
                for place, name in enumerate(names)
            }
            plot = Plot(f"{section}-bars", title, f"{caption} {GREY_CAPTION}", {})
            drawn.append(bars(plot, groups, unit))
    yield Plots("Memory", "Connections, memory and recovery", tuple(drawn))


def _mark(row: SheetRow, place: int, is_long: bool = False) -> SheetMark | None:
    return SheetMark.of(f"{row.title}: {row.figure}" if is_long else row.title, row.figures[place])


def relative_grid(found: SheetComparison, names: Sequence[str]) -> Plot | None:
    """Returns the rates of all brokers as a heat map, a row for each, as shares of the largest one
    of a load. The rate of a cell is its first figure."""
    rates = (row for row in found.rows if row.section == "throughput" and row.better == "more")
    rows = list({row.cell: row for row in reversed([*rates])}.values())[::-1]
    shares: dict[tuple[str, str], float | None] = {}
    texts = []
    for row in rows:
        values = [None if f.estimate is None else float(f.estimate.value) for f in row.figures]
        most = max((value for value in values if value is not None), default=0.0)
        if most <= 0:
            continue
        for name, value in zip(names, values, strict=True):
            shares[row.title, name] = None if value is None else round(100 * value / most, 1)
        texts.append([plotted(figure.text.partition(" ± ")[0]) for figure in row.figures])
    caption = (
        "Each cell has the rate; its colour is the share of the largest rate of its load. "
        "A rate with ≥ may be larger."
    )
    plot = Plot("throughput-grid", "Messages a second", caption, {})
    drawn = with_long_names(heat_map(plot, ("", ""), " %", shares, side_min=1))
    if drawn is not None:
        trace = drawn.figure["data"][0]
        of_brokers = [*map(list, zip(*texts, strict=True))]
        trace |= {"text": of_brokers, "texttemplate": "%{text}", "zmin": 0, "zmax": 100}
        trace["x"] = [load.replace(", ", ",<br>") for load in trace["x"]]
        drawn.figure["layout"]["height"] = HEAD_PX + CELL_PX * len(of_brokers)
    return drawn


def _compared_latency(found: SheetComparison, names: Sequence[str]) -> Iterator[Plot]:
    """Yields a plot for each percentile, with a line for each broker."""
    rows = [row for row in found.rows if row.section == "latency" and row.unit == "us"]
    loads = [*dict.fromkeys(row.title for row in rows)]
    if len(loads) == 1:
        groups = {
            broker: [m for row in rows if (m := SheetMark.of(row.figure, row.figures[n]))]
            for n, broker in enumerate(names)
        }
        yield bars(Plot("latency-bars", f"Latency {loads[0]}", FROM_SCHEDULE, {}), groups, "us")
        return
    for number, name in enumerate(dict.fromkeys(row.figure for row in rows)):
        own = [row for row in rows if row.figure == name]
        lines = {
            broker: [m for row in own if (m := _mark(row, n)) and m.estimate.value > 0]
            for n, broker in enumerate(names)
        }
        traces = [
            _line(broker, marks, "us", (n, n // len(PALETTE)))
            for n, (broker, marks) in enumerate(lines.items())
            if marks
        ]
        if traces:
            axis = _places_axis("", [plotted(row.title) for row in own])
            drawn = figure(traces, axis, _log_axis("us", traces))
            yield Plot(f"latency-{number}", f"Latency {name}", LATENCY_CAPTION, drawn)


def throughput_grid(cells: Sequence[SheetCell]) -> Plot | None:
    """Returns the largest rates as a heat map, a row for each shape and QoS."""
    places = _places(cells)
    found = {}
    for size in sizes_of(places):
        for cell, place in places:
            estimate = cell.figures[0].estimate
            if place[1] == size and estimate is not None:
                found[size, place[0]] = shortened(estimate.value)
    plot = Plot("throughput-grid", "Messages a second", "A stronger colour is more.", {})
    return with_long_names(heat_map(plot, ("size of a message", ""), "/s", found, side_min=2))


def with_long_names(plot: Plot | None) -> Plot | None:
    """Returns a heat map with room for the names of its rows, the first on top."""
    if plot is not None:
        plot.figure["layout"]["yaxis"] |= {"automargin": True, "autorange": "reversed"}
    return plot


def throughput_lines(cells: Sequence[SheetCell]) -> Plot | None:
    """Returns the largest rates over the size, a colour for each shape and a dash for each QoS."""
    lines: dict[tuple[str, str], list[SheetMark]] = {}
    places = _places(cells)
    sizes = sizes_of(places)
    for cell, (_, size) in sorted(places, key=lambda each: sizes.index(each[1][1])):
        found = PLACE.fullmatch(cell.title)
        mark = SheetMark.of(size, cell.figures[0])
        if found is not None and mark is not None and mark.estimate.value > 0:
            lines.setdefault((found["shape"], found["qos"]), []).append(mark)
    if len(sizes) < LINE_MIN or not lines:
        return None
    shapes, levels = ([*dict.fromkeys(each[n] for each in lines)] for n in (0, 1))
    traces = [
        _line(f"{shape}, {qos}", marks, "per_s", (shapes.index(shape), levels.index(qos)))
        for (shape, qos), marks in lines.items()
    ]
    caption = f"The largest rate with its interval, on a logarithmic scale. {GREY_CAPTION}"
    drawn = figure(traces, _places_axis("size of a message", sizes), _log_axis("per_s", traces))
    return Plot("throughput-lines", "Messages a second by size", caption, drawn)


def throughput_bars(sheet: Datasheet, cells: Sequence[SheetCell]) -> Plot | None:
    """Returns the largest rates as bars, for a sheet of one size."""
    marks = [mark for cell in cells if (mark := SheetMark.of(cell.title, cell.figures[0]))]
    if not marks:
        return None
    plot = Plot("throughput-bars", "Messages a second", f"The largest rate. {GREY_CAPTION}", {})
    return bars(plot, {sheet.name_of_broker: marks}, "per_s")


def latency_plot(sheet: Datasheet) -> Plot | None:
    """Returns the percentiles over the cells of latency; as bars, if there is one."""
    lines: dict[str, list[SheetMark]] = {}
    cells = [cell for cell in sheet.cells if cell.section == "latency" and cell.figures]
    for cell in cells:
        for found in cell.figures:
            mark = SheetMark.of(cell.title, found)
            if mark is not None and mark.estimate.unit == "us" and mark.estimate.value > 0:
                lines.setdefault(found.name, []).append(mark)
    if not lines:
        return None
    if len(cells) < LINE_MIN:
        named = [replace(marks[0], at=name) for name, marks in lines.items()]
        plot = Plot("latency-bars", f"Latency {cells[0].title}", FROM_SCHEDULE, {})
        return bars(plot, {sheet.name_of_broker: named}, "us")
    traces = [_line(name, marks, "us", (n, 0)) for n, (name, marks) in enumerate(lines.items())]
    axis = _places_axis("", [plotted(cell.title) for cell in cells])
    drawn = figure(traces, axis, _log_axis("us", traces))
    return Plot("latency-lines", "Latency", LATENCY_CAPTION, drawn)


def section_marks(sheet: Datasheet, section: Section, unit: Unit) -> list[SheetMark]:
    """Returns the figures of a section in a unit, with a name for each."""
    cells = [cell for cell in sheet.cells if cell.section == section]
    found = []
    for cell in cells:
        of_unit = [f for f in cell.figures if f.estimate is not None and f.estimate.unit == unit]
        for each in of_unit:
            name = cell.title if len(of_unit) == 1 else f"{cell.title}: {each.name}"
            mark = SheetMark.of(name, each)
            found += [] if mark is None else [mark]
    return found


def bars(plot: Plot, groups: Mapping[str, Sequence[SheetMark]], unit: Unit) -> Plot:
    """Returns horizontal bars with intervals, a colour for each group."""
    names = [*dict.fromkeys(mark.at for marks in groups.values() for mark in marks)]
    traces = [_bar(name, marks, unit, n) for n, (name, marks) in enumerate(groups.items())]
    x: dict[str, Any] = {
        "title": {"text": _axis(unit)[0]},
        "gridcolor": GRID,
        "zerolinecolor": GRID,
    }
    x |= {"rangemode": "tozero", "separatethousands": True, "exponentformat": "none"}
    y: dict[str, Any] = {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": [plotted(name) for name in names],
        "autorange": "reversed",
        "automargin": True,
        "showgrid": False,
    }
    height = HEAD_PX + len(names) * (GAP_PX + BAR_PX * len(groups))
    more = {"height": height, "bargap": 0.35, "barmode": "group"}
    drawn = figure(traces, x, y, **more)
    if len(groups) == 1:
        drawn["layout"]["showlegend"] = False
        traces[0]["showlegend"] = False
    return Plot(plot.key, plot.title, plot.caption, drawn)


def _bar(name: str, marks: Sequence[SheetMark], unit: Unit, number: int) -> dict[str, Any]:
    hue = colour(number)
    return {
        "type": "bar",
        "orientation": "h",
        "name": plotted(name),
        "x": [_scaled(mark.estimate.value, unit) for mark in marks],
        "y": [plotted(mark.at) for mark in marks],
        "text": [plotted(mark.text) for mark in marks],
        "textposition": "none",
        "hovertemplate": f"%{{fullData.name}}: %{{text}}, %{{y}}{NO_MORE}",
        "marker": {
            "color": [GREY if mark.is_bound else hue for mark in marks],
            "line": {"color": hue, "width": 1.5},
        },
        "error_x": _reaches(marks, unit),
    }


def _line(
    name: str, marks: Sequence[SheetMark], unit: Unit, look: tuple[int, int]
) -> dict[str, Any]:
    hue = colour(look[0])
    return scatter(
        name,
        [plotted(mark.at) for mark in marks],
        [_scaled(mark.estimate.value, unit) for mark in marks],
        mode="lines+markers",
        text=[plotted(mark.text) for mark in marks],
        hovertemplate=f"%{{fullData.name}}: %{{text}} at %{{x}}{NO_MORE}",
        line={"color": hue, "width": 1.5, "dash": DASHES[look[1] % len(DASHES)]},
        marker={
            "size": 9,
            "symbol": ["triangle-up" if mark.is_bound else "circle" for mark in marks],
            "color": [GREY if mark.is_bound else hue for mark in marks],
        },
        error_y=_reaches(marks, unit),
    )


def _reaches(marks: Sequence[SheetMark], unit: Unit) -> dict[str, Any]:
    """Returns the intervals of figures; a figure that may be better has none."""
    ends = [(0.0, 0.0) if m.is_bound else (m.estimate.low, m.estimate.high) for m in marks]
    values = [mark.estimate.value for mark in marks]
    pairs = [*zip(values, ends, marks, strict=True)]
    return {
        "type": "data",
        "symmetric": False,
        "array": [0 if m.is_bound else _scaled(max(e[1] - v, 0.0), unit) for v, e, m in pairs],
        "arrayminus": [0 if m.is_bound else _scaled(max(v - e[0], 0.0), unit) for v, e, m in pairs],
        "thickness": 1.5,
        "width": 4,
        "color": GREY,
    }


def _places_axis(title: str, names: Sequence[str]) -> dict[str, Any]:
    """Returns an axis of names with room for the first and the last one."""
    return {**category_axis(title, names), "range": [-0.4, len(names) - 0.6]}


def _log_axis(unit: Unit, traces: Sequence[dict[str, Any]]) -> dict[str, Any]:
    values = [value for trace in traces for value in trace["y"]]
    return value_axis(_axis(unit)[0], log=True) | log_ticks(min(values), max(values))


def _scaled(value: float, unit: Unit) -> float | int:
    return shortened(value * _axis(unit)[1])


def _axis(unit: Unit) -> tuple[str, float]:
    """Returns the title of an axis, and the factor from the unit to the one plotted."""
    return OWN_AXES.get(unit, (AXES[unit], SCALES.get(unit, 1.0)))


Place = tuple[str, str]
"""Shape with QoS, and the size of a message."""


def _places(cells: Sequence[SheetCell]) -> list[tuple[SheetCell, Place]]:
    """Returns the cells whose titles have a shape, a QoS and a size."""
    found = [(cell, PLACE.fullmatch(cell.title)) for cell in cells if cell.figures]
    return [(cell, (f"{m['shape']}, {m['qos']}", m["size"])) for cell, m in found if m is not None]


def sizes_of(places: Sequence[tuple[SheetCell, Place]]) -> list[str]:
    """Returns the sizes, the smallest first."""

    return sorted({size for _, (_, size) in places}, key=size_bytes)
