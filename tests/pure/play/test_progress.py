"""The progress of a run: what has come, what is still expected, and what moves."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pubstorm.contract.snapshot import FlowCounters
from pubstorm.contract.sums import RunSum
from pubstorm.fleet.programs import Assignment
from pubstorm.play.progress import Progress
from tests.kit import made

EXPECTED = {"expected_total": 100, "received_total": 75}
STRAY = {"received_total": 25, "wills_received_total": 25}


class DrainedStage:
    """Progress in the publish stage, at an instant that a test sets."""

    def __init__(self) -> None:
        self.now_ns = 0
        golden = made.golden_plan()
        # Other programs play the last population.
        engines = {"populations": golden.populations[:-1], "flows": ()}
        plan = golden.model_copy(update=engines)
        assignment = Assignment.among(plan, 1)
        self.progress = Progress(plan, assignment, RunSum(), clock=lambda: self.now_ns)
        self.progress.enter(1, 0)

    def take(self, counts: Mapping[str, int], *, settled: bool = True) -> bool:
        """Takes a snapshot with these counts of a flow. Returns True if something moved."""
        self.now_ns += 1
        flows = (made.flow(0, 1).model_copy(update={"counters": FlowCounters(**counts)}),)
        populations = (made.population(), made.population())
        snapshot = made.snapshot(*populations, from_ns=self.now_ns, settled=settled, flows=flows)
        self.progress.take(snapshot)
        return self.progress.moved_ns == self.now_ns


@pytest.mark.parametrize(
    ("snapshots", "is_balanced"),
    [
        ([EXPECTED], False),
        ([EXPECTED, {"received_total": 25}], True),
        # Wills make up for no message, and messages for no will.
        ([EXPECTED, STRAY], False),
        ([STRAY, EXPECTED], False),
        ([{"expected_total": 25, "wills_expected_total": 25}, {"received_total": 25}], False),
        ([{"expected_total": 25, "wills_expected_total": 25}, STRAY], True),
    ],
)
def test_deliveries_are_balanced_once_each_kind_has_come(
    snapshots: list[dict[str, int]], *, is_balanced: bool
) -> None:
    played = DrainedStage()
    for counts in snapshots:
        played.take(counts)
    assert played.progress.balanced() == is_balanced


def test_a_surplus_of_a_stage_makes_up_for_nothing_in_the_next_one() -> None:
    played = DrainedStage()
    played.take({"expected_total": 100, "received_total": 125})
    assert played.progress.balanced()
    played.progress.enter(1, 0)
    played.take(EXPECTED)
    assert not played.progress.balanced()


@pytest.mark.parametrize(
    ("before", "counts", "is_movement"),
    [
        (EXPECTED, {"received_total": 1}, True),
        (EXPECTED, {"duplicate_total": 1}, False),
        (EXPECTED, STRAY, False),
        ({"expected_total": 9, "wills_expected_total": 9}, STRAY, True),
        ({}, {"received_total": 1}, False),
        ({}, STRAY, False),
        # Receivers that change are expected to receive what they receive.
        ({}, {"expected_total": 1, "received_total": 1}, True),
        ({}, {"expected_total": 25, "wills_expected_total": 25, **STRAY}, False),
        # Before it settles, an agent has not computed what is expected.
        (None, {"received_total": 1}, True),
        (None, STRAY, False),
    ],
)
def test_only_deliveries_that_are_expected_move(
    before: dict[str, int] | None, counts: dict[str, int], *, is_movement: bool
) -> None:
    played = DrainedStage()
    played.take(before or {}, settled=before is not None)
    assert played.take(counts, settled=before is not None) == is_movement
