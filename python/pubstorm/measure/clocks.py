"""Sums up how well the agents of a run knew the reference clock, and the errors of times between
two of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise

from pubstorm.contract.commands import Hello
from pubstorm.contract.snapshot import ClockState
from pubstorm.quantities import SECOND_NS
from pubstorm.result import ClockResult
from pubstorm.result.timeline.rows import Row

US_NS = 1000


def clock_result(
    hello: Hello, rows: Iterable[Row], stamping: Collection[int]
) -> ClockResult | None:
    """Returns the quality of an agent's clock, from its hello and its rows in the order of
    time; None if its host has the reference clock. The bound is that of the stages in which
    messages are stamped, or of the whole run if there was none."""
    known = [(row.to_ns, row.stage, row.clock) for row in rows if row.clock is not None]
    states = [(at_ns, clock) for at_ns, _, clock in known]
    if hello.clock is not None:
        states.insert(0, (hello.clock_ns, hello.clock))
    if not states:
        return None
    stamped = [clock.bound_ns for _, stage, clock in known if stage in stamping]
    bound_ns = max(stamped or [state.bound_ns for _, state in states])
    last = states[-1][1]
    return ClockResult(
        offset_us=last.offset_ns / US_NS,
        drift_ppm=last.drift_ppb / US_NS,
        bound_us=bound_ns / US_NS,
        round_trip_us=min(state.round_trip_ns for _, state in states) / US_NS,
        exchanges_total=last.exchanges_total,
        unanswered_s=round(_unanswered_ns(states) / SECOND_NS, 3),
    )


def clock_bound_us(clocks: Iterable[ClockResult | None]) -> float:
    """Returns the largest error of times that begin at one agent and end at another: the two
    largest bounds together. One agent alone has one clock."""
    bounds_us = sorted((clock.bound_us if clock else 0.0 for clock in clocks), reverse=True)
    return round(sum(bounds_us[:2]), 3) if len(bounds_us) > 1 else 0.0


def _unanswered_ns(states: Sequence[tuple[int, ClockState]]) -> int:
    """The longest time in which no exchange was added to those that were answered."""
    longest_ns = 0
    since_ns = states[0][0]
    for (_, before), (at_ns, state) in pairwise(states):
        if state.exchanges_total != before.exchanges_total:
            since_ns = at_ns
        longest_ns = max(longest_ns, at_ns - since_ns)
    return longest_ns
