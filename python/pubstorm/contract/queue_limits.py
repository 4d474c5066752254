"""Limits of queues that a scenario asks for: deliveries beyond them stay away on purpose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import Field

from pubstorm.contract import Frozen

OF_AGE, OF_LENGTH = "x-message-ttl", "x-max-length"
DROPPING = (OF_AGE, OF_LENGTH, "x-max-length-bytes")
"""Arguments of a queue that lets messages go: their age in milliseconds, and its room."""
ONE_TAKER = "x-single-active-consumer"
"""Argument of a queue that gives messages to one of its consumers until that one leaves."""


class QueueLimits(Frozen):
    """Limits that a scenario gives the deliveries of queues, of several queues the lowest."""

    takes_most: int | None = None
    """Deliveries that a client takes at most, since it acknowledges none; null: no such limit."""
    takes_per_s: float | None = None
    """Deliveries a second that a client takes of a queue at most, since its acknowledgements come
    late; null: no such limit."""
    takers: int | None = None
    """Clients that take messages of a queue at the same time; null: all."""
    arguments: Mapping[str, int] = Field(default_factory=dict)
    """Arguments by which queues let messages go: those of `DROPPING`."""

    @classmethod
    def lowest(cls, limits: Iterable[QueueLimits | None]) -> QueueLimits | None:
        """Returns the lowest of several limits; None if there are none."""
        found = [each for each in limits if each is not None and each != cls()]
        if not found:
            return None
        arguments: dict[str, int] = {}
        for name, value in (pair for each in found for pair in each.arguments.items()):
            arguments[name] = min(value, arguments.get(name, value))
        most = (each.takes_most for each in found if each.takes_most is not None)
        per_s = (each.takes_per_s for each in found if each.takes_per_s is not None)
        takers = (each.takers for each in found if each.takers is not None)
        return cls(
            takes_most=min(most, default=None),
            takes_per_s=min(per_s, default=None),
            takers=min(takers, default=None),
            arguments=arguments,
        )

    def taken_per_s(self, clients: int) -> float | None:
        """Returns the deliveries a second that clients take at most of one queue; None if their
        acknowledgements set no limit."""
        takers = clients if self.takers is None else min(clients, self.takers)
        return None if self.takes_per_s is None else takers * self.takes_per_s
