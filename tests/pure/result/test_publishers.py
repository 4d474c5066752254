"""Results of a run against a publisher of ZeroMQ: its figures, and its limiting part."""

from __future__ import annotations

from typing import Any

import pytest

from pubstorm.result import Event, Latency, Phase, PhaseStatus
from pubstorm.result.figures import Found, Missing, evaluate, parse_expression
from pubstorm.result.figures.thresholds import parse_threshold
from pubstorm.result.verdict import evaluate_run
from tests.kit.example_zeromq import constant, publisher, subscriber, zeromq
from tests.kit.measured import MeasuredMaker

BUSY_HOST = constant("host", "cpu", 0.98)
FULL_THREAD = constant("feed", "thread_cpu_max", 0.99)


@pytest.mark.parametrize(
    ("changes", "expected", "evidence"),
    [
        ({}, ("pass", "none"), None),
        (
            {"lost": 3200},
            ("pass", "publisher"),
            "feed dropped 3.20 % of the deliveries to subscriber (3 200 of 100 000 deliveries) at "
            "its high-water mark of 1 000",
        ),
        (
            {"lost": 3200, "publisher": {"high_water_mark": 0}},
            ("pass", "publisher"),
            "though its queues have no limit",
        ),
        (
            {"lost": 3200, "subscriber": {"player": "pyzmq"}},
            ("pass", "publisher"),
            ", or its subscribers did at theirs",
        ),
        (
            {"lost": 3200, "subscriber": {"read_rate_per_s": 500.0}},
            ("pass", "none"),
            "which read slowly on purpose: 500 a second at most",
        ),
        (
            {"lost": 3200, "subscriber": {"read_rate_per_s": 5000.0}},
            ("pass", "publisher"),
            "feed dropped 3.20 % of the deliveries to subscriber",
        ),
        (
            {"lost": 3200, "monitors": (BUSY_HOST, constant("feed", "cpu", 0.6))},
            ("pass", "host"),
            "busy for 98 % of the time under load: feed 30 %, the agents 0 %, others 68 %",
        ),
        (
            {"lost": 3200, "fleet": {"busy_intervals_total": 9, "load_intervals_total": 10}},
            ("invalid", "generator"),
            "an agent's loop was busy",
        ),
        (
            {"lost": 3200, "publisher": {"burst": 1000}},
            ("pass", "publisher"),
            "bursts of 1 000 meet a high-water mark of 1 000",
        ),
        (
            {"feed": {"skipped_total": 2500}, "publisher": {"skipped_total": 2500}},
            ("pass", "publisher"),
            "feed sent 1 000 of 1 250 scheduled messages a second: 2 500 of 12 500 were not sent",
        ),
        (
            {"feed": {"skipped_total": 2}, "publisher": {"skipped_total": 2}},
            ("pass", "none"),
            "2 of 10 002 were not sent",
        ),
        (
            {"publisher": {"lateness_us": Latency(count=10_000, p99=20_000)}},
            ("pass", "publisher"),
            "feed was late: p99 20.0 ms over 10 000 messages, allowed is 10.0 ms",
        ),
        (
            {"feed": {"closed_loop": True}},
            ("pass", "publisher"),
            "feed sent as fast as it could: 1 000 messages a second",
        ),
        (
            {"monitors": (FULL_THREAD,)},
            ("pass", "publisher"),
            "feed: its busiest thread used 99 % of a core under load",
        ),
        (
            {"monitors": (FULL_THREAD, BUSY_HOST)},
            ("pass", "publisher"),
            "the host's processors were busy for 98 % of the time under load",
        ),
        (
            {"monitors": (FULL_THREAD, BUSY_HOST), "feed": {"closed_loop": True}},
            ("pass", "host"),
            "feed: its busiest thread used 99 % of a core",
        ),
        (
            {"monitors": (constant("feed", "cpu", 2.0), constant("feed", "threads", 2))},
            ("pass", "none"),
            None,
        ),
        (
            {"events": (Event(at_s=3.0, kind="publisher", text="feed ended with status 1"),)},
            ("fail", "publisher"),
            "at 3.0 s: feed ended with status 1",
        ),
        (
            {"subscriber": {"disconnected_total": 4, "outcomes": {"closed_by_broker": 4}}},
            ("pass", "publisher"),
            "subscriber: 4 of 10 connections were lost: 4 closed by publisher",
        ),
    ],
)
def test_who_set_the_limit_of_a_publisher(
    measured: MeasuredMaker,
    changes: dict[str, Any],
    expected: tuple[str, str],
    evidence: str | None,
) -> None:
    verdict = evaluate_run(measured(**zeromq(**changes)), [])
    assert (str(verdict.status), str(verdict.limited_by)) == expected
    shown = [fact.replace("\u202f", " ") for fact in verdict.evidence]
    assert any(evidence in fact for fact in shown) if evidence else not shown, shown
    assert not any("broker" in fact for fact in shown)


