"""The culprit of late, busy and unsent: the generator, the host, the broker, or nothing."""

from __future__ import annotations

from typing import Any

import pytest

from pubstorm.result import Event, Latency, LatencyPair, Statistics, Verdict, Watched
from pubstorm.result.verdict import evaluate_run
from tests.kit.measured import MeasuredMaker

LATE = Latency(count=1000, p99=157_000)


def watched(source: str, metric: str, value: float) -> Watched:
    of = Statistics(count=9, first=0, last=value, min=value, mean=value, max=value)
    return Watched(source=source, group=source, metric=metric, whole=of, load=of, spans={})


def summary(verdict: Verdict) -> tuple[str, str]:
    return str(verdict.status), str(verdict.limited_by)


@pytest.mark.parametrize(
    ("changes", "expected", "evidence"),
    [
        (
            {"fleet": {"lateness_us": LATE, "late_total": 40, "late_starved_total": 39}},
            ("invalid", "host"),
            "allowed is 10.0 ms; 39 of the 40 late ones were sent in intervals in which the host "
            "gave an agent no processor for more than 5 % of the time",
        ),
        (
            {"fleet": {"lateness_us": LATE, "late_total": 40, "late_starved_total": 19}},
            ("invalid", "generator"),
            "use more agents or less load",
        ),
        (
            {
                "fleet": {
                    "busy_intervals_total": 3,
                    "busy_starved_total": 2,
                    "load_intervals_total": 10,
                }
            },
            ("invalid", "host"),
            "in 3 of 10 intervals under load; in 2 of them the host gave it no processor",
        ),
        (
            {
                "device": {"skipped_total": 7},
                "fleet": {"late_total": 40, "late_starved_total": 39},
            },
            ("invalid", "host"),
            "7 of 1\u202f007 messages due were not sent: the host's processors were taken",
        ),
        (
            {
                "device": {"skipped_total": 3},
                "events": (Event(at_s=4.0, kind="interrupt", text="it was interrupted"),),
            },
            ("invalid", "unknown"),
            "3 of 1\u202f003 messages due were not sent when the run was interrupted",
        ),
        (
            {
                "device": {"connected_total": 0, "connected_max": 0, "connect_failed_total": 0},
                "backend": {"connected_total": 0},
                "events": (Event(at_s=0.2, kind="interrupt", text="it was interrupted"),),
            },
            ("invalid", "unknown"),
            "none of 101 connection attempts succeeded: 101 had no answer from the target",
        ),
        (
            {
                "flow": {"received_total": 900, "lost_total": 0, "in_flight_total": 100},
                "events": (Event(at_s=4.0, kind="interrupt", text="it was interrupted"),),
            },
            ("invalid", "unknown"),
            "100 of 1\u202f000 deliveries were in flight when the run ended early",
        ),
    ],
)
def test_each_fact_names_the_culprit(
    changes: dict[str, Any], expected: tuple[str, str], evidence: str, measured: MeasuredMaker
) -> None:
    verdict = evaluate_run(measured(**changes), [])
    assert summary(verdict) == expected
    assert any(evidence in fact for fact in verdict.evidence), verdict.evidence


@pytest.mark.parametrize(("cpu", "limit"), [(0.92, "broker"), (0.5, "window")])
def test_the_limit_of_a_closed_loop_is_a_broker_without_a_free_processor(
    cpu: float, limit: str, measured: MeasuredMaker
) -> None:
    loop = {
        "closed_loop": True,
        "closed_loop_window": 1,
        "in_flight_max": 100,
        "ack_latency_us": LatencyPair(actual=Latency(count=9, min=60, p50=480)),
    }
    monitors = (watched("broker-0", "cpu", cpu), watched("broker-0", "threads", 1))
    verdict = evaluate_run(measured(device=loop, monitors=monitors), [])
    assert summary(verdict) == ("pass", limit)
    said = any("round trips were measured" in fact for fact in verdict.evidence)
    assert said is (limit == "window")


@pytest.mark.parametrize(
    ("busy", "intervals", "status"),
    [(1, 5, "pass"), (1, 3, "pass"), (1, 2, "invalid"), (1, 1, "invalid"), (2, 5, "invalid")],
)
def test_one_busy_interval_of_several_discards_no_run(
    busy: int, intervals: int, status: str, measured: MeasuredMaker
) -> None:
    fleet = {"busy_intervals_total": busy, "load_intervals_total": intervals}
    assert summary(evaluate_run(measured(fleet=fleet), []))[0] == status
