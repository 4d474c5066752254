"""The backlog of a fault: messages that were due and not yet received or acknowledged, tick by
tick, and the time until it was gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pubstorm.measure.assemble import Assembly
from pubstorm.measure.faults.recovery import SECOND_NS, Times
from pubstorm.measure.phases.load_due import fan_out
from pubstorm.measure.phases.ticks import Grid, ticks
from pubstorm.measure.run_log import StageSpan

BEFORE_TICKS = 10
"""Ticks before a fault that define the usual backlog and rate."""
GONE_S = 1.0
"""Seconds' worth of the messages that came through before, of which as many may wait when a backlog
counts as gone."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """One step of time."""

    to_s: float
    """Its end, after the start of the run."""
    came_per_s: float
    """Messages received or acknowledged in it, whichever are more."""
    count: float
    """Messages that waited at its end."""
    missing: float = 0.0
    """Those of them that others had overtaken."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """The backlog of a fault."""

    peak: int
    """Most messages that waited."""
    drained_s: float | None
    """From the repairing until they were gone; None: not in time."""


def waiting(run: Assembly, span: StageSpan) -> list[Waiting]:
    """Returns the backlog in a publish stage and its drain: messages due and unsent or
    unacknowledged, or deliveries due and not received, whichever are more. Lost deliveries are
    among them; `backlog` leaves them out."""
    populations = range(len(run.plan.populations))
    grid = Grid(
        span.from_ns,
        span.to_ns,
        run.plan.snapshot_interval_ns,
        populations,
        populations,
        fan_out(run.ledger, span.index, populations),
    )
    found: list[Waiting] = []
    expected = received = missing = 0.0
    for tick in ticks(run.timeline, span.index, grid):
        expected += tick.expected
        received += tick.received
        missing += tick.missing
        found.append(
            Waiting(
                to_s=(tick.to_ns - run.run_log.started_ns) / SECOND_NS,
                came_per_s=max(tick.received, tick.acked) * SECOND_NS / grid.width_ns,
                count=max(expected + tick.expected_unsent - received, tick.queue),
                missing=missing,
            )
        )
    return found


def backlog(waits: Sequence[Waiting], times: Times, lost: int) -> Backlog | None:
    """Returns the peak backlog of a fault and its drain time, without `lost` messages that others
    had overtaken. None if there was neither load before the fault nor a backlog after it."""
    before = [each for each in waits if each.to_s <= times.began_s][-BEFORE_TICKS:]
    during = [each for each in waits if times.began_s < each.to_s <= times.next_s]
    usual_per_s = sum(each.came_per_s for each in before) / len(before) if before else 0.0
    peak = max((each.count for each in during), default=0.0)
    if not usual_per_s and not peak:
        return None
    allowed = max(usual_per_s * GONE_S, *(each.count for each in before), 0.0)
    drained_s = None
    if times.repaired_s is not None:
        drained_s = next(
            (
                round(each.to_s - times.repaired_s, 3)
                for each in waits
                if times.repaired_s < each.to_s <= times.end_s
                and each.came_per_s
                and each.count - min(each.missing, lost) <= allowed
            ),
            None,
        )
    return Backlog(peak=round(peak), drained_s=drained_s)
