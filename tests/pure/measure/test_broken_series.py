"""Phases of any series of intervals: numbers of broken files, of agents that were killed, and of
clocks that step make a phase that is not known, never an error."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pubstorm.contract import Value
from pubstorm.contract.histogram import Histogram
from pubstorm.contract.plan import AddClients, ChangeRate, RemoveClients
from pubstorm.contract.snapshot import Snapshot
from pubstorm.measure.phases import outage_events, phases, short_stages
from pubstorm.measure.run_log import AppliedChange
from tests.kit import made
from tests.kit.made import SECOND_NS, START_NS
from tests.pure.measure.test_phases import SCENARIO, plan

BIG = 2**63
COUNT = st.sampled_from((0, 1, 7, 1500, 2**53, BIG - 1)) | st.integers(0, 3000)
SIGNED = COUNT | COUNT.map(lambda number: -number)
LENGTH_NS = st.sampled_from((0, 1, SECOND_NS // 2, SECOND_NS, 3 * SECOND_NS, -SECOND_NS))
ACTION = st.sampled_from(
    (
        ChangeRate(factor=0),
        ChangeRate(factor=1e-9),
        ChangeRate(factor=1e9),
        AddClients(clients=50, over_ns=0),
        RemoveClients(clients=150, over_ns=SECOND_NS),
    )
)


@st.composite
def interval(draw: st.DrawFn) -> dict[str, int]:
    """Figures of one interval of a broken file."""
    return {
        "agent": draw(st.integers(0, 1)),
        "length_ns": draw(LENGTH_NS),
        **{name: draw(COUNT) for name in ("sent", "acked", "in_flight", "backlog", "late_ns")},
        **{name: draw(SIGNED) for name in ("expected", "received", "missing", "latency_ns")},
    }


def snapshots(intervals: list[dict[str, int]]) -> list[Snapshot]:
    """The snapshots of two agents, each in a row."""
    ends_ns, found = [START_NS, START_NS], []
    for number, each in enumerate(intervals):
        from_ns = ends_ns[each["agent"]]
        ends_ns[each["agent"]] += each["length_ns"]
        latency = Histogram.of([each["latency_ns"]])
        device = made.population(
            in_flight=each["in_flight"],
            backlog=each["backlog"],
            sent_total=each["sent"],
            acked_total=each["acked"],
            acks=latency,
        )
        counts = {f"{name}_total": each[name] for name in ("expected", "received", "missing")}
        found.append(
            made.snapshot(
                *(device, made.population(), made.population()),
                from_ns=from_ns,
                to_ns=ends_ns[each["agent"]],
                agent=each["agent"],
                sequence=number,
                flows=(made.flow(0, 2, latency, latency, **counts),),
                engine=made.load(lateness=Histogram.of([each["late_ns"]])),
            )
        )
    return found


STEADY = {
    **{"agent": 0, "length_ns": SECOND_NS, "sent": 1500, "acked": 1500, "expected": 1500},
    **{"received": 1500, "in_flight": 9, "backlog": 0, "missing": 0},
    **{"latency_ns": 10**6, "late_ns": 10**5},
}


@given(
    st.lists(interval() | st.just(STEADY), min_size=9, max_size=30),
    st.lists(st.tuples(st.integers(-2, 30), ACTION), max_size=3),
    st.integers(0, 40),
)
@example([{**STEADY, "expected": -1500}] * 20, [], 20)
@example([{**STEADY, "expected": 0, "received": -1}] * 10, [], 10)
@example([*[STEADY] * 4, {**STEADY, "length_ns": 1, "acked": BIG - 1}, *[STEADY] * 8], [], 10)
def test_no_series_of_intervals_raises(
    intervals: list[dict[str, int]],
    changes: list[tuple[int, AddClients | RemoveClients | ChangeRate]],
    seconds: int,
) -> None:
    log = made.run_log(
        START_NS,
        START_NS + seconds * SECOND_NS,
        drain_s=1,
        changes=[
            AppliedChange(1, START_NS + at_s * SECOND_NS, f"change {n}", 0, action)
            for n, (at_s, action) in enumerate(changes)
        ],
    )
    run = made.assembly(plan(SCENARIO), log, snapshots(intervals))
    found: list[Value] = [*phases(run, {}), *short_stages(run), *outage_events(run, {})]
    for each in found:
        json.loads(each.model_dump_json(), parse_constant=lambda name: pytest.fail(name))
