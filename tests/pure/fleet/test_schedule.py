"""The schedule, orders and places of the agent of pyzmq, by the same rules as the engine's."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubstorm.contract.histogram import Histogram, HistogramSum
from pubstorm.contract.protocol import HistogramPayload, OpenPace, SizeBin
from pubstorm.contract.template import STAMP_BYTES
from pubstorm.fleet.agents.frame import NEVER_NS, STAMP, AgentShard, ShardArguments
from pubstorm.fleet.agents.receivers import PassedOver, Places
from pubstorm.fleet.zmq_agent.publisher import Messages, Pacer, Tempo
from tests.system.publishers.conftest import feed, plan, publication

GOLDEN = Path(__file__).parents[3] / "contract" / "golden" / "pacer.json"
EVEN = [
    case
    for case in json.loads(GOLDEN.read_text())["cases"]
    if case["pace"]["spread"] == case["pace"]["jitter"] == 0
    and case["pace"].get("arrivals", "even") == "even"
]


@pytest.mark.parametrize("case", EVEN, ids=lambda case: case["pace"]["phase"])
def test_messages_are_due_when_the_contract_says(case: dict[str, object]) -> None:
    pace = OpenPace.model_validate(case["pace"], strict=False)
    seed, purpose, dues = case["seed"], case["purpose"], case["due"]
    assert isinstance(seed, int)
    assert isinstance(purpose, int)
    assert isinstance(dues, list)
    for due in dues:
        pacer = Pacer.of(pace, seed, purpose // 2, due["client"])
        assert pacer.dues(due["k"], 1) == [due["due_ns"]], due


@given(
    period_ns=st.integers(1_000, 10**9),
    burst=st.integers(1, 300),
    phase=st.floats(0, 0.999),
    k=st.integers(0, 10_000),
)
def test_the_schedule_counts_itself(period_ns: int, burst: int, phase: float, k: int) -> None:
    pacer = Pacer(float(period_ns), burst, phase)
    (due_ns,) = pacer.dues(k, 1)
    assert pacer.due_before(due_ns) <= k
    assert pacer.due_before(due_ns + 1) > k


CHANGES = st.lists(
    st.tuples(st.integers(0, 10**11), st.one_of(st.just(0.0), st.floats(0.001, 50))), max_size=6
)


@given(changes=CHANGES, schedule_ns=st.integers(0, 2 * 10**11))
def test_a_changed_rate_goes_both_ways(changes: list[tuple[int, float]], schedule_ns: int) -> None:
    tempo = Tempo()
    for at_ns, factor in sorted(changes):
        tempo.change(at_ns, factor)
    real_ns = tempo.real_ns(schedule_ns)
    if real_ns < NEVER_NS:
        assert tempo.schedule_ns(real_ns) >= schedule_ns
        assert real_ns == 0 or tempo.schedule_ns(real_ns - 1) < schedule_ns


def test_a_pause_goes_on_where_it_began() -> None:
    tempo = Tempo()
    tempo.change(10, 0.0)
    assert (tempo.real_ns(10), tempo.real_ns(11)) == (10, NEVER_NS)
    tempo.change(1_000, 2.0)
    assert (tempo.real_ns(10), tempo.real_ns(12)) == (10, 1_001)


@pytest.mark.parametrize(
    ("places", "found"),
    [
        ([0, 1, 2], ["first", "first", "first"]),
        ([0, 0, 1, 0], ["first", "duplicate", "first", "duplicate"]),
        ([0, 3, 1, 1], ["first", "first", "reordered", "duplicate"]),
        (
            [0, 128, 0, 129, 1, 1],
            ["first", "first", "duplicate", "first", "reordered", "duplicate"],
        ),
        ([9, 500, 8, 300, 300], ["first", "first", "stale", "reordered", "duplicate"]),
        ([2**26 - 1, 0, 2**26 - 1], ["first", "first", "duplicate"]),
        (
            [7, 2**26 + 3, 2**26 + 2, 8, 2**26 + 4],
            ["first", "first", "reordered", "stale", "first"],
        ),
    ],
)
def test_each_kind_of_delivery_is_distinguished(places: list[int], found: list[str]) -> None:
    had = Places(places[0], PassedOver())
    assert [had.note(place)[0] for place in places] == found


def test_places_passed_over_are_missing_until_they_come() -> None:
    had = Places(0, PassedOver())
    assert [had.note(place)[1] for place in (0, 5, 3, 2)] == [0, 4, -1, -1]
    again = 2**26
    assert [had.note(again + place)[1] for place in (0, 1, 4)] == [0, 0, 2]


def test_places_beyond_the_room_of_an_agent_are_too_late_to_check() -> None:
    room = PassedOver(left=199)
    had, other = Places(0, room), Places(0, room)
    assert [had.note(place)[0] for place in (0, 201, 1)] == ["first", "first", "stale"]
    assert [other.note(place)[0] for place in (0, 100, 1, 129, 0)] == [
        "first",
        "first",
        "reordered",
        "first",
        "stale",
    ]


def test_every_round_of_a_shuffled_topic_has_each_value_once() -> None:
    shuffled = publication(topic="t/{0..6}", order="shuffled")
    messages = Messages(AgentShard(plan(feed(shuffled)), ShardArguments(0, 1, 0, 0, 1)), 0)
    rounds = [
        [messages.frames(number, 1, 2)[0] for number in range(first, first + 7)]
        for first in (0, 7, 14)
    ]
    assert all(len(set(topics)) == 7 for topics in rounds)
    assert rounds[0] != rounds[1]
    payload = messages.frames(20, 1, 2)[1]
    run_tag, place, key, intended_ns, actual_ns = STAMP.unpack_from(payload[:STAMP_BYTES])
    assert (run_tag, place, key >> 48, intended_ns, actual_ns) == (77, 2, 0, 1, 2)


def test_sizes_of_a_histogram_are_drawn_by_their_parts() -> None:
    bins = (SizeBin(bytes=40, end=60), SizeBin(bytes=100, end=90), SizeBin(bytes=1000, end=100))
    drawn = publication(topic="t").model_copy(update={"payload": HistogramPayload(bins=bins)})
    messages = Messages(AgentShard(plan(feed(drawn)), ShardArguments(0, 1, 0, 0, 1)), 0)
    sizes = Counter(len(messages.frames(number, 1, 2)[1]) for number in range(1000))
    # Five standard deviations of a binomial distribution.
    assert all(abs(sizes[size] - n) < 80 for size, n in ((40, 600), (100, 300), (1000, 100)))
    assert {*sizes} == {40, 100, 1000}


@given(st.lists(st.integers(-5, 2**46), min_size=1), st.integers(0, 2**44))
def test_durations_counted_together_are_counted_alike(durations: list[int], more: int) -> None:
    near = [more + step for step in range(20)]
    together = HistogramSum()
    together.record_all(durations)
    together.record_all(near)
    assert together.value() == Histogram.of([*durations, *near])
