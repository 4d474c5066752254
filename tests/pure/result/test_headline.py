"""The sentence that a verdict begins with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pubstorm.result import Event, Latency, Rates
from pubstorm.result.figures.thresholds import parse_threshold
from pubstorm.result.verdict import evaluate_run
from tests.kit.measured import MeasuredMaker

LOSSY: dict[str, Any] = {
    "backend": {"received_total": 0, "lost_total": 1000},
    "flow": {"received_total": 0, "lost_total": 1000},
}
SILENT = {"connected_total": 0, "connected_max": 0, "ready_max": 0}


@pytest.mark.parametrize(
    ("changes", "lines", "sentence"),
    [
        (
            {},
            ("lost == 0",),
            "The broker carried 100 messages/s from 100 clients; nothing was lost; p99 9.96 ms.",
        ),
        (
            {"backend": {"lost_total": 5}, "targets": ("a:1", "b:1")},
            (),
            "The brokers carried 100 messages/s from 100 clients; 5 of 1\u202f000 deliveries were "
            "lost; p99 9.96 ms.",
        ),
        (
            {
                "backend": {"expected_total": 0, "received_total": 0, "rates": Rates()},
                "device": {"rates": Rates(), "sent_total": 0},
                "flows": (),
            },
            (),
            "The broker held 101 clients; p99 9.96 ms.",
        ),
        (
            {"device": {"sent_total": 1, "rates": Rates(sent_per_s=1.22), "ready_max": 1}},
            (),
            "The broker carried 1 message from 1 client; nothing was lost; p99 9.96 ms.",
        ),
        (
            LOSSY,
            ("backend.lost == 0",),
            "Failed: 1\u202f000 of 1\u202f000 deliveries to backend were lost, at 100 messages/s "
            "from 100 clients; limited by the broker.",
        ),
        (
            {"device": {"ready_max": 60, "connected_max": 60}},
            ("device.ack_latency.p99 < 1s", "device.never_ready == 0"),
            "Failed: 40 of 100 clients of device never connected, at 100 messages/s from 60 "
            "clients.",
        ),
        (
            {"device": {"skipped_total": 9, "disconnected_total": 1}},
            ("skipped == 0",),
            "Failed: 9 of 1\u202f009 scheduled messages were never sent, at 100 messages/s from "
            "100 clients; limited by the broker.",
        ),
        (
            {},
            ("backend.latency.p99 < 1ms",),
            "Failed: backend.latency.p99 < 1ms was not met: found 9.96 ms, at 100 messages/s from "
            "100 clients; limited by the broker.",
        ),
        (
            {"events": (Event(at_s=3, kind="broker", text="broker main-0 was killed"),)},
            (),
            "Failed: at 3.0 s: broker main-0 was killed.",
        ),
        (
            {"fleet": {"lateness_us": Latency(count=1000, p99=20_000)}},
            (),
            "Invalid: the load generator could not keep up with the load; the figures are no "
            "evidence about the broker.",
        ),
        (
            {
                "fleet": {
                    "lateness_us": Latency(count=1000, p99=20_000),
                    "late_total": 9,
                    "late_starved_total": 9,
                },
                "targets": ("a:1", "b:1"),
            },
            (),
            "Invalid: the host gave the load generator too little processor time; the figures are "
            "no evidence about the brokers.",
        ),
        (
            {"events": (Event(at_s=3, kind="interrupt", text="it was interrupted"),)},
            (),
            "Invalid: the run was interrupted; the figures are no evidence about the broker.",
        ),
        (
            {"device": SILENT, "backend": SILENT},
            ("backend.lost == 0",),
            "Invalid: no client could connect to the target; the figures are no evidence about the "
            "broker.",
        ),
    ],
)
def test_a_verdict_begins_with_one_sentence(
    measured: MeasuredMaker, changes: dict[str, Any], lines: tuple[str, ...], sentence: str
) -> None:
    verdict = evaluate_run(measured(**changes), [parse_threshold(line) for line in lines])
    assert verdict.headline == sentence


def test_a_default_threshold_that_is_missed_is_in_the_sentence(measured: MeasuredMaker) -> None:
    default = replace(parse_threshold("lost == 0"), is_default=True)
    verdict = evaluate_run(measured(**LOSSY), [parse_threshold("device.sent > 0"), default])
    assert verdict.headline.startswith("Failed: 1\u202f000 of 1\u202f000 deliveries were lost")
