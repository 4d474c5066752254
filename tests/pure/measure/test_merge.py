"""Snapshots add up to the same totals in any order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pubstorm.contract.histogram import Histogram
from pubstorm.contract.reasons import Reason
from pubstorm.contract.snapshot import (
    Counters,
    EngineLoad,
    Explanation,
    FlowCounters,
    FlowSnapshot,
    Gauges,
    PopulationSnapshot,
    Snapshot,
)
from pubstorm.result.timeline.rows import activities, rates_of
from tests.kit import made

ONE = made.plan(made.clients("device"))
TWO = made.plan(made.clients("device"), made.clients("backend"))
SMALL = st.integers(0, 50)
HISTOGRAMS = st.lists(st.integers(-5, 1 << 40), max_size=5).map(Histogram.of)
EXPLANATIONS = st.lists(
    st.builds(
        Explanation,
        outcome=st.just(Reason.NOT_AUTHORIZED),
        property=st.just("reason_string"),
        text=st.none() | st.sampled_from("abcdefgh"),
        count=SMALL,
    ),
    max_size=6,
).map(tuple)
POPULATIONS = st.builds(
    PopulationSnapshot,
    gauges=st.builds(Gauges, connected=SMALL, ready=SMALL, in_flight=SMALL, backlog=SMALL),
    counters=st.builds(Counters, sent_total=SMALL, acked_total=SMALL),
    outcomes=st.dictionaries(st.sampled_from(Reason), SMALL, max_size=2),
    explanations=EXPLANATIONS,
    connect_time=HISTOGRAMS,
    ack_intended=HISTOGRAMS,
    ack_actual=HISTOGRAMS,
)
FLOWS = st.builds(
    FlowSnapshot,
    source=st.integers(0, 1),
    to=st.integers(0, 1),
    counters=st.builds(
        FlowCounters, expected_total=SMALL, received_total=SMALL, missing_total=st.integers(-50, 50)
    ),
    latency_intended=HISTOGRAMS,
    latency_actual=HISTOGRAMS,
)
LOADS = st.builds(
    EngineLoad,
    busy_ns=SMALL,
    cpu_ns=SMALL,
    rss_bytes=SMALL,
    lateness=HISTOGRAMS,
    blocked=HISTOGRAMS,
    ledger_pairs=SMALL,
    unfollowed_total=SMALL,
)


@st.composite
def runs(draw: st.DrawFn) -> list[Snapshot]:
    """The snapshots of some agents, each with its own clock ticks, in any order."""
    snapshots = []
    for agent in range(draw(st.integers(1, 3))):
        to_ns = 0
        for sequence in range(draw(st.integers(0, 3))):
            from_ns, to_ns = to_ns, to_ns + draw(st.integers(1, 1000))
            snapshots.append(
                made.snapshot(
                    draw(POPULATIONS),
                    draw(POPULATIONS),
                    from_ns=from_ns,
                    to_ns=to_ns,
                    agent=agent,
                    sequence=sequence,
                    stage=draw(st.sampled_from([None, 0, 1])),
                    flows=tuple(draw(st.lists(FLOWS, max_size=2))),
                    engine=draw(LOADS),
                )
            )
    return draw(st.permutations(snapshots))


@settings(deadline=None)
@given(runs(), st.randoms(use_true_random=False))
def test_totals_lose_nothing_and_do_not_depend_on_order(
    snapshots: list[Snapshot], random: object
) -> None:
    shuffled = snapshots[::-1]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    sums = made.sums(snapshots)
    assert made.sums(shuffled) == sums
    lines = [made.timeline(TWO, each, 0) for each in (snapshots, shuffled)]
    assert list(lines[0].rows()) == list(lines[1].rows())
    assert list(lines[0].histograms.spans()) == list(lines[1].histograms.spans())
    for index in (0, 1):
        peaks = [each.peaks().of([index], "connected") for each in lines]
        assert peaks[0] == peaks[1]
        sent = sum(s.populations[index].counters.sent_total for s in snapshots)
        assert sums.population([index]).counters.sent_total == sent
    received = sum(flow.counters.received_total for s in snapshots for flow in s.flows)
    assert sum(flow.counters.received_total for flow in sums.flows().values()) == received


def connected(agent: int, sequence: int, to_ns: int, clients: int, sent: int = 0) -> Snapshot:
    return made.snapshot(
        made.population(connected=clients, sent_total=sent),
        from_ns=to_ns - 1000,
        to_ns=to_ns,
        agent=agent,
        sequence=sequence,
        stage=0,
    )


def test_the_peak_is_that_of_the_sum_over_agents_at_one_time() -> None:
    line = made.timeline(
        ONE,
        [
            connected(0, 0, 1000, 10),
            connected(0, 1, 3000, 0),
            connected(1, 0, 2000, 5),
            connected(1, 1, 4000, 12),
        ],
    )
    assert line.peaks().of([0], "connected") == 15
    assert line.at_end(0, 4000, [0], "connected") == 12
    assert line.at_end(0, 3999, [0], "connected") == 5


def test_rates_of_agents_add_up_even_where_their_intervals_differ() -> None:
    line = made.timeline(
        ONE,
        [
            connected(0, 0, 1000, 1, sent=10),
            connected(0, 1, 2000, 1, sent=30),
            connected(1, 0, 1000, 1, sent=5),
        ],
    )
    found = activities(line.rows()).values()
    assert rates_of(found, [0]).sent_per_s == pytest.approx(20e6 + 5e6)
    assert rates_of([], [0]).sent_per_s == 0


def test_only_intervals_wholly_inside_count_as_steady() -> None:
    line = made.timeline(ONE, [connected(0, n, 1000 * (n + 1), 1) for n in range(5)])
    assert [row.to_ns for row in line.inside(0, 1000, 4005)] == [2000, 3000, 4000]
    assert list(line.inside(1, 0, 9999)) == []
