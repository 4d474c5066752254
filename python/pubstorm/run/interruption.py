"""Signals that end a run: SIGINT, SIGTERM and SIGHUP become events, and end what starts up."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TypeVar

from pubstorm.errors import PubstormError
from pubstorm.host.signals import INTERRUPTED, ending_signals
from pubstorm.run.stages import Interrupt

T = TypeVar("T")


class Interruption:
    """The user's wish that a run ends."""

    def __init__(self, report: Callable[[Interrupt], None]) -> None:
        self._report = report
        self._came = asyncio.Event()

    def on_signal(self, number: signal.Signals) -> None:
        """Ends the start of the run, or reports to its controller."""
        self._came.set()
        self._report(Interrupt(number.name))

    def forget(self) -> None:
        """Waits for a further signal."""
        self._came.clear()

    async def unless(self, start: Coroutine[None, None, T]) -> T:
        """Runs a coroutine that cleans up when it is cancelled. Raises PubstormError if a signal
        comes before its end."""
        starting = asyncio.create_task(start)
        interrupted = asyncio.create_task(self._came.wait())
        await asyncio.wait({starting, interrupted}, return_when=asyncio.FIRST_COMPLETED)
        interrupted.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting})
            raise PubstormError("interrupted before the first stage", exit_code=INTERRUPTED)
        return starting.result()


@contextmanager
def caught_signals(handle: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Directs SIGINT, SIGTERM and SIGHUP to `handle` while it is open, and to the handler that was
    opened before once it is closed."""
    _handlers.append(handle)
    _catch(handle)
    try:
        yield
    finally:
        _handlers.pop()
        _catch(_handlers[-1] if _handlers else None)


def _catch(handle: Callable[[signal.Signals], None] | None) -> None:
    loop = asyncio.get_running_loop()
    for number in ending_signals():
        if handle is None:
            loop.remove_signal_handler(number)
        else:
            loop.add_signal_handler(number, handle, number)


_handlers: list[Callable[[signal.Signals], None]] = []
"""Handlers of signals, the present one last: of a series, a run in it, the end of its brokers."""
