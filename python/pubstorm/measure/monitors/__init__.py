"""Monitors: each reads one thing beside the clients on demand. `monitoring` reads all of them on
one time axis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from pubstorm.contract import Source


@dataclass(frozen=True, slots=True)
class Reading:
    """One figure at one instant."""

    at_ns: int
    """Instant of the value, in nanoseconds on the monotonic clock."""
    metric: str
    """Its name, unit last."""
    value: float
    held: bool = False
    """True if it repeats the last known value, without news from the source. Growth of a count is
    taken between the other readings."""


class MonitorError(Exception):
    """Something cannot be watched: what was found, and what to do."""


class Monitor(Protocol):
    """Reads one thing. One thread makes all calls, so a call may wait, with a deadline. A monitor
    continues after a MonitorError."""

    source: Source
    """The source of its readings."""

    def start(self) -> None:
        """Begins to watch."""

    def read(self) -> Iterable[Reading]:
        """Yields the present values. Values before a MonitorError count."""

    def stop(self) -> None:
        """Lets go of what it held; raises MonitorError where it could never read anything."""


__all__ = ["Monitor", "MonitorError", "Reading"]
