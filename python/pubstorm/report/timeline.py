"""The plots over time: one for each question, all on the same time axis, with the stages as bands
and what happened as numbered lines. It reads samples; which metric is shown where is data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pubstorm.report.backdrop import backdrop
from pubstorm.report.panels import PANELS, Kind, Panel
from pubstorm.report.plot import (
    DASHES,
    HOVER,
    NO_MORE,
    Plot,
    colour,
    figure,
    milliseconds,
    plotted,
    rounded,
    thinned,
    time_axis,
    value_axis,
)
from pubstorm.report.publishers import publisher_sources, with_each
from pubstorm.report.watched import groups
from pubstorm.result import Result
from pubstorm.samples import Track, Tracks, Unit, unit_of

LINES_MAX = 24
"""Lines in a plot; of more, those with the largest values are shown."""
UNIFIED_MAX = 12
"""Lines up to which all values at an instant are shown together under the pointer."""
SCALES = {"share": 100.0, "bytes": 1e-6, "bytes_per_s": 1e-6, "us": 1e-3}
"""Factors from the unit of a metric to the one plotted: %, MB, MB/s, ms."""
AXES = {
    "": "count",
    "share": "%",
    "bytes": "MB",
    "per_s": "per second",
    "bytes_per_s": "MB/s",
    "us": "ms",
    "s": "s",
}


@dataclass(frozen=True)
class _Line:
    source: str
    pick: int
    label: str
    track: Track


def timeline(result: Result, tracks: Tracks) -> list[Plot]:
    """Every panel that has a track to show."""
    tracks = with_each(result, tracks)
    behind = backdrop(result)
    plots: list[Plot] = []
    for panel in PANELS:
        lines = list(_lines(panel, result, tracks))
        if lines:
            plots.append(_plot(panel, lines, result, behind))
    return plots


def other_tracks(result: Result, tracks: Tracks) -> list[Plot]:
    """What no panel shows, by source and unit."""
    shown = {
        (source, metric)
        for panel in PANELS
        for source, metric in tracks
        if panel.kind in _kinds(source, result)
        and any(re.fullmatch(pick.pattern, metric) for pick in panel.picks)
    }
    groups: dict[tuple[str, Unit], list[_Line]] = {}
    for (source, metric), track in tracks.items():
        if (source, metric) not in shown:
            unit = unit_of(metric)
            lines = groups.setdefault((source, unit), [])
            lines.append(_Line(source, len(lines), metric, _scaled(track, unit)))
    behind = backdrop(result)
    plots: list[Plot] = []
    for (source, unit), lines in groups.items():
        for start in range(0, len(lines), UNIFIED_MAX):
            title = f"{source}: {AXES[unit]}" + (f", from {start + 1}" if start else "")
            panel = Panel(
                f"other-{len(plots)}", title, "", AXES[unit], _kinds(source, result)[0], ()
            )
            plots.append(_plot(panel, lines[start : start + UNIFIED_MAX], result, behind))
    return plots


def _kinds(source: str, result: Result) -> tuple[Kind, ...]:
    """Which panels show it."""
    if source in publisher_sources(result):
        return ("watched", "population") if source in result.populations else ("watched",)
    if source in result.populations or source in result.wholes:
        return ("population",)
    if source == "host":
        return ("host",)
    if source in {bridges.name for bridges in result.bridges}:
        return ("bridge",)
    if source in groups(result):
        return ("watched", "group")
    return ("agent",) if re.fullmatch(r"agent-\d+", source) else ("watched",)


def _lines(panel: Panel, result: Result, tracks: Tracks) -> Iterator[_Line]:
    """The panel's tracks, source by source in the order of its picks."""
    found = [
        (source, place, metric)
        for source, metric in tracks
        if panel.kind in _kinds(source, result)
        for place, pick in enumerate(panel.picks)
        if re.fullmatch(pick.pattern, metric)
    ]
    order = {source: number for number, source in enumerate(dict.fromkeys(s for s, _, _ in found))}
    for source, place, metric in sorted(found, key=lambda each: (order[each[0]], each[1])):
        pick, track = panel.picks[place], tracks[source, metric]
        unit = pick.unit or unit_of(metric)
        shown = _scaled(_growth(track) if pick.counter else track, unit)
        if shown.values:
            yield _Line(source, place, pick.label or metric.removeprefix("$SYS/"), shown)


def _scaled(track: Track, unit: Unit) -> Track:
    scale = SCALES.get(unit)
    return Track(track.at_s, [value * scale for value in track.values]) if scale else track


def _growth(track: Track) -> Track:
    """Growth per second between distinct readings, at the later one of each two."""
    grown = track.growth()
    return Track([each.to_s for each in grown], [each.per_s for each in grown])


def _plot(panel: Panel, lines: list[_Line], result: Result, behind: dict[str, Any]) -> Plot:
    sources = list(dict.fromkeys(line.source for line in lines))
    shown = _largest(lines)
    left_out = len(lines) - len(shown)
    caption = panel.caption + (
        f" Shown are the {len(shown)} of {len(lines)} tracks with the largest values."
        if left_out
        else ""
    )
    traces = [_trace(panel, line, sources) for line in shown]
    unified = len(shown) <= UNIFIED_MAX
    for trace in traces:
        trace["hovertemplate"] = HOVER + ("" if unified else " at %{x}") + NO_MORE
    axis = value_axis(panel.axis, log=panel.log)
    hover = "x unified" if unified else "closest"
    drawn = figure(traces, time_axis(result.duration_s), axis, hovermode=hover, **behind)
    return Plot(panel.key, panel.title, caption.strip(), drawn, linked=True)


def _largest(lines: list[_Line]) -> list[_Line]:
    ranked = sorted(lines, key=lambda line: -max(line.track.values, default=0.0))
    kept = {id(line) for line in ranked[:LINES_MAX]}
    return [line for line in lines if id(line) in kept]


def _trace(panel: Panel, line: _Line, sources: list[str]) -> dict[str, Any]:
    """Several sources have a colour each and a dash for each metric; one alone has colours."""
    several = len(sources) > 1
    hue = colour(sources.index(line.source) if several else line.pick)
    at_s, values = thinned(line.track.at_s, line.track.values)
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines" if len(values) > 1 else "markers",
        "name": plotted(f"{line.source} {line.label}"),
        "x": [milliseconds(each) for each in at_s],
        "y": [None if panel.log and value <= 0 else rounded(value) for value in values],
        "line": {
            "color": hue,
            "width": 1.5,
            "dash": DASHES[line.pick % len(DASHES)] if several else "solid",
        },
        "connectgaps": False,
    }
    if panel.picks and panel.picks[line.pick].band:
        trace |= {"fill": "tonexty", "fillcolor": _faint(hue)}
    return trace


def _faint(hue: str) -> str:
    red, green, blue = (int(hue[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.15)"
