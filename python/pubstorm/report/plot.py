"""Parts of all plots, as Plotly's JSON: colours for light and dark ground, thinned lines, escaped
names, the time axis. Heat maps of a grid of two variables: a cell for each pair of values."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pubstorm.quantities import THIN_SPACE, shortened

PALETTE = (
    "#2f83c9",
    "#cf6d17",
    "#5c9981",
    "#6352ff",
    "#d60040",
    "#506b86",
    "#16969f",
    "#9a7a34",
    "#cb549b",
    "#7c8c2a",
    "#7f8894",
    "#b0684f",
)
"""Colours of lines: at least three times the contrast of both grounds. The first six differ also
for people who see no red or no green."""
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
START_MS = 31 * 24 * 3_600_000
"""Start of every run on the time axis: the first of a month. It cannot be zero, for Plotly takes a
number of up to four digits for a year."""
HOVER = "%{fullData.name}: %{y:,.5~r}"
"""Text under the pointer at a point, before the unit."""
NO_MORE = "<extra></extra>"
"""Keeps Plotly from adding a box with the name."""
GREY = "#7f8894"
GRID = "rgba(128,136,148,0.25)"
APART = {"ticks": "outside", "ticklen": 5, "tickcolor": "rgba(0,0,0,0)"}
"""Keeps the first label of a horizontal axis apart from the lowest one of the vertical axis."""
POINTS_MAX = 1000
"""Points of a track in a plot."""
NEAR, CLOSE, FAR = 2, 10, 1000
"""Factors between the smallest and the largest value of a logarithmic axis. Below the first two
they are close together, from the last on they are far apart."""
LEGEND_MAX = 8
"""Entries of a legend at most."""
LETTER_WIDTH = 7.2
"""Room for a letter in a legend, in pixels."""
NAME_CHARS_MAX = 48
"""Longer names lose their middle in plots."""

Part = Literal["happened", "load", "latency", "broker", "generator", "details"]
"""Sections of the page of a run, after the verdict."""


@dataclass(frozen=True)
class Plot:
    """One plot with the words around it."""

    key: str
    """Unique name in the page."""
    title: str
    caption: str
    """Text below the title."""
    figure: dict[str, Any]
    """`data` and `layout` of Plotly."""
    linked: bool = False
    """True if the time axis moves together with those of other linked plots."""
    is_flat: bool = False
    """True if all values are zero."""
    part: Part = "details"
    """Section of the page that has the plot."""


TIME_FORMATS = (
    (3600, "%-M:%S", "min:s"),
    (24 * 3600, "%-H:%M:%S", "h:min:s"),
    (math.inf, "%-d, %-H:%M", "day, h:min"),
)
"""Runs shorter than so many seconds have ticks of this form, in words."""


def plotted(text: str) -> str:
    """A name as text in a plot, where Plotly would read markup."""
    half = NAME_CHARS_MAX // 2
    short = text if len(text) <= NAME_CHARS_MAX else f"{text[: half - 1]}…{text[-half:]}"
    return html.escape(short, quote=False)


def colour(index: int) -> str:
    """The colour of the line with this number."""
    return PALETTE[index % len(PALETTE)]


def faint(hue: str) -> str:
    """The colour of the band around a line."""
    red, green, blue = (int(hue[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.15)"


def milliseconds(at_s: float) -> int:
    """A place on the time axis, where the start of the run is at START_MS."""
    return START_MS + round(at_s * 1000)


def looks(wanted: Iterable[tuple[int, int]]) -> list[tuple[str, str]]:
    """Returns a colour and a dash for each line, by the numbers that are wanted for both. A pair
    that another line has is replaced by the next one, until all pairs are taken."""
    found: list[tuple[str, str]] = []
    taken: set[tuple[str, str]] = set()
    for hue, dash in wanted:
        if len(taken) == len(PALETTE) * len(DASHES):
            taken.clear()
        steps = range(len(PALETTE) * len(DASHES))
        pairs = ((colour(hue + n // len(DASHES)), DASHES[(dash + n) % len(DASHES)]) for n in steps)
        found.append(next(pair for pair in pairs if pair not in taken))
        taken.add(found[-1])
    return found


def thinned(values: Sequence[float]) -> list[int]:
    """The places of at most POINTS_MAX values: of each bin of neighbours, the smallest and the
    largest, so that no spike is lost."""
    count = len(values)
    if count <= POINTS_MAX:
        return list(range(count))
    bins = POINTS_MAX // 2
    kept: list[int] = []
    for number in range(bins):
        places = range(number * count // bins, (number + 1) * count // bins)
        ends = (min(places, key=values.__getitem__), max(places, key=values.__getitem__))
        kept += sorted(set(ends))
    return kept


def time_axis(duration_s: float, title: str = "time since the start of the run") -> dict[str, Any]:
    """The horizontal axis of all plots over time: a date axis, for round ticks at every zoom."""
    ticks, words = next(form for longest_s, *form in TIME_FORMATS if duration_s < longest_s)
    return {
        "type": "date",
        "range": [milliseconds(0), milliseconds(max(duration_s, 0.001))],
        "tickformat": ticks,
        "tickformatstops": [
            {"dtickrange": [None, 99], "value": "%-M:%S.%3f"},
            {"dtickrange": [100, 999], "value": "%-M:%S.%1f"},
        ],
        "hoverformat": "%-H:%M:%S.%L",
        "title": {"text": f"{title} ({words})", "standoff": 8},
        "gridcolor": GRID,
        "zeroline": False,
        "spikecolor": GREY,
        "spikethickness": 1,
        "spikedash": "dot",
        **APART,
    }


def value_axis(title: str, *, log: bool = False) -> dict[str, Any]:
    """A vertical axis with its unit."""
    axis: dict[str, Any] = {
        "title": {"text": title},
        "gridcolor": GRID,
        "zerolinecolor": GRID,
        "type": "log" if log else "linear",
        "exponentformat": "none",
        "separatethousands": True,
    }
    return axis if log else axis | {"rangemode": "tozero"}


def log_ticks(low: float, high: float) -> dict[str, Any]:
    """Ticks of a logarithmic axis with whole numbers: at each power of ten where the values are far
    apart, else at 1, 2 and 5, at each digit, or at even steps, the closer together they are."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps: Sequence[int] = (1, 2, 5)
    if low < high < CLOSE * low:
        steps = range(1, 10)
    elif high >= FAR * low:
        steps = (1,)
    ticks = [step * 10.0**power for power in powers for step in steps]
    if low < high < NEAR * low:
        step = 10.0 ** math.floor(math.log10(high - low))
        ticks = [n * step for n in range(math.floor(low / step), math.ceil(high / step) + 1)]
    shown = [shortened(tick) for tick in ticks if 0 < low / 2 <= tick <= high * 2]
    return {
        "type": "log",
        "tickmode": "array",
        "tickvals": shown,
        "ticktext": [f"{tick:,}".replace(",", THIN_SPACE) for tick in shown],
    }


