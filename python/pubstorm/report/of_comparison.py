"""The report of a comparison: each figure of both sides, and what can be said of the difference.
The report of a history: each figure over time, its levels and changes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

from pubstorm.contract.histogram import Histogram, HistogramSum
from pubstorm.errors import StoredRunError
from pubstorm.metrics.charts import SCALES
from pubstorm.quantities import NOTHING, counted, share_text, shortened, value_text
from pubstorm.report.document import (
    KEY_FIGURES_MAX,
    Case,
    Document,
    Fact,
    Item,
    KeyFigure,
    Plots,
    sentence,
)
from pubstorm.report.latencies import curve, percentile_axis
from pubstorm.report.layout import Shown, Table, columns
from pubstorm.report.of_experiments import comparison_figures
from pubstorm.report.overlay import HOW_OVERLAID, LOOKS, Played, needed, overlaid
from pubstorm.report.plot import (
    GREY,
    GRID,
    NO_MORE,
    Plot,
    colour,
    figure,
    plotted,
    scatter,
    value_axis,
)
from pubstorm.report.stored import holds, load_result, load_search, load_tracks
from pubstorm.report.timeline import AXES
from pubstorm.result import LimitedBy, Status
from pubstorm.result.comparison import (
    ComparedFigure,
    Comparison,
    Side,
    difference_text,
    signed,
    unfit,
)
from pubstorm.result.history import RUNS_MIN, History, HistoryChange, HistoryPoint, HistorySeries

MARKS = {"better": ("#2b9a66", "circle"), "worse": ("#d24f57", "x")}
"""Colour and symbol of outcomes."""
AXIS_MIN = 1.0
"""Shares up to this size always fit on the axis of differences."""
AXIS_ROOM = 1.5
"""The axis reaches to the largest difference, times this factor."""
OTHER_MARK = (GREY, "circle-open")
HOW_DIFFERENCES = (
    "A point is the difference of the means, a line its interval. A line that crosses zero shows "
    "no difference. A green disc is better, a red cross is worse, a grey ring is neither."
)


def comparison_document(found: Comparison, directory: Path | None = None) -> Document:
    """Builds the report of a comparison. `directory` is its folder; without one there are no
    plots."""
    played = {} if directory is None else _played(found, directory)
    return Document(
        kind="comparison",
        title=f"{found.baseline.name} and {found.candidate.name}",
        started=found.started,
        run_directory=found.run_directory,
        status=found.status,
        headline=sentence(found.text),
        key_figures=comparison_figures(found),
        statements=(found.text,),
        facts=tuple(_facts(found)),
        settings=(Fact("started", found.started), Fact("folder", found.run_directory)),
        tables=tuple(_tables(found)),
        items=() if directory is None else tuple(_items(found, directory, played)),
        plots=() if directory is None else (_plots(found, played), _over_time(found, played)),
        cases=tuple(_cases(found)),
        output=(found.text,),
        is_complete=not found.interrupted,
    )


def _facts(found: Comparison) -> Iterator[Fact]:
    for side in (found.baseline, found.candidate):
        left_out = f", {len(side.left_out)} left out" if side.left_out else ""
        yield Fact(side.name, counted(len(side.runs), "run") + left_out)
        yield from (Fact("left out", f"{side.name}, {each}") for each in side.left_out)
    yield from (Fact("differs too", each) for each in found.unlike)


def _tables(found: Comparison) -> Iterator[Table]:
    has_steps = any(each.step for each in found.figures)
    heads = (
        *columns("word", "figure", *(["step"] if has_steps else [])),
        *columns("count", found.baseline.name, found.candidate.name, "difference", "interval"),
        *columns("count", "could show", "pairs higher"),
        *columns("word", "outcome"),
    )
    note = (
        f"All intervals together hold with {share_text(found.confidence)}. A difference of the "
        "size “could show” is found with a probability of 80 %. Of all pairs of runs, one of each "
        f"side, “pairs higher” counts those in which the {found.candidate.name} has more."
    )
    rows = [tuple(_cells(each, has_step=has_steps)) for each in found.figures]
    yield Table("Figures", heads, rows, note)
    if found.conditions:
        fulfilled = [
            (each.expression, CONDITION_WORDS[each.status], each.text) for each in found.conditions
        ]
        yield Table("Conditions", columns("word", "fails if", "outcome", "found"), fulfilled)


CONDITION_WORDS = {
    Status.PASS: "is not so",
    Status.FAIL: "is so",
    Status.INVALID: "not decided",
}


def _cells(each: ComparedFigure, *, has_step: bool) -> Iterator[str | Shown | None]:
    yield each.figure
    yield from [each.step] if has_step else []
    for mean in each.means:
        yield None if mean is None else Shown(value_text(mean, each.unit))
    if each.difference is None or each.low is None or each.high is None:
        yield from (None, None, None)
    elif each.outcome == "equal":
        yield from (Shown("none"), None, None)
    else:
        yield Shown(signed(each.difference, each))
        yield Shown(f"{signed(each.low, each)} … {signed(each.high, each)}")
        yield Shown(signed(each.smallest or 0.0, each).removeprefix("+"))
    yield f"{each.pairs_higher} of {each.pairs}" if each.pairs else None
    needed = "" if each.repeats is None else f"{each.repeats} repeats would show it"
    yield ": ".join(filter(None, (each.outcome, each.note or needed)))


def _sides(found: Comparison) -> tuple[Side, Side]:
    return found.baseline, found.candidate


def _played(found: Comparison, directory: Path) -> dict[str, Played]:
    """Returns the runs that can still be read, by folder."""
    played = {}
    for run in (run for side in _sides(found) for run in side.runs):
        with suppress(StoredRunError):
            result = load_result(directory / run)
            played[run] = Played(result, needed(load_tracks(directory / run)[0]))
    return played


def _compared(side: Side, played: dict[str, Played]) -> list[Played]:
    """Returns the runs of a side that are not left out."""
    runs = (played[run] for run in side.runs if run in played)
    return [run for run in runs if unfit(run.result) is None]


def _items(found: Comparison, directory: Path, played: dict[str, Played]) -> Iterator[Item]:
    runs = [(side, run) for side in _sides(found) for run in side.runs]
    for number, (side, run) in enumerate(runs, 1):
        page = f"{run}/{PAGE_FILE}"
        status, limited_by = _outcome(directory, run, played)
        yield Item(
            number=number,
            name=f"{side.name}, {Path(run).name}",
            outcome="cannot be read" if status is None else str(status),
            status=status,
            limited_by=limited_by,
            facts=(),
            folder=run,
            is_notable=False,
            page=page if holds(directory, page) else None,
        )


def _outcome(
    directory: Path, run: str, played: dict[str, Played]
) -> tuple[Status | None, LimitedBy | None]:
    if run in played:
        verdict = played[run].result.verdict
        return verdict.status, verdict.limited_by
    with suppress(StoredRunError):
        search = load_search(directory / run)
        return search.status, search.answer.limited_by
    return None, None


def _plots(found: Comparison, played: dict[str, Played]) -> Plots:
    drawn = (_differences(found), _percentiles(found, played))
    plots = tuple(plot for plot in drawn if plot is not None)
    return Plots(
        "Plots", "Differences", plots, HOW_DIFFERENCES, "No figure has a difference to show."
    )


def _over_time(found: Comparison, played: dict[str, Played]) -> Plots:
    plots = overlaid({side.name: _compared(side, played) for side in _sides(found)})
    missing = "No stage has readings in runs of both sides."
    return Plots("Time", "Over time", plots, HOW_OVERLAID, missing)


def _differences(found: Comparison) -> Plot | None:
    shown = [each for each in found.figures if each.relative and each.difference is not None]
    if not shown:
        return None
    traces = [
        scatter(
            each.name,
            [shortened(100 * (each.difference or 0))],
            [plotted(each.name)],
            mode="markers",
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [shortened(100 * ((each.high or 0) - (each.difference or 0)))],
                "arrayminus": [shortened(100 * ((each.difference or 0) - (each.low or 0)))],
                "color": hue,
                "thickness": 2,
            },
            marker={"size": 11, "color": hue, "symbol": symbol},
            hovertemplate=f"{plotted(difference_text(each))}{NO_MORE}",
            showlegend=False,
        )
        for each in shown
        for hue, symbol in [MARKS.get(each.outcome, OTHER_MARK)]
    ]
    x: dict[str, Any] = {
        "title": {"text": f"{found.candidate.name} against {found.baseline.name} (%)"},
        "gridcolor": GRID,
        "zerolinecolor": GREY,
        "zeroline": True,
    }
    caption, most = "", max(AXIS_MIN, *(AXIS_ROOM * abs(each.difference or 0) for each in shown))
    if any(max(-(each.low or 0), each.high or 0) > most for each in shown):
        x["range"] = [-100 * min(most, 1.0), 100 * most]
        caption = "Intervals beyond the axis are cut off: the table has them."
    y: dict[str, Any] = {"type": "category", "autorange": "reversed", "automargin": True}
    title = f"The {found.candidate.name} against the {found.baseline.name}"
    return Plot("differences", title, caption, figure(traces, x, y))


def _percentiles(found: Comparison, played: dict[str, Played]) -> Plot | None:
    """Returns the latency of both sides by percentile, each the sum of its runs."""
    sums = [(side.name, _latencies(_compared(side, played))) for side in _sides(found)]
    curves = [
        curve(name, histogram, look)
        for (name, histogram), look in zip(sums, LOOKS, strict=True)
        if histogram.count
    ]
    if not curves:
        return None
    axis = percentile_axis(max(each["x"][-1] for each in curves))
    return Plot(
        "percentiles",
        "Latency by percentile",
        "All compared runs of a side together, from the scheduled instant. Curves differ by chance "
        "too: the table says which differences are shown.",
        figure(curves, axis, value_axis("latency (ms, logarithmic)", log=True)),
    )


def _latencies(runs: Sequence[Played]) -> Histogram:
    tally = HistogramSum()
    for run in runs:
        for flow in run.result.flows:
            tally.add(flow.histogram_ns.intended)
    return tally.value()


def _cases(found: Comparison) -> Iterator[Case]:
    for each in found.conditions:
        text = f"{each.expression}: {CONDITION_WORDS[each.status]}: {each.text}"
        yield Case(f"not {each.expression}", None if each.status is Status.PASS else text)
    if not found.conditions:
        yield Case("compared", skipped=found.text)


HOW_HISTORY = (
    "A point is a run, a line the median of a level, a cross a run that is left out. "
    "A level begins where the runs before and after differ by more than chance. "
    "A click on a point opens the page of its run."
)


def history_document(found: History, where: str, beside: Path | None = None) -> Document:
    """Builds the report of a history. `where` names the folders that were searched. `beside` is the
    folder of the page, which leads to the pages of the runs; without one there are no links."""
    runs = sum(len(each.points) for each in _scenarios(found))
    pages = _RunPages.of(found, beside)
    return Document(
        kind="history",
        title="history",
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        run_directory=where,
        status=None,
        headline=sentence(_headline(found)),
        key_figures=tuple(map(_history_figure, found.series[:KEY_FIGURES_MAX])),
        statements=(_headline(found),),
        facts=(
            Fact("runs", str(runs)),
            Fact("scenarios", ", ".join(each.scenario for each in _scenarios(found))),
            *(Fact("not read", each) for each in found.unread),
        ),
        settings=(Fact("folders", where),),
        tables=tuple(_history_tables(found, pages)),
        plots=(Plots("Plots", "Over time", tuple(_history_plots(found, pages)), how=HOW_HISTORY),),
    )


@dataclass(frozen=True)
class _RunPages:
    """Short names of the runs of a history, and the pages that they have."""

    shared: str
    """Folder that contains all runs, which their names leave out."""
    beside: Path | None

    @classmethod
    def of(cls, found: History, beside: Path | None) -> _RunPages:
        """Returns those of a history."""
        parents = {str(Path(p.run).parent) for each in found.series for p in each.points}
        kinds = {Path(each).is_absolute() for each in parents}
        return cls(os.path.commonpath(parents) if len(kinds) == 1 else "", beside)

    def name(self, run: str) -> str:
        """Returns the short name of a run."""
        return os.path.relpath(run, self.shared) if self.shared else run

    def address(self, run: str) -> str:
        """Returns the address of the page of a run; empty if the run has none."""
        if self.beside is None or not holds(Path(run), PAGE_FILE):
            return ""
        return quote(os.path.relpath(Path(run, PAGE_FILE), self.beside))


PAGE_FILE = "report.html"
OUTCOMES = {"worse": Status.FAIL, "better": Status.PASS}
"""Colours of changes of a history."""


def _history_figure(series: HistorySeries) -> KeyFigure:
    """Returns the median of the latest level, with the change before it."""
    latest = [p.value for p in (series.levels() or [()])[-1] if p.value is not None]
    value = value_text(median(latest), series.unit) if latest else NOTHING
    note = f"median of {counted(len(latest), 'run')}; no change detectable"
    if not series.changes:
        return KeyFigure(series.figure, value, f"{note}, {series.scenario}")
    change = series.changes[-1]
    note = f"{change.outcome} by {_size(change, series)} since {_day(change.started)}"
    status = OUTCOMES.get(change.outcome)
    return KeyFigure(series.figure, value, f"{note}, {series.scenario}", status=status)


def _day(started: str) -> str:
    return started.partition("T")[0]


def _scenarios(found: History) -> list[HistorySeries]:
    """Returns one series of each scenario."""
    return [*{each.scenario: each for each in found.series}.values()]


def _headline(found: History) -> str:
    parts = [
        f"{each.figure} of {each.scenario} changed "
        + ", ".join(
            f"by {_size(change, each)} at {_day(change.started)}" for change in each.changes
        )
        for each in found.series
        if each.changes
    ]
    return "; ".join(parts) or "no change detectable"


def _history_tables(found: History, pages: _RunPages) -> Iterator[Table]:
    rows = [
        (
            each.scenario,
            each.figure,
            pages.name(change.run),
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
        heads = (*columns("word", "run", "started (UTC)"), *columns("count", each.figure))
        yield Table(
            f"{each.figure} of {each.scenario}",
            (*heads, *columns("word", "note")),
            [(pages.name(point.run), *_row(point, each)) for point in each.points],
            links=tuple(pages.address(point.run) for point in each.points),
        )


def _row(point: HistoryPoint, series: HistorySeries) -> tuple[str | Shown | None, ...]:
    change = next((each for each in series.changes if each.run == point.run), None)
    note = f"left out: {point.left_out}" if point.left_out else ""
    if change is not None:
        note = f"change by {_size(change, series)}"
    value = None if point.value is None else Shown(value_text(point.value, series.unit))
    return _instant(point.started), value, note


def _size(change: HistoryChange, series: HistorySeries) -> str:
    """Returns the size of a change, such as `+12 %`, in the unit if there is no ratio."""
    rise = change.after - change.before
    sign = "-" if rise < 0 else "+"
    if change.before > 0 and change.after > 0:
        return f"{sign}{share_text(abs(rise) / change.before)}"
    return f"{sign}{value_text(abs(rise), series.unit)}"


def _history_plots(found: History, pages: _RunPages) -> Iterator[Plot]:
    for number, each in enumerate(found.series):
        scale = SCALES.get(each.unit, 1.0)
        out = [p for p in each.points if p.left_out and p.value is not None]
        marks = {"mode": "markers", "marker": {"size": 8, "color": colour(number)}}
        traces = [_trace("runs", each.counted, scale, marks, pages)]
        if out:
            cross = {"size": 8, "color": GREY, "symbol": "x"}
            look = {"mode": "markers", "marker": cross}
            traces.append(_trace("left out", out, scale, look, pages))
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
    pages: _RunPages,
) -> dict[str, Any]:
    return {
        "name": name,
        "x": [_instant(point.started) for point in points],
        "y": [shortened(scale * (point.value or 0.0)) for point in points],
        "text": [plotted(pages.name(point.run)) for point in points],
        "customdata": [pages.address(point.run) for point in points],
        "hovertemplate": f"%{{text}}: %{{y}}{NO_MORE}",
        **look,
    }


def _instant(started: str) -> str:
    """Returns an instant in UTC as Plotly reads it."""
    return started.removesuffix("+00:00").replace("T", " ")
