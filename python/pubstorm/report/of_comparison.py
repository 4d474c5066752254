"""The report of a comparison: each figure of both sides, and what can be said of the
difference."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pubstorm.contract.histogram import Histogram, HistogramSum
from pubstorm.errors import StoredRunError
from pubstorm.quantities import counted, share_text, value_text
from pubstorm.report.document import (
    Case,
    Document,
    Fact,
    Item,
    Plots,
    Shown,
    Table,
    columns,
    sentence,
)
from pubstorm.report.percentiles import curve, percentile_axis
from pubstorm.report.plot import (
    GRID,
    NO_MORE,
    Plot,
    colour,
    figure,
    plotted,
    rounded,
    value_axis,
)
from pubstorm.report.stored import load_result
from pubstorm.result import Result, Status
from pubstorm.result.comparison import ComparedFigure, Comparison, Side, difference_text, signed

HUES = {"better": "#2b9a66", "worse": "#d24f57"}
"""Colours of outcomes; every other one is grey."""
GREY = "#7f8894"
HOW = (
    "A point is the difference of the means, a line its interval. A line that crosses zero shows "
    "no difference. Green is better, red is worse."
)


def comparison_document(found: Comparison, directory: Path | None = None) -> Document:
    """Builds the report of a comparison. `directory` is its folder; without one there are no
    plots."""
    results = {} if directory is None else _results(found, directory)
    return Document(
        kind="comparison",
        title=f"{found.baseline.name} and {found.candidate.name}",
        started=found.started,
        run_directory=found.run_directory,
        status=found.status,
        headline=sentence(found.text),
        statements=(found.text,),
        facts=tuple(_facts(found)),
        settings=(Fact("started", found.started), Fact("folder", found.run_directory)),
        tables=tuple(_tables(found)),
        items=() if directory is None else tuple(_items(found, directory, results)),
        plots=() if directory is None else (_plots(found, results),),
        cases=tuple(_cases(found)),
        output=(found.text,),
    )


def _facts(found: Comparison) -> Iterator[Fact]:
    for side in (found.baseline, found.candidate):
        left_out = f", {len(side.left_out)} left out" if side.left_out else ""
        yield Fact(side.name, counted(len(side.runs), "run") + left_out)
        yield from (Fact("left out", f"{side.name}, {each}") for each in side.left_out)
    yield from (Fact("differs too", each) for each in found.unlike)


def _tables(found: Comparison) -> Iterator[Table]:
    heads = (
        *columns("word", "figure"),
        *columns("count", found.baseline.name, found.candidate.name, "difference", "interval"),
        *columns("count", "could show"),
        *columns("word", "outcome"),
    )
    note = (
        f"All intervals together hold with {share_text(found.confidence)}. A difference of the "
        "size “could show” is found with a probability of 80 %."
    )
    yield Table("Figures", heads, [tuple(_cells(each)) for each in found.figures], note)
    if found.conditions:
        rows = [
            (each.expression, CONDITION_WORDS[each.status], each.text) for each in found.conditions
        ]
        yield Table("Conditions", columns("word", "fails if", "outcome", "found"), rows)


CONDITION_WORDS = {
    Status.PASS: "is not so",
    Status.FAIL: "is so",
    Status.INVALID: "not decided",
}


def _cells(each: ComparedFigure) -> Iterator[str | Shown | None]:
    yield each.figure
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
    yield f"{each.outcome}: {each.note}" if each.note else each.outcome


def _sides(found: Comparison) -> tuple[Side, Side]:
    return found.baseline, found.candidate


def _results(found: Comparison, directory: Path) -> dict[str, Result]:
    """Returns the results that can still be read, by folder."""
    results = {}
    for run in (run for side in _sides(found) for run in side.runs):
        with suppress(StoredRunError):
            results[run] = load_result(directory / run)
    return results


def _items(found: Comparison, directory: Path, results: dict[str, Result]) -> Iterator[Item]:
    runs = [(side, run) for side in _sides(found) for run in side.runs]
    for number, (side, run) in enumerate(runs, 1):
        result, page = results.get(run), f"{run}/report.html"
        yield Item(
            number=number,
            name=f"{side.name}, {Path(run).name}",
            outcome="cannot be read" if result is None else str(result.verdict.status),
            status=None if result is None else result.verdict.status,
            limited_by=None if result is None else result.verdict.limited_by,
            facts=(),
            folder=run,
            is_notable=False,
            page=page if (directory / page).exists() else None,
        )


def _plots(found: Comparison, results: dict[str, Result]) -> Plots:
    drawn = (_differences(found), _percentiles(found, results))
    plots = tuple(plot for plot in drawn if plot is not None)
    return Plots("Plots", "Differences", plots, HOW, "No figure has a difference to show.")


def _differences(found: Comparison) -> Plot | None:
    """Returns the relative differences with their intervals."""
    shown = [each for each in found.figures if each.relative and each.difference is not None]
    if not shown:
        return None
    traces = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": plotted(each.figure),
            "x": [rounded(100 * (each.difference or 0))],
            "y": [plotted(each.figure)],
            "error_x": {
                "type": "data",
                "symmetric": False,
                "array": [rounded(100 * ((each.high or 0) - (each.difference or 0)))],
                "arrayminus": [rounded(100 * ((each.difference or 0) - (each.low or 0)))],
                "color": HUES.get(each.outcome, GREY),
                "thickness": 2,
            },
            "marker": {"size": 11, "color": HUES.get(each.outcome, GREY)},
            "hovertemplate": f"{plotted(difference_text(each))}{NO_MORE}",
            "showlegend": False,
        }
        for each in shown
    ]
    x: dict[str, Any] = {
        "title": {"text": f"{found.candidate.name} against {found.baseline.name} (%)"},
        "gridcolor": GRID,
        "zerolinecolor": GREY,
        "zeroline": True,
    }
    y: dict[str, Any] = {"type": "category", "autorange": "reversed", "automargin": True}
    return Plot("differences", "Differences", "", figure(traces, x, y))


def _percentiles(found: Comparison, results: dict[str, Result]) -> Plot | None:
    """Returns the latency of both sides by percentile, each the sum of its runs."""
    sums = [(side.name, _latencies(side, results)) for side in _sides(found)]
    curves = [
        curve(name, histogram, (colour(number), "solid"))
        for number, (name, histogram) in enumerate(sums)
        if histogram.count
    ]
    if not curves:
        return None
    axis = percentile_axis(max(each["x"][-1] for each in curves))
    return Plot(
        "percentiles",
        "Latency by percentile",
        "All runs of a side together, from the scheduled instant.",
        figure(curves, axis, value_axis("latency (ms, logarithmic)", log=True)),
    )


def _latencies(side: Side, results: dict[str, Result]) -> Histogram:
    tally = HistogramSum()
    for result in (results[run] for run in side.runs if run in results):
        for flow in result.flows:
            tally.add(flow.histogram_ns.intended)
    return tally.value()


def _cases(found: Comparison) -> Iterator[Case]:
    for each in found.conditions:
        text = f"{each.expression}: {CONDITION_WORDS[each.status]}: {each.text}"
        yield Case(f"not {each.expression}", None if each.status is Status.PASS else text)
    if not found.conditions:
        yield Case("compared", skipped=found.text)