def category_axis(title: str, places: Iterable[str]) -> dict[str, Any]:
    """A horizontal axis of names, in their order."""
    return {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": list(places),
        "title": {"text": title},
        "gridcolor": GRID,
        **APART,
    }


def scatter(name: str, x: Sequence[object], y: Sequence[object], **more: Any) -> dict[str, Any]:
    """A line; `mode` makes it a row of points. `more` is how it looks."""
    drawn = {"type": "scatter", "mode": "lines", "name": plotted(name), "x": x, "y": y}
    return drawn | more


def band(
    name: str, x: Sequence[object], y: Sequence[object], hue: str, edge: Mapping[str, object]
) -> dict[str, Any]:
    """A band in the colour of its line."""
    ground = {"fill": "toself", "fillcolor": faint(hue), "hoverinfo": "skip", "showlegend": False}
    return scatter(name, x, y, line=edge, **ground)


def figure(
    traces: list[dict[str, Any]], x: dict[str, Any], y: dict[str, Any], **more: Any
) -> dict[str, Any]:
    """Traces and axes as a figure that looks as all of them do; `more` is further layout."""
    if y.get("type") == "log" and "tickvals" not in y:
        levels = [value for trace in traces for value in trace["y"] if value]
        y = y | (log_ticks(min(levels), max(levels)) if levels else {})
    return {"data": traces, "layout": _layout(x, y) | _legend(traces) | more}


def _layout(x: dict[str, Any], y: dict[str, Any]) -> dict[str, Any]:
    return {
        "xaxis": x,
        "yaxis": y,
        "margin": {"l": 76, "r": 16, "t": 26, "b": 48},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 12},
        "hovermode": "closest",
        "hoverlabel": {
            "bgcolor": "#262b33",
            "bordercolor": "#262b33",
            "font": {"color": "#f2f4f7"},
        },
        "separators": f".{THIN_SPACE}",
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": GREY, "activecolor": "#2f83c9"},
    }


def _legend(traces: list[dict[str, Any]]) -> dict[str, Any]:
    """A legend below the plot, its columns as wide as the longest name."""
    named = (trace["name"] for trace in traces if trace.get("showlegend", True))
    longest = max(map(len, named), default=0)
    return {
        "showlegend": True,
        "legend": {
            "orientation": "h",
            "yref": "container",
            "y": 0,
            "yanchor": "bottom",
            "x": 0,
            "entrywidth": round(LETTER_WIDTH * max(longest, 12)),
            "traceorder": "normal",
        },
    }


SIDE_MIN = 3
"""Values of each variable from which a heat map says more than lines."""
SCALE = ((0, "rgba(47,131,201,0.05)"), (1, "rgba(47,131,201,0.6)"))
"""One hue, so that cells differ for colour-blind people, and text is readable on both grounds."""
CAPTION = "A cell for each pair of values; a stronger colour is more."
OF_REPEATS = " Of repeats the largest is shown."
INVALID = " Steps that are invalid have no cell."


def heat_map(
    plot: Plot,
    axes: tuple[str, str],
    unit: str,
    cells: Mapping[tuple[str, str], float | None],
    side_min: int = SIDE_MIN,
) -> Plot | None:
    """Returns a heat map of values by their places on both axes, with the names of the axes; an
    absent value is a hole. None if a side is too short."""
    across = list(dict.fromkeys(x for x, _ in cells))
    down = list(dict.fromkeys(y for _, y in cells))
    if min(len(across), len(down)) < side_min:
        return None
    trace: dict[str, Any] = {
        "type": "heatmap",
        "name": plotted(plot.title),
        "x": [plotted(x) for x in across],
        "y": [plotted(y) for y in down],
        "z": [[cells.get((x, y)) for x in across] for y in down],
        "colorscale": [list(step) for step in SCALE],
        "texttemplate": "%{z:,.4~r}",
        "hoverongaps": False,
        "hovertemplate": f"%{{z:,.5~r}}{unit} at %{{x}}, %{{y}}{NO_MORE}",
        "showscale": False,
        "showlegend": False,
        "xgap": 2,
        "ygap": 2,
    }
    return Plot(plot.key, plot.title, plot.caption, figure([trace], _axis(axes[0]), _axis(axes[1])))


def _axis(name: str) -> dict[str, Any]:
    return {"type": "category", "title": {"text": plotted(name)}, "showgrid": False}
