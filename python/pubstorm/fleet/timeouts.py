"""Timeouts of agents, and the watchdog that measures their silence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LOOK_S = 0.5
"""Longest time of one look at a silent agent."""
LATE_S = 0.1
"""Delay of a look that still counts in full."""


@dataclass(frozen=True)
class Timeouts:
    """Timeouts of agents, in seconds."""

    silence_s: float = 10.0
    """Without a snapshot."""
    beat_s: float | None = None
    """Interval of beats, which agents answer; None for no beats."""
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
    """Until a failed agent has another place."""

    @property
    def start_delay_ns(self) -> int:
        """The start delay in nanoseconds."""
        return round(self.start_delay_s * 1e9)

    @property
    def connect_delay_ns(self) -> int:
        """The start delay of a connect stage in nanoseconds."""
        return round(self.connect_delay_s * 1e9)


class Watchdog:
    """Measures the silence of an agent. Its time stands still while this process is held up and
    receives nothing."""

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._now_s = 0.0
        self._line_s = 0.0
        self._snapshot_s = 0.0
        self._greeted = False
        self._stop_s: float | None = None
        """Time that it has to stop, from its last progress on; None before the command."""
        self._moved_s = 0.0

    def on_line(self, *, is_report: bool) -> None:
        """Takes note of a line; `is_report`: a hello or a snapshot."""
        self._line_s = self._now_s
        if is_report:
            self._greeted = True
            self._snapshot_s = self._now_s

    def stop(self, limit_s: float) -> None:
        """Takes note of the command to stop, and of the time that the agent has for that."""
        self._stop_s = limit_s
        self.on_progress()

    def on_progress(self) -> None:
        """Takes note that a part of its clients has left: the time to stop begins anew."""
        self._moved_s = self._now_s

    def wait(self, took_s: float, asked_s: float) -> None:
        """Adds a wait for a line: the time that it took, and the time that was asked for."""
        self._now_s += min(took_s, asked_s + LATE_S)

    def look_s(self) -> float:
        """Returns the time to wait for a line until the next look."""
        left_s = [limit_s - self._now_s for limit_s, _, _ in self._limits()]
        return max(0.0, min([LOOK_S, *left_s]))

    def complaint(self) -> tuple[Literal["silent", "lost"], str] | None:
        """Returns the complaint about an agent that was silent for too long; None if it may
        continue."""
        over = (limit for limit in self._limits() if limit[0] <= self._now_s)
        found = min(over, default=None)
        return None if found is None else found[1:]

    def _limits(self) -> list[tuple[float, Literal["silent", "lost"], str]]:
        """Returns the limits: the instant up to which it may be silent, the kind of its end after
        that, and the words. One that stops may leave snapshots out: its clients leave slowly."""
        timeouts = self._timeouts
        if not self._greeted:
            return [(timeouts.hello_s, "silent", f"said nothing for {timeouts.hello_s:g} s")]
        limits: list[tuple[float, Literal["silent", "lost"], str]] = []
        if timeouts.beat_s is not None:
            text = f"has not answered for {timeouts.lost_s:g} s"
            limits.append((self._line_s + timeouts.lost_s, "lost", text))
        if self._stop_s is None:
            text = f"sent no snapshot for {timeouts.silence_s:g} s"
            limits.append((self._snapshot_s + timeouts.silence_s, "silent", text))
        else:
            text = "did not stop in time and was killed"
            limits.append((self._moved_s + self._stop_s, "silent", text))
        return limits
