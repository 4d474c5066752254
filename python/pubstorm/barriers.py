"""Longest times that the barriers at the ends of stages wait beyond the plan, with and without
progress. Plain figures and arithmetic."""

from __future__ import annotations

SECOND_NS = 10**9
LEAVE_TIMEOUT_NS = 30 * SECOND_NS
"""Longest time of a disconnect stage beyond its schedule."""


CONNECT_TIMEOUTS_MAX = 3
"""Timeouts of a connect stage after which it ends, whatever moves."""
CONNECT_EACH_NS = SECOND_NS // 10
"""Further time for each client."""
DRAINS_MAX = 20
"""Times of the drain after which a publish stage ends, whatever moves."""


def connect_bound_ns(clients: int, timeout_ns: int) -> int:
    """Longest time of a connect stage beyond its schedule. No progress can move it."""
    return CONNECT_TIMEOUTS_MAX * timeout_ns + clients * CONNECT_EACH_NS


def schedule_ns(clients: int, rate_per_s: float | None) -> int:
    """Time in which `clients` connect or leave at a rate."""
    return round(clients / rate_per_s * SECOND_NS) if rate_per_s else 0
