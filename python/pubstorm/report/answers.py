"""What the searches of a series found, over its steps: the largest values and figures with their
intervals, a line for each variant. It knows the series and nothing of its steps' folders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pubstorm.report.plot import (
    GRID,
    HOVER,
    NO_MORE,
    Plot,
    figure,
    log_ticks,
    looks,
    plotted,
    rounded,
    value_axis,
)
from pubstorm.report.timeline import AXES, SCALES, UNITS
from pubstorm.result import Estimate, SearchAnswer, Series, SeriesStep

Read = Callable[[SearchAnswer], Estimate | None]

BEST = ("answer-best", "The largest value that holds")
MOST = ("answer-most", "The largest figure")
CAPTION = (
    "Bars are the intervals of the searches; a triangle is a bound: more could not be asked of "
    "this machine, or was not wanted. The scale is logarithmic."
)


def answer_plots(series: Series) -> Iterator[Plot]:
    """A plot of the largest values, and one of the largest figures, where searches found any."""
    yield from _plot(series, BEST, lambda answer: answer.best)
    yield from _plot(series, MOST, lambda answer: answer.most)


def _plot(series: Series, named: tuple[str, str], read: Read) -> Iterator[Plot]:
    lines: dict[str, list[tuple[SeriesStep, Estimate]]] = {}
    for step in series.steps:
        found = read(step.answer) if step.answer is not None else None
        if found is not None and found.value > 0:
            lines.setdefault(step.variant or "", []).append((step, found))
    if not lines:
        return
    units = {found.unit for line in lines.values() for _, found in line}
    axis = AXES[units.pop()] if len(units) == 1 else "value"
    labels = list(dict.fromkeys(plotted(step.base or step.label) for step in series.steps))
    x_axis = {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": labels,
        "title": {"text": "step"},
        "gridcolor": GRID,
    }
    key, title = named
    own = looks((n, n) for n in range(len(lines)))
    traces = [
        _trace(name or title, line, look)
        for (name, line), look in zip(lines.items(), own, strict=True)
    ]
    values = [value for trace in traces for value in trace["y"]]
    y_axis = value_axis(axis, log=True) | log_ticks(min(values), max(values))
    yield Plot(key, title, CAPTION, figure(traces, x_axis, y_axis))


def _trace(
    name: str, line: list[tuple[SeriesStep, Estimate]], look: tuple[str, str]
) -> dict[str, Any]:
    hue, dash = look
    found = [estimate for _, estimate in line]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": plotted(name),
        "x": [plotted(step.base or step.label) for step, _ in line],
        "y": [_scaled(each, each.value) for each in found],
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [_reach(each, each.high) for each in found],
            "arrayminus": [_reach(each, each.low) for each in found],
            "thickness": 1.5,
        },
        "text": [each.text for each in found],
        "hovertemplate": f"{HOVER}{UNITS.get(found[0].unit, '')} at %{{x}} (%{{text}}){NO_MORE}",
        "line": {"color": hue, "width": 1.5, "dash": dash},
        "marker": {
            "size": 9,
            "symbol": ["triangle-up" if each.bound == "at_least" else "circle" for each in found],
        },
    }


def _reach(estimate: Estimate, end: float) -> float | int:
    """How far an interval reaches to one side; a bound has none."""
    return 0 if estimate.bound == "at_least" else _scaled(estimate, abs(end - estimate.value))


def _scaled(estimate: Estimate, value: float) -> float | int:
    return rounded(value * SCALES.get(estimate.unit, 1.0))
