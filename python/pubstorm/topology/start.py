"""Starting many brokers: so many at once, with words on how far it is. It does not know what they
are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from pubstorm.topology.broker import BrokerProcess

STARTS_AT_ONCE = 8
"""Brokers that are on their way at once."""
TELL_EVERY_S = 1.0
"""How often it is told how far the start is; what takes less is not told."""

Tell = Callable[[str], None]
"""Hears how far the start is, in words."""


async def start_all(brokers: Sequence[BrokerProcess], tell: Tell, before: int = 0) -> None:
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

    async with telling(lambda: f"{up} of {total} brokers up", tell):
        starts = [asyncio.create_task(start_one(broker)) for broker in brokers]
        try:
            await asyncio.gather(*starts)
        except BaseException:
            for start in starts:
                start.cancel()
            await asyncio.wait(starts)
            raise


@asynccontextmanager
async def telling(words: Callable[[], str], tell: Tell) -> AsyncIterator[None]:
    """While it is open, tells words that change every second, and the last ones if any."""

    async def repeat() -> None:
        while True:
            await asyncio.sleep(TELL_EVERY_S)
            tell(words())

    loop = asyncio.get_running_loop()
    began_s, repeating = loop.time(), asyncio.create_task(repeat())
    try:
        yield
    finally:
        repeating.cancel()
        if loop.time() - began_s >= TELL_EVERY_S:
            tell(words())


def paced(tell: Tell) -> Tell:
    """Tells at most once a second, and nothing in the first one."""
    clock = asyncio.get_running_loop().time
    next_s = clock() + TELL_EVERY_S

    def tell_at_times(text: str) -> None:
        nonlocal next_s
        if clock() >= next_s:
            next_s = clock() + TELL_EVERY_S
            tell(text)

    return tell_at_times
