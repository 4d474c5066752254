"""Searches and comparisons of models whose answers are known: the intervals that cover the truth,
and what is called different. The seeds are fixed, so that each count is exact. `make truth` plays
1,000 of each."""

from __future__ import annotations

import pytest

from tests.kit.known_truth import COMPARISONS, SEARCHES, Sides, System, compared, searched

SEARCHED = 60
COMPARED = 20
COUNTS: dict[str, tuple[int, ...]] = {
    "capacity varies by 3 %": (32, 32, 59, 1, 0),
    "capacity varies by 10 %": (25, 25, 59, 1, 0),
    "5 repeats, 3 %": (36, 35, 60, 0, 0),
    "3 %, and grows by 0.1 % a trial": (49, 49, 60, 0, 0),
    "3 %, the host spoils a tenth of the trials": (34, 29, 59, 0, 1),
    "capacity never varies": (60, 60, 60, 0, 0),
    "equal": (19, 1, 1),
    "equal, 3 repeats": (20, 0, 0),
    "equal, latencies grow by 5 % a run": (19, 1, 1),
    "equal, all default figures": (19, 1, 1),
    "1.5 times slower": (19, 20, 20),
    "1.5 times slower, latencies grow by 5 % a run": (19, 20, 20),
}
"""Of searches: those with an interval, those whose interval covers the capacity, and those of each
status. Of comparisons: those that cover the difference, those that call a figure different, and
those that find the candidate to be slower."""


@pytest.mark.parametrize("system", SEARCHES, ids=lambda system: system.name)
def test_an_answer_covers_the_capacity_of_its_model(system: System) -> None:
    found = searched(system, SEARCHED)
    counts = tuple(found[each] for each in ("interval", "covered", "pass", "fail", "open"))
    assert counts == COUNTS[system.name]


@pytest.mark.parametrize("sides", COMPARISONS, ids=lambda sides: sides.name)
def test_a_comparison_covers_the_difference_of_its_model(sides: Sides) -> None:
    found = compared(sides, COMPARED)
    counts = tuple(found[each] for each in ("covered", "called", "found"))
    assert counts == COUNTS[sides.name]
