"""Sums of snapshots are values of the same classes, the same in any order and grouping."""

from __future__ import annotations

from functools import reduce
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pubstorm.contract import Value
from pubstorm.contract.histogram import Histogram
from pubstorm.contract.reasons import Reason
from pubstorm.contract.snapshot import (
    AnswerCounters,
    Counters,
    Explanation,
    FlowCounters,
    FlowSnapshot,
    Gauges,
    PopulationSnapshot,
    TargetSnapshot,
)
from pubstorm.contract.sums import ALL, AgentPart, RunSum, Sum, total
from tests.kit import made

V = TypeVar("V", bound=Value)
LARGEST = {"rss_max_bytes", "ledger_pairs_max"}
"""Fields of which the largest value remains."""
NAMES = {"source", "to", "target"}
"""Fields that are the same in all values of a sum."""
DELAYED = ("ack_delays", "round_trip_delays", "latency_delays")
FILLED = {
    "outcomes": ({Reason.BAD_SOURCE: 1}, {Reason.BAD_SOURCE: 2, "publish_quota-exceeded": 5}),
    "explanations": (
        (Explanation(outcome="publish_a", property="reason_string", text="full", count=1),),
        (Explanation(outcome="publish_a", property="reason_string", text="full", count=6),),
    ),
    "clients_by_deliveries": (((7, 1), (9, 2)), ((3, 1), (9, 4))),
    **dict.fromkeys(DELAYED, (((7, 1, 2, 3, 4), (9, 5, 0, 0, 0)), ((7, 10, 0, 0, 1),))),
}
TOGETHER = {
    "outcomes": {Reason.BAD_SOURCE: 3, "publish_quota-exceeded": 5},
    "explanations": (
        Explanation(outcome="publish_a", property="reason_string", text="full", count=7),
    ),
    "clients_by_deliveries": ((3, 1), (7, 1), (9, 6)),
    **dict.fromkeys(DELAYED, ((7, 11, 2, 3, 5), (9, 5, 0, 0, 0))),
}
"""The sum of both values of a field."""


def filled(model: type[V], place: int) -> V:
    """A value of which each field differs from its default and from the other fields."""
    fields: dict[str, Any] = {}
    for number, (name, info) in enumerate(model.model_fields.items(), 1):
        kind = info.annotation
        if name in FILLED:
            fields[name] = FILLED[name][place]
        elif name in NAMES:
            fields[name] = number
        elif kind is Histogram:
            fields[name] = Histogram.of([number, 1000 * (place + 1) * number, -number])
        elif isinstance(kind, type) and issubclass(kind, Value):
            fields[name] = filled(kind, place)
        else:
            fields[name] = number + 100 * place
    return model(**{model.model_fields[name].alias or name: each for name, each in fields.items()})


def by_hand(first: V, second: V) -> V:
    """The sum of two values, field by field."""
    fields: dict[str, Any] = {}
    for name, one in first:
        other = getattr(second, name)
        if name in TOGETHER:
            fields[name] = TOGETHER[name]
        elif isinstance(one, Gauges) or (name, type(first)) == ("connected", TargetSnapshot):
            fields[name] = type(one)()
        elif isinstance(one, Histogram):
            fields[name] = one.plus(other)
        elif isinstance(one, Value):
            fields[name] = by_hand(one, other)
        else:
            fields[name] = max(one, other) if name in LARGEST | NAMES else one + other
    return first.model_copy(update=fields)


@pytest.mark.parametrize("model", [PopulationSnapshot, FlowSnapshot, TargetSnapshot, AgentPart])
def test_each_field_adds_up(model: type[Value]) -> None:
    first, second = filled(model, 0), filled(model, 1)
    assert total(model, [first, second]) == by_hand(first, second)


def test_a_sum_of_nothing_has_no_counts() -> None:
    nothing = total(PopulationSnapshot, [])
    assert nothing == made.population()
    assert total(AgentPart, []) == AgentPart()


def test_time_without_a_processor_is_unknown_only_where_no_agent_counts_it() -> None:
    parts = [AgentPart(run_delay_ns=delay_ns) for delay_ns in (None, 3, None, 4)]
    assert total(AgentPart, parts).run_delay_ns == 7
    assert total(AgentPart, parts[:1]).run_delay_ns is None


def test_a_field_without_a_rule_is_refused() -> None:
    class Unruled(Value):
        count: int

    with pytest.raises(TypeError, match=r"^Unruled\.count has no rule by which it adds up$"):
        Sum(Unruled)


