"""The load as samples: nothing is lost or made up between unaligned intervals of many agents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pubstorm.contract import Sample
from pubstorm.contract.histogram import Histogram
from pubstorm.contract.plan import Plan, PlannedPopulation
from pubstorm.contract.protocol import ClosedPace, FixedPayload, OpenPace, PlannedPublication
from pubstorm.contract.snapshot import Snapshot
from pubstorm.measure.recorder import OPEN_MAX
from pubstorm.metrics.monitors import unit_of
from tests.kit import made
from tests.kit.made import SECOND_NS, START_NS

OPEN = OpenPace(period_ns=SECOND_NS // 2, spread=0, jitter=0, phase="spread", late="send")


def population(name: str, *paces: OpenPace | ClosedPace) -> PlannedPopulation:
    empty = FixedPayload(bytes=0)
    publications = (
        PlannedPublication(topic="t", qos=1, retain=False, pace=pace, window=1, payload=empty)
        for pace in paces
    )
    return made.clients(name, publications=tuple(publications))


def plan(*paces: OpenPace | ClosedPace) -> Plan:
    return made.plan(population("device", *paces), population("backend"))


def snapshot(agent: int, from_s: float, to_s: float, **figures: Any) -> Snapshot:
    """A snapshot with these figures: `sent`, `skipped`, `foreign`, `received`, `missing`,
    `connected`, `backlog`, `busy`, and in nanoseconds `acks`, `latencies` and `late`."""
    span_ns = round((to_s - from_s) * SECOND_NS)
    device = made.population(
        connected=figures.get("connected", 0),
        backlog=figures.get("backlog", 0),
        sent_total=figures.get("sent", 0),
        skipped_total=figures.get("skipped", 0),
        foreign_total=figures.get("foreign", 0),
        acks=Histogram.of(figures.get("acks", ())),
    )
    flow = made.flow(
        0,
        1,
        Histogram.of(figures.get("latencies", ())),
        received_total=figures.get("received", 0),
        missing_total=figures.get("missing", 0),
    )
    return made.snapshot(
        device,
        made.population(),
        from_ns=START_NS + round(from_s * SECOND_NS),
        to_ns=START_NS + round(to_s * SECOND_NS),
        agent=agent,
        stage=0,
        flows=(flow,),
        engine=made.load(
            busy_ns=round(figures.get("busy", 0) * span_ns),
            cpu_ns=span_ns // 10,
            run_delay_ns=figures.get("run_delay_ns"),
            rss_bytes=1000 + agent,
            lateness=Histogram.of(figures.get("late", ())),
        ),
    )


def sampler(*paces: OpenPace | ClosedPace, agents: int = 1) -> made.Sampled:
    return made.Sampled(plan(*paces or (OPEN,)), agents)


def samples(snapshots: Iterable[Snapshot], agents: int = 1) -> list[Sample]:
    return sampler(agents=agents).all(snapshots)


def track(found: Sequence[Sample], source: str, metric: str) -> list[tuple[float, float]]:
    return [(s.at_s, s.value) for s in found if (s.source.name, s.metric) == (source, metric)]


def test_counts_of_unaligned_intervals_are_shared_out_by_time() -> None:
    found = samples([snapshot(0, 0, 0.5, sent=50), snapshot(0, 0.5, 1.5, sent=200)])
    assert track(found, "device", "sent_per_s") == [(1.0, 150.0), (1.5, 200.0)]


def test_agents_add_up_though_their_intervals_end_apart() -> None:
    one = [snapshot(0, n, n + 1, sent=100, connected=5) for n in range(3)]
    two = [snapshot(1, n - 0.7, n + 0.3, sent=10, connected=2) for n in range(4)]
    found = samples(sorted([*one, *two], key=lambda each: each.to_ns), agents=2)
    assert track(found, "device", "sent_per_s")[:3] == [(1.0, 110.0), (2.0, 110.0), (3.0, 110.0)]
    assert [value for _, value in track(found, "device", "connected")][:3] == [7, 7, 7]


def sent_after(each: Snapshot, at_s: int) -> float:
    """Messages of an interval that lie behind a second of the run, shared out by time."""
    length_ns, behind_ns = each.to_ns - each.from_ns, each.to_ns - START_NS - at_s * SECOND_NS
    sent = each.populations[0].counters.sent_total
    return sent * min(max(behind_ns, 0), length_ns) / length_ns


@given(
    st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 1000)), min_size=1, max_size=30),
    st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 1000)), min_size=1, max_size=30),
)
@example([(1, 0)], [(1, 2), (1, 1000)])
def test_no_message_is_lost_between_spans(
    one: list[tuple[int, int]], two: list[tuple[int, int]]
) -> None:
    """Rates of whole spans times their length, with what short ends leave out, are all."""
    snapshots = []
    for agent, intervals in enumerate((one, two)):
        at_ms = 0
        for length_ms, sent in intervals:
            to_ms = at_ms + length_ms
            snapshots.append(snapshot(agent, at_ms / 1000, to_ms / 1000, sent=sent))
            at_ms = to_ms
    for agent in (0, 1):
        own = [each for each in snapshots if each.agent == agent]
        total = sum(each.populations[0].counters.sent_total for each in own)
        end_s = (own[-1].to_ns - START_NS) / SECOND_NS
        rates = track(samples(own), "device", "sent_per_s")
        whole = sum(rate * (1 if at_s == int(at_s) else at_s % 1) for at_s, rate in rates)
        left_out = sum(sent_after(each, int(end_s)) for each in own) if end_s % 1 < 0.101 else 0
        assert total - left_out - 1 <= whole <= total + 1
    ordered = sorted(snapshots, key=lambda each: each.to_ns)
    found = samples(ordered, agents=2)
    at_s = [sample.at_s for sample in found]
    assert at_s == sorted(at_s)
    assert len({(s.at_s, s.source, s.metric) for s in found}) == len(found)


def test_latencies_are_merged_over_agents_before_percentiles_are_taken() -> None:
    fast, slow = [1000] * 98, [200_000] * 2
    found = samples(
        [snapshot(0, 0, 1, latencies=fast), snapshot(1, 0, 1, latencies=slow)], agents=2
    )
    (at_s, p50), (_, p99), (_, top) = (
        track(found, "backend", f"latency_{name}_us")[0] for name in ("p50", "p99", "max")
    )
    assert at_s == 1.0
    assert p50 == pytest.approx(1, rel=0.01)
    assert p99 == pytest.approx(200, rel=0.01)
    assert top == 200


def test_acknowledgements_stand_in_where_nothing_is_received() -> None:
    found = samples([snapshot(0, 0, 1, acks=[5000]), snapshot(0, 1, 2)])
    assert track(found, "device", "latency_max_us") == [(1.0, 5.0)]
    assert track(found, "backend", "latency_max_us") == []


def test_messages_of_other_programs_have_a_rate_where_some_came() -> None:
    plain, others = snapshot(0, 0, 1), snapshot(0, 1, 2, foreign=510)
    found = samples([plain, others, snapshot(0, 2, 3)])
    assert track(found, "device", "foreign_per_s") == [(2.0, 510.0), (3.0, 0.0)]
    assert track(found, "backend", "foreign_per_s") == []


def test_missing_messages_are_counted_from_the_start() -> None:
    snapshots = [snapshot(0, n, n + 1, missing=m) for n, m in enumerate((3, 4, -5))]
    assert [value for _, value in track(samples(snapshots), "backend", "missing")] == [3, 7, 2]


def test_agents_report_their_waiting_time_for_a_processor() -> None:
    waited = SECOND_NS // 5
    snapshots = [snapshot(0, n, n + 1, run_delay_ns=each) for n, each in enumerate((waited, 0))]
    assert track(samples(snapshots), "agent-0", "run_delay") == [(1.0, 0.2), (2.0, 0.0)]
    assert unit_of("run_delay") == "share"


def test_agents_report_on_themselves() -> None:
    found = samples([snapshot(0, 0, 1, busy=0.25, late=[7000]), snapshot(0, 1, 2, busy=0.5)])
    assert track(found, "agent-0", "busy") == [(1.0, 0.25), (2.0, 0.5)]
    assert track(found, "agent-0", "cpu") == [(1.0, 0.1), (2.0, 0.1)]
    assert track(found, "agent-0", "run_delay") == []
    assert track(found, "agent-0", "rss_bytes") == [(1.0, 1000), (2.0, 1000)]
    assert track(found, "agent-0", "lateness_p99_us") == [(1.0, 7.0)]


def test_an_agent_that_falls_silent_holds_up_only_so_many_spans() -> None:
    timeline = sampler(agents=2)
    timeline.take(snapshot(1, 0, 1))
    closed = [bool(timeline.take(snapshot(0, n, n + 1))) for n in range(2 * OPEN_MAX)]
    assert closed == [True] + [False] * OPEN_MAX + [True] * (OPEN_MAX - 1)


def test_an_hour_of_snapshots_keeps_no_span_open() -> None:
    timeline = sampler()
    for n in range(3600):
        timeline.take(snapshot(0, n + 0.3, n + 1.3, sent=1))
    assert all(len(agent.taken) <= 2 for agent in timeline.sampler._agents.values())


def test_what_is_due_is_sent_or_skipped_or_waits() -> None:
    snapshots = [
        snapshot(0, 0, 1, sent=100),
        snapshot(0, 1, 2, sent=20, backlog=80),
        snapshot(0, 2, 3, sent=150, backlog=30),
        snapshot(0, 3, 4, skipped=30),
    ]
    due = track(samples(snapshots), "device", "due_per_s")
    assert [value for _, value in due] == [100, 100, 100, 0]
    assert track(samples(snapshots), "backend", "due_per_s") == []


def test_a_closed_loop_has_nothing_due() -> None:
    found = sampler(OPEN, ClosedPace()).take(snapshot(0, 0, 1, sent=5))
    assert track(found, "device", "due_per_s") == []
    assert track(found, "device", "sent_per_s") == [(1.0, 5.0)]


def test_an_interval_that_began_before_the_run_counts_with_its_part_in_it() -> None:
    found = samples([snapshot(0, -1, -0.5, sent=9), snapshot(0, -0.5, 0.5, sent=100)])
    assert track(found, "device", "sent_per_s") == [(0.5, 100.0)]
