"""Signals that end a run: SIGINT, SIGTERM and SIGHUP become events, and end what starts up."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TypeVar

from pubstorm.errors import PubstormError
from pubstorm.host.signals import INTERRUPTED, ending_signals
from pubstorm.play.stages import Interrupt

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
    opened before once it is closed. Only the main thread gets signals; for other threads there is
    `interrupt_thread`."""
    handlers = _handlers.setdefault(threading.get_ident(), [])
    handlers.append((asyncio.get_running_loop(), handle))
    _catch(handle)
    try:
        yield
    finally:
        handlers.pop()
        _catch(handlers[-1][1] if handlers else None)


def interrupt_thread(thread: int) -> bool:
    """Ends what a thread plays, as SIGINT would. Returns False if the thread plays nothing."""
    handlers = _handlers.get(thread)
    if not handlers:
        return False
    loop, handle = handlers[-1]
    loop.call_soon_threadsafe(handle, signal.SIGINT)
    return True


def _catch(handle: Callable[[signal.Signals], None] | None) -> None:
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    for number in ending_signals():
        if handle is None:
            loop.remove_signal_handler(number)
        else:
            loop.add_signal_handler(number, handle, number)


_handlers: dict[int, list[tuple[asyncio.AbstractEventLoop, Callable[[signal.Signals], None]]]] = {}
"""Handlers of each thread, the present one last: of a series, a run in it, the end of its
brokers."""
