"""The report of a history: each figure over time, its levels and changes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from statistics import median
from typing import Any

from pubstorm.metrics.charts import SCALES
from pubstorm.quantities import counted, share_text, shortened, value_text
from pubstorm.report.document import Document, Fact, Plots, sentence
from pubstorm.report.layout import Shown, Table, columns
from pubstorm.report.plot import GREY, GRID, NO_MORE, Plot, colour, figure, plotted, value_axis
from pubstorm.report.timeline import AXES
from pubstorm.result.changes import RUNS_MIN
from pubstorm.result.history import History, HistoryChange, HistoryPoint, HistorySeries

HOW_HISTORY = (
    "A point is a run, a line the median of a level, a cross a run that is left out. "
    "A level begins where the runs before and after differ by more than chance."
)


def history_document(found: History, where: str) -> Document:
    """Builds the report of a history. `where` names the folders that were searched."""
    runs = sum(len(each.points) for each in _scenarios(found))
    return Document(
        kind="history",
        title="history",
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        run_directory=where,
        status=None,
        headline=sentence(_headline(found)),
        statements=(_headline(found),),
        facts=(
            Fact("runs", str(runs)),
            Fact("scenarios", ", ".join(each.scenario for each in _scenarios(found))),
            *(Fact("not read", each) for each in found.unread),
        ),
        settings=(Fact("folders", where),),
        tables=tuple(_history_tables(found)),
        plots=(Plots("Plots", "Over time", tuple(_history_plots(found)), how=HOW_HISTORY),),
    )


def _scenarios(found: History) -> list[HistorySeries]:
    """Returns one series of each scenario."""
    return [*{each.scenario: each for each in found.series}.values()]


def _headline(found: History) -> str:
    parts = [
        f"{each.figure} of {each.scenario} changed "
        + ", ".join(
            f"by {_size(change, each)} at {change.started.partition('T')[0]}"
            for change in each.changes
        )
        for each in found.series
        if each.changes
    ]
    return "; ".join(parts) or "no change detectable"


def _history_tables(found: History) -> Iterator[Table]:
    rows = [
        (
            each.scenario,
            each.figure,
            change.run,
            Shown(value_text(change.before, each.unit)),
            Shown(value_text(change.after, each.unit)),
            Shown(_size(change, each)),
            change.outcome,
            "; ".join(change.unlike),
        )
        for each in found.series
        for change in each.changes
    ]
    if rows:
        heads = (
            *columns("word", "scenario", "figure", "from run"),
            *columns("count", "before", "after", "difference"),
            *columns("word", "outcome", "differs too"),
        )
        note = (
            "Without a change, a history like this one shows one with a probability of "
            f"{share_text(1 - found.confidence)} at most. A level lasts {RUNS_MIN} runs or more."
        )
        yield Table("Changes", heads, rows, note)
    for each in found.series:
        heads = (*columns("word", "run", "started"), *columns("count", each.figure))
        yield Table(
            f"{each.figure} of {each.scenario}",
            (*heads, *columns("word", "note")),
            [_row(point, each) for point in each.points],
        )


def _row(point: HistoryPoint, series: HistorySeries) -> tuple[str | Shown | None, ...]:
    change = next((each for each in series.changes if each.run == point.run), None)
    note = f"left out: {point.left_out}" if point.left_out else ""
    if change is not None:
        note = f"change by {_size(change, series)}"
    value = None if point.value is None else Shown(value_text(point.value, series.unit))
    return point.run, point.started, value, note


def _size(change: HistoryChange, series: HistorySeries) -> str:
    """Returns the size of a change, such as `+12 %`, in the unit if there is no ratio."""
    rise = change.after - change.before
    sign = "-" if rise < 0 else "+"
    if change.before > 0 and change.after > 0:
        return f"{sign}{share_text(abs(rise) / change.before)}"
    return f"{sign}{value_text(abs(rise), series.unit)}"


def _history_plots(found: History) -> Iterator[Plot]:
    for number, each in enumerate(found.series):
        scale = SCALES.get(each.unit, 1.0)
        out = [p for p in each.points if p.left_out and p.value is not None]
        marks = {"mode": "markers", "marker": {"size": 8, "color": colour(number)}}
        traces = [_trace("runs", each.counted, scale, marks)]
        if out:
            cross = {"size": 8, "color": GREY, "symbol": "x"}
            traces.append(_trace("left out", out, scale, {"mode": "markers", "marker": cross}))
        line = {"color": colour(number), "width": 2}
        x, y = [], []
        for level in each.levels():
            middle = shortened(scale * median(p.value for p in level if p.value is not None))
            x += [_instant(level[0].started), _instant(level[-1].started), None]
            y += [middle, middle, None]
        traces.append({"name": "level", "x": x, "y": y, "mode": "lines", "line": line})
        axis = {"type": "date", "gridcolor": GRID, "title": {"text": "start of the run (UTC)"}}
        title = f"{each.figure} ({AXES.get(each.unit, each.unit)})" if each.unit else each.figure
        yield Plot(
            f"history-{number}",
            f"{each.figure} of {each.scenario}",
            f"{counted(len(each.counted), 'run')}, {counted(len(each.changes), 'change')}.",
            figure(traces, axis, value_axis(plotted(title))),
        )


def _trace(
    name: str,
    points: tuple[HistoryPoint, ...] | list[HistoryPoint],
    scale: float,
    look: dict[str, Any],
) -> dict[str, Any]:
    return {
        "name": name,
        "x": [_instant(point.started) for point in points],
        "y": [shortened(scale * (point.value or 0.0)) for point in points],
        "text": [plotted(point.run) for point in points],
        "hovertemplate": f"%{{text}}: %{{y}}{NO_MORE}",
        **look,
    }


def _instant(started: str) -> str:
    """Returns an instant in UTC as Plotly reads it."""
    return started.removesuffix("+00:00").replace("T", " ")
