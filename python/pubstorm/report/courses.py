"""The plots that compare the runs of a series or a search: one line for each run over its time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pubstorm.contract.source import Source
from pubstorm.report.plot import (
    HOVER,
    NO_MORE,
    Plot,
    figure,
    looks,
    milliseconds,
    plotted,
    rounded,
    thinned,
    time_axis,
    value_axis,
)
from pubstorm.result import Result
from pubstorm.result.samples import Tracks

LINES_MAX = 12
"""Runs in a plot; of more, the runs that the caller names first are shown."""
HOW = (
    "Each line is a run, from its own start. A click on a name in the legend hides its line, and a "
    "double click shows it alone."
)


@dataclass(frozen=True)
class Measure:
    """A figure of a whole run over time."""

    key: str
    title: str
    caption: str
    axis: str
    unit: str
    """Unit after a value under the pointer."""
    metric: str
    """Track of a population."""
    joined: Callable[[float, float], float]
    """Joins the values of two populations at one instant."""
    scale: float = 1.0
    log: bool = False


MEASURES = (
    Measure(
        "compare-received",
        "Received, by run",
        "Messages that all clients received in a second.",
        "messages per second",
        "/s",
        "received_per_s",
        float.__add__,
    ),
    Measure(
        "compare-p99",
        "Latency p99, by run",
        "The slowest population at each instant. The scale is logarithmic.",
        "latency p99 (ms, logarithmic)",
        " ms",
        "latency_p99_us",
        max,
        scale=1e-3,
        log=True,
    ),
)


@dataclass(frozen=True)
class Course:
    """The measures of one run over time."""

    name: str
    duration_s: float = 0.0
    values: Mapping[str, Mapping[float, float]] = field(default_factory=dict)
    """Values by second, by the key of the measure."""


def course(name: str, result: Result, tracks: Tracks) -> Course:
    """Returns the measures of a run, over all of its populations."""
    found: dict[str, dict[float, float]] = {}
    for measure in MEASURES:
        values: dict[float, float] = defaultdict(float)
        for population in result.populations:
            track = tracks.get((Source.single("population", population), measure.metric))
            for at_s, value in zip(track.at_s, track.values, strict=True) if track else ():
                values[at_s] = measure.joined(values[at_s], float(value))
        found[measure.key] = {at_s: values[at_s] * measure.scale for at_s in sorted(values)}
    return Course(name, result.duration_s, found)


def compared(courses: Sequence[Course]) -> Iterator[Plot]:
    """Yields a plot for each measure that two runs have."""
    for measure in MEASURES:
        lines = [each for each in courses if any(each.values.get(measure.key, {}).values())]
        if len(lines) < 2:
            continue
        shown = lines[:LINES_MAX]
        longest_s = max(each.duration_s for each in shown)
        caption = measure.caption
        if len(shown) < len(lines):
            caption += f" Shown are {len(shown)} of {len(lines)} runs."
        traces = [
            _trace(each, measure, look)
            for each, look in zip(shown, looks((n, n // 6) for n in range(len(shown))), strict=True)
        ]
        drawn = figure(traces, time_axis(longest_s), value_axis(measure.axis, log=measure.log))
        yield Plot(measure.key, measure.title, caption, drawn, linked=True)


def _trace(line: Course, measure: Measure, look: tuple[str, str]) -> dict[str, object]:
    values = line.values[measure.key]
    instants, levels = list(values), list(values.values())
    places = thinned(levels)
    hue, dash = look
    return {
        "type": "scatter",
        "mode": "lines",
        "name": plotted(line.name),
        "x": [milliseconds(instants[n]) for n in places],
        "y": [None if measure.log and levels[n] <= 0 else rounded(levels[n]) for n in places],
        "hovertemplate": f"{HOVER}{measure.unit} at %{{x}}{NO_MORE}",
        "line": {"color": hue, "width": 1.5, "dash": dash},
    }
