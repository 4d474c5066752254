"""A history: figures of many runs over time, and the runs since which a figure changed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from statistics import median
from typing import Literal

from pubstorm.contract.value import Number, Probability, Value
from pubstorm.metrics.expressions import Expression, parse_expression
from pubstorm.quantities import Unit
from pubstorm.result.changes import change_points
from pubstorm.result.comparison import better_sign
from pubstorm.result.interval import CONFIDENCE


class HistoryPoint(Value):
    """A run in a history."""

    run: str
    """Run directory."""
    started: str
    """Wall-clock start in UTC, ISO 8601."""
    value: Number | None
    """The figure, in the unit of the series; null: the run has none."""
    left_out: str = ""
    """Reason why no change point is computed with this run; empty: one is."""


class HistoryChange(Value):
    """A change of level."""

    run: str
    """First run of the new level."""
    started: str
    """Start of that run."""
    before: Number
    """Median of the level before."""
    after: Number
    """Median of the new level."""
    outcome: Literal["better", "worse", "different"]
    """different: the figure has no better direction."""
    unlike: tuple[str, ...] = ()
    """Differences between the runs of both levels, such as the version of Pubstorm."""


class HistorySeries(Value):
    """A figure of all runs of one scenario."""

    scenario: str
    """Name of the scenario."""
    figure: str
    """The figure as a threshold names it, such as `latency.p99`."""
    unit: Unit
    """Unit of the values."""
    points: tuple[HistoryPoint, ...]
    """The runs in the order of time."""
    changes: tuple[HistoryChange, ...] = ()
    """Changes in the order of time."""

    @property
    def counted(self) -> tuple[HistoryPoint, ...]:
        """The runs that change points are computed with."""
        return tuple(point for point in self.points if not point.left_out)

    def levels(self) -> list[tuple[HistoryPoint, ...]]:
        """Returns the counted runs between changes."""
        points = self.counted
        starts = {change.run for change in self.changes}
        edges = [0, *(n for n, point in enumerate(points) if point.run in starts), len(points)]
        pairs = itertools.pairwise(edges)
        return [points[first:end] for first, end in pairs if first < end]


class History(Value):
    """Figures of many runs over time."""

    format: Literal[1] = 1
    """Version of this format."""
    confidence: Probability
    """Probability that no series has a change point, if no level changed."""
    series: tuple[HistorySeries, ...]
    """A series for each scenario and figure."""
    unread: tuple[str, ...] = ()
    """Folders that are no run of this history, each with the reason."""


def history(series: Sequence[HistorySeries], unread: Sequence[str] = ()) -> History:
    """Returns series with their changes. All series together have a change point with a
    probability of 1 - CONFIDENCE at most, if no level changed (Bonferroni)."""
    level = (1 - CONFIDENCE) / max(len(series), 1)
    found = tuple(each.model_copy(update={"changes": changes_of(each, level)}) for each in series)
    return History(confidence=CONFIDENCE, series=found, unread=tuple(unread))


def changes_of(series: HistorySeries, level: float) -> tuple[HistoryChange, ...]:
    """Returns the changes of a series."""
    points = series.counted
    values = [point.value for point in points if point.value is not None]
    assert len(values) == len(points), "a run without a value is left out"
    places = change_points(values, level)
    edges = (0, *places, len(values))
    medians = [median(values[a:b]) for a, b in itertools.pairwise(edges) if a < b]
    return tuple(
        HistoryChange(
            run=points[place].run,
            started=points[place].started,
            before=before,
            after=after,
            outcome=_outcome(parse_expression(series.figure), after - before),
        )
        for place, before, after in zip(places, medians, medians[1:], strict=False)
    )


def _outcome(figure: Expression, rise: float) -> Literal["better", "worse", "different"]:
    sign = better_sign(figure)
    if not sign or not rise:
        return "different"
    return "better" if rise * sign > 0 else "worse"
