"""The stream of events for browsers, numbered, in one short memory for all of them. A browser that
reads slowly skips; one that comes back gets the events it missed, or everything once more."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

KEPT_MAX = 300
"""Events that are kept for browsers that come back: 5 minutes."""
PING_S = 15.0
"""Longest silence of a stream."""
PING = b": still here\n\n"


class Feed:
    """The stream of one page."""

    def __init__(self, whole: Callable[[], dict[str, Any]]) -> None:
        """`whole` returns everything that a browser needs to begin."""
        self.viewers = 0
        """Browsers that read the stream."""
        self.arrived = asyncio.Event()
        """Set while a browser reads the stream."""
        self._whole = whole
        self._epoch = 0
        self._number = 0
        self._kept: deque[bytes] = deque(maxlen=KEPT_MAX)
        self._news = asyncio.Event()
        self._first: bytes | None = None
        """The beginning of a stream at this number."""
        self._closed = False

    def push(self, news: dict[str, Any]) -> None:
        """Sends news to every browser."""
        self._number += 1
        self._kept.append(self._event("news", news))
        self._wake()

    def begin_again(self) -> None:
        """Sends everything to every browser: numbers mean something new from now on."""
        self._epoch += 1
        self._number += 1
        self._kept.clear()
        self._wake()

    def close(self) -> None:
        """Ends every stream."""
        self._closed = True
        self._wake()

    async def stream(self, last_id: str) -> AsyncIterator[bytes]:
        """Yields the events after the one with an id; everything if the id is not known."""
        epoch, number = _parsed(last_id)
        self.viewers += 1
        self.arrived.set()
        try:
            while True:
                news = self._news
                if epoch != self._epoch or not self._reaches(number):
                    epoch, number = self._epoch, self._number
                    yield self._beginning()
                elif number < self._number:
                    number += 1
                    yield self._kept[number - self._oldest]
                elif self._closed:
                    return
                else:
                    try:
                        async with asyncio.timeout(PING_S):
                            await news.wait()
                    except TimeoutError:
                        yield PING
        finally:
            self.viewers -= 1
            if not self.viewers:
                self.arrived.clear()

    def _reaches(self, number: int) -> bool:
        """True if nothing after a number is forgotten."""
        return self._oldest - 1 <= number <= self._number

    @property
    def _oldest(self) -> int:
        """Number of the oldest event that is kept."""
        return self._number - len(self._kept) + 1

    def _beginning(self) -> bytes:
        if self._first is None:
            self._first = self._event("whole", self._whole())
        return self._first

    def _event(self, kind: str, content: dict[str, Any]) -> bytes:
        text = json.dumps(content, separators=(",", ":"), allow_nan=False)
        return f"id: {self._epoch}.{self._number}\nevent: {kind}\ndata: {text}\n\n".encode()

    def _wake(self) -> None:
        self._first = None
        self._news.set()
        self._news = asyncio.Event()


def _parsed(last_id: str) -> tuple[int, int]:
    """Returns epoch and number of an id; ones that no event has if it is broken."""
    epoch, _, number = last_id.partition(".")
    if epoch.isdecimal() and number.isdecimal() and len(last_id) < 40:
        return int(epoch), int(number)
    return -1, -1
