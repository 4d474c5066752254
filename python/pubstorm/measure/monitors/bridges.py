"""Watches bridges by the states that an observer of the topology follows."""

from __future__ import annotations

import time
from collections.abc import Iterator

from pubstorm.contract.source import Source
from pubstorm.measure.monitors import MonitorError, Reading
from pubstorm.result import ObserverTraffic
from pubstorm.topology.bridges.states import BridgeStates

CONNECTED = "connected"
"""Metric: bridges that are up."""


class BridgeMonitor:
    """Watches the bridges of one name in one run."""

    def __init__(self, states: BridgeStates) -> None:
        self.source = Source.single("bridge", states.watched.name)
        self._states = states
        self._first: list[Reading] = []

    def start(self) -> None:
        """Changes before the run are left out; what holds when it begins is the first reading."""
        self._states.take_changes()
        self._first = [self._now()]

    def read(self) -> Iterator[Reading]:
        """Every change at its own instant, and what holds now."""
        yield from self._first
        self._first = []
        for at_ns, up in self._states.take_changes():
            yield Reading(at_ns, CONNECTED, up)
        yield self._now()
        if self._states.problem is not None:
            raise MonitorError(self._states.problem)

    def stop(self) -> None:
        """The states are followed until the brokers end."""

    def observer(self) -> ObserverTraffic:
        """Returns the observer for the result."""
        return self._states.observer()

    def _now(self) -> Reading:
        return Reading(time.monotonic_ns(), CONNECTED, self._states.up)
