"""The plots over time, one for each question, all on the same time axis. The background of plots
over time: stages as bands, and events as numbered lines."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from pubstorm.contract import Source
from pubstorm.metrics.charts import (
    PAGE,
    SCALES,
    UNITS,
    Chart,
    SubjectKind,
    lines_of,
)
from pubstorm.metrics.monitors import unit_of
from pubstorm.quantities import Unit, counted, shortened, value_text
from pubstorm.report.plot import (
    GREY,
    HOVER,
    LEGEND_MAX,
    NO_MORE,
    Part,
    Plot,
    band,
    figure,
    looks,
    milliseconds,
    plotted,
    scatter,
    thinned,
    time_axis,
    value_axis,
)
from pubstorm.report.watched import with_each
from pubstorm.result import PhaseStatus, RunResult, StalledSubscriber, receivers_by_qos
from pubstorm.result.samples import Track, Tracks

MARKS_MAX = 40
"""Numbered lines of a plot."""
MARK_LABEL_SHARE = 0.015
"""Share of the time axis that the number of a line needs."""
BAND_LABEL_SHARE = 0.05
"""Share of the time axis that a band needs to have its name written above it."""
WARNINGS = frozenset({"scenario", "host"})
"""Kinds of events that are no happenings: warnings from before the first stage."""
MARK_COLOURS: Mapping[str, str] = {
    "collapse": "#d24f57",
    "recovery": "#2b9a66",
    "fault": "#cf6d17",
    "stall": "#a3589b",
}


@dataclass(frozen=True)
class Mark:
    """A numbered line in the plots."""

    number: int
    at_s: float
    kind: str
    text: str


def marks(result: RunResult) -> list[Mark]:
    """Returns events, changes, collapses, recoveries and stalls in the order of time, and then
    warnings."""
    found = [(event.at_s, str(event.kind), event.text) for event in result.events]
    for phase in result.phases:
        where = f"phase {phase.name} of stage {phase.stage}"
        start_s = phase.start_s
        if phase.collapsed_at_s is not None:
            start_s = phase.collapsed_at_s
            found.append((start_s, "collapse", f"the load was no longer carried, {where}"))
        if phase.status is PhaseStatus.RECOVERED and phase.recovered_after_s is not None:
            at_s = start_s + phase.recovered_after_s
            found.append((at_s, "recovery", f"the load was carried again, {where}"))
    found += _stalls(result)
    found.sort(key=lambda each: (each[1] in WARNINGS, *each))
    return [Mark(number, *each) for number, each in enumerate(found, 1)]


def _stalls(result: RunResult) -> Iterator[tuple[float, str, str]]:
    """Stalls that began in the same second are one."""
    seconds: dict[tuple[int, str], list[StalledSubscriber]] = {}
    for stall in result.stalls:
        seconds.setdefault((int(stall.since_s), stall.population), []).append(stall)
    total = sum(population.stalled_total for population in result.populations.values())
    some = "" if len(result.stalls) >= total else "at least "
    for (_, population), begun in seconds.items():
        others = f" and {some}{len(begun) - 1} more" if len(begun) > 1 else ""
        text = f"{population} {begun[0].number}{others} got nothing from here on"
        yield begun[0].since_s, "stall", text


def backdrop(result: RunResult) -> dict[str, Any]:
    """Bands and lines behind every plot."""
    stages = [(stage.name, stage.start_s, stage.duration_s) for stage in result.stages]
    behind = bands(stages, result.duration_s)
    shapes, notes = behind["shapes"], behind["annotations"]
    for mark in marks(result)[:MARKS_MAX]:
        shapes.append(_upright(mark))
    for at_s, label in _mark_labels(result):
        notes.append(_note(at_s, f"<b>{label}</b>", "center") | {"y": 0.93})
    return behind


def bands(stages: Sequence[tuple[str, float, float]], length_s: float) -> dict[str, Any]:
    """Stages as bands, each with its name, start and duration. `length_s` is the length of the
    time axis."""
    shapes: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    for number, (name, start_s, duration_s) in enumerate(stages):
        shapes.append(_band(start_s, start_s + duration_s, 0.10 if number % 2 else 0.04))
        if duration_s >= BAND_LABEL_SHARE * length_s:
            notes.append(_note(start_s, plotted(name), "left"))
    return {"shapes": shapes, "annotations": notes}


def _mark_labels(result: RunResult) -> Iterator[tuple[float, str]]:
    """The numbers of the lines; lines too close for numbers of their own share one label."""
    near: list[Mark] = []
    for mark in marks(result)[:MARKS_MAX]:
        if near and mark.at_s - near[-1].at_s > MARK_LABEL_SHARE * result.duration_s:
            yield _shared_label(near)
            near = []
        near.append(mark)
    if near:
        yield _shared_label(near)


def _shared_label(near: list[Mark]) -> tuple[float, str]:
    first, last = near[0], near[-1]
    label = str(first.number) if first is last else f"{first.number}–{last.number}"
    return (first.at_s + last.at_s) / 2, label


def _band(start_s: float, end_s: float, strength: float) -> dict[str, Any]:
    return {
        "type": "rect",
        "layer": "below",
        "xref": "x",
        "yref": "paper",
        "x0": milliseconds(start_s),
        "x1": milliseconds(end_s),
        "y0": 0,
        "y1": 1,
        "line": {"width": 0},
        "fillcolor": f"rgba(128,136,148,{strength})",
    }


def _upright(mark: Mark) -> dict[str, Any]:
    return {
        "type": "line",
        "xref": "x",
        "yref": "paper",
        "x0": milliseconds(mark.at_s),
        "x1": milliseconds(mark.at_s),
        "y0": 0,
        "y1": 1,
        "line": {"width": 1, "dash": "dot", "color": MARK_COLOURS.get(mark.kind, GREY)},
    }


def _note(at_s: float, text: str, anchor: str) -> dict[str, Any]:
    return {
        "xref": "x",
        "yref": "paper",
        "x": milliseconds(at_s),
        "y": 1,
        "xanchor": anchor,
        "yanchor": "bottom",
        "text": text,
        "showarrow": False,
        "font": {"size": 11},
    }


UNIFIED_MAX = 12
"""Lines up to which all values at an instant are shown together under the pointer."""
STILL_MAX = 12
"""Names of lines at zero that a caption lists."""
DOT = 5
"""Size of a point that stands alone, in pixels."""
AXES = {
    "": "count",
    "share": "%",
    "bytes": "MB",
    "per_s": "per second",
    "bytes_per_s": "MB/s",
    "us": "ms",
    "s": "s",
}

PARTS: Mapping[SubjectKind, Part] = {
    "population": "load",
    "deliveries": "load",
    "watched": "broker",
    "group": "broker",
    "bridge": "broker",
    "agent": "generator",
    "host": "generator",
}
"""Section of the page that has the charts of a kind. Latency has one of its own."""
LATENCY = frozenset({"round-trip", "latency"})
"""Charts of that section."""
DELIVERIES = Source.single("population", "deliveries")
"""Source of the rates by QoS, which no monitor has."""
HOUR_S = 3600
GAP = 3.5
"""Times the usual time between two readings after which there is a gap."""


Trace = dict[str, Any]
"""A line of Plotly."""


@dataclass(frozen=True)
class _Line:
    source: Source
    place: int
    """Place of its metric in the chart."""
    label: str
    track: Track
    unit: Unit
    gaps: frozenset[int]
    """Places of points after which nothing was read for a while."""
    is_band: bool = False
    """True if the area down to the previous line is filled."""

    @property
    def is_flat(self) -> bool:
        """Returns True if all values are zero."""
        return not any(self.track.values)


def timeline(result: RunResult, tracks: Tracks) -> list[Plot]:
    """Every chart that has a track to show."""
    tracks = with_qos(result, with_each(result, tracks))
    rhythm, behind = _Rhythm.of(tracks), backdrop(result)
    plots: list[Plot] = []
    for chart in PAGE:
        lines = list(_lines(chart, tracks, rhythm))
        if lines:
            part: Part = "latency" if chart.key in LATENCY else PARTS[chart.kind]
            plots.append(_plot(chart, lines, result, behind, part))
    return plots


def other_tracks(result: RunResult, tracks: Tracks) -> list[Plot]:
    """Returns plots of all monitors that no chart shows, by source and unit."""
    shown = {
        (source, metric)
        for chart in PAGE
        for source, metric in tracks
        if chart.kind in _kinds(source)
        and any(each.shows(metric) for each in lines_of("page", chart.key))
    }
    rhythm = _Rhythm.of(tracks)
    groups: dict[tuple[Source, Unit], list[_Line]] = {}
    for (source, metric), track in tracks.items():
        if (source, metric) not in shown:
            unit = unit_of(metric)
            gaps = rhythm.gaps(source, track, track.merged_s)
            lines = groups.setdefault((source, unit), [])
            lines.append(_Line(source, 0, metric, _scaled(track, unit), unit, gaps))
    behind = backdrop(result)
    plots: list[Plot] = []
    for (source, unit), lines in groups.items():
        for start in range(0, len(lines), LEGEND_MAX):
            title = f"{source.name}: {AXES[unit]}" + (f", from {start + 1}" if start else "")
            chart = Chart(f"other-{len(plots)}", title, "", AXES[unit])
            shown_lines = lines[start : start + LEGEND_MAX]
            plots.append(_plot(chart, shown_lines, result, behind, "details"))
    return plots


def with_qos(result: RunResult, tracks: Tracks) -> Tracks:
    """The tracks of a run, with deliveries by QoS if there are several."""
    by_qos = receivers_by_qos(result.populations)
    if len(by_qos) < 2:
        return tracks
    sums: dict[str, dict[float, float]] = {qos: defaultdict(float) for qos in by_qos}
    for qos, names in by_qos.items():
        for name in names:
            key = Source.single("population", name), "received_per_s"
            track = tracks.get(key, Track())
            for at_s, value in zip(track.at_s, track.values, strict=True):
                sums[qos][at_s] += value
    found = {
        (DELIVERIES, f"qos_{qos}_per_s"): Track(sorted(each), [each[at_s] for at_s in sorted(each)])
        for qos, each in sums.items()
    }
    return {**tracks, **found}


@dataclass(frozen=True)
class _Rhythm:
    """Instants of readings, to find missing ones."""

    instants: Mapping[Source, Sequence[float]]
    """Ends of the intervals of each source of the load."""
    usual_s: float
    """Usual time between two readings."""

    @classmethod
    def of(cls, tracks: Tracks) -> _Rhythm:
        """The rhythm of a run."""
        instants: dict[Source, set[float]] = {}
        for (source, _), track in tracks.items():
            if {"population", "agent"} & {*_kinds(source)}:
                instants.setdefault(source, set()).update(track.at_s)
        usual = [median(steps) for track in tracks.values() if (steps := _steps_s(track))]
        every = {source: sorted(found) for source, found in instants.items()}
        return cls(every, median(usual) if usual else 0.0)

    def gaps(self, source: Source, track: Track, merged_s: float) -> frozenset[int]:
        """The points after which readings are missing: those of the load where an interval of the
        source has none, others where the next one comes much later than usual. Until `merged_s`,
        readings are merged, and the points of an hour may lie anywhere in it."""
        instants, steps_s = self.instants.get(source), _steps_s(track)
        first = bisect_left(track.at_s, merged_s)
        found = {n for n, step_s in enumerate(steps_s[:first]) if step_s > 2 * HOUR_S}
        if instants is not None:
            places = [bisect_left(instants, at_s) for at_s in track.at_s[first:]]
            later = (n for n, (at, next_) in enumerate(pairwise(places), first) if next_ - at > 1)
            return frozenset({*found, *later})
        own_s = steps_s[first:]
        longest_s = GAP * max(self.usual_s, median(own_s) if own_s else 0.0)
        later = (n for n, step_s in enumerate(own_s, first) if step_s > longest_s)
        return frozenset({*found, *later})


def _steps_s(track: Track) -> list[float]:
    return [later - at for at, later in pairwise(track.at_s)]


def _kinds(source: Source) -> tuple[SubjectKind, ...]:
    """Returns the kinds of charts that show a source."""
    if source is DELIVERIES:
        return ("deliveries",)
    match source.kind:
        case "population" | "agent" | "host" | "bridge" as kind:
            return (kind,)
        case "broker" if source.number is None:
            return ("watched", "group")
    return ("watched",)


def _lines(chart: Chart, tracks: Tracks, rhythm: _Rhythm) -> Iterator[_Line]:
    """The tracks of a chart, source by source in the order of its lines."""
    drawn = lines_of("page", chart.key)
    found = [
        (source, place, metric)
        for source, metric in tracks
        if chart.kind in _kinds(source)
        for place, each in enumerate(drawn)
        if each.shows(metric)
    ]
    order = {source: number for number, source in enumerate(dict.fromkeys(s for s, _, _ in found))}
    for source, place, metric in sorted(found, key=lambda each: (order[each[0]], each[1])):
        line, unit, track = drawn[place].line, drawn[place].unit, tracks[source, metric]
        shown = _scaled(_growth(track) if line.growth else track, unit)
        if shown.values:
            label = line.label or metric.removeprefix("$SYS/")
            gaps = rhythm.gaps(source, shown, track.merged_s)
            yield _Line(source, place, label, shown, unit, gaps, line.band)


def _scaled(track: Track, unit: Unit) -> Track:
    scale = SCALES.get(unit)
    return Track(track.at_s, [value * scale for value in track.values]) if scale else track


def _growth(track: Track) -> Track:
    """Growth per second between distinct readings, at the later one of each two."""
    grown = track.growth()
    return Track([each.to_s for each in grown], [each.per_s for each in grown])


def _plot(
    chart: Chart, lines: list[_Line], result: RunResult, behind: dict[str, Any], part: Part
) -> Plot:
    is_flat = all(line.is_flat for line in lines)
    lines, parts = _shares_or_wholes(lines)
    moving = lines if is_flat else [line for line in lines if not line.is_flat]
    shown = _largest(moving)
    caption = " ".join((*_caption(chart, lines, moving, shown), *parts))
    unified = len(shown) <= UNIFIED_MAX
    where = "" if unified else " at %{x}"
    traces: list[Trace] = []
    for line, (hue, dash) in zip(shown, looks(_wanted(shown)), strict=True):
        trace = _trace(chart, line, hue) | {"line": {"color": hue, "width": 1.5, "dash": dash}}
        trace["hovertemplate"] = f"{HOVER}{UNITS.get(line.unit, '')}{where}{NO_MORE}"
        traces.append(trace)
    traces += _bands(shown, traces)
    if len(shown) > LEGEND_MAX:
        traces = [*_legend(shown, traces), *traces]
    axis = value_axis(chart.axis, log=chart.log)
    if chart.key == "latency":
        caption += _acknowledged(shown, result)
        if (top := _queued_top(shown, result)) is not None:
            level, words = top
            axis |= {"range": level}
            caption += words
    hover = "x unified" if unified else "closest"
    drawn = figure(traces, time_axis(result.duration_s), axis, hovermode=hover, **behind)
    return Plot(chart.key, chart.title, caption, drawn, linked=True, is_flat=is_flat, part=part)


def _caption(
    chart: Chart, lines: Sequence[_Line], moving: Sequence[_Line], shown: Sequence[_Line]
) -> Iterator[str]:
    if chart.caption:
        yield chart.caption
    drawn = {id(line) for line in moving}
    still = [f"{line.source.name} {line.label}" for line in lines if id(line) not in drawn]
    if still:
        names = ", ".join(still[:STILL_MAX])
        more = f" and {len(still) - STILL_MAX} more" if len(still) > STILL_MAX else ""
        yield f"Zero throughout: {names}{more}."
    if len(shown) < len(moving):
        yield f"Shown are the {len(shown)} of {len(moving)} tracks with the largest values."


def _shares_or_wholes(lines: list[_Line]) -> tuple[list[_Line], list[str]]:
    """Returns the lines without those of populations whose shares have lines too; if that is too
    much for a legend, without the shares. The words about the shares are parts of a caption."""
    shares = {line.source.name for line in lines if "/" in line.source.name}
    names = {line.source.name for line in lines}
    wholes = sorted({whole for name in shares if (whole := name.partition("/")[0]) in names})
    if not wholes or lines[0].source.kind != "population":
        return lines, []
    found = [line for line in lines if line.source.name not in wholes]
    if sum(not line.is_flat for line in found) <= LEGEND_MAX:
        return found, []
    kept = [line for line in lines if line.source.name.partition("/")[0] not in wholes]
    kept += [line for line in lines if line.source.name in wholes]
    return kept, [f"All shares of {' and of '.join(wholes)} are drawn together."]


def _largest(lines: list[_Line]) -> list[_Line]:
    """Returns the lines with the largest values that a legend has room for. Of several sources with
    several metrics it names each once."""
    sources, metrics = _sources(lines), _metrics(lines)
    if len(sources) + len(metrics) <= LEGEND_MAX:
        return lines
    ranked = sorted(lines, key=lambda line: -max(line.track.values, default=0.0))
    if len(lines) > LEGEND_MAX and 1 < len(metrics) < LEGEND_MAX and len(sources) > 1:
        room = LEGEND_MAX - len(metrics)
        kept = {*_sources(ranked)[:room]}
        return [line for line in lines if line.source in kept]
    chosen = {id(line) for line in ranked[:LEGEND_MAX]}
    return [line for line in lines if id(line) in chosen]


def _sources(lines: Sequence[_Line]) -> list[Source]:
    return list(dict.fromkeys(line.source for line in lines))


def _metrics(lines: Sequence[_Line]) -> list[tuple[int, str]]:
    return list(dict.fromkeys((line.place, line.label) for line in lines))


def _legend(lines: Sequence[_Line], traces: Sequence[Trace]) -> Iterator[Trace]:
    """Yields entries of a legend in place of those of the lines: the colour of each source, which
    hides its lines, and the dash of each metric."""
    entries: dict[str, dict[str, Any]] = {}
    for line, trace in zip(lines, traces, strict=False):
        name = plotted(line.source.name)
        trace.update(showlegend=False, legendgroup=name)
        hue = {"color": trace["line"]["color"], "width": 1.5}
        entries.setdefault(name, {"line": hue, "legendgroup": name})
    for line, trace in zip(lines, traces, strict=False):
        dash = {"color": GREY, "width": 1.5, "dash": trace["line"]["dash"]}
        entries.setdefault(line.label, {"line": dash})
    for name, look in entries.items():
        yield scatter(name, [None], [None], hoverinfo="skip", **look)


def _acknowledged(lines: Sequence[_Line], result: RunResult) -> str:
    """Returns the populations whose latencies are those of acknowledgements, in words."""
    every = {**result.populations, **result.wholes}
    names = [
        source.name
        for source in _sources(lines)
        if (found := every.get(source.name)) and not found.latency_us.intended.count
    ]
    return f" Acknowledgements: {', '.join(names[:STILL_MAX])}." if names else ""


QUEUED_ROOM = 10
"""The axis of a run with queued messages ends at its usual median latency times this factor."""


def _queued_top(lines: Sequence[_Line], result: RunResult) -> tuple[list[float], str] | None:
    """Returns the ends of the axis of latencies, as logarithms, and words about them, if messages
    that waited for offline clients would spoil the scale of the others. None in a run with faults,
    which such latencies belong to."""
    queued = sum(
        max(each.queued_received_total, each.queued_latency_us.count)
        for each in result.populations.values()
    )
    medians = sorted(v for line in lines if not line.place for v in line.track.values if v > 0)
    levels = [value for line in lines for value in line.track.values if value > 0]
    if not queued or result.faults or not medians:
        return None
    top = QUEUED_ROOM * medians[len(medians) * 9 // 10]
    if max(levels) <= top:
        return None
    longest = value_text(max(levels) * 1000, "us")
    words = (
        f" Values up to {longest} lie above the axis, since {counted(queued, 'message')} waited "
        "for clients that were offline; a double click shows all."
    )
    return [math.log10(min(levels)), math.log10(top)], words


def _wanted(lines: Sequence[_Line]) -> Iterator[tuple[int, int]]:
    """Numbers of colour and dash: several sources have a colour each and a dash for each of their
    metrics, one alone has colours."""
    sources, metrics = _sources(lines), _metrics(lines)
    for line in lines:
        place = metrics.index((line.place, line.label))
        yield (sources.index(line.source), place) if len(sources) > 1 else (place, 0)


def _trace(chart: Chart, line: _Line, hue: str) -> Trace:
    """A line with its gaps; a point between two gaps is a dot."""
    values = line.track.values
    places = thinned(values)
    x: list[int] = []
    y: list[float | None] = []
    for at, following in zip(places, [*places[1:], None], strict=True):
        x.append(milliseconds(line.track.at_s[at]))
        y.append(None if chart.log and values[at] <= 0 else shortened(values[at]))
        if following is not None and any(n in line.gaps for n in range(at, following)):
            x.append(milliseconds(line.track.at_s[at]) + 1)
            y.append(None)
    alone = [
        value is not None and before is None and after is None
        for before, value, after in zip([None, *y[:-1]], y, [*y[1:], None], strict=True)
    ]
    mode = "lines+markers" if any(alone) else "lines"
    name = f"{line.source.name} {line.label}"
    trace = scatter(name, x, y, mode=mode, connectgaps=False)
    if any(alone):
        trace["marker"] = {"color": hue, "size": [DOT if each else 0 for each in alone]}
    return trace


def _bands(lines: Sequence[_Line], traces: Sequence[Trace]) -> Iterator[Trace]:
    """Faint bands from a line down to the one before it, between their gaps."""
    for lower, upper, line in zip(traces, traces[1:], lines[1:], strict=False):
        if not line.is_band:
            continue
        x: list[int | None] = []
        y: list[float | None] = []
        for above, below in zip(_unbroken(upper), _unbroken(lower), strict=False):
            for at, value in (*above, *reversed(below)):
                x.append(at)
                y.append(value)
            x.append(None)
            y.append(None)
        name = f"{line.source.name} {line.label}"
        yield band(name, x, y, upper["line"]["color"], {"width": 0})


def _unbroken(trace: Trace) -> list[list[tuple[int, float]]]:
    """The parts of a line between its gaps."""
    parts: list[list[tuple[int, float]]] = [[]]
    for at, value in zip(trace["x"], trace["y"], strict=True):
        if value is None:
            parts.append([])
        else:
            parts[-1].append((at, value))
    return [part for part in parts if part]
