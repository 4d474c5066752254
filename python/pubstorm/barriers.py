"""Time that the barriers at the ends of stages wait, beyond what the plan says: how long without
progress, and how long at all. Plain figures and arithmetic."""

from __future__ import annotations

SECOND_NS = 10**9
LEAVE_TIMEOUT_NS = 30 * SECOND_NS
"""How long disconnecting may take beyond its schedule."""


CONNECT_TIMEOUTS_MAX = 3
"""Timeouts of a connect stage after which it ends, whatever moves."""
CONNECT_EACH_NS = SECOND_NS // 10
"""How much longer it may take for each client."""
DRAINS_MAX = 20
"""Times of the drain after which a publish stage ends, whatever moves."""


def connect_bound_ns(clients: int, timeout_ns: int) -> int:
    """Longest time of a connect stage beyond its schedule. No progress can move it."""
    return CONNECT_TIMEOUTS_MAX * timeout_ns + clients * CONNECT_EACH_NS


def schedule_ns(clients: int, rate_per_s: float | None) -> int:
    """Time over which so many clients come or go."""
    return round(clients / rate_per_s * SECOND_NS) if rate_per_s else 0
