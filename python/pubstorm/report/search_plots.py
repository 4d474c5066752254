"""The plots of a search: its figure and its conditions over the values of the trials."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pubstorm.metrics.charts import SCALES, UNITS
from pubstorm.quantities import Unit, shortened, value_text
from pubstorm.report.plot import (
    APART,
    CLOSE,
    GRID,
    NO_MORE,
    Plot,
    colour,
    figure,
    log_ticks,
    plotted,
    scatter,
    value_axis,
)
from pubstorm.report.timeline import AXES
from pubstorm.result import Estimate, SearchResult, ThresholdOutcome, Trial

CONDITIONS_MAX = 4
"""Thresholds with a plot each."""
VALUE = "%{fullData.name}: %{customdata:,.5~r}"
"""Text under the pointer, where zero has a place on a logarithmic axis."""
BAND = "rgba(47,131,201,0.15)"
"""Ground of an interval."""


@dataclass(frozen=True)
class TrialKind:
    """Trials of one outcome, drawn alike."""

    name: str
    symbol: str
    hue: str
    includes: Callable[[Trial], bool]


KINDS = (
    TrialKind("passed", "circle", "#2b9a66", lambda trial: trial.passed),
    TrialKind("failed", "x", "#d24f57", lambda trial: trial.failed),
    TrialKind(
        "not counted",
        "triangle-up-open",
        "#cf6d17",
        lambda trial: not trial.passed and not trial.failed,
    ),
)


@dataclass(frozen=True)
class Axis:
    """The figure on the vertical axis."""

    title: str
    unit: Unit
    read: Callable[[Trial], float | None]
    """Returns the figure of a trial, in the unit; None if there is none."""

    def scaled(self, value: float) -> float | int:
        """Returns a value as it is plotted."""
        return shortened(value * SCALES.get(self.unit, 1.0))


def search_plots(search: SearchResult) -> Iterator[Plot]:
    """Yields the figure, then the thresholds, each over the values of the trials."""
    if not search.trials:
        return
    if search.figure is not None:
        axis = Axis(search.figure, search.figure_unit, lambda trial: trial.figure)
        marks = [_most(search, axis)] if search.answer.most is not None else []
        caption = "The figure of each trial, over its value on a logarithmic scale."
        yield from _plot(search, axis, marks, ("figure", caption))
    for number, written in enumerate(search.thresholds[:CONDITIONS_MAX]):
        found = [o for t in search.trials for o in t.thresholds if o.expression == written]
        known = next((outcome for outcome in found if outcome.found is not None), None)
        if known is not None:
            axis = Axis(known.figure, known.unit, partial(_found, written))
            caption = f"The condition is {written}; the dashed line is its limit."
            yield from _plot(search, axis, [_limit(search, known, axis)], (f"c{number}", caption))


def _found(written: str, trial: Trial) -> float | None:
    return next((o.found for o in trial.thresholds if o.expression == written), None)


def _plot(
    search: SearchResult, axis: Axis, marks: Sequence[dict[str, Any]], words: tuple[str, str]
) -> Iterator[Plot]:
    """Yields a plot of all trials that have the figure; `words` are its key and caption."""
    traces = [trace for kind in KINDS if (trace := _trace(search, axis, kind)) is not None]
    if not traces:
        return
    key, caption = words
    levels = [value for trace in (*traces, *marks) for value in trace["y"]]
    y_axis, low = _levels_axis(axis, levels)
    for trace in (*traces, *marks):
        trace["customdata"] = trace["y"]
        trace["y"] = [value or low for value in trace["y"]]
    answer = search.answer.best
    lines, shapes = list(marks), []
    if answer is not None:
        lines.append(_answer(search, answer, (low, max(levels))))
        if answer.high > answer.low:
            shapes.append(_band(search, answer))
    drawn = figure([*traces, *lines], _tried_axis(search), y_axis, shapes=shapes)
    yield Plot(key, axis.title, caption, drawn)


def _levels_axis(axis: Axis, levels: Sequence[float]) -> tuple[dict[str, Any], float]:
    """Returns the vertical axis and the place of zero on it. It is logarithmic if the values lie
    far apart, since most trials would lie on the ground of another one."""
    above = [value for value in levels if value > 0]
    if not above or max(above) < CLOSE * min(above) or min(levels) < 0:
        return value_axis(AXES[axis.unit]), 0
    ticks, low = log_ticks(min(above), max(above)), min(above)
    if len(above) < len(levels):
        low = shortened(10.0 ** math.floor(math.log10(low) - 0.5))
        ticks["tickvals"], ticks["ticktext"] = [low, *ticks["tickvals"]], ["0", *ticks["ticktext"]]
    return value_axis(f"{AXES[axis.unit]} (logarithmic)", log=True) | ticks, low


def _tried_axis(search: SearchResult) -> dict[str, Any]:
    unit = f" ({AXES[search.unit]})" if search.unit else ""
    title = {"text": plotted(search.vary) + unit}
    return {**log_ticks(*_ends(search)), "title": title, "gridcolor": GRID, **APART}


def _trace(search: SearchResult, axis: Axis, kind: TrialKind) -> dict[str, Any] | None:
    found = [(p, value) for p in search.trials if (value := axis.read(p)) is not None]
    mine = [(trial, value) for trial, value in found if kind.includes(trial)]
    if not mine:
        return None
    return {
        "type": "scatter",
        "mode": "markers",
        "cliponaxis": False,
        "name": kind.name,
        "x": [_tried(search, trial.value) for trial, _ in mine],
        "y": [axis.scaled(value) for _, value in mine],
        "text": [f"trial {trial.number}, {plotted(trial.phase)}" for trial, _ in mine],
        "hovertemplate": f"{VALUE}{UNITS.get(axis.unit, '')} at %{{x:,.5~r}}"
        f"{UNITS.get(search.unit, '')} "
        f"(%{{text}}){NO_MORE}",
        "marker": {"size": 11, "symbol": kind.symbol, "color": kind.hue},
    }


def _tried(search: SearchResult, value: float) -> float | int:
    return shortened(value * SCALES.get(search.unit, 1.0))


def _line(name: str, x: Sequence[float], y: Sequence[float], **style: Any) -> dict[str, Any]:
    hover = f"%{{fullData.name}}{NO_MORE}"
    return scatter(name, list(x), list(y), hovertemplate=hover, line={"width": 1.5, **style})


def _ends(search: SearchResult) -> tuple[float, float]:
    tried = [_tried(search, trial.value) for trial in search.trials]
    return min(tried), max(tried)


def _answer(search: SearchResult, answer: Estimate, ends: tuple[float, float]) -> dict[str, Any]:
    at = _tried(search, answer.value)
    return _line(f"answer {answer.text}", (at, at), ends, color=colour(0))


def _band(search: SearchResult, answer: Estimate) -> dict[str, Any]:
    """Returns the interval of the answer, over the whole height."""
    return {
        "type": "rect",
        "layer": "below",
        "yref": "paper",
        "x0": _tried(search, answer.low),
        "x1": _tried(search, answer.high),
        "y0": 0,
        "y1": 1,
        "line": {"width": 0},
        "fillcolor": BAND,
    }


def _most(search: SearchResult, axis: Axis) -> dict[str, Any]:
    most = search.answer.most
    assert most is not None, "asked only where there is one"
    level = axis.scaled(most.value)
    return _line(f"most {most.text}", _ends(search), (level, level), color=colour(10), dash="dot")


def _limit(search: SearchResult, outcome: ThresholdOutcome, axis: Axis) -> dict[str, Any]:
    level = axis.scaled(outcome.limit)
    limit = value_text(outcome.limit, axis.unit)
    return _line(f"limit {limit}", _ends(search), (level, level), color=colour(10), dash="dash")
