"""Monitors: what is watched beside the clients while a run goes on. A monitor reads one thing on
demand and knows neither schedule nor file nor run; `watch` reads them all on one time axis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Reading:
    """One figure at one instant."""

    at_ns: int
    """When it held, in nanoseconds on the monotonic clock."""
    metric: str
    """Its name, unit last."""
    value: float
    held: bool = False
    """Whether it repeats the last known value, without news from the source. Growth of a count is
    taken between the other readings."""


class MonitorError(Exception):
    """Something cannot be watched: what was found, and what to do."""


class Monitor(Protocol):
    """Watches one thing. All is called from one thread of its own, so it may wait, but every wait
    has a deadline. It goes on trying after a MonitorError."""

    source: str
    """What its readings are called after."""

    def start(self) -> None:
        """Begins to watch."""

    def read(self) -> Iterable[Reading]:
        """What there is to say now. What comes before a MonitorError counts."""

    def stop(self) -> None:
        """Lets go of what it held; raises MonitorError where it could never read anything."""


__all__ = ["Monitor", "MonitorError", "Reading"]
