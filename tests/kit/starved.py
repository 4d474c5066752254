"""Runs on a host whose processors are taken: what they may end with, and no more."""

from __future__ import annotations

import re
from typing import Any

SPEED = re.compile(r"\bskipped\b|latency")
"""Figures that are worse on a slower machine, though nothing is wrong."""
SPAN = r"(?:[\d.]+ s|\d+(?::\d\d)+)"
"""A span of time in words: in seconds, or from a minute on as on a stop-watch."""
STARVED = 0.1
"""Share of the publishing time without a processor that makes agents late."""
BUSY = 0.95
"""Share of all processors in use, between two readings, at which a broker may be starved."""


def passes(code: int, result: dict[str, Any]) -> bool:
    """Returns True if a run passes. On a host that gives agents no processor, a run that meets all
    its thresholds may be invalid instead, with the host as its limit, and a phase that shows it.
    On one that gives brokers none, the run may be too slow: with the host as its limit, it misses
    no threshold but those of speed. On one that gives the controller none, monitors read too little
    for some thresholds."""
    verdict = result["verdict"]
    if (code, verdict["status"]) == (0, "pass"):
        return True
    unmet = {each["expression"] for each in verdict["thresholds"] if not each["passed"]}
    found = (code, verdict["status"], verdict["limited_by"])
    if found[:2] == (1, "fail") and unmet and not missed(result):
        return True
    if found == (1, "fail", "host"):
        return is_busy(result) and all(SPEED.search(expression) for expression in unmet)
    return found == (3, "invalid", "host") and not unmet and is_starved(result)


def missed(result: dict[str, Any]) -> list[str]:
    """Returns the thresholds that a run misses, without those whose monitor was read too rarely on
    a busy host."""
    thresholds = [each for each in result["verdict"]["thresholds"] if not each["passed"]]
    is_excused = is_busy(result)
    return [each["expression"] for each in thresholds if not (is_excused and _is_unread(each))]


def is_starved(result: dict[str, Any]) -> bool:
    """Returns True if a phase says nothing, since agents had no processor; or, where stages are too
    short for phases, if agents had none for a part of the publishing time."""
    if result["phases"]:
        return any(phase["starved"] for phase in result["phases"])
    share: float = result["fleet"]["starved_share"]
    return share > STARVED


def _is_unread(threshold: dict[str, Any]) -> bool:
    return threshold["found"] is None and " not read for " in threshold["text"]


def is_busy(result: dict[str, Any]) -> bool:
    """Returns True if no processor of the host was free for a span of the run."""
    cpu = [each["whole"]["max"] for each in result["monitors"] if _is_cpu_of_host(each)]
    return any(share >= BUSY for share in cpu)


def _is_cpu_of_host(each: dict[str, Any]) -> bool:
    return (each["source"], each["metric"]) == ("host", "cpu")
