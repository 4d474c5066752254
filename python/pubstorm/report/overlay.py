"""The plots of a comparison over time: both sides overlaid, each stage aligned at its start. The
plots that compare the runs of a series or a search: one line for each run over its time."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from pubstorm.contract import OF_LOAD, Source
from pubstorm.metrics.charts import RUNS, SCALES, SIDES, UNITS, Chart, ChartLine, lines_of
from pubstorm.quantities import shortened
from pubstorm.report.plot import (
    HOVER,
    NO_MORE,
    PALETTE,
    Plot,
    band,
    figure,
    looks,
    milliseconds,
    scatter,
    thinned,
    time_axis,
    value_axis,
)
from pubstorm.report.timeline import bands
from pubstorm.report.watched import broker_sources
from pubstorm.result import RunResult
from pubstorm.result.samples import Track, Tracks

LOOKS = ((PALETTE[0], "solid"), (PALETTE[1], "dash"))
"""Colour and dash of each side. The dash alone distinguishes them without colours."""
SLOTS_MAX = 500
"""Slots of time in a plot: each has one point of each side."""
GAP_SLOTS = 3
"""A line breaks where more slots than these have no reading."""
ROUNDING_S = 0.001
"""Samples keep milliseconds: a sample this close to the end of a slot belongs to it."""
HOW_OVERLAID = (
    "A line is the median of the runs of a side, and the band around it reaches from the "
    "smallest run to the largest. The baseline is solid; the candidate is dashed, with dotted "
    "edges. Every stage begins at the same place in all runs."
)

Line = dict[float, tuple[float, float, float]]
"""Smallest, median and largest value of the runs of a side, by place on the time axis in
seconds."""


@dataclass(frozen=True)
class Played:
    """A run with its samples."""

    result: RunResult
    tracks: Tracks
    """The tracks that `needed` names, at least."""


@dataclass(frozen=True)
class _Measure:
    """A chart with its only line."""

    chart: Chart
    drawn: ChartLine

    @property
    def sample(self) -> str:
        """Metric of the tracks."""
        return self.drawn.sample

    @property
    def is_largest(self) -> bool:
        """True if the largest value of the sources and of a slot counts, not their sum."""
        return self.drawn.line.joined == "max"

    def sources(self, result: RunResult) -> Iterable[Source]:
        """Returns the sources of the tracks."""
        if self.drawn.kind == "watched":
            return _under_test(result)
        return (Source.single("population", name) for name in result.populations)

    def joined(self, values: Sequence[float]) -> float:
        """Joins the values of the sources, in the unit of the chart."""
        joined = max(values) if self.is_largest else math.fsum(values)
        return SCALES.get(self.drawn.unit, 1.0) * joined


def _under_test(result: RunResult) -> list[Source]:
    named = broker_sources(result)
    found = {
        Source(each.kind, each.source, each.group)
        for each in result.monitors
        if each.source in named and each.kind not in OF_LOAD
    }
    return sorted(found, key=lambda source: source.name)


MEASURES = tuple(
    _Measure(chart, drawn) for chart in SIDES for drawn in lines_of("sides", chart.key)
)


def needed(tracks: Tracks) -> Tracks:
    """Returns the tracks that the plots show."""
    samples = {measure.sample for measure in MEASURES}
    return {key: track for key, track in tracks.items() if key[1] in samples}


@dataclass(frozen=True)
class SharedStage:
    """A stage on the shared time axis."""

    name: str
    start_s: float
    """Place of its start."""
    duration_s: float
    """Longest duration in a run."""


def lanes(results: Sequence[RunResult]) -> list[SharedStage]:
    """Returns the stages that all runs have, one after the other."""
    durations = [{stage.name: stage.duration_s for stage in each.stages} for each in results]
    found: list[SharedStage] = []
    start_s = 0.0
    for name in durations[0] if durations else ():
        if all(name in each for each in durations):
            longest_s = max(each[name] for each in durations)
            found.append(SharedStage(name, start_s, longest_s))
            start_s += longest_s
    return found


def overlaid(sides: Mapping[str, Sequence[Played]]) -> tuple[Plot, ...]:
    """Returns a plot for each measure that both sides have. There is none if no stage is in all
    runs."""
    runs = [run for side in sides.values() for run in side]
    shared = lanes([run.result for run in runs])
    if not shared or not all(sides.values()):
        return ()
    left_out = _left_out(shared, runs)
    plots = (_plot(measure, sides, shared, left_out) for measure in MEASURES)
    return tuple(plot for plot in plots if plot is not None)


def _left_out(shared: Sequence[SharedStage], runs: Sequence[Played]) -> str:
    """Returns the stages that are only in some runs, in words."""
    kept = {lane.name for lane in shared}
    names = dict.fromkeys(s.name for run in runs for s in run.result.stages if s.name not in kept)
    return f" Stages that only some runs have are not shown: {', '.join(names)}." if names else ""


def _plot(
    measure: _Measure,
    sides: Mapping[str, Sequence[Played]],
    shared: Sequence[SharedStage],
    left_out: str,
) -> Plot | None:
    end_s = shared[-1].start_s + shared[-1].duration_s
    runs = [run for side in sides.values() for run in side]
    slot_s = max([end_s / SLOTS_MAX, *(_usual_step_s(track) for track in _tracks(measure, runs))])
    lines = [
        _line([_values(measure, run, shared, slot_s) for run in side]) for side in sides.values()
    ]
    if not all(any(middle for _, middle, _ in line.values()) for line in lines):
        return None
    traces: list[dict[str, Any]] = []
    for (name, side), line, look in zip(sides.items(), lines, LOOKS, strict=True):
        parts = list(_parts(line, slot_s))
        if len(side) > 1:
            traces.append(_band(name, parts, measure, look))
        traces.append(_trace(name, parts, measure, look))
    chart = measure.chart
    axis = value_axis(chart.axis, log=chart.log)
    time = time_axis(end_s, "time, each stage from its own start")
    behind = bands([(lane.name, lane.start_s, lane.duration_s) for lane in shared], end_s)
    drawn = figure(traces, time, axis, hovermode="x unified", **behind)
    return Plot(chart.key, chart.title, chart.caption + left_out, drawn, linked=True)


def _tracks(measure: _Measure, runs: Sequence[Played]) -> Iterator[Track]:
    for run in runs:
        for source in measure.sources(run.result):
            if (track := run.tracks.get((source, measure.sample))) is not None:
                yield track


def _usual_step_s(track: Track) -> float:
    steps_s = [later - at for at, later in pairwise(track.at_s)]
    return median(steps_s) if steps_s else 0.0


def _values(
    measure: _Measure, run: Played, shared: Sequence[SharedStage], slot_s: float
) -> dict[float, float]:
    """Returns the measure of a run by slot. A sum leaves out slots in which a source is
    missing."""
    stages = {stage.name: stage for stage in run.result.stages}
    sources = 0
    slots: dict[float, list[float]] = defaultdict(list)
    within = max if measure.is_largest else fmean
    for track in _tracks(measure, [run]):
        sources += 1
        own: dict[float, list[float]] = defaultdict(list)
        for lane in shared:
            stage = stages[lane.name]
            start_s = stage.start_s + ROUNDING_S
            part = track.between(start_s, start_s + stage.duration_s)
            for at_s, value in zip(part.at_s, part.values, strict=True):
                slot_end_s = math.ceil((at_s - start_s) / slot_s) * slot_s
                own[lane.start_s + min(slot_end_s, lane.duration_s)].append(value)
        for at_s, values in own.items():
            slots[at_s].append(within(values))
    fewest = 1 if measure.is_largest else sources
    return {at_s: measure.joined(values) for at_s, values in slots.items() if len(values) >= fewest}


def _line(runs: Sequence[Mapping[float, float]]) -> Line:
    slots: dict[float, list[float]] = defaultdict(list)
    for run in runs:
        for at_s, value in run.items():
            slots[at_s].append(value)
    return {at_s: (min(v), median(v), max(v)) for at_s, v in sorted(slots.items())}


def _parts(line: Line, slot_s: float) -> Iterator[Line]:
    """Yields the parts of a line between its gaps."""
    part: Line = {}
    last_s = -math.inf
    for at_s, values in line.items():
        if part and at_s - last_s > (GAP_SLOTS + 1) * slot_s:
            yield part
            part = {}
        part[at_s] = values
        last_s = at_s
    if part:
        yield part


def _trace(
    name: str, parts: Sequence[Line], measure: _Measure, look: tuple[str, str]
) -> dict[str, Any]:
    """Returns the medians of a side as a line."""
    x: list[int | None] = []
    y: list[float | None] = []
    for part in parts:
        x += [*map(milliseconds, part), None]
        middles = [middle for _, middle, _ in part.values()]
        y += [None if measure.chart.log and m <= 0 else shortened(m) for m in middles] + [None]
    hue, dash = look
    return scatter(
        name,
        x[:-1],
        y[:-1],
        connectgaps=False,
        line={"color": hue, "width": 2, "dash": dash},
        hovertemplate=f"{HOVER}{UNITS[measure.drawn.unit]}{NO_MORE}",
    )


def _band(
    name: str, parts: Sequence[Line], measure: _Measure, look: tuple[str, str]
) -> dict[str, Any]:
    """Returns the band between the smallest and the largest run of a side."""
    x: list[int | None] = []
    y: list[float | None] = []
    for part in parts:
        shown = {at_s: each for at_s, each in part.items() if each[0] > 0 or not measure.chart.log}
        there = [*map(milliseconds, shown)]
        x += [*there, *reversed(there), None]
        y += [shortened(high) for _, _, high in shown.values()]
        y += [*reversed([shortened(low) for low, _, _ in shown.values()]), None]
    hue, dash = look
    edge = {"width": 0} if dash == "solid" else {"width": 1, "dash": "dot", "color": hue}
    return band(name, x[:-1], y[:-1], hue, edge)


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
