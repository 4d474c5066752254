"""The report of a comparison: each figure of both sides, and what can be said of the
difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pubstorm.contract.histogram import Histogram, HistogramSum
from pubstorm.errors import StoredRunError
from pubstorm.quantities import counted, share_text, shortened, value_text
from pubstorm.report.document import Case, Document, Fact, Item, Plots, sentence
from pubstorm.report.experiment_figures import comparison_figures
from pubstorm.report.latencies import curve, percentile_axis
from pubstorm.report.layout import Shown, Table, columns
from pubstorm.report.overlay import HOW_OVERLAID, LOOKS, Played, needed, overlaid
from pubstorm.report.plot import (
    GREY,
    GRID,
    NO_MORE,
    Plot,
    figure,
    plotted,
    scatter,
    value_axis,
)
from pubstorm.report.stored import holds, load_result, load_search, load_tracks
from pubstorm.result import LimitedBy, Status
from pubstorm.result.comparison import (
    ComparedFigure,
    Comparison,
    Side,
    difference_text,
    signed,
    unfit,
)

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
        page = f"{run}/report.html"
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
    return Plot("differences", "Differences", caption, figure(traces, x, y))


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
        "All compared runs of a side together, from the scheduled instant.",
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
