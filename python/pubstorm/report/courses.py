"""The plots that compare the runs of a series or a search: one line for each run over its time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pubstorm.contract.source import Source
from pubstorm.metrics.charts import RUNS, SCALES, UNITS, Chart, lines_of
from pubstorm.quantities import shortened
from pubstorm.report.plot import (
    HOVER,
    NO_MORE,
    Plot,
    figure,
    looks,
    milliseconds,
    scatter,
    thinned,
    time_axis,
    value_axis,
)
from pubstorm.result import RunResult
from pubstorm.result.samples import Tracks

LINES_MAX = 12
"""Runs in a plot; of more, the runs that the caller names first are shown."""
HOW_COURSES = (
    "Each line is a run, from its own start. A click on a name in the legend hides its line, and a "
    "double click shows it alone."
)


@dataclass(frozen=True)
class Course:
    """The charts of one run over time."""

    name: str
    duration_s: float = 0.0
    values: Mapping[str, Mapping[float, float]] = field(default_factory=dict)
    """Values by second, by the key of the chart."""


def course(name: str, result: RunResult, tracks: Tracks) -> Course:
    """Returns the lines of a run, over all of its populations."""
    found: dict[str, dict[float, float]] = {}
    for chart in RUNS:
        (drawn,) = lines_of("runs", chart.key)
        joined = max if drawn.line.joined == "max" else float.__add__
        scale = SCALES.get(drawn.unit, 1.0)
        values: dict[float, float] = defaultdict(float)
        for population in result.populations:
            track = tracks.get((Source.single("population", population), drawn.sample))
            for at_s, value in zip(track.at_s, track.values, strict=True) if track else ():
                values[at_s] = joined(values[at_s], float(value))
        found[chart.key] = {at_s: values[at_s] * scale for at_s in sorted(values)}
    return Course(name, result.duration_s, found)


def compared(courses: Sequence[Course]) -> Iterator[Plot]:
    """Yields a plot for each chart that two runs have."""
    for chart in RUNS:
        lines = [each for each in courses if any(each.values.get(chart.key, {}).values())]
        if len(lines) < 2:
            continue
        shown = lines[:LINES_MAX]
        longest_s = max(each.duration_s for each in shown)
        caption = chart.caption
        if len(shown) < len(lines):
            caption += f" Shown are {len(shown)} of {len(lines)} runs."
        traces = [
            _course_trace(each, chart, look)
            for each, look in zip(shown, looks((n, n // 6) for n in range(len(shown))), strict=True)
        ]
        drawn = figure(traces, time_axis(longest_s), value_axis(chart.axis, log=chart.log))
        yield Plot(chart.key, chart.title, caption, drawn, linked=True)


def _course_trace(line: Course, chart: Chart, look: tuple[str, str]) -> dict[str, object]:
    (drawn,) = lines_of("runs", chart.key)
    values = line.values[chart.key]
    instants, levels = list(values), list(values.values())
    places = thinned(levels)
    hue, dash = look
    return scatter(
        line.name,
        [milliseconds(instants[n]) for n in places],
        [None if chart.log and levels[n] <= 0 else shortened(levels[n]) for n in places],
        hovertemplate=f"{HOVER}{UNITS[drawn.unit]} at %{{x}}{NO_MORE}",
        line={"color": hue, "width": 1.5, "dash": dash},
    )
