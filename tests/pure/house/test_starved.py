"""Ends of runs on a host whose processors are taken."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.starved import passes

MET = {"expression": "lost == 0", "passed": True, "found": 0.0, "text": "found 0"}
LOST = {"expression": "lost == 0", "passed": False, "found": 3.0, "text": "found 3"}
SLOW = {"expression": "latency.p99 < 1ms", "passed": False, "found": 2.0, "text": "found 2 ms"}
UNREAD = {
    "expression": "uplink.connected.min == 4",
    "passed": False,
    "found": None,
    "text": "uplink.connected was not read for 0.4 s of 1.0 s",
}
ABSENT = {**UNREAD, "text": "no data"}


def ended(
    status: str, limited_by: str, busy: float, starved: float, *thresholds: dict[str, Any]
) -> dict[str, Any]:
    return {
        "verdict": {"status": status, "limited_by": limited_by, "thresholds": thresholds},
        "monitors": [{"source": "host", "metric": "cpu", "whole": {"max": busy}}],
        "phases": [],
        "fleet": {"starved_share": starved},
    }


@pytest.mark.parametrize(
    ("code", "result", "accepted"),
    [
        (0, ended("pass", "none", 0.1, 0.0, MET), True),
        (1, ended("fail", "unknown", 1.0, 0.2, MET, UNREAD), True),
        (1, ended("fail", "unknown", 0.5, 0.2, MET, UNREAD), False),
        (1, ended("fail", "unknown", 1.0, 0.2, LOST, UNREAD), False),
        (1, ended("fail", "unknown", 1.0, 0.2, MET, ABSENT), False),
        (1, ended("fail", "host", 1.0, 0.2, SLOW), True),
        (1, ended("fail", "host", 1.0, 0.2, LOST), False),
        (1, ended("fail", "broker", 1.0, 0.2, SLOW), False),
        (3, ended("invalid", "host", 1.0, 0.2, MET), True),
        (3, ended("invalid", "host", 1.0, 0.0, MET), False),
        (3, ended("invalid", "host", 1.0, 0.2, UNREAD), False),
    ],
)
def test_a_busy_host_excuses_what_it_takes_and_no_more(
    code: int, result: dict[str, Any], accepted: bool
) -> None:
    assert passes(code, result) is accepted
