"""What a receiver has had of a stream: a window over the last 128 places, by the rules of
`crates/engine/src/ledger.rs`. It knows no message."""

from __future__ import annotations

from typing import Literal

WINDOW = 128
MASK = (1 << WINDOW) - 1
U32_END = 1 << 32
HALF = U32_END // 2

Delivery = Literal["first", "reordered", "duplicate", "stale"]


class Places:
    """The places of one stream that one receiver has had."""

    __slots__ = ("_first", "_next", "_seen")

    def __init__(self, first: int) -> None:
        self._first = first
        self._next = first
        self._seen = 0

    def note(self, place: int) -> tuple[Delivery, int]:
        """What the delivery of a place is, and by how much the places grow that were passed over
        and are not filled."""
        ahead = (place - self._next) % U32_END
        if ahead < HALF:
            self._seen = (self._seen << ahead + 1) & MASK | 1 if ahead < WINDOW else 1
            self._next = (place + 1) % U32_END
            return "first", ahead
        age = (self._next - place - 1) % U32_END
        if age >= WINDOW:
            return "stale", 0
        if self._seen >> age & 1:
            return "duplicate", 0
        self._seen |= 1 << age
        return "reordered", -1 if (place - self._first) % U32_END < HALF else 0
