"""Figures of connections from what the kernel says of each: pure tables."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from pubstorm.host.sockets import Connection
from pubstorm.measure.monitors.connections import (
    CONNECTIONS_MAX,
    Last,
    ReadPorts,
    growth,
    onward_state,
    state,
)

SECOND_US = 1e6
IDLE = Connection(cookie=1, inode=9, port=1883, peer_port=40000, unread_bytes=0)
BUSY = replace(IDLE, cookie=2, segments_total=100, busy_us=500_000, rtt_us=900, least_rtt_us=100)


def test_queues_are_summed() -> None:
    found = state([replace(IDLE, unread_bytes=5), replace(BUSY, unsent_bytes=7)], SECOND_US)
    assert found["tcp_connections"] == 2
    assert found["tcp_unread_bytes"] == 5
    assert found["tcp_unsent_bytes"] == 7


@pytest.mark.parametrize(
    ("received_ms_ago", "sent_ms_ago", "answer_us"),
    [
        (30, 10, 20_000),
        (30, 30, 0),
        (10, 30, None),
        (5000, 4000, None),
    ],
    ids=["answered", "at once", "not yet", "before the last reading"],
)
def test_an_answer_takes_from_data_to_the_next_data_back(
    received_ms_ago: int, sent_ms_ago: int, answer_us: float | None
) -> None:
    one = replace(IDLE, received_ms_ago=received_ms_ago, sent_ms_ago=sent_ms_ago)
    assert state([one], SECOND_US).get("tcp_answer_us") == answer_us
    other_way = replace(IDLE, received_ms_ago=sent_ms_ago, sent_ms_ago=received_ms_ago)
    assert onward_state([other_way], SECOND_US).get("tcp_onward_answer_us") == answer_us


def test_rates_are_those_of_connections_that_both_readings_have() -> None:
    before = {2: BUSY}
    after = replace(BUSY, segments_total=300, resent_total=4, busy_us=1_300_000, closed_us=400_000)
    other = replace(BUSY, cookie=3, segments_total=10**6)
    found = growth(before, [after, other, IDLE], 2 * SECOND_US)
    assert found["tcp_segments_per_s"] == 100
    assert found["tcp_resent_per_s"] == 2
    assert found["tcp_window_closed"] == 0.5
    assert found["tcp_send_buffer_full"] == 0
    assert (found["tcp_rtt_us"], found["tcp_least_rtt_us"]) == (900, 100)
    assert growth({}, [after], SECOND_US) == {}


@pytest.mark.parametrize(("closed_us", "bytes_held"), [(600_000, 70), (400_000, 0)])
def test_bytes_are_held_up_by_a_window_that_is_full_for_most_of_the_time(
    closed_us: int, bytes_held: int
) -> None:
    now = replace(BUSY, unsent_bytes=70, closed_us=closed_us)
    assert growth({2: BUSY}, [now], SECOND_US)["tcp_unsent_closed_bytes"] == bytes_held


@pytest.mark.parametrize("seed", range(8))
def test_of_very_many_connections_few_are_read(seed: int) -> None:
    """Clients have ports in clusters, and more of them come while they are read."""
    draw, part, taken = random.Random(seed), ReadPorts(), list[int]()
    everything = list[int]()
    part.expect(draw.choice([0, 50_000]))
    for _ in range(60):
        for _ in range(draw.randrange(6) if len(everything) < 9000 else 0):
            first = draw.randrange(1024, 60_000)
            everything += range(first, first + draw.randrange(1, 900))
        found = [port for port in everything if port in part.ports]
        part.took(found)
        taken.append(len(found))
    assert sum(0 < count <= 2 * CONNECTIONS_MAX for count in taken[-20:]) >= 8, taken
    assert max(taken[-20:]) <= 32 * CONNECTIONS_MAX, taken


def test_a_figure_without_news_is_repeated() -> None:
    """A missing reading would count as a source that fell silent."""
    last = Last()
    assert [(r.metric, r.held) for r in last.readings({"tcp_rtt_us": 5.0})] == [
        ("tcp_rtt_us", False)
    ]
    again = list(last.readings({"tcp_connections": 1}))
    assert [(r.metric, r.value, r.held) for r in again] == [
        ("tcp_rtt_us", 5.0, True),
        ("tcp_connections", 1, False),
    ]


def test_a_round_trip_without_news_does_not_count() -> None:
    assert "tcp_rtt_us" not in growth({2: BUSY}, [BUSY], SECOND_US)
