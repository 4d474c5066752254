"""The plots over time: one for each question, all on the same time axis, with the stages as bands
and what happened as numbered lines. It reads samples; which metric is shown where is data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

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
from pubstorm.result import PhaseStatus, Result
from pubstorm.samples import Track, Tracks, Unit, unit_of

Kind = Literal["population", "host", "agent", "watched"]
LINES_MAX = 24
"""Lines in a plot; of more, those with the largest values are shown."""
UNIFIED_MAX = 12
"""Lines up to which all values at an instant are shown together under the pointer."""
MARKS_MAX = 40
"""Numbered lines of a plot."""
BAND_LABEL_SHARE = 0.05
"""Share of the time axis that a band needs to have its name written above it."""
MARK_LABEL_SHARE = 0.015
"""Share of the time axis that the number of a line needs."""
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
class Pick:
    """Tracks that a panel shows."""

    pattern: str
    """What the metric must match as a whole."""
    label: str
    """What it is called; empty: its own name."""
    counter: bool = False
    """Whether it is a growing count, shown as its growth a second."""
    unit: Unit | None = None
    """Its unit, where its name does not tell."""
    band: bool = False
    """Whether the space down to the track before it is filled."""


@dataclass(frozen=True)
class Panel:
    """One plot over time."""

    key: str
    title: str
    caption: str
    axis: str
    """What the vertical axis counts, with its unit."""
    kind: Kind
    """Whose tracks it shows."""
    picks: tuple[Pick, ...]
    log: bool = False


PANELS = (
    Panel(
        "load",
        "Load",
        "Messages a second: due by the scenario, written by the clients, acknowledged by the "
        "broker and received by subscribers. Where sent falls below due, the load was not offered "
        "in full.",
        "messages per second",
        "population",
        (
            Pick("sent_per_s", "sent"),
            Pick("due_per_s", "due"),
            Pick("acked_per_s", "acked"),
            Pick("received_per_s", "received"),
        ),
    ),
    Panel(
        "latency",
        "Latency",
        "From the instant a message was due to its delivery, or to its acknowledgement where "
        "nobody receives. The band reaches from the median to p99; the scale is logarithmic.",
        "latency (ms, logarithmic)",
        "population",
        (
            Pick("latency_p50_us", "p50"),
            Pick("latency_p99_us", "p99", band=True),
            Pick("latency_max_us", "largest"),
        ),
        log=True,
    ),
    Panel(
        "behind",
        "Missing, skipped and waiting messages",
        "Missing: passed over in a stream and not filled so far. In flight: sent and not yet "
        "acknowledged. Backlog: due and not yet sent. Skipped: due in that second and never sent.",
        "messages",
        "population",
        (
            Pick("missing", "missing"),
            Pick("in_flight", "in flight"),
            Pick("backlog", "backlog"),
            Pick("skipped_per_s", "skipped per second"),
        ),
    ),
    Panel(
        "clients",
        "Clients",
        "Connected: accepted by the broker. Ready: connected, with every subscription answered.",
        "clients",
        "population",
        (Pick("connected", "connected"), Pick("ready", "ready")),
    ),
    Panel(
        "process-cpu",
        "CPU of brokers and other watched processes",
        "100 % is one core. A broker that uses one thread ends at 100 %.",
        "CPU (% of one core)",
        "watched",
        (Pick("cpu", "all"), Pick("cpu_user", "user"), Pick("cpu_system", "system")),
    ),
    Panel(
        "process-memory",
        "Memory of brokers and other watched processes",
        "Resident memory, as the kernel counts it.",
        "memory (MB)",
        "watched",
        (Pick("rss_bytes", "resident"),),
    ),
    Panel(
        "host-cpu",
        "CPU of the host",
        "100 % is all cores of this machine, with everything that runs on it.",
        "CPU (% of all cores)",
        "host",
        (
            Pick("cpu", "all"),
            Pick("cpu_user", "user"),
            Pick("cpu_system", "system"),
            Pick("cpu_softirq", "soft interrupts"),
            Pick("cpu_steal", "stolen by the hypervisor"),
        ),
    ),
    Panel(
        "host-memory",
        "Memory of the host",
        "Used and still available on this machine.",
        "memory (MB)",
        "host",
        (Pick("memory_used_bytes", "used"), Pick("memory_available_bytes", "available")),
    ),
    Panel(
        "host-network",
        "Network of the host",
        "All interfaces together, the internal one included.",
        "traffic (MB/s)",
        "host",
        (Pick("net_sent_bytes_per_s", "sent"), Pick("net_received_bytes_per_s", "received")),
    ),
    Panel(
        "host-tcp",
        "TCP trouble of the host",
        "Segments sent again, and connections that found a listen queue full, in each second.",
        "per second",
        "host",
        (
            Pick("tcp_retransmits", "retransmits", counter=True),
            Pick("tcp_listen_overflows", "listen overflows", counter=True),
        ),
    ),
    Panel(
        "sys-messages",
        "$SYS: messages",
        "What the broker itself counts, as growth a second between two of its reports.",
        "messages per second",
        "watched",
        (
            Pick(r"\$SYS/messages/received", "received", counter=True),
            Pick(r"\$SYS/messages/sent", "sent", counter=True),
            Pick(r"\$SYS/publish/messages/received", "PUBLISH received", counter=True),
            Pick(r"\$SYS/publish/messages/sent", "PUBLISH sent", counter=True),
        ),
    ),
    Panel(
        "sys-dropped",
        "$SYS: dropped messages",
        "Messages that the broker says it dropped, in all so far.",
        "messages",
        "watched",
        (Pick(r"\$SYS/(.*/)?messages/dropped", ""),),
    ),
    Panel(
        "sys-stored",
        "$SYS: stored and retained messages",
        "Messages that the broker holds: queued, in flight and retained.",
        "messages",
        "watched",
        (Pick(r"\$SYS/(messages/stored|store/messages/count|retained messages/count)", ""),),
    ),
    Panel(
        "sys-clients",
        "$SYS: clients",
        "Clients as the broker counts them, observers included.",
        "clients",
        "watched",
        (Pick(r"\$SYS/clients/(connected|disconnected|total|active|inactive)", ""),),
    ),
    Panel(
        "sys-heap",
        "$SYS: heap",
        "Memory that the broker says it has allocated.",
        "memory (MB)",
        "watched",
        (Pick(r"\$SYS/heap/current( size)?", "", unit="bytes"),),
    ),
    Panel(
        "agent-load",
        "Load of the generator's engines",
        "Busy: time in which the loop was at work. 100 % CPU is one core, and each engine has one "
        "loop: near 100 % the generator sets the limit, not the broker.",
        "share (% of one core)",
        "agent",
        (Pick("busy", "busy"), Pick("cpu", "CPU")),
    ),
    Panel(
        "agent-late",
        "Lateness of the generator's engines",
        "How late messages were written that nothing but the engine held up: the 99th percentile "
        "of each interval.",
        "lateness p99 (ms)",
        "agent",
        (Pick("lateness_p99_us", "late p99"),),
    ),
)


@dataclass(frozen=True)
class Mark:
    """A numbered line in the plots."""

    number: int
    at_s: float
    kind: str
    text: str


@dataclass(frozen=True)
class _Line:
    source: str
    pick: int
    label: str
    track: Track


def marks(result: Result) -> list[Mark]:
    """What happened, in order: events, changes, collapses and recoveries."""
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
    return [Mark(number, *each) for number, each in enumerate(sorted(found), 1)]


def timeline(result: Result, tracks: Tracks) -> list[Plot]:
    """Every panel that has a track to show."""
    backdrop = _backdrop(result)
    plots: list[Plot] = []
    for panel in PANELS:
        lines = list(_lines(panel, result, tracks))
        if lines:
            plots.append(_plot(panel, lines, result, backdrop))
    return plots


def other_tracks(result: Result, tracks: Tracks) -> list[Plot]:
    """What no panel shows, by source and unit."""
    shown = {
        (source, metric)
        for panel in PANELS
        for source, metric in tracks
        if _kind(source, result) == panel.kind
        and any(re.fullmatch(pick.pattern, metric) for pick in panel.picks)
    }
    groups: dict[tuple[str, Unit], list[_Line]] = {}
    for (source, metric), track in tracks.items():
        if (source, metric) not in shown:
            unit = unit_of(metric)
            lines = groups.setdefault((source, unit), [])
            lines.append(_Line(source, len(lines), metric, _scaled(track, unit)))
    backdrop = _backdrop(result)
    plots: list[Plot] = []
    for (source, unit), lines in groups.items():
        for start in range(0, len(lines), UNIFIED_MAX):
            title = f"{source}: {AXES[unit]}" + (f", from {start + 1}" if start else "")
            panel = Panel(f"other-{len(plots)}", title, "", AXES[unit], _kind(source, result), ())
            plots.append(_plot(panel, lines[start : start + UNIFIED_MAX], result, backdrop))
    return plots


def _kind(source: str, result: Result) -> Kind:
    if source in result.populations:
        return "population"
    if source == "host":
        return "host"
    return "agent" if re.fullmatch(r"agent-\d+", source) else "watched"


def _lines(panel: Panel, result: Result, tracks: Tracks) -> Iterator[_Line]:
    sources = dict.fromkeys(s for s, _ in tracks if _kind(s, result) == panel.kind)
    metrics: dict[str, list[str]] = {}
    for source, metric in tracks:
        metrics.setdefault(source, []).append(metric)
    for source in sources:
        for place, pick in enumerate(panel.picks):
            for metric in metrics[source]:
                if re.fullmatch(pick.pattern, metric):
                    track = tracks[source, metric]
                    yield _Line(
                        source,
                        place,
                        pick.label or metric.removeprefix("$SYS/"),
                        _growth(track)
                        if pick.counter
                        else _scaled(track, pick.unit or unit_of(metric)),
                    )


def _scaled(track: Track, unit: Unit) -> Track:
    scale = SCALES.get(unit)
    return Track(track.at_s, [value * scale for value in track.values]) if scale else track


def _growth(track: Track) -> Track:
    """Growth a second between readings; a count that fell began anew, at zero."""
    grown = Track([], [])
    readings = list(zip(track.at_s, track.values, strict=True))
    for (before_s, before), (at_s, value) in pairwise(readings):
        if at_s > before_s:
            grown.at_s.append(at_s)
            grown.values.append((value - before if value >= before else value) / (at_s - before_s))
    return grown


def _plot(panel: Panel, lines: list[_Line], result: Result, backdrop: dict[str, Any]) -> Plot:
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
    drawn = figure(traces, time_axis(result.duration_s), axis, hovermode=hover, **backdrop)
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


def _backdrop(result: Result) -> dict[str, Any]:
    """Bands and lines behind every plot."""
    shapes: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    for number, stage in enumerate(result.stages):
        start, end = stage.start_s, stage.start_s + stage.duration_s
        shapes.append(_band(start, end, 0.10 if number % 2 else 0.04))
        if stage.duration_s >= BAND_LABEL_SHARE * result.duration_s:
            notes.append(_note(start, plotted(stage.name), "left"))
    for mark in marks(result)[:MARKS_MAX]:
        shapes.append(_upright(mark))
    for at_s, label in _mark_labels(result):
        notes.append(_note(at_s, f"<b>{label}</b>", "center") | {"y": 0.93})
    return {"shapes": shapes, "annotations": notes}


def _mark_labels(result: Result) -> Iterator[tuple[float, str]]:
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


MARK_COLOURS: Mapping[str, str] = {"collapse": "#d24f57", "recovery": "#2b9a66"}


def _upright(mark: Mark) -> dict[str, Any]:
    return {
        "type": "line",
        "xref": "x",
        "yref": "paper",
        "x0": milliseconds(mark.at_s),
        "x1": milliseconds(mark.at_s),
        "y0": 0,
        "y1": 1,
        "line": {"width": 1, "dash": "dot", "color": MARK_COLOURS.get(mark.kind, "#7f8894")},
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