HISTOGRAMS = st.lists(st.integers(-5, 1 << 40), max_size=4).map(Histogram.of)
COUNTS = st.integers(0, 99)
TEXTS = st.lists(
    st.builds(
        Explanation,
        outcome=st.sampled_from([Reason.NOT_AUTHORIZED, Reason.CONNECT_REFUSED]),
        property=st.sampled_from(["reason_string", "server_reference"]),
        text=st.none() | st.sampled_from("abcdefgh"),
        count=COUNTS,
    ),
    max_size=8,
).map(tuple)
CELLS = st.dictionaries(st.integers(0, 3), st.tuples(*[COUNTS] * 4), max_size=3)
DELAYS = CELLS.map(lambda cells: tuple((index, *cells[index]) for index in sorted(cells)))
POPULATIONS = st.builds(
    PopulationSnapshot,
    gauges=st.just(Gauges()),
    counters=st.builds(Counters, sent_total=COUNTS, bytes_received_total=COUNTS),
    outcomes=st.dictionaries(st.sampled_from(Reason), COUNTS, max_size=3),
    explanations=TEXTS,
    clients_by_deliveries=st.dictionaries(COUNTS, COUNTS, max_size=3).map(
        lambda counts: tuple(sorted(counts.items()))
    ),
    connect_time=HISTOGRAMS,
    connect_time_resumed=HISTOGRAMS,
    ack_intended=HISTOGRAMS,
    ack_actual=HISTOGRAMS,
    answers=st.builds(AnswerCounters, answered_total=st.integers(-9, 9)),
)
FLOWS = st.builds(
    FlowSnapshot,
    source=st.just(1),
    to=st.just(2),
    counters=st.builds(FlowCounters, expected_total=COUNTS, missing_total=st.integers(-9, 9)),
    latency_intended=HISTOGRAMS,
    latency_actual=HISTOGRAMS,
    will_latency=HISTOGRAMS,
    queued_latency=HISTOGRAMS,
)
AGENTS = st.builds(
    AgentPart,
    run_delay_ns=st.none() | COUNTS,
    rss_max_bytes=COUNTS,
    sent_total=COUNTS,
    lateness=HISTOGRAMS,
)


@settings(deadline=None, max_examples=60)
@given(st.data(), st.sampled_from([POPULATIONS, FLOWS, AGENTS]), st.randoms(use_true_random=False))
def test_any_order_and_grouping_gives_the_same_sum(
    data: st.DataObject, values: st.SearchStrategy[Any], random: Any
) -> None:
    drawn = data.draw(st.lists(values, min_size=1, max_size=8))
    model = type(drawn[0])
    expected = total(model, drawn)
    shuffled = [*drawn]
    random.shuffle(shuffled)
    assert total(model, shuffled) == expected
    groups: list[Sum[Any]] = [Sum(model) for _ in range(3)]
    for each in shuffled:
        random.choice(groups).add(each)

    def merged(first: Sum[Any], second: Sum[Any]) -> Sum[Any]:
        first.merge(second)
        return first

    assert reduce(merged, groups).value() == expected


def test_a_value_stays_as_it_is_when_its_sum_grows() -> None:
    interval = made.population(sent_total=3, acks=Histogram.of([5]))
    sums = Sum(PopulationSnapshot)
    sums.add(interval)
    before = sums.value()
    assert sums.value() is before
    sums.add(interval)
    assert (before.counters.sent_total, before.ack_intended.count) == (3, 1)
    assert (sums.value().counters.sent_total, sums.value().ack_intended.count) == (6, 2)


def run() -> RunSum:
    """Two agents in the time before stage 0, stage 0 and stage 1."""
    members = made.population(sent_total=10, outcomes={Reason.BAD_SOURCE: 1})
    members = members.model_copy(update={"clients_by_deliveries": ((4, 2),)})
    return made.sums(
        made.snapshot(
            made.population(sent_total=1 + agent),
            members,
            agent=agent,
            from_ns=0,
            stage=stage,
            flows=(made.flow(1, 0, received_total=5),) if stage == 1 else (),
            targets=(TargetSnapshot(target=3, connected=9, connected_total=2),),
            engine=made.load(rss_bytes=agent, ledger_pairs=3),
        )
        for agent in (0, 1)
        for stage in (None, 0, 1)
    )


def test_a_run_is_read_by_stages_populations_flows_targets_and_agents() -> None:
    sums = run()
    assert (sums.stages, sums.agents) == ((None, 0, 1), (0, 1))
    assert sums.targets == {3}
    assert sums.population([0]).counters.sent_total == 9
    assert sums.population([0], [0]).counters.sent_total == 3
    assert sums.population([0, 1], [0, 1]).counters.sent_total == 46
    assert sums.population([1], [None]).outcomes == {Reason.BAD_SOURCE: 2}
    assert sums.flows([0]) == {}
    assert sums.flows(ALL)[1, 0].counters.received_total == 10
    assert sums.target(3) == TargetSnapshot(target=3, connected_total=12)
    assert sums.agent([1]).snapshots == 3
    assert sums.agent([0, 1], [1]).rss_max_bytes == 1
    assert sums.agent([7]) == AgentPart()


def test_clients_by_deliveries_add_up_within_a_stage() -> None:
    assert run().population([1], [0]).clients_by_deliveries == ((4, 4),)
    assert run().population([1], [0, 1]).clients_by_deliveries == ()
    assert run().population([1]).clients_by_deliveries == ()


def test_a_closed_stage_is_read_and_grows_as_before() -> None:
    late = made.snapshot(
        made.population(sent_total=7, acks=Histogram.of([9, -9])),
        made.population(outcomes={Reason.BAD_SOURCE: 2}),
        from_ns=0,
        stage=1,
        flows=(made.flow(1, 0, Histogram.of([5]), received_total=5),),
    )
    sums, closed = run(), run()
    closed.close(1)
    closed.close(8)
    assert closed == sums
    for each in (sums, closed):
        each.take(late)
    assert closed == sums
    closed.close(1)
    assert closed.population([0, 1]) == sums.population([0, 1])
    assert closed.flows([1])[1, 0].latency_intended == Histogram.of([5])
