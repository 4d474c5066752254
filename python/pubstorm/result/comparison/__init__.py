"""Compares the figures of runs on two sides. One run shows no spread, so a difference needs at
least two runs of each side."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from statistics import fmean, geometric_mean
from typing import Literal, cast

from pubstorm.metrics import columns_of, expressions_of
from pubstorm.metrics.expressions import Expression, is_percentile, parse_expression
from pubstorm.metrics.metric import LATENCY_STATISTICS
from pubstorm.quantities import UnfitError, counted, share, share_text, value_text
from pubstorm.result import Environment, Measured, Result, Status
from pubstorm.result.cells import Found
from pubstorm.result.comparison.model import (
    ComparedCondition,
    ComparedFigure,
    Comparison,
    Outcome,
    Side,
)
from pubstorm.result.figures import in_results
from pubstorm.result.interval import CONFIDENCE, Difference, difference

__all__ = [
    "ComparedFigure",
    "Comparison",
    "Condition",
    "Group",
    "Side",
    "better_sign",
    "compare",
    "default_figures",
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


@dataclass(frozen=True)
class Group:
    """The runs of one side."""

    name: str
    results: Sequence[Measured]
    runs: Sequence[str]
    left_out: Sequence[str] = ()

    @property
    def environments(self) -> list[Environment]:
        """The environment of each run."""
        return [result.environment for result in self.results]

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


def unfit(result: Result) -> str | None:
    """Returns why a result says nothing about its target; None if it does."""
    if result.verdict.status is Status.INVALID:
        return f"the run is invalid: {next(iter(result.verdict.facts), 'see its verdict')}"
    return "the run was interrupted" if result.interrupted else None


def default_figures(results: Sequence[Measured]) -> tuple[Expression, ...]:
    """Returns the figures that are compared unless others are asked for, as far as a run has
    them."""
    brokers = sorted({re.sub(r"-\d+$", "", b.name) for result in results for b in result.brokers})
    of_brokers = [column.head for _, column in columns_of("broker comparison")]
    wanted = [*expressions_of("comparison").values()]
    wanted += [f"{name}.{metric}" for name in brokers for metric in of_brokers]
    figures = map(parse_expression, wanted)
    return tuple(
        f for f in figures if any(_is_compared(found, f) for found in in_results(results, f))
    )


def _is_compared(found: Found, figure: Expression) -> bool:
    """Returns True if a value can be compared. A rate of 0 belongs to clients that send nothing."""
    return found.value != 0 or figure.unit != "per_s"


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
    confidence = 1 - (1 - CONFIDENCE) / max(len(asked), 1)
    compared = {figure: _compared(figure, baseline, candidate, confidence) for figure in asked}
    return Comparison(
        baseline=baseline.side,
        candidate=candidate.side,
        started=started,
        confidence=CONFIDENCE,
        unlike=tuple(unlike(baseline.environments, candidate.environments)),
        figures=tuple(compared.values()),
        conditions=tuple(_evaluated(each, compared[each.figure]) for each in conditions),
        text=_text(tuple(compared.values())),
    )


def _compared(
    figure: Expression, baseline: Group, candidate: Group, confidence: float
) -> ComparedFigure:
    sides = [in_results(group.results, figure) for group in (baseline, candidate)]
    found = [[each.value for each in side] for side in sides]
    units = (each.unit for side in sides for each in side)
    is_relative = all(value > 0 for values in found for value in values)
    mean: Callable[[Sequence[float]], float] = geometric_mean if is_relative else fmean
    compared = ComparedFigure(
        figure=str(figure),
        unit=next(units, "") if figure.unit is None else figure.unit,
        baseline=tuple(found[0]),
        candidate=tuple(found[1]),
        relative=is_relative,
        means=(_mean_of(mean, found[0]), _mean_of(mean, found[1])),
        outcome="not known",
    )
    fewest = min(map(len, found))
    if fewest < RUNS_MIN:
        runs = counted(fewest, "run has", "runs have")
        note = f"{runs} the figure on a side, and a difference needs {RUNS_MIN}"
        return compared.model_copy(update={"note": note})
    if len({*found[0], *found[1]}) == 1:
        zero = Difference(0.0, 0.0, 0.0, 0.0)
        return compared.model_copy(update={**_fields(zero), "outcome": "equal"})
    if not is_relative:
        shown = difference(found[0], found[1], confidence)
        return compared.model_copy(update={**_fields(shown), "outcome": _outcome(figure, shown)})
    logs = [[math.log(value) for value in values] for values in found]
    shown = difference(logs[0], logs[1], confidence, BUCKET if _is_of_buckets(figure) else 0.0)
    shares = Difference(*map(math.expm1, astuple(shown)))
    return compared.model_copy(update={**_fields(shares), "outcome": _outcome(figure, shown)})


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
    better = figure.figure.better
    return (better == "higher") - (better == "lower")


def _is_of_buckets(figure: Expression) -> bool:
    """Returns True if the value is the end of a bucket of a histogram."""
    statistic = figure.statistic or ""
    is_of_buckets = is_percentile(statistic) or statistic in LATENCY_STATISTICS[2:-1]
    return figure.unit == "us" and is_of_buckets


def _evaluated(condition: Condition, found: ComparedFigure) -> ComparedCondition:
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
    words = "" if status is not Status.INVALID else "; more runs narrow the interval"
    return ComparedCondition(expression=source, status=status, text=difference_text(found) + words)


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
    """Returns the outcome of a comparison in one sentence."""
    parts = []
    for outcome in ("worse", "better", "different"):
        names = [each.figure for each in figures if each.outcome == outcome]
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
