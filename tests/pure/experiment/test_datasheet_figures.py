"""Figures of a data sheet from known numbers: slopes, and the time that cells may take."""

from __future__ import annotations

import random

import pytest

from pubstorm.experiment.datasheet.budget import Budget, fitting
from pubstorm.experiment.datasheet.reading import line_of
from pubstorm.result.datasheet import SheetFigure
from pubstorm.result.figures import Found
from pubstorm.scenario.sheets import PlannedSlope

COUNTS = {"0k": 0, "1k": 1000, "2k": 2000, "3k": 3000, "4k": 4000}
PLANNED = PlannedSlope.model_validate(
    {"name": "a session", "of": "broker.private_bytes.last", "at": COUNTS, "many": "1M sessions"}
)
BASE, PER_OBJECT = 5e6, 2500.0


def readings(noise: float, rng: random.Random) -> list[tuple[float, float]]:
    return [(x, BASE + PER_OBJECT * x + rng.gauss(0, noise)) for x in COUNTS.values()]


def slope(points: list[tuple[float, float]]) -> SheetFigure:
    return next(iter(line_of(PLANNED, points, None)))


def test_memory_without_noise_is_that_of_the_objects() -> None:
    found = slope(readings(0.0, random.Random(1)))
    assert found.estimate is not None and found.r_squared == 1
    assert found.estimate.value == pytest.approx(PER_OBJECT)
    assert found.estimate.high - found.estimate.low < 1e-3
    assert "1M sessions: 2.50 GB, extrapolated" in found.remarks


def test_the_interval_of_a_slope_covers_the_truth_as_often_as_it_says() -> None:
    """95 % of 2,000: less than 92 or more than 98 of 100 has a chance below one in a million."""
    rng, covered, rounds = random.Random(2), 0, 2000
    for _ in range(rounds):
        estimate = slope(readings(3e5, rng)).estimate
        covered += estimate is not None and estimate.low <= PER_OBJECT <= estimate.high
    assert 0.92 * rounds < covered < 0.98 * rounds


def test_memory_that_does_not_grow_has_no_slope() -> None:
    found = slope([(x, BASE) for x in COUNTS.values()])
    assert found.estimate is None and "did not grow" in found.remarks[0]


@pytest.mark.parametrize(("share", "word"), [(0.0, "0 %"), (0.75, "75 %"), (1.0, "100 %")])
def test_the_share_that_is_given_back_is_that_of_the_objects(share: float, word: str) -> None:
    points = readings(0.0, random.Random(3))
    back = Found(points[-1][1] - share * PER_OBJECT * 4000, "bytes")
    given = list(line_of(PLANNED, points, back))[1]
    assert (given.name, given.word) == ("given back afterwards", word)


def test_time_is_kept_for_the_last_cells() -> None:
    assert list(fitting([30, 40, 20], 100, 20)) == [True, True, False]


def test_cells_that_take_longer_than_planned_leave_less_for_others() -> None:
    budget = Budget(100, kept_s=10)
    budget.take(20, 40)
    assert budget.pace == 2
    assert budget.refusal(20) is None
    refusal = budget.refusal(21)
    assert refusal == "not measured in this time: it needs about 42.0 s, 40.0 s were left"
    budget.take(20, 45)
    assert budget.refusal(10, is_last=True) is None