def test_bursts_far_below_the_high_water_mark_are_no_reason(measured: MeasuredMaker) -> None:
    verdict = evaluate_run(measured(**zeromq(lost=5, publisher={"burst": 100})), [])
    assert not any("bursts" in fact for fact in verdict.evidence)


def test_a_collapse_and_a_missed_latency_are_the_publishers(measured: MeasuredMaker) -> None:
    phase = Phase(
        stage="publish",
        name="publish",
        start_s=1,
        duration_s=20,
        clients=1,
        due_per_s=1000,
        sent_per_s=1000,
        acked_per_s=0,
        received_per_s=5000,
        queue_growth_per_s=0,
        status=PhaseStatus.COLLAPSED,
    )
    collapsed = evaluate_run(measured(**zeromq(phases=(phase,))), [])
    assert (str(collapsed.status), str(collapsed.limited_by)) == ("fail", "publisher")
    for line in ("subscriber.latency.p99 < 1us", "feed.sent_per_s > 2000/s"):
        missed = evaluate_run(measured(**zeromq()), [parse_threshold(line)])
        assert (str(missed.status), str(missed.limited_by)) == ("fail", "publisher")
        assert missed.evidence == ("the generator kept up: busy in 0 of 10 intervals",)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("subscriber.loss", "2 %"),
        ("loss", "2 %"),
        ("feed.loss", "no delivery was expected"),
        ("subscriber.received_each_per_s", "1 000/s"),
        ("received_each_per_s", "1 000/s"),
        ("sent_each_per_s", "1 000/s"),
        ("subscriber.bytes_received_per_s", "340 kB/s"),
        ("feed.bytes_sent_per_s", "32.0 kB/s"),
        ("feed.cpu", "80 %"),
        ("feed.rss.max", "12.0 MB"),
        ("feed.thread_cpu_max", "99 %"),
        ("feed.sent", "10 000"),
        ("feed.lateness.p99", "90.0 µs"),
        ("feed.lateness.p99@publish", "lateness of publishers is kept for the whole run only"),
        ("feed.descriptors", "feed shows no descriptors"),
        ("subscriber.cpu", "populations have no metric cpu"),
    ],
)
def test_figures_of_a_publisher_and_its_subscribers(
    measured: MeasuredMaker, expression: str, text: str
) -> None:
    monitors = (constant("feed", "cpu", 0.8), constant("feed", "rss_bytes", 12e6), FULL_THREAD)
    found = evaluate(measured(**zeromq(lost=2000, monitors=monitors)), parse_expression(expression))
    shown = found.reason if isinstance(found, Missing) else str(found)
    assert shown.replace("\u202f", " ") == text


def test_of_several_publishers_the_worst_is_reported(measured: MeasuredMaker) -> None:
    publishers = (publisher(name="feed-0"), publisher(name="feed-1", lateness_us=Latency()))
    monitors = (constant("feed-0", "cpu", 0.3), constant("feed-1", "cpu", 0.4))
    run = measured(**zeromq(publishers=publishers, monitors=monitors))
    assert evaluate(run, parse_expression("feed.lateness.p99")) == Found(90.0, "us")
    assert evaluate(run, parse_expression("feed.cpu")) == Found(0.4, "share")
    assert evaluate(run, parse_expression("feed-0.cpu")) == Found(0.3, "share")
    missing = evaluate(run, parse_expression("feed-1.lateness.p99"))
    assert missing == Missing("nothing was measured")


def test_a_share_of_all_counts_those_that_take_part(measured: MeasuredMaker) -> None:
    idle = subscriber(ready_max=0, expected_total=0, received_total=0)
    run = measured(**zeromq(populations={"subscriber": idle}, publishers=()))
    assert evaluate(run, parse_expression("received_each_per_s")) == Missing("no client was ready")
    assert evaluate(run, parse_expression("loss")) == Missing("no delivery was expected")
