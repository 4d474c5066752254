"""The points of a rate profile: those of the scenario, of a sine, or of a file. Rates become
factors of the rate that the active clients of the stage have together.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import ceil, cos, isfinite, tau
from typing import NamedTuple

from pubstorm.contract.rows import RowFile, read_rows
from pubstorm.errors import PubstormError
from pubstorm.quantities import SECOND_NS, describe, write_count
from pubstorm.scenario.shares import PlannedClients
from pubstorm.scenario.stages import RateProfile, Sine, Stage

SINE_POINTS = 64
"""Points of one period. Lines between them differ from a sine by up to 0.06 % of its height."""
POINTS_MAX = 100_000
FACTOR_MAX = 1e6
COLUMNS = ("rate", "factor")
"""Columns of a file beside `time`; a file has one of them."""


class RateProfileError(PubstormError):
    """A profile that gives no factors: what was found, what is allowed, and a hint."""

    default_exit_code = 2


class Point(NamedTuple):
    """A time after the start of the stage, in nanoseconds, and a factor or a rate a second."""

    at_ns: int
    value: float


def rate_of(stage: Stage, planned: PlannedClients) -> float:
    """Messages a second of the active clients of a stage at its start, by the scenario's rates."""
    return sum(
        planned.count([name]) * (publication.rate_per_s or 0.0)
        for name in planned.chosen(stage)
        for publication in planned.shares[name].population.flows
    )


def factors_of(profile: RateProfile, duration_ns: int, rate_per_s: float) -> tuple[Point, ...]:
    """Returns the factors of the planned rate over time. Raises RateProfileError, or RowsError
    for a file that cannot be read."""
    if profile.sine is not None:
        points, are_rates = _sine(profile.sine, duration_ns), False
    elif profile.csv is not None:
        points, are_rates = _replay(read_rows(profile.csv), profile.csv)
    else:
        are_rates = any(point.rate is not None for point in profile.points)
        points = [
            Point(point.at, (point.rate if are_rates else point.factor) or 0.0)
            for point in profile.points
        ]
    if are_rates and not rate_per_s:
        hint = "no client with a rate is active at the start of the stage"
        raise RateProfileError("found rates, allowed are factors", hint)
    if len(points) > POINTS_MAX:
        more = "" if profile.csv else "more than "
        found = f"{more}{write_count(POINTS_MAX if more else len(points))} points"
        message = f"found {found}, allowed are {write_count(POINTS_MAX)}"
        raise RateProfileError(message, "a sine with a longer period has fewer")
    scale = profile.factor / (rate_per_s if are_rates else 1.0)
    made = tuple(Point(at_ns, value * scale) for at_ns, value in points)
    largest = max(point.value for point in made)
    if largest > FACTOR_MAX:
        message = f"found {largest:.6g} times the rate, allowed is up to {FACTOR_MAX:.0f} times"
        raise RateProfileError(message)
    return made


def _sine(sine: Sine, duration_ns: int) -> list[Point]:
    count = min(ceil(duration_ns * SINE_POINTS / sine.period) + 1, POINTS_MAX + 1)
    height = (sine.high - sine.low) / 2

    def point(number: int) -> Point:
        part = 1 - cos(tau * (number % SINE_POINTS) / SINE_POINTS)
        return Point(round(number * sine.period / SINE_POINTS), sine.low + height * part)

    return [point(number) for number in range(count)]


def _replay(file: RowFile, path: str) -> tuple[list[Point], bool]:
    """The points of a file, and true if they are rates."""
    columns = [name for name in COLUMNS if name in file.headings]
    if "time" not in file.headings or len(columns) != 1:
        found = f"found the columns {', '.join(file.headings)} in {path}"
        raise RateProfileError(f"{found}, allowed are time and one of rate and factor")
    points = list(_rows(file, columns[0], path))
    for before, after in pairwise(points):
        if after.at_ns < before.at_ns:
            times = f"{after.at_ns / SECOND_NS:g} s after {before.at_ns / SECOND_NS:g} s"
            raise RateProfileError(f"found {times} in {path}, allowed are times in order")
    start_ns = points[0].at_ns
    return [Point(at_ns - start_ns, value) for at_ns, value in points], columns[0] == "rate"


def _rows(file: RowFile, column: str, path: str) -> Iterator[Point]:
    cells = zip(file.columns["time"], file.columns[column], strict=True)
    for number, (time, value) in enumerate(cells, 1):
        at_s, amount = _number(time), _number(value)
        if at_s is None or amount is None or amount < 0:
            found = f"found {describe(time)} and {describe(value)} in row {number} of {path}"
            raise RateProfileError(f"{found}, allowed are seconds, and a {column} of 0 or more")
        yield Point(round(at_s * SECOND_NS), amount)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None
