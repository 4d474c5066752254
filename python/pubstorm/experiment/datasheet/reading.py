"""The figures of a cell: read from the runs of its search or series, each with its interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from statistics import StatisticsError, correlation, fmean, linear_regression

from pubstorm.errors import StoredRunError
from pubstorm.metrics.expressions import parse_expression
from pubstorm.quantities import bytes_text, share_text
from pubstorm.report import load_result
from pubstorm.result import Estimate, LimitedBy, RunResult, SearchResult, Series, SeriesStep, Status
from pubstorm.result.datasheet import SheetFigure
from pubstorm.result.figures import Found, Missing, evaluate
from pubstorm.result.interval import CONFIDENCE, estimate_of, t_quantile
from pubstorm.scenario.sheets import BEST, VERDICT, PlannedCell, PlannedFigure, PlannedSlope

NEAR = 0.7
"""Share of an answer from which trials that passed show what a message costs."""
R_SQUARED_MIN = 0.5
"""Share of the scatter that a line must explain."""
MILLION = 1_000_000
OF_OURS = {
    LimitedBy.GENERATOR: "the load generator was the limit",
    LimitedBy.HOST: "this host was the limit",
}


def figures_of(
    cell: PlannedCell,
    played: SearchResult | Series,
    folder: Path,
    lacking: Mapping[str, str],
) -> Iterator[SheetFigure]:
    """Yields the figures of a cell. `folder` is that of its search or series, `lacking` has the
    populations that do not exist in the protocol, with the reason."""
    runs = list(_runs(played, folder))
    for planned in cell.figures:
        if why := lacking.get(planned.of.partition(".")[0]):
            yield SheetFigure(name=planned.name or planned.of, remarks=(why,))
        elif planned.of == BEST and isinstance(played, SearchResult):
            yield _answer(planned, played)
        elif planned.of == VERDICT and isinstance(played, Series):
            yield from _verdicts(played)
        elif isinstance(played, SearchResult):
            yield _metric(planned, _near(played, folder))
        else:
            yield _metric(planned, runs)
    if cell.slope is not None:
        yield from _slope(cell.slope, runs)


def best_of(played: SearchResult | Series) -> float | None:
    """Returns the answer of a search in the unit that it varies; None if there is none."""
    best = played.answer.best if isinstance(played, SearchResult) else None
    return None if best is None else best.value


def _runs(played: SearchResult | Series, folder: Path) -> Iterator[RunResult]:
    steps = played.trials if isinstance(played, SearchResult) else played.steps
    for step in steps:
        with suppress(StoredRunError):
            yield load_result(folder / step.folder)


def _near(search: SearchResult, folder: Path) -> list[RunResult]:
    """Returns the runs of the trials that passed near the answer."""
    best = search.answer.best
    if best is None:
        return []
    found = []
    for trial in search.trials:
        if trial.passed and trial.value >= NEAR * best.value:
            with suppress(StoredRunError):
                found.append(load_result(folder / trial.folder))
    return found


def _answer(planned: PlannedFigure, search: SearchResult) -> SheetFigure:
    answer = search.answer
    remarks = [] if search.remark is None else [search.remark]
    estimate = answer.of_load
    if estimate is not None:
        estimate = estimate.times(planned.times)
    if answer.limited_by in OF_OURS:
        remarks.append(OF_OURS[answer.limited_by])
        if estimate is not None:
            estimate = estimate.model_copy(update={"bound": "at_least"})
    return SheetFigure(
        name=planned.name or planned.of,
        estimate=estimate,
        better=planned.better,
        limited_by=answer.limited_by,
        remarks=tuple(remarks),
    )


def _verdicts(series: Series) -> Iterator[SheetFigure]:
    for step in series.steps:
        why = step.evidence[:1] if step.status is not Status.PASS else ()
        yield SheetFigure(name=step.name, word=step.outcome, remarks=why)


def _metric(planned: PlannedFigure, runs: Sequence[RunResult]) -> SheetFigure:
    """Returns the mean of a metric over runs. Invalid runs say nothing; without another one the
    figure is withheld."""
    valid = [run for run in runs if run.verdict.status is not Status.INVALID]
    found = [_value(planned, run) for run in valid]
    values = [each for each in found if isinstance(each, Found)]
    remarks: dict[str, None] = {}
    if not values:
        remarks.update((fact, None) for run in valid for fact in _broken(run))
        remarks.update((each.reason, None) for each in found if isinstance(each, Missing))
        if runs and not valid:
            remarks.update((fact, None) for fact in runs[-1].verdict.evidence[:1])
        if not runs:
            remarks["no run of it was measured"] = None
    elif len(values) < len(runs):
        remarks[f"{len(values)} of {len(runs)} runs have it"] = None
    limits = [run.verdict.limited_by for run in valid if run.verdict.limited_by in OF_OURS]
    if limits:
        remarks[OF_OURS[limits[0]]] = None
    return SheetFigure(
        name=planned.name or planned.of,
        estimate=_mean(planned, values) if values else None,
        better=planned.better,
        limited_by=limits[0] if limits else None,
        remarks=tuple(remarks),
    )


def _broken(run: RunResult) -> tuple[str, ...]:
    """Returns the first fact about a run that failed, such as a broker that ended."""
    return run.verdict.evidence[:1] if run.verdict.status is Status.FAIL else ()


def _mean(planned: PlannedFigure, values: Sequence[Found]) -> Estimate:
    unit = values[0].unit if planned.unit is None else planned.unit
    mean = estimate_of([each.value * planned.times for each in values], unit)
    return mean.model_copy(update={"low": max(mean.low, 0.0)})


def _value(planned: PlannedFigure, run: RunResult) -> Found | Missing:
    """Returns the metric of one run, or the quotient of two."""
    found = evaluate(run, parse_expression(planned.of))
    if planned.per is None or isinstance(found, Missing):
        return found
    divisor = evaluate(run, parse_expression(planned.per))
    if isinstance(divisor, Missing):
        return divisor
    if not divisor.value:
        return Missing(f"{planned.per} is 0")
    scale = MILLION if planned.unit == "us" else 1
    return Found(found.value / divisor.value * scale, found.unit)


def _slope(planned: PlannedSlope, runs: Sequence[RunResult]) -> Iterator[SheetFigure]:
    """Yields the slope of a line through the stages of one run, and what was given back. A run that
    failed may lack objects, such as clients that were not let in: it has no slope."""
    if not runs or runs[-1].verdict.status is not Status.PASS:
        why = runs[-1].verdict.evidence[:1] if runs else ("no run of it was measured",)
        yield SheetFigure(name=planned.name, better="less", remarks=why)
        return
    read = _reading_of(planned, runs[-1])
    points = [(count, read(stage)) for stage, count in planned.at.items()]
    lacking = [each for _, each in points if isinstance(each, Missing)]
    if lacking:
        why = (*_broken(runs[-1]), lacking[0].reason)
        yield SheetFigure(name=planned.name, better="less", remarks=why)
        return
    known = [(count, each.value) for count, each in points if isinstance(each, Found)]
    yield from line_of(planned, known, read(planned.back) if planned.back else None)


def _reading_of(planned: PlannedSlope, run: RunResult) -> Callable[[str], Found | Missing]:
    return lambda stage: evaluate(run, parse_expression(f"{planned.of}@{stage}"))


def line_of(
    planned: PlannedSlope, points: Sequence[tuple[float, float]], back: Found | Missing | None
) -> Iterator[SheetFigure]:
    """Yields the figures of a line through points: objects, and bytes. The interval is that of the
    slope of a least-squares line, by Student's t distribution."""
    x, y = zip(*points, strict=True)
    per_object, base = linear_regression(x, y)
    try:
        r_squared = correlation(x, y) ** 2
    except StatisticsError:
        r_squared = 0.0
    if per_object <= 0 or r_squared < R_SQUARED_MIN:
        why = f"memory did not grow with them: R² {r_squared:.2f}"
        yield SheetFigure(name=planned.name, better="less", r_squared=r_squared, remarks=(why,))
        return
    rest = math.fsum((b - base - per_object * a) ** 2 for a, b in points)
    spread = math.fsum((a - fmean(x)) ** 2 for a in x)
    degrees = len(points) - 2
    half = t_quantile(CONFIDENCE, degrees) * math.sqrt(rest / degrees / spread)
    slope = Estimate(
        value=per_object,
        low=max(per_object - half, 0.0),
        high=per_object + half,
        repeats=len(points),
        unit="bytes",
    )
    many = f"{planned.many}: {bytes_text(MILLION * per_object)}, extrapolated"
    yield SheetFigure(
        name=planned.name,
        estimate=slope,
        better="less",
        r_squared=round(r_squared, 4),
        remarks=(many,) if planned.many else (),
    )
    if isinstance(back, Found):
        given = (y[-1] - back.value) / (per_object * (x[-1] - x[0]))
        word = share_text(min(max(given, 0.0), 1.0))
        yield SheetFigure(name="given back afterwards", word=word)


def _facts(step: SeriesStep) -> tuple[str, ...]:
    if step.status is Status.PASS and step.limited_by in {None, LimitedBy.NONE}:
        return ()
    problem = step.problem or step.unfit
    return step.evidence[:3] if problem is None else (problem.partition("\n")[0],)


def evidence_of(played: SearchResult | Series) -> tuple[str, ...]:
    """Returns the answer of a search, or the facts of the steps that did not pass."""
    if isinstance(played, SearchResult):
        return (played.answer.text,) if played.answer.text else ()
    groups = groupby(played.steps, key=lambda step: step.label)
    return tuple(
        f"{label}: {fact}"
        for label, steps in groups
        for fact in dict.fromkeys(fact for step in steps for fact in _facts(step))
    )
