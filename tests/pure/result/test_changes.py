"""Change points: equal values rarely have one, and a planted step is found at its place."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubstorm.result.history import RUNS_MIN, change_points

HISTORIES = 150
LEVEL = 0.05


def noisy(chance: random.Random, count: int) -> list[float]:
    """Latencies of equal runs: of 10 one is three times as slow."""
    return [
        chance.lognormvariate(5, 0.1) * (3 if chance.random() < 0.1 else 1) for _ in range(count)
    ]


@pytest.mark.parametrize("count", [8, 40])
def test_equal_runs_rarely_have_a_change(count: int) -> None:
    chance = random.Random(count)
    found = sum(bool(change_points(noisy(chance, count), LEVEL)) for _ in range(HISTORIES))
    # At a true share of 5 %, one of 1000 seeds would have more than 17 of 150.
    assert found <= 17


def test_a_planted_step_of_20_percent_is_found_at_its_place() -> None:
    chance, near = random.Random(2), 0
    for _ in range(50):
        before, after = noisy(chance, 25), [1.2 * value for value in noisy(chance, 25)]
        near += any(abs(place - 25) <= 3 for place in change_points([*before, *after], LEVEL))
    assert near >= 40


def test_a_step_and_the_way_back_are_two_changes() -> None:
    chance, further = random.Random(3), 0
    for _ in range(20):
        values = [chance.gauss(200 if 20 <= n < 40 else 100, 3) for n in range(60)]
        places = change_points(values, LEVEL)
        assert {20, 40} <= {*places}
        further += len(places) > 2
    # Three parts with 5 % each: one of 1000 seeds would have more than 8.
    assert further <= 8


@pytest.mark.parametrize("count", [0, 1, 5, 7])
def test_fewer_than_eight_runs_show_no_change(count: int) -> None:
    assert change_points([float(n // (count // 2 or 1)) for n in range(count)], LEVEL) == []


def test_eight_runs_can_show_one() -> None:
    assert change_points([1, 2, 3, 4, 15, 16, 17, 18], LEVEL) == [4]


def test_one_slow_run_is_no_change() -> None:
    assert change_points([1, 2, 1, 2, 1, 2, 99, 1, 2, 1, 2, 1], LEVEL) == []


def test_equal_values_have_no_change() -> None:
    assert change_points([5.0] * 50, LEVEL) == []


@given(st.lists(st.floats(-1e9, 1e9), max_size=24))
def test_levels_are_never_shorter_than_allowed(values: list[float]) -> None:
    places = [0, *change_points(values, 0.3), len(values)]
    assert all(b - a >= RUNS_MIN for a, b in itertools.pairwise(places) if len(places) > 2)
