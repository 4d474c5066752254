"""Barriers: conditions that a stage waits for, with the instants at which the wait ends without
them, and the longest times of stages beyond the plan."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from pubstorm.contract.plan import PlannedPopulation
from pubstorm.quantities import SECOND_NS

NEVER_NS = 2**63
"""Later than every instant."""
LEAVE_TIMEOUT_NS = 30 * SECOND_NS
"""Longest time of a disconnect stage beyond its schedule."""
WILLS_WAIT_MAX_NS = 600 * SECOND_NS
"""Longest time in which a disconnect stage waits for wills that are not due yet."""
CONNECT_TIMEOUTS_MAX = 3
"""Timeouts of a connect stage after which it ends, whatever moves."""
CONNECT_EACH_NS = SECOND_NS // 10
"""Further time for each client."""
DRAINS_MAX = 20
"""Times of the drain after which a publish stage ends, whatever moves."""

Clock = Callable[[], int]
"""Returns the present instant, in nanoseconds on the monotonic clock."""


@dataclass(frozen=True)
class Barrier:
    """A condition, and the instant at which a wait for it ends. Progress may move the instant."""

    done: Callable[[], bool]
    until_ns: Callable[[], int]

    async def passed(self, clock: Clock, wait: Callable[[int], Awaitable[None]]) -> bool:
        """Waits for the condition; False if its time is over before. `wait` returns after an event,
        at the latest after the nanoseconds that it gets."""
        while not self.done():
            left_ns = self.until_ns() - clock()
            if left_ns <= 0:
                return False
            await wait(left_ns)
        return True


def connect_bound_ns(clients: int, timeout_ns: int) -> int:
    """Longest time of a connect stage beyond its schedule. No progress can move it."""
    return CONNECT_TIMEOUTS_MAX * timeout_ns + clients * CONNECT_EACH_NS


def wills_wait_ns(leaving: Iterable[PlannedPopulation]) -> int:
    """Longest time from the end of the last connection to the publication of its will, at most
    `WILLS_WAIT_MAX_NS`; 0 if clients leave without wills."""
    waits = (p.will_wait_ns for p in leaving if p.will is not None and p.end != "disconnect")
    return min(max(waits, default=0), WILLS_WAIT_MAX_NS)


def schedule_ns(clients: int, rate_per_s: float | None) -> int:
    """Time in which `clients` connect or leave at a rate."""
    return round(clients / rate_per_s * SECOND_NS) if rate_per_s else 0
