"""What a run is told of its brokers while it goes on: the first events one by one, those beyond in
sums, so that a thousand brokers that flap make some lines and not thousands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

TOLD_SINGLY = 10
"""Events that are told one by one."""
SUM_AFTER_S = 10.0
"""How long events beyond are added up."""


@dataclass(frozen=True)
class BrokerDied:
    """A broker or service ended before it was told to, and is not started again."""

    name: str
    text: str
    """What happened, naming the broker."""


@dataclass(frozen=True)
class BrokerRestarted:
    """A broker ended before it was told to, and was started again."""

    name: str
    text: str
    """What happened, naming the broker."""


@dataclass(frozen=True)
class LinksDied:
    """The program that bridges go through ended before it was told to."""

    name: str
    text: str
    """What happened."""


BrokerEvent = BrokerDied | BrokerRestarted | LinksDied


class Bulletin:
    """Tells a run of its brokers."""

    def __init__(self, emit: Callable[[BrokerEvent], None]) -> None:
        self.emit = emit
        self._told: dict[type[BrokerEvent], int] = {}
        self._held: dict[type[BrokerEvent], list[BrokerEvent]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def tell(self, event: BrokerEvent) -> None:
        """Tells an event, at once or in a sum."""
        kind = type(event)
        self._told[kind] = self._told.get(kind, 0) + 1
        if self._told[kind] <= TOLD_SINGLY:
            self.emit(event)
            return
        self._held.setdefault(kind, []).append(event)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SUM_AFTER_S, self.flush)

    def close(self) -> None:
        """Tells nothing any more."""
        if self._timer is not None:
            self._timer.cancel()

    def flush(self) -> None:
        """Tells what is held."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        held, self._held = self._held, {}
        for kind, events in held.items():
            last = events[-1]
            did = "ended" if kind is BrokerDied else "were started again"
            text = f"{len(events)} more brokers {did}, the last: {last.text}"
            self.emit(last if len(events) == 1 else kind(last.name, text))
