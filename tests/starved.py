"""Runs on a host whose processors are taken: what they may end with, and no more."""

from __future__ import annotations

from typing import Any


def passes(code: int, result: dict[str, Any]) -> bool:
    """Returns True if a run passes. On a host that gives agents no processor, a run that meets all
    its thresholds may be invalid instead, with the host as its limit, and a phase that shows it."""
    verdict = result["verdict"]
    if (code, verdict["status"]) == (0, "pass"):
        return True
    is_met = all(threshold["passed"] for threshold in verdict["thresholds"])
    is_starved = any(phase["starved"] for phase in result["phases"])
    found = (code, verdict["status"], verdict["limited_by"])
    return found == (3, "invalid", "host") and is_met and is_starved
