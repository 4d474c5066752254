"""Signals that ask Pubstorm to end: SIGINT, SIGTERM and SIGHUP. They raise KeyboardInterrupt until
a run handles them itself."""

from __future__ import annotations

import os
import signal
from types import FrameType

INTERRUPTED = 130
"""Exit code of a command that was interrupted."""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def catch() -> None:
    """Lets each of the signals raise KeyboardInterrupt from now on."""
    for number in ending_signals():
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)


def ending_signals() -> tuple[signal.Signals, ...]:
    """The signals, without a SIGHUP that is ignored: `nohup` asks for that."""
    ignores = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return _ENDING[:-1] if ignores else _ENDING


def _interrupt(_number: int, frame: FrameType | None) -> None:
    # An exception in the middle of an import can come out as another one.
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            os._exit(INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt
