"""The page of a search, `report.html` in its folder: the answer, its figure and its conditions over
the values that were tried, then each point by itself. It reads the search and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pubstorm.metrics.thresholds import Threshold, parse_threshold
from pubstorm.quantity import value_text
from pubstorm.report.page import figures, library, page
from pubstorm.report.plot import (
    GRID,
    HOVER,
    NO_MORE,
    Plot,
    colour,
    figure,
    log_ticks,
    plotted,
    rounded,
    value_axis,
)
from pubstorm.report.search import answer_facts, facts_of, outcome_text, search_tables, value_of
from pubstorm.report.timeline import AXES, SCALES, UNITS
from pubstorm.result import Estimate, SearchPoint, SearchResult
from pubstorm.samples import Unit

CONDITIONS_MAX = 4
"""Conditions that have a plot each."""
BAND = "rgba(47,131,201,0.15)"
"""Ground of an interval."""


@dataclass(frozen=True)
class Kind:
    """Points of one worth, drawn alike."""

    name: str
    symbol: str
    hue: str
    holds: Callable[[SearchPoint], bool]


KINDS = (
    Kind("held", "circle", "#2b9a66", lambda point: point.held),
    Kind("broke", "x", "#d24f57", lambda point: point.broken),
    Kind(
        "not counted",
        "triangle-up-open",
        "#cf6d17",
        lambda point: not point.held and not point.broken,
    ),
)


@dataclass(frozen=True)
class Axis:
    """What is drawn upwards over the values."""

    title: str
    unit: Unit
    read: Callable[[SearchPoint], float | None]
    """It of a point, in the unit; None: there is none."""

    def scaled(self, value: float) -> float | int:
        """A value as it is plotted."""
        return rounded(value * SCALES.get(self.unit, 1.0))


def search_page(directory: Path, search: SearchResult) -> str:
    """The text of `report.html`."""
    plots = list(search_plots(search))
    return page(
        "search.html.j2",
        title=search.name,
        search=search,
        facts=[*answer_facts(search), ("started", search.started), ("ended", search.ended)],
        settings=[*(("changed by", each) for each in search.overrides), ("folder", str(directory))],
        tables=search_tables(search),
        points=[_Part.of(directory, search, point) for point in search.points],
        plots=plots,
        figures=figures(plots),
        library=library() if plots else "",
    )


def search_plots(search: SearchResult) -> Iterator[Plot]:
    """The figure, then the conditions, each over the values that were tried."""
    if not search.points:
        return
    if search.figure is not None:
        axis = Axis(search.figure, search.figure_unit, lambda point: point.figure)
        marks = [_most(search, axis)] if search.answer.most is not None else []
        caption = "What it came to at each value; the scale of the values is logarithmic."
        yield from _plot(search, axis, marks, ("figure", caption))
    for number, written in enumerate(search.thresholds[:CONDITIONS_MAX]):
        threshold = _parsed(written)
        if threshold is None:
            continue
        axis = Axis(str(threshold.expression), threshold.expression.unit or "", _found(written))
        caption = f"The condition is {written}; the dashed line is its limit."
        yield from _plot(search, axis, [_limit(search, threshold, axis)], (f"c{number}", caption))


@dataclass(frozen=True)
class _Part:
    """A point as the page lists it."""

    name: str
    outcome: str
    point: SearchPoint
    facts: tuple[str, ...]
    page: str | None
    """Its own report, as a path from the folder of the search."""

    @classmethod
    def of(cls, directory: Path, search: SearchResult, point: SearchPoint) -> _Part:
        has_page = (directory / point.folder / "report.html").exists()
        name = f"{point.number}: {value_of(search, point)}"
        link = f"{point.folder}/report.html" if has_page else None
        return cls(name, outcome_text(point), point, facts_of(point), link)


def _parsed(written: str) -> Threshold | None:
    """A condition, or None where another version wrote it."""
    try:
        return parse_threshold(written)
    except ValueError:
        return None


def _found(written: str) -> Callable[[SearchPoint], float | None]:
    def read(point: SearchPoint) -> float | None:
        return next((o.found for o in point.thresholds if o.expression == written), None)

    return read


def _plot(
    search: SearchResult, axis: Axis, marks: Sequence[dict[str, Any]], words: tuple[str, str]
) -> Iterator[Plot]:
    """A plot of all points that have it; `words` are its key and its caption."""
    traces = [trace for kind in KINDS if (trace := _trace(search, axis, kind)) is not None]
    if not traces:
        return
    key, caption = words
    top = max(value for trace in (*traces, *marks) for value in trace["y"])
    answer = search.answer.best
    lines, shapes = list(marks), []
    if answer is not None:
        lines.append(_answer(search, answer, top))
        if answer.high > answer.low:
            shapes.append(_band(search, answer))
    drawn = figure(
        [*traces, *lines], _tried_axis(search), value_axis(AXES[axis.unit]), shapes=shapes
    )
    yield Plot(key, axis.title, caption, drawn)


def _tried_axis(search: SearchResult) -> dict[str, Any]:
    """The values that were tried, logarithmic."""
    unit = f" ({AXES[search.unit]})" if search.unit else ""
    title = {"text": plotted(search.vary) + unit}
    return {**log_ticks(*_ends(search)), "title": title, "gridcolor": GRID}


def _trace(search: SearchResult, axis: Axis, kind: Kind) -> dict[str, Any] | None:
    found = [(p, value) for p in search.points if (value := axis.read(p)) is not None]
    mine = [(point, value) for point, value in found if kind.holds(point)]
    if not mine:
        return None
    return {
        "type": "scatter",
        "mode": "markers",
        "cliponaxis": False,
        "name": kind.name,
        "x": [_tried(search, point.value) for point, _ in mine],
        "y": [axis.scaled(value) for _, value in mine],
        "text": [f"point {point.number}, {plotted(point.phase)}" for point, _ in mine],
        "hovertemplate": f"{HOVER}{UNITS.get(axis.unit, '')} at %{{x:,.5~r}}{_unit_of(search)} "
        f"(%{{text}}){NO_MORE}",
        "marker": {"size": 11, "symbol": kind.symbol, "color": kind.hue},
    }


def _unit_of(search: SearchResult) -> str:
    return UNITS.get(search.unit, "")


def _tried(search: SearchResult, value: float) -> float | int:
    return rounded(value * SCALES.get(search.unit, 1.0))


def _line(name: str, x: Sequence[float], y: Sequence[float], **style: Any) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": list(x),
        "y": list(y),
        "hovertemplate": f"%{{fullData.name}}{NO_MORE}",
        "line": {"width": 1.5, **style},
    }


def _ends(search: SearchResult) -> tuple[float, float]:
    tried = [_tried(search, point.value) for point in search.points]
    return min(tried), max(tried)


def _answer(search: SearchResult, answer: Estimate, top: float) -> dict[str, Any]:
    at = _tried(search, answer.value)
    return _line(f"answer {answer.text}", (at, at), (0, top), color=colour(0))


def _band(search: SearchResult, answer: Estimate) -> dict[str, Any]:
    """The interval of the answer, over the whole height."""
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


def _limit(search: SearchResult, threshold: Threshold, axis: Axis) -> dict[str, Any]:
    level = axis.scaled(threshold.value)
    limit = value_text(threshold.value, axis.unit)
    return _line(f"limit {limit}", _ends(search), (level, level), color=colour(10), dash="dash")
