"""Bounds of all that grows with the length of a run. Events and edges beyond them are counted."""

from __future__ import annotations

import pytest

from pubstorm.fleet.programs import Assignment
from pubstorm.measure import run_log
from pubstorm.measure.phases.load_due import TICKS_MAX, width_of
from pubstorm.measure.recorder import NoStore, Recorder
from pubstorm.measure.run_log import RunLog
from pubstorm.result.timeline import OWN_MIN, ROWS_MAX, lane
from tests.kit import made
from tests.kit.made import SECOND_NS, START_NS

DAY_NS = 24 * 3600 * SECOND_NS


class Events(NoStore):
    """Counts events."""

    count = 0

    def append_event(self, line: str) -> None:
        assert line
        self.count += 1


def test_events_beyond_the_first_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_log, "EVENTS_MAX", 5)
    store, log = Events(), RunLog(START_NS)
    recorder = Recorder(made.golden_plan(), Assignment(1), log, store)
    for n in range(12):
        recorder.note("broker", f"event {n}", START_NS + n)
    assert (len(log.events), log.left_out, store.count) == (5, 7, 5)
    assembly = made.assembly(made.golden_plan(), log, [])
    assert [event.text for event in assembly.resolutions()] == ["7 further events were left out"]


def test_edges_beyond_the_first_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "EDGES_MAX", 3)
    assembly = made.assembly(made.golden_plan(), RunLog(START_NS), [])
    assembly.timeline.keep_apart(1, 2, 3, 3, 4, 5)
    (event,) = assembly.resolutions()
    assert event.text == "2 starts and ends of changes and faults are not kept apart in older parts"


@pytest.mark.parametrize(("days", "width_s"), [(0.5, 1), (1, 1), (1.2, 2), (30, 26)])
def test_a_long_phase_has_longer_ticks(days: float, width_s: int) -> None:
    until_ns = START_NS + round(days * DAY_NS)
    width_ns = width_of(START_NS, until_ns, SECOND_NS)
    assert width_ns == width_s * SECOND_NS
    assert (until_ns - START_NS) / width_ns <= TICKS_MAX


def test_a_run_of_many_agents_keeps_fewer_of_their_intervals() -> None:
    plan = made.plan(made.clients("device"))
    for agents in (1, 16, 1000):
        line = made.timeline(
            plan,
            (made.snapshot(made.population(), from_ns=START_NS, agent=n) for n in range(agents)),
        )
        assert line._own_max == max(ROWS_MAX // agents, OWN_MIN)
