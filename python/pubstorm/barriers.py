"""How long the barriers at the ends of stages wait, beyond what the plan says. Plain figures and
arithmetic."""

from __future__ import annotations

SECOND_NS = 10**9
LEAVE_TIMEOUT_NS = 30 * SECOND_NS
"""How long disconnecting may take beyond its schedule."""


def schedule_ns(clients: int, rate_per_s: float | None) -> int:
    """Time over which so many clients come or go."""
    return round(clients / rate_per_s * SECOND_NS) if rate_per_s else 0
