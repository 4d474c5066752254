"""Expected deliveries that did not come. They are lost, or in flight when the run was cut
short before the drain of a publish stage was over."""

from __future__ import annotations

from collections.abc import Iterable

from pubstorm.course import Course
from pubstorm.merge import FlowTotals, Totals
from pubstorm.plan import Plan, PublishAction

Pair = tuple[int, int]
"""Indices of the publishing and of the receiving population."""


class Undelivered:
    """Splits what did not come into lost and in flight, by flow."""

    def __init__(self, plan: Plan, course: Course, totals: Totals) -> None:
        self._totals = totals
        self._cut_stage = _cut_stage(plan, course)

    def in_flight(self, pairs: Iterable[Pair], stage: int | None = None) -> int:
        """Deliveries of some flows that were in flight when the run was cut short. Messages that a
        receiver had passed over are lost. `stage` restricts the count to one stage."""
        if self._cut_stage is None or stage not in {None, self._cut_stage}:
            return 0
        flows = self._totals.stage(self._cut_stage).flows
        cut = (flows[pair] for pair in pairs if pair in flows)
        return sum(max(_open(flow) - max(flow.counters["missing_total"], 0), 0) for flow in cut)

    def lost(self, pair: Pair, flow: FlowTotals, stage: int | None = None) -> int:
        """Deliveries of a flow that were lost; `flow` has its sums of the run, or of `stage`."""
        return max(_open(flow) - self.in_flight([pair], stage), 0)


def _cut_stage(plan: Plan, course: Course) -> int | None:
    """The publish stage in which the run was cut short."""
    if not course.ended_early or not course.spans:
        return None
    last = course.spans[-1].index
    return last if isinstance(plan.stages[last].action, PublishAction) else None


def _open(flow: FlowTotals) -> int:
    return max(flow.counters["expected_total"] - flow.counters["received_total"], 0)
