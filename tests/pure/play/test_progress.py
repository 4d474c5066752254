"""The progress of a run: what has come, what is still expected, and what moves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from pubstorm.contract.protocol import PLAYERS
from pubstorm.contract.snapshot import FlowCounters, PopulationSnapshot
from pubstorm.contract.sums import RunSum
from pubstorm.fleet.programs import Assignment
from pubstorm.play.progress import HOPELESS_NS, LATE_NS, Barrier, Progress
from pubstorm.quantities import SECOND_NS
from tests.kit import made

EXPECTED = {"expected_total": 100, "received_total": 75}
STRAY = {"received_total": 25, "wills_received_total": 25}


class DrainedStage:
    """Progress in the publish stage, at an instant that a test sets."""

    def __init__(self) -> None:
        self.now_ns = 0
        golden = made.golden_plan()
        played = [each for each in golden.populations if each.protocol.kind not in PLAYERS]
        engines = {"populations": tuple(played), "flows": ()}
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


def attempts(begun: int, failed: int = 0, connected: int = 0) -> PopulationSnapshot:
    """Clients of which so many have begun to connect, failed and connected."""
    return made.population(
        connected=connected,
        connect_attempts_total=begun,
        connect_failed_total=failed,
        connected_total=connected,
    )


@pytest.mark.parametrize(
    ("later", "is_hopeless"),
    [
        ((attempts(0), attempts(0)), False),
        # Those who try again say nothing about the others.
        ((attempts(9, 9), attempts(0)), False),
        ((attempts(9, 9), attempts(9, 2)), False),
        ((attempts(0), attempts(0, 3)), True),
        ((attempts(9), attempts(9, 3)), True),
        ((attempts(0), attempts(0, 2, 1)), False),
    ],
)
def test_a_run_has_hope_while_early_attempts_are_under_way(
    later: tuple[PopulationSnapshot, PopulationSnapshot], *, is_hopeless: bool
) -> None:
    now_ns, golden, sums = [0], made.golden_plan(), RunSum()
    plan = golden.model_copy(update={"populations": golden.populations[:2]})
    played = Progress(plan, Assignment(engines=1), sums, lambda: now_ns[0])

    def take(*clients: PopulationSnapshot) -> None:
        snapshot = made.snapshot(*clients, from_ns=0)
        played.take(snapshot)
        sums.take(snapshot)

    take(attempts(2, 2), attempts(3))
    assert played.hopeless_ns() is None
    now_ns[0] = HOPELESS_NS
    assert played.hopeless_ns() is None
    take(*later)
    assert played.hopeless_ns() == (HOPELESS_NS if is_hopeless else None)


def test_a_stage_is_settled_when_its_agents_were_and_not_when_the_controller_took_note() -> None:
    stage = DrainedStage()
    stage.take({}, settled=False)
    stage.take({})
    settled_ns = stage.progress.settled_ns()
    assert settled_ns == stage.progress.latest[0].to_ns
    stage.now_ns += 2 * SECOND_NS
    stage.take({})
    assert stage.progress.settled_ns() == settled_ns
    stage.progress.enter(2, stage.now_ns)
    assert stage.progress.settled_ns() == stage.now_ns


def test_a_barrier_counts_no_time_in_which_the_controller_had_no_processor() -> None:
    now_ns, stalls_ns, asked = 0, [3 * SECOND_NS, 0, 5 * SECOND_NS], list[int]()

    async def wait(longest_ns: int) -> None:
        nonlocal now_ns
        asked.append(longest_ns)
        now_ns += longest_ns + (stalls_ns.pop(0) if stalls_ns else 0)

    came_at = 5
    barrier = Barrier(lambda: len(asked) == came_at, lambda: 2 * SECOND_NS)
    assert asyncio.run(barrier.passed(lambda: now_ns, wait))
    # Beside the stalls, and the time to read what came in them, it ends when it should.
    asked.clear()
    now_ns, stalls_ns, came_at = 0, [3 * SECOND_NS], 100
    assert not asyncio.run(barrier.passed(lambda: now_ns, wait))
    assert now_ns == 5 * SECOND_NS + LATE_NS
