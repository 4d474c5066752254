"""Calls of the command line in this process, as `main` makes them, with what holds for every input:
no exception, an exit code of the contract, a bound of CPU time, and no control character."""

from __future__ import annotations

import contextlib
import io
import re
import signal
from collections.abc import Callable, Iterator
from types import FrameType

from pubstorm import cli

CPU_S_MAX = 20.0
"""Longest CPU time of a call; the slowest takes a tenth of it on a quiet machine."""
CODES = frozenset((0, 1, 2, 3, 4))
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""All but tab and line feed."""
UNEXPECTED = re.compile(r"Traceback|\b[A-Z]\w+Error: ")
"""Errors without words for users, which one part of a command caught for the sake of others."""


class TooLongError(BaseException):
    """A call took more CPU time than it may."""


def called(*words: str) -> str:
    """Calls a command line, and returns both of its outputs."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output), bounded():
        code = cli.main(words)
    assert code in CODES, code
    assert (found := CONTROL.search(output.getvalue())) is None, found
    assert (found := UNEXPECTED.search(output.getvalue())) is None, output.getvalue()[:1000]
    return output.getvalue()


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Raises TooLongError after CPU_S_MAX of this process."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise TooLongError

    before: Callable[[int, FrameType | None], object] | int | None
    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S_MAX)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
