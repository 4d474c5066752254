"""The background of plots over time: stages as bands, and events as numbered lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pubstorm.report.plot import GREY, milliseconds, plotted
from pubstorm.result import PhaseStatus, RunResult, StalledSubscriber

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
