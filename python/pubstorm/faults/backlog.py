"""What waited because of a fault: messages due and not yet received or acknowledged, tick by tick,
and when they were gone again. Pure arithmetic on the intervals of a stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pubstorm.assemble import Assembly
from pubstorm.course import StageSpan
from pubstorm.faults.recovery import SECOND_NS, Times
from pubstorm.phases.load_due import fan_out
from pubstorm.phases.ticks import Frame, ticks

BEFORE_TICKS = 10
"""Ticks before a fault that say how much waits and comes through without one."""
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
    """What a fault made wait."""

    peak: int
    """Most messages that waited."""
    drained_s: float | None
    """From the mending until they were gone; None: not in time."""


def waiting(run: Assembly, span: StageSpan) -> list[Waiting]:
    """What waited in a publish stage and its drain: messages due and unsent or unacknowledged, or
    deliveries due and not received, whichever are more. Deliveries that were lost are among them:
    `backlog` tells them apart."""
    intervals = [i for i in run.totals.time_line() if i.stage == span.index]
    populations = range(len(run.plan.populations))
    frame = Frame(span.from_ns, span.to_ns, run.plan.snapshot_interval_ns, populations, populations)
    whole = ticks(intervals, frame)
    due = [0.0] * len(whole)
    for publisher, each in fan_out(run.totals, span.index, populations).items():
        own = Frame(frame.from_ns, frame.to_ns, frame.width_ns, [publisher], [])
        sent = 0.0
        for n, tick in enumerate(ticks(intervals, own)):
            sent += tick.sent
            due[n] += each * (sent + tick.unsent)
    found: list[Waiting] = []
    received = missing = 0.0
    for n, tick in enumerate(whole):
        received += tick.received
        missing += tick.missing
        found.append(
            Waiting(
                to_s=(tick.to_ns - run.course.started_ns) / SECOND_NS,
                came_per_s=max(tick.received, tick.acked) * SECOND_NS / frame.width_ns,
                count=max(due[n] - received, tick.queue),
                missing=missing,
            )
        )
    return found


def backlog(waits: Sequence[Waiting], times: Times, lost: int) -> Backlog | None:
    """What a fault made wait. Of those that were overtaken, as many are not waited for as were
    `lost` in the end. None where nothing came before it and nothing waited after it."""
    before = [each for each in waits if each.to_s <= times.began_s][-BEFORE_TICKS:]
    during = [each for each in waits if times.began_s < each.to_s <= times.next_s]
    usual_per_s = sum(each.came_per_s for each in before) / len(before) if before else 0.0
    peak = max((each.count for each in during), default=0.0)
    if not usual_per_s and not peak:
        return None
    allowed = max(usual_per_s * GONE_S, *(each.count for each in before), 0.0)
    drained_s = None
    if times.mended_s is not None:
        drained_s = next(
            (
                round(each.to_s - times.mended_s, 3)
                for each in waits
                if times.mended_s < each.to_s <= times.end_s
                and each.came_per_s
                and each.count - min(each.missing, lost) <= allowed
            ),
            None,
        )
    return Backlog(peak=round(peak), drained_s=drained_s)
