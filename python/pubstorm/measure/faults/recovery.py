"""The fall and recovery of a number of connections at a fault, from samples that hold until the
next one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from pubstorm.result import Recovery
from pubstorm.result.samples import Track
from pubstorm.result.timeline import Step, Timeline, steps
from pubstorm.result.timeline.rows import Row

SECOND_NS = 10**9
MOST_SHARE = 0.99
"""Share of the earlier count that counts as "most"."""


@dataclass(frozen=True, slots=True)
class Times:
    """The instants of a fault, in seconds after the start of the run."""

    began_s: float
    repaired_s: float | None
    """Instant of the repair; None if it was not repaired."""
    next_s: float
    """Instant at which the next fault of the stage began, or the stage ended."""
    end_s: float
    """Instant at which the stage ended."""


def recovery(counts: Sequence[Step], times: Times) -> Recovery | None:
    """Returns how the number fell and rose; None if it did not fall."""
    before = next((n for at_s, n in reversed(counts) if at_s <= times.began_s), 0)
    during = [step for step in counts if times.began_s < step[0] <= times.next_s]
    lowest_s, lowest = min(during, key=lambda step: (step[1], step[0]), default=(0.0, before))
    if lowest >= before:
        return None
    after = [step for step in counts if lowest_s < step[0] <= times.end_s]

    def until(count: int) -> float | None:
        """Returns the time from the repair until a count was reached; 0 if it was reached
        before."""
        back_s = next((at_s for at_s, n in after if n >= count), None)
        if back_s is None or times.repaired_s is None:
            return None
        return round(max(back_s - times.repaired_s, 0.0), 3)

    return Recovery(
        before=before,
        lowest=lowest,
        first_s=until(lowest + 1),
        most_s=until(max(ceil(MOST_SHARE * before), lowest + 1)),
        all_s=until(before),
    )


def connected(timeline: Timeline, started_ns: int) -> list[Step]:
    """Returns how many clients were connected, summed over agents. Clients that are offline after
    their session lifetime count as connected."""

    def value(row: Row) -> int:
        everybody = range(row.populations)
        return row.gauge("connected", everybody) + row.gauge("offline", everybody)

    return [((at_ns - started_ns) / SECOND_NS, count) for at_ns, count in timeline.steps(value)]


def summed(tracks: Sequence[Track]) -> list[Step]:
    """Returns the sum of some tracks, whose samples hold until the next."""
    samples = sorted(
        (at_s, number, round(value))
        for number, track in enumerate(tracks)
        for at_s, value in zip(track.at_s, track.values, strict=True)
    )
    return list(steps(samples))
