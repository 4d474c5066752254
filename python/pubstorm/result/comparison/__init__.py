"""Compares the figures of runs on two sides. One run shows no spread, so a difference needs at
least two runs of each side."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from statistics import fmean, geometric_mean, variance
from typing import Literal, cast

from pubstorm.contract.histogram import Histogram
from pubstorm.metrics import columns_of, expressions_of
from pubstorm.metrics.expressions import (
    Expression,
    is_percentile,
    parse_expression,
    share_of,
)
from pubstorm.metrics.metric import LATENCY_STATISTICS
from pubstorm.quantities import (
    UnfitError,
    Unit,
    count_text,
    counted,
    share,
    share_text,
    value_text,
)
from pubstorm.result import Environment, Estimate, Measured, RunResult, SearchResult, Status
from pubstorm.result.comparison.model import (
    ComparedCondition,
    ComparedFigure,
    Comparison,
    Outcome,
    Side,
)
from pubstorm.result.figures import Found, distribution, evaluate
from pubstorm.result.interval import (
    CONFIDENCE,
    REPEATS_MAX,
    Difference,
    Repeats,
    difference,
    of_parts,
    t_quantile,
)

__all__ = [
    "ANSWERS",
    "ComparedFigure",
    "Comparison",
    "Condition",
    "Group",
    "Played",
    "Side",
    "better_sign",
    "compare",
    "default_figures",
    "has_figure",
    "parse_condition",
    "unfit",
    "unlike",
]

Direction = Literal["worse", "lower", "higher"]

RUNS_MIN = 2
"""Runs of each side that a difference needs."""
SHARE_MAX = 10.0
"""Larger relative differences are not written out."""
BUCKET = 1 / 128
"""Width of a bucket of histograms, by its duration: percentiles are rounded to it."""


ALL_STEPS = "all steps"
"""Row of a figure over the steps of series."""
ANSWERS = {"search.best": "of_load", "search.most": "most"}
"""Figures of searches, with the part of the answer that has each."""

Played = Measured | SearchResult
"""A run or a search."""


@dataclass(frozen=True)
class Group:
    """The runs or searches of one side."""

    name: str
    results: Sequence[Played]
    runs: Sequence[str]
    left_out: Sequence[str] = ()
    steps: Mapping[str, Sequence[Played]] = field(default_factory=dict)
    """The results by step of series; empty for single runs and searches."""

    @property
    def environments(self) -> list[Environment]:
        """The environment of each run."""
        return [each.environment for each in self.results if isinstance(each, Measured)]

    @property
    def side(self) -> Side:
        """The side as it is stored."""
        return Side(name=self.name, runs=tuple(self.runs), left_out=tuple(self.left_out))


@dataclass(frozen=True)
class Condition:
    """A condition such as `latency.p99 worse by 5%`."""

    figure: Expression
    direction: Direction
    amount: float
    """Share of the baseline from which the condition is fulfilled."""
    source: str


def parse_condition(source: str) -> Condition:
    """Parses a condition of `--fail-if`, or raises UnfitError."""
    found = _CONDITION.fullmatch(source.strip())
    if found is None:
        hint = "for example: latency.p99 worse by 5%"
        raise UnfitError(source, "is FIGURE worse|lower|higher by SHARE", hint)
    figure, direction = parse_expression(found["figure"]), cast("Direction", found["direction"])
    if direction == "worse" and not better_sign(figure):
        hint = f"for example: {figure} higher by {found['amount']}"
        raise UnfitError(source, "is lower or higher: no direction of the figure is worse", hint)
    return Condition(figure, direction, _amount(found["amount"]), source.strip())


def _amount(text: str) -> float:
    """Returns a share of the baseline. Above 1 it needs the percent sign: 5 may mean 5 % or 5
    times."""
    found = float(share(text))
    if found < 0 or (found > 1 and not text.endswith("%")):
        raise UnfitError(text, "is a share such as 10% or 0.1, and above 1 a percentage: 200%")
    return found


def unfit(result: RunResult | SearchResult) -> str | None:
    """Returns why a result says nothing about its target; None if it does."""
    if isinstance(result, SearchResult):
        return _unfit_search(result)
    if result.verdict.status is Status.INVALID:
        return f"the run is invalid: {next(iter(result.verdict.facts), 'see its verdict')}"
    return "the run was interrupted" if result.interrupted else None


def _unfit_search(search: SearchResult) -> str | None:
    best = search.answer.best
    if search.interrupted or not search.complete:
        return "the search is not complete"
    if search.status is not Status.PASS or best is None:
        return f"the search has no answer that passed again: {search.status}"
    return f"its answer is a lower bound: {best.text}" if best.bound == "at_least" else None


def default_figures(results: Sequence[Played]) -> tuple[Expression, ...]:
    """Returns the figures that are compared unless others are asked for, as far as a run has
    them."""
    runs = [result for result in results if isinstance(result, Measured)]
    wanted = _of_runs(runs) if runs else list(ANSWERS)
    figures = map(parse_expression, wanted)
    return tuple(f for f in figures if any(_is_compared(result, f) for result in results))


def _of_runs(results: Sequence[Measured]) -> list[str]:
    brokers = sorted({re.sub(r"-\d+$", "", b.name) for result in results for b in result.brokers})
    of_brokers = [column.head for _, column in columns_of("broker comparison")]
    wanted = [*expressions_of("comparison").values()]
    return wanted + [f"{name}.{metric}" for name in brokers for metric in of_brokers]


def _is_compared(result: Played, figure: Expression) -> bool:
    """Returns True if a run has a figure. A rate of 0 is that of messages that are never sent."""
    value = _value(result, figure)
    return value is not None and (value != 0 or figure.unit != "per_s")


def compare(
    baseline: Group,
    candidate: Group,
    figures: Sequence[Expression],
    conditions: Sequence[Condition],
    started: str,
) -> Comparison:
    """Compares two groups of runs in figures. All intervals together hold with CONFIDENCE, so each
    interval is wider, the more figures there are (Bonferroni)."""
    asked = tuple(dict.fromkeys((*figures, *(each.figure for each in conditions))))
    sides = (baseline, candidate)
    rows = [row for figure in asked for row in _rows(figure, sides)]
    shown = sum(row.has_interval for row in rows) if baseline.steps else len(rows)
    confidence = 1 - (1 - CONFIDENCE) / max(shown, 1)
    compared = [row.compared(confidence) for row in rows]
    by_figure = {each.figure: each for each in reversed(compared)}
    found = [(each, by_figure[str(each.figure)]) for each in conditions]
    return Comparison(
        baseline=baseline.side,
        candidate=candidate.side,
        started=started,
        confidence=CONFIDENCE,
        unlike=tuple(unlike(baseline.environments, candidate.environments)),
        figures=tuple(compared),
        conditions=tuple(_evaluated(*each, confidence) for each in found),
        text=_text(compared),
    )


Sides = tuple[Sequence[Played], Sequence[Played]]


def _rows(figure: Expression, sides: tuple[Group, Group]) -> Iterator[_Row]:
    """Yields the comparisons of a figure: one, or of series one over the steps that both sides
    have, and one for each of these steps."""
    one, other = sides
    if not one.steps:
        yield _Row(figure, (one.results, other.results))
        return
    common = [name for name in one.steps if name in other.steps]
    steps = tuple((one.steps[name], other.steps[name]) for name in common)
    every = ([each for own, _ in steps for each in own], [each for _, own in steps for each in own])
    yield _Steps(figure, every, ALL_STEPS, steps)
    for name, results in zip(common, steps, strict=True):
        yield _Row(figure, results, name)


@dataclass(frozen=True)
class _Row:
    """A figure of two groups of runs or searches."""

    figure: Expression
    sides: Sides
    step: str = ""

    @cached_property
    def found(self) -> tuple[list[float], list[float]]:
        """The values of both sides."""
        one, other = (
            [value for result in side if (value := _value(result, self.figure)) is not None]
            for side in self.sides
        )
        return one, other

    @property
    def is_equal(self) -> bool:
        """True if every repeat has the same value."""
        return len({*self.found[0], *self.found[1]}) == 1 and self._runs >= RUNS_MIN

    @property
    def pairs(self) -> list[tuple[float, float]]:
        """All pairs of values, one of each side."""
        return list(product(*self.found))

    @cached_property
    def is_relative(self) -> bool:
        """True if all values are positive."""
        return all(value > 0 for values in self.found for value in values)

    @property
    def has_interval(self) -> bool:
        """True if there are enough values for an interval."""
        return min(map(len, self.found)) >= RUNS_MIN or self._estimates() is not None

    def compared(self, confidence: float) -> ComparedFigure:
        """Compares the values of both sides."""
        found = self.found
        mean: Callable[[Sequence[float]], float] = geometric_mean if self.is_relative else fmean
        compared = ComparedFigure(
            figure=str(self.figure),
            step=self.step,
            unit=_unit(self.figure, (*self.sides[0], *self.sides[1])),
            baseline=tuple(found[0]),
            candidate=tuple(found[1]),
            relative=self.is_relative,
            means=(_mean_of(mean, found[0]), _mean_of(mean, found[1])),
            pairs=len(self.pairs),
            pairs_higher=sum(one < other for one, other in self.pairs),
            outcome="not known",
        )
        if not self.has_interval:
            return compared.model_copy(update={"note": self._missing()})
        if self.is_equal:
            zero = Difference(0.0, 0.0, 0.0, 0.0)
            return compared.model_copy(update={**_fields(zero), "outcome": "equal"})
        shown = self._difference(confidence)
        needed = None if shown.is_shown else shown.repeats(abs(shown.value), confidence, self._runs)
        update: dict[str, object] = {**_fields(shown), "outcome": _outcome(self.figure, shown)}
        if self.is_relative:
            update |= {name: math.expm1(value) for name, value in _fields(shown).items()}
        update |= {"error": shown.error, "degrees": shown.degrees, "repeats": needed}
        return compared.model_copy(update=update)

    @property
    def _runs(self) -> int:
        """Repeats of the side that has more."""
        return max(map(len, self.found))

    def _missing(self) -> str:
        """Returns why there is no difference."""
        fewest = min(map(len, self.found))
        if any(isinstance(result, SearchResult) for side in self.sides for result in side):
            return "a search without repeats shows no spread"
        runs = counted(fewest, "run has", "runs have")
        return f"{runs} the figure on a side, and a difference needs {RUNS_MIN}"

    def _difference(self, confidence: float) -> Difference:
        """Returns the difference of the means, of logarithms if all values are positive."""
        estimates = self._estimates()
        if estimates is not None:
            return _of_intervals(estimates, confidence)
        turns = _turns(self.sides, self.figure)
        hidden = BUCKET**2 / 12 if self.is_relative and _is_of_buckets(self.figure) else 0.0
        one, other = (
            Repeats(
                [math.log(value) if self.is_relative else value for value in values],
                own_turns,
                self._least(side) if self.is_relative else 0.0,
                hidden,
            )
            for values, own_turns, side in zip(self.found, turns, self.sides, strict=True)
        )
        return difference(one, other, confidence)

    def _least(self, side: Sequence[Played]) -> float:
        """Returns the mean variance of the logarithms that the histograms of runs have by
        themselves: a percentile of few messages is never better known than that."""
        runs = [result for result in side if isinstance(result, Measured)]
        own = [_own_variance(distribution(run, self.figure), self.figure) for run in runs]
        return fmean(own) if own else 0.0

    def _estimates(self) -> list[Estimate] | None:
        """Returns the answers of a single search on each side, if both have intervals."""
        found = [_answer(side[0], self.figure) for side in self.sides if len(side) == 1]
        known = [each for each in found if each is not None and each.bound == "exact"]
        is_known = len(known) == len(self.sides) and all(each.repeats > 1 for each in known)
        return known if is_known else None


@dataclass(frozen=True)
class _Steps(_Row):
    """A figure over all steps of series: the mean of its differences, step by step."""

    steps: tuple[Sides, ...] = ()

    @property
    def has_interval(self) -> bool:
        """True if two steps have the figure on both sides."""
        return len(self.pairs) >= RUNS_MIN

    @property
    def is_equal(self) -> bool:
        """True if both sides have the same value in each step."""
        return all(one == other for one, other in self.pairs)

    @cached_property
    def pairs(self) -> list[tuple[float, float]]:
        """The means of each step."""
        found = [_Row(self.figure, sides).found for sides in self.steps]
        mean = geometric_mean if self.is_relative else fmean
        return [(mean(one), mean(other)) for one, other in found if one and other]

    @property
    def _runs(self) -> int:
        return len(self.pairs)

    def _missing(self) -> str:
        return f"a difference over the steps needs {RUNS_MIN} steps that both sides have"

    def _difference(self, confidence: float) -> Difference:
        scale: Callable[[float], float] = math.log if self.is_relative else float
        found = [scale(other) - scale(one) for one, other in self.pairs]
        part = variance(found) / len(found)
        return of_parts(fmean(found), [part], [len(found) - 1], confidence)


def _of_intervals(estimates: Sequence[Estimate], confidence: float) -> Difference:
    """Returns the difference of the logarithms of two answers, from the confidence intervals of
    their repeats."""
    parts = []
    for each in estimates:
        half = (each.high - each.low) / 2 / each.value
        parts.append((half / t_quantile(CONFIDENCE, each.repeats - 1)) ** 2)
    value = math.log(estimates[1].value / estimates[0].value)
    return of_parts(value, parts, [each.repeats - 1 for each in estimates], confidence)


def _turns(sides: Sides, figure: Expression) -> tuple[list[float], list[float]]:
    """Returns the places of the runs that have a figure in the order of their starts; nothing if a
    start is not known."""
    compared = [[each for each in side if has_figure(each, figure)] for side in sides]
    started = [
        [each.started_unix_ns for each in side if isinstance(each, Measured)] for side in compared
    ]
    ordered = sorted([*started[0], *started[1]])
    if not all(ordered) or len({*ordered}) < len(ordered):
        return [], []
    one, other = ([float(ordered.index(each)) for each in side] for side in started)
    return one, other


def has_figure(result: Played, figure: Expression) -> bool:
    """Returns True if a run or a search has a figure."""
    return _value(result, figure) is not None


def _own_variance(histogram: Histogram | None, figure: Expression) -> float:
    """Returns the variance of the logarithm of a percentile that the number of messages makes, from
    the values one deviation of the rank below and above it."""
    share = PERCENTILES.get(figure.statistic or "") or share_of(figure.statistic or "")
    if histogram is None or share is None:
        return 0.0
    deviation = math.sqrt(share * (1 - share) / histogram.count)
    below, above = (histogram.quantile_ns(share + sign * deviation) for sign in (-1, 1))
    return (math.log(above / below) / 2) ** 2 if below > 0 else 0.0


PERCENTILES = {"p999": 0.999}
"""Percentiles whose names are no numbers."""


def _mean_of(mean: Callable[[Sequence[float]], float], values: Sequence[float]) -> float | None:
    return mean(values) if values else None


def _fields(shown: Difference) -> dict[str, float]:
    return {
        "difference": shown.value,
        "low": shown.low,
        "high": shown.high,
        "smallest": shown.smallest,
    }


def _outcome(figure: Expression, shown: Difference) -> Outcome:
    if not shown.is_shown:
        return "no difference detectable"
    sign = better_sign(figure)
    if not sign:
        return "different"
    return "better" if shown.value * sign > 0 else "worse"


def better_sign(figure: Expression) -> int:
    """Returns 1 if a higher value is better, -1 if a lower one is, 0 if neither is known."""
    better = "higher" if str(figure) in ANSWERS else figure.figure.better
    return (better == "higher") - (better == "lower")


def _is_of_buckets(figure: Expression) -> bool:
    """Returns True if the value is the end of a bucket of a histogram."""
    statistic = figure.statistic or ""
    is_of_buckets = is_percentile(statistic) or statistic in LATENCY_STATISTICS[2:-1]
    return figure.unit == "us" and is_of_buckets


def _value(result: Played, figure: Expression) -> float | None:
    found = _read(result, figure)
    return None if found is None else found.value


def _read(result: Played, figure: Expression) -> Found | Estimate | None:
    if isinstance(result, SearchResult):
        return _answer(result, figure)
    found = evaluate(result, figure)
    return found if isinstance(found, Found) else None


def _answer(result: Played, figure: Expression) -> Estimate | None:
    if not isinstance(result, SearchResult) or str(figure) not in ANSWERS:
        return None
    found: Estimate | None = getattr(result.answer, ANSWERS[str(figure)])
    return found


def _unit(figure: Expression, results: Sequence[Played]) -> Unit:
    found = (_read(result, figure) for result in results)
    return next((each.unit for each in found if each is not None), figure.unit or "")


def _evaluated(condition: Condition, found: ComparedFigure, confidence: float) -> ComparedCondition:
    """Evaluates a condition by the interval: it is so, it is not so, or neither is shown."""
    source = condition.source
    if found.difference is None or found.low is None or found.high is None:
        return ComparedCondition(expression=source, status=Status.INVALID, text=found.note)
    scale = 1.0 if found.relative else abs(found.means[0] or 0.0)
    falls = condition.direction == "lower" or (
        condition.direction == "worse" and better_sign(condition.figure) > 0
    )
    low, high = (-found.high, -found.low) if falls else (found.low, found.high)
    value, least = abs(found.difference), condition.amount * scale
    if low > 0 and value >= least:
        status = Status.FAIL
    elif high <= 0 or high < least:
        status = Status.PASS
    else:
        status = Status.INVALID
    text = difference_text(found)
    if status is Status.INVALID:
        signed_value = -found.difference if falls else found.difference
        text += f"; {_needed(found, signed_value, least, confidence)}"
    return ComparedCondition(expression=source, status=status, text=text)


def _needed(found: ComparedFigure, value: float, least: float, confidence: float) -> str:
    """Returns the number of repeats that would decide a condition, in words, if the difference
    stays as it is."""
    log = math.log1p if found.relative and value > -1 and least > -1 else float
    target = log(value) if value >= least else log(least) - log(value)
    repeats = max(len(found.baseline), len(found.candidate))
    error, degrees = found.error or 0.0, found.degrees or 1.0
    known = Difference(found.difference or 0.0, 0.0, 0.0, 0.0, error, degrees)
    number = known.repeats(target, confidence, repeats)
    if number is None:
        return f"more than {count_text(REPEATS_MAX)} repeats would be needed to decide it"
    return f"{number} repeats would decide it"


def difference_text(found: ComparedFigure) -> str:
    """Returns a difference with its interval, such as `+3.2 % (-1.1 % … +7.7 %)`."""
    if found.difference is None or found.low is None or found.high is None:
        return found.note
    if found.outcome == "equal":
        return "equal"
    value, low, high = (signed(each, found) for each in (found.difference, found.low, found.high))
    return f"{value} ({low} … {high})"


def signed(value: float, found: ComparedFigure) -> str:
    """Returns a difference of a figure with its sign."""
    size = abs(value)
    if found.relative:
        text = share_text(size) if size <= SHARE_MAX else f"over {share_text(SHARE_MAX)}"
    else:
        text = value_text(size, found.unit)
    return f"{'-' if value < 0 else '+'}{text}"


def _text(figures: Sequence[ComparedFigure]) -> str:
    parts = []
    for outcome in ("worse", "better", "different"):
        names = [each.name for each in figures if each.outcome == outcome]
        if names:
            parts.append(f"{outcome}: {', '.join(names)}")
    if parts:
        return "; ".join(parts)
    if any(each.difference is not None for each in figures):
        return "no difference detectable"
    return f"no difference can be shown: that needs {RUNS_MIN} runs of each side"


def unlike(baseline: Sequence[Environment], candidate: Sequence[Environment]) -> Iterator[str]:
    """Yields the differences between the environments of two groups of runs, in words."""
    for name, words in _COMPARED:
        seen = [sorted({str(getattr(e, name)) for e in each}) for each in (baseline, candidate)]
        if seen[0] != seen[1] and all(seen):
            yield f"{words}: {', '.join(seen[0])} and {', '.join(seen[1])}"
    versions = [
        sorted({f"{b.kind} {b.version}" for environment in each for b in environment.brokers})
        for each in (baseline, candidate)
    ]
    if versions[0] != versions[1]:
        yield f"brokers: {' and '.join(', '.join(each) or 'none' for each in versions)}"


_COMPARED: Sequence[tuple[str, str]] = (
    ("host", "host"),
    ("kernel", "kernel"),
    ("cpu_model", "processor"),
    ("cores", "cores"),
    ("memory_bytes", "bytes of memory"),
    ("pubstorm", "version of Pubstorm"),
    ("engine", "version of the engine"),
    ("python", "version of Python"),
    ("descriptors_soft", "limit of open files"),
)
assert all(name in Environment.model_fields for name, _ in _COMPARED)
_CONDITION = re.compile(
    r"(?P<figure>\S.*?)\s+(?P<direction>worse|lower|higher)\s+by\s+(?P<amount>\S+)"
)
