"""Starts many brokers, some at once, and reports progress."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from pubstorm.topology.broker import BrokerProcess

STARTS_AT_ONCE = 8
"""Brokers that are on their way at once."""
NOTIFY_EVERY_S = 1.0
"""Interval of progress reports; a shorter start has none."""

Notify = Callable[[str], None]
"""Takes the progress of the start, in words."""


async def start_all(brokers: Sequence[BrokerProcess], notify: Notify, before: int = 0) -> None:
    """Returns when every broker accepts connections; with the first that does not, the others are
    given up and its TopologyError is raised. So many were started `before`."""
    if not brokers:
        return
    places = asyncio.Semaphore(STARTS_AT_ONCE)
    total = before + len(brokers)
    up = before

    async def start_one(broker: BrokerProcess) -> None:
        nonlocal up
        async with places:
            await broker.start()
        up += 1

    async with notifying(lambda: f"{up} of {total} brokers up", notify):
        starts = [asyncio.create_task(start_one(broker)) for broker in brokers]
        try:
            await asyncio.gather(*starts)
        except BaseException:
            for start in starts:
                start.cancel()
            await asyncio.wait(starts)
            raise


@asynccontextmanager
async def notifying(words: Callable[[], str], notify: Notify) -> AsyncIterator[None]:
    """Calls `notify` with new words every second while the block runs. The last call is at its end,
    unless the block takes less than a second."""

    async def repeat() -> None:
        while True:
            await asyncio.sleep(NOTIFY_EVERY_S)
            notify(words())

    loop = asyncio.get_running_loop()
    began_s, repeating = loop.time(), asyncio.create_task(repeat())
    try:
        yield
    finally:
        repeating.cancel()
        if loop.time() - began_s >= NOTIFY_EVERY_S:
            notify(words())


def paced(notify: Notify) -> Notify:
    """Returns a `notify` that passes on one text a second at most, and none in the first second."""
    clock = asyncio.get_running_loop().time
    next_s = clock() + NOTIFY_EVERY_S

    def notify_at_times(text: str) -> None:
        nonlocal next_s
        if clock() >= next_s:
            next_s = clock() + NOTIFY_EVERY_S
            notify(text)

    return notify_at_times
