"""How a number of connections fell at a fault and came back: arithmetic on readings that hold until
the next one. It does not know what is counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from pubstorm.merge import Interval
from pubstorm.result import Recovery
from pubstorm.samples import Track

SECOND_NS = 10**9
MOST_SHARE = 0.99
"""Share of those that were there before that makes up most of them."""

Step = tuple[float, int]
"""When a number was read, in seconds after the start of the run, and the number."""


@dataclass(frozen=True, slots=True)
class Times:
    """When a fault was, in seconds after the start of the run."""

    began_s: float
    mended_s: float | None
    """When it was mended; None: never."""
    next_s: float
    """When the next fault of the stage began, or the stage ended."""
    end_s: float
    """When the stage ended."""


def recovery(steps: Sequence[Step], times: Times) -> Recovery | None:
    """How the number fell and rose; None where it did not fall."""
    before = next((n for at_s, n in reversed(steps) if at_s <= times.began_s), 0)
    during = [step for step in steps if times.began_s < step[0] <= times.next_s]
    lowest_s, lowest = min(during, key=lambda step: (step[1], step[0]), default=(0.0, before))
    if lowest >= before:
        return None
    after = [step for step in steps if lowest_s < step[0] <= times.end_s]

    def until(count: int) -> float | None:
        """Time from the mending until there were so many; 0 where they were there before it."""
        back_s = next((at_s for at_s, n in after if n >= count), None)
        if back_s is None or times.mended_s is None:
            return None
        return round(max(back_s - times.mended_s, 0.0), 3)

    return Recovery(
        before=before,
        lowest=lowest,
        first_s=until(lowest + 1),
        most_s=until(max(ceil(MOST_SHARE * before), lowest + 1)),
        all_s=until(before),
    )


def connected(time_line: Iterable[Interval], started_ns: int) -> list[Step]:
    """How many clients were connected, summed over agents: each one's number counts until its next
    snapshot. Whose life is over is away by itself, and counts as there."""
    readings = (
        (i.to_ns - started_ns, i.agent, sum(p.connected + p.away for p in i.populations))
        for i in time_line
    )
    return _summed((at_ns / SECOND_NS, agent, count) for at_ns, agent, count in readings)


def summed(tracks: Sequence[Track]) -> list[Step]:
    """The sum of some tracks: each one's reading counts until its next."""
    readings = sorted(
        (at_s, number, round(value))
        for number, track in enumerate(tracks)
        for at_s, value in zip(track.at_s, track.values, strict=True)
    )
    return _summed(readings)


def _summed(readings: Iterable[tuple[float, int, int]]) -> list[Step]:
    latest: dict[int, int] = {}
    steps: list[Step] = []
    for at_s, source, value in readings:
        latest[source] = value
        step = (at_s, sum(latest.values()))
        # Agents that are read at one instant make one step.
        if steps and steps[-1][0] == at_s:
            steps[-1] = step
        else:
            steps.append(step)
    return steps
