"""How long agents may take for what is asked of them, and how long one has been silent. It reads no
clock: who waits tells it how long that took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LOOK_S = 0.5
"""How long one look at a silent agent lasts at most."""
LATE_S = 0.1
"""How much later a look may end than it ought to, and still count in full."""


@dataclass(frozen=True)
class Patience:
    """How long agents may take, in seconds."""

    silence_s: float = 10.0
    """Without a snapshot."""
    beat_s: float | None = None
    """How often each is told that the conductor is there, which it answers; None: never."""
    lost_s: float = 3.5
    """Without any line, where they get beats."""
    start_delay_s: float = 0.1
    """From a command to the instant at which it takes effect, so that it has reached them all."""
    connect_delay_s: float = 0.02
    """The same for a connect stage, which schedules no message."""
    hello_s: float = 30.0
    """To the first line, from the start of the program on."""
    answer_s: float = 5.0
    """For everything else that is asked of a place: to take a line, to end."""
    replace_s: float = 60.0
    """Until there is another place for a lost one."""

    @property
    def start_delay_ns(self) -> int:
        """The start delay in nanoseconds."""
        return round(self.start_delay_s * 1e9)

    @property
    def connect_delay_ns(self) -> int:
        """The start delay of a connect stage in nanoseconds."""
        return round(self.connect_delay_s * 1e9)


class Watchdog:
    """How long an agent has been silent. Its time stands still while this process is held up, and
    hears nobody: that is no agent's silence."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._now_s = 0.0
        self._heard_s = 0.0
        self._shown_s = 0.0
        self._greeted = False

    def hear(self, *, shown: bool) -> None:
        """A line has come; `shown`: a hello or a snapshot."""
        self._heard_s = self._now_s
        if shown:
            self._greeted = True
            self._shown_s = self._now_s

    def wait(self, took_s: float, asked_s: float) -> None:
        """Somebody waited for a line, for so long, and meant to wait for so long at most."""
        self._now_s += min(took_s, asked_s + LATE_S)

    def look_s(self, *, stopping: bool) -> float:
        """How long to wait for a line until the next look."""
        left_s = [limit_s - self._now_s for limit_s, _, _ in self._limits(stopping)]
        return max(0.0, min([LOOK_S, *left_s]))

    def complaint(self, *, stopping: bool) -> tuple[Literal["silent", "lost"], str] | None:
        """What is to be said of an agent that was silent for too long; None: it may go on."""
        over = (limit for limit in self._limits(stopping) if limit[0] <= self._now_s)
        found = min(over, default=None)
        return None if found is None else found[1:]

    def _limits(self, stopping: bool) -> list[tuple[float, Literal["silent", "lost"], str]]:
        """Until when it may be silent, what it is then, and in words. One that is stopping may
        leave snapshots out: clients take their time to leave."""
        patience = self._patience
        if not self._greeted:
            return [(patience.hello_s, "silent", f"said nothing for {patience.hello_s:g} s")]
        limits: list[tuple[float, Literal["silent", "lost"], str]] = []
        if patience.beat_s is not None:
            text = f"has not answered for {patience.lost_s:g} s"
            limits.append((self._heard_s + patience.lost_s, "lost", text))
        if not stopping:
            text = f"sent no snapshot for {patience.silence_s:g} s"
            limits.append((self._shown_s + patience.silence_s, "silent", text))
        return limits
