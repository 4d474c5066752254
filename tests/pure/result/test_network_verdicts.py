"""Verdicts on the path between clients and brokers: what TCP says at the broker's end, and who is
named. A row is a situation."""

from __future__ import annotations

from typing import Any

import pytest

from pubstorm.result import LimitedBy
from tests.kit.measured import MeasuredMaker
from tests.pure.result.made_runs import verdict_of

LOST: dict[str, Any] = {
    "thresholds": ["lost == 0"],
    "backend": {"lost_total": 100},
    "flow": {"lost_total": 100},
}
"""Deliveries that were lost: somebody is to be named."""
QUIET: dict[str, float] = {
    "tcp_unread_bytes": 0,
    "tcp_unsent_bytes": 0,
    "tcp_rtt_us": 40_000,
    "tcp_least_rtt_us": 5,
}
"""A broker without anything in its queues. Clients acknowledge up to 40 ms late."""
FULL: dict[str, float] = {"tcp_unsent_bytes": 900_000, "tcp_unsent_closed_bytes": 850_000}
OPEN: dict[str, float] = {"tcp_unsent_bytes": 900_000, "tcp_unsent_closed_bytes": 100_000}
PROXY: dict[str, float] = {**QUIET, "tcp_onward_connections": 51}
SITUATIONS: list[tuple[str, dict[str, float], dict[str, Any], LimitedBy]] = [
    ("nothing stands", QUIET, {}, LimitedBy.BROKER),
    ("no readings", {}, {}, LimitedBy.BROKER),
    ("unsent at an open window", OPEN, {}, LimitedBy.NETWORK),
    ("unsent of a fast flow", {**OPEN, "tcp_acked_bytes_per_s": 20e6}, {}, LimitedBy.BROKER),
    ("a little unsent", {"tcp_unsent_bytes": 9000}, {}, LimitedBy.BROKER),
    ("a full window", FULL, {}, LimitedBy.NETWORK),
    (
        "a full window of busy agents",
        FULL,
        {"fleet": {"busy_intervals_total": 9}},
        LimitedBy.GENERATOR,
    ),
    (
        "a full window of starved agents",
        FULL,
        {"fleet": {"starved_intervals_total": 9}},
        LimitedBy.HOST,
    ),
    (
        "a full window of slow subscribers",
        FULL,
        {"backend": {"lost_total": 100, "read_rate_per_s": 5.0}},
        LimitedBy.SCENARIO,
    ),
    ("segments lost", {"tcp_segments_per_s": 900, "tcp_resent_per_s": 9}, {}, LimitedBy.NETWORK),
    ("few lost", {"tcp_segments_per_s": 900, "tcp_resent_per_s": 2}, {}, LimitedBy.BROKER),
    ("one lost", {"tcp_segments_per_s": 9, "tcp_resent_per_s": 0.1}, {}, LimitedBy.BROKER),
    (
        "a queue in the network",
        {"tcp_rtt_us": 330_000, "tcp_least_rtt_us": 900},
        {},
        LimitedBy.NETWORK,
    ),
    ("a far network", {"tcp_rtt_us": 330_000, "tcp_least_rtt_us": 300_000}, {}, LimitedBy.BROKER),
    ("a quiet proxy", PROXY, {}, LimitedBy.BROKER),
    ("a proxy does not read", {**PROXY, "tcp_unread_bytes": 99_000}, {}, LimitedBy.NETWORK),
    (
        "a proxy does not read what comes back",
        {**PROXY, "tcp_onward_unread_bytes": 99_000},
        {},
        LimitedBy.NETWORK,
    ),
    (
        "a broker behind a proxy does not read",
        {**PROXY, "tcp_unread_bytes": 99_000, "tcp_onward_unsent_bytes": 99_000},
        {},
        LimitedBy.BROKER,
    ),
]


@pytest.mark.parametrize(
    ("readings", "changes", "limited_by"),
    [situation[1:] for situation in SITUATIONS],
    ids=[situation[0] for situation in SITUATIONS],
)
def test_a_loss_has_the_culprit_that_tcp_shows(
    measured: MeasuredMaker,
    readings: dict[str, float],
    changes: dict[str, Any],
    limited_by: LimitedBy,
) -> None:
    verdict = verdict_of(measured, {**LOST, **changes, "monitors": {"broker-0": readings}})
    assert verdict.limited_by == limited_by, verdict.evidence


def test_the_path_beats_a_full_host_and_what_the_broker_drops(measured: MeasuredMaker) -> None:
    """The host takes time from all, and the broker drops what its full queues do not take."""
    dropped = {"$SYS/publish/messages/dropped": [0, 100]}
    monitors = {"host": {"cpu": 1.0}, "broker-0": {**OPEN, **dropped}}
    verdict = verdict_of(measured, {**LOST, "monitors": monitors})
    assert verdict.limited_by is LimitedBy.NETWORK, verdict.evidence
    assert any("dropped" in fact for fact in verdict.evidence), verdict.evidence


CLIENTS_FULL: dict[str, float] = {
    "clients_unsent_bytes": 900_000,
    "clients_unsent_closed_bytes": 800_000,
}


@pytest.mark.parametrize(
    ("clients", "broker", "limited_by", "words"),
    [
        ({"clients_unsent_bytes": 900_000}, {}, LimitedBy.NETWORK, "the network took no more"),
        (CLIENTS_FULL, {}, LimitedBy.BROKER, "the broker or the path"),
        (CLIENTS_FULL, QUIET, LimitedBy.NETWORK, "something between"),
        (CLIENTS_FULL, {"tcp_unread_bytes": 99_000}, LimitedBy.BROKER, "clients unread"),
        (
            {**CLIENTS_FULL, "clients_acked_bytes_per_s": 5e6},
            {"tcp_unread_bytes": 99_000, "tcp_received_bytes_per_s": 5e6},
            LimitedBy.BROKER,
            "clients unread",
        ),
        (CLIENTS_FULL, {**PROXY, "tcp_unread_bytes": 99_000}, LimitedBy.NETWORK, "is a proxy"),
        (
            CLIENTS_FULL,
            {**PROXY, "tcp_unread_bytes": 99_000, "tcp_onward_unsent_bytes": 99_000},
            LimitedBy.BROKER,
            "clients unread",
        ),
        (
            {"clients_segments_per_s": 900, "clients_resent_per_s": 9},
            QUIET,
            LimitedBy.NETWORK,
            "clients on this host sent 1 %",
        ),
        ({}, {"tcp_unread_bytes": 99_000}, LimitedBy.BROKER, "clients sent more than it reads"),
        (
            {"clients_unsent_bytes": 900_000, "clients_acked_bytes_per_s": 5e6},
            QUIET,
            LimitedBy.NETWORK,
            "the network took no more",
        ),
    ],
    ids=[
        *("open", "unseen", "path", "broker", "fast broker", "proxy", "behind a proxy", "lossy"),
        *("unread", "at 5 MB/s"),
    ],
)
def test_the_ends_of_clients_say_where_the_way_to_the_broker_is_blocked(
    measured: MeasuredMaker,
    clients: dict[str, float],
    broker: dict[str, float],
    limited_by: LimitedBy,
    words: str,
) -> None:
    monitors = {"host": clients, "broker-0": broker}
    verdict = verdict_of(measured, {**LOST, "monitors": monitors})
    assert verdict.limited_by is limited_by, verdict.evidence
    assert any(words in fact for fact in verdict.evidence), verdict.evidence


@pytest.mark.parametrize(
    ("fleet", "limited_by"),
    [
        ({"busy_intervals_total": 9}, LimitedBy.GENERATOR),
        ({"starved_intervals_total": 9}, LimitedBy.HOST),
        ({}, LimitedBy.BROKER),
    ],
    ids=["busy", "starved", "neither"],
)
def test_agents_that_do_not_read_are_the_limit(
    measured: MeasuredMaker, fleet: dict[str, int], limited_by: LimitedBy
) -> None:
    monitors = {"host": {"clients_unread_bytes": 99_000}}
    verdict = verdict_of(measured, {**LOST, "fleet": fleet, "monitors": monitors})
    assert verdict.limited_by is limited_by, verdict.evidence


def test_the_network_limits_nothing_that_was_carried(measured: MeasuredMaker) -> None:
    verdict = verdict_of(measured, {"thresholds": ["lost == 0"], "monitors": {"broker-0": OPEN}})
    assert verdict.limited_by is LimitedBy.NONE
    assert any("unsent" in fact for fact in verdict.evidence)


ACK_50_MS = {
    "ack_latency_us": {
        clock: {"count": 1000, "min": 50_000, "p50": 52_000, "p99": 60_000}
        for clock in ("intended", "actual")
    }
}


def test_a_delay_of_some_messages_is_not_the_path(measured: MeasuredMaker) -> None:
    some = {clock: {**each, "min": 900} for clock, each in ACK_50_MS["ack_latency_us"].items()}
    missed = {"thresholds": ["device.ack_latency.p99 < 10ms"], "device": {"ack_latency_us": some}}
    verdict = verdict_of(measured, {**missed, "monitors": {"broker-0": {"tcp_answer_us": 4000}}})
    assert verdict.limited_by is LimitedBy.BROKER, verdict.evidence


@pytest.mark.parametrize(
    ("readings", "limited_by"),
    [
        ({}, LimitedBy.BROKER),
        ({"tcp_answer_us": 4000}, LimitedBy.NETWORK),
        ({"tcp_answer_us": 49_000}, LimitedBy.BROKER),
        ({**PROXY, "tcp_answer_us": 50_000, "tcp_onward_answer_us": 0}, LimitedBy.NETWORK),
        ({**PROXY, "tcp_answer_us": 50_000, "tcp_onward_answer_us": 48_000}, LimitedBy.BROKER),
        ({"tcp_least_rtt_us": 50_000, "tcp_rtt_us": 51_000}, LimitedBy.NETWORK),
        ({"tcp_least_rtt_us": 5000, "tcp_rtt_us": 5000}, LimitedBy.BROKER),
        ({"tcp_segments_per_s": 900, "tcp_resent_per_s": 9}, LimitedBy.NETWORK),
    ],
    ids=["unseen", "quick", "slow", "proxy", "slow behind a proxy", "far", "not so far", "lossy"],
)
def test_a_latency_belongs_to_the_path_if_the_broker_is_quick_or_the_network_far(
    measured: MeasuredMaker, readings: dict[str, float], limited_by: LimitedBy
) -> None:
    missed = {"thresholds": ["device.ack_latency.p99 < 10ms"], "device": ACK_50_MS}
    verdict = verdict_of(measured, {**missed, "monitors": {"broker-0": readings}})
    assert verdict.limited_by is limited_by, verdict.evidence
