"""The load of a stage tick by tick: what all agents together sent, saw and had waiting in equal
steps of time, from intervals that each agent cut by its own clock. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pubstorm.merge import Interval, PopulationInterval


@dataclass(slots=True)
class Tick:
    """One step of time."""

    from_ns: int
    """Its start, in nanoseconds on the monotonic clock."""
    to_ns: int
    """Its end."""
    sent: float = 0.0
    """Messages sent in it."""
    acked: float = 0.0
    """Messages acknowledged."""
    received: float = 0.0
    """Messages received by those who are judged."""
    missing: float = 0.0
    """Messages to them that were passed over, less those that came after all."""
    latency_count: float = 0.0
    """Deliveries and acknowledgements together."""
    latency_sum_ns: float = 0.0
    """Their latencies from the intended send."""
    queue: int = 0
    """Messages due and unsent, or sent and unacknowledged, at its end."""
    unsent: int = 0
    """Those of them that are due and unsent."""
    starved_ns: float = 0.0
    """Time in which an agent had no processor: that of the agent with the longest."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What ticks are made for."""

    from_ns: int
    """Start of the first tick."""
    to_ns: int
    """No tick ends later."""
    width_ns: int
    """Length of a tick."""
    publishers: Collection[int]
    """Populations whose messages count."""
    receivers: Collection[int]
    """Populations whose deliveries count."""


def ticks(intervals: Iterable[Interval], frame: Frame) -> list[Tick]:
    """The ticks that every agent's intervals cover."""
    by_agent: dict[int, list[Interval]] = {}
    for interval in intervals:
        by_agent.setdefault(interval.agent, []).append(interval)
    ends = [max(interval.to_ns for interval in own) for own in by_agent.values()]
    # Agents cut their intervals at nearly the same instants.
    covered_ns = min(min(ends, default=frame.from_ns) + frame.width_ns // 2, frame.to_ns)
    count = max(covered_ns - frame.from_ns, 0) // frame.width_ns
    starts = [frame.from_ns + n * frame.width_ns for n in range(count)]
    made = [Tick(start, start + frame.width_ns) for start in starts]
    for own in by_agent.values():
        own.sort(key=lambda interval: interval.to_ns)
        for interval in own:
            _add_counts(made, interval, frame)
        _add_queue(made, own, frame)
        _add_starved(made, own, frame)
    return made


def _shares(interval: Interval, frame: Frame, count: int) -> Iterator[tuple[int, float]]:
    """Yields the numbers of the ticks that an interval overlaps, each with its share of it."""
    length_ns = interval.to_ns - interval.from_ns
    if length_ns <= 0 or interval.to_ns <= frame.from_ns:
        return
    first = max((interval.from_ns - frame.from_ns) // frame.width_ns, 0)
    last = (interval.to_ns - 1 - frame.from_ns) // frame.width_ns
    for number in range(first, min(last + 1, count)):
        start_ns = frame.from_ns + number * frame.width_ns
        overlap_ns = min(start_ns + frame.width_ns, interval.to_ns) - max(
            start_ns, interval.from_ns
        )
        yield number, overlap_ns / length_ns


def _add_starved(made: Sequence[Tick], own: Iterable[Interval], frame: Frame) -> None:
    """Raises the time without a processor of each tick to that of an agent."""
    starved_ns = [0.0] * len(made)
    for interval in own:
        if interval.starved_ns:
            for number, share in _shares(interval, frame, len(made)):
                starved_ns[number] += share * interval.starved_ns
    for tick, time_ns in zip(made, starved_ns, strict=True):
        tick.starved_ns = max(tick.starved_ns, time_ns)


def _add_counts(made: Sequence[Tick], interval: Interval, frame: Frame) -> None:
    """Adds an interval's counts to the ticks that it overlaps, to each its share."""
    for number, share in _shares(interval, frame, len(made)):
        tick = made[number]
        for index, population in enumerate(interval.populations):
            if index in frame.publishers:
                tick.sent += share * population.sent
                tick.acked += share * population.acked
            if index in frame.receivers:
                tick.received += share * population.received
                tick.missing += share * population.missing
            tick.latency_count += share * population.latency_count
            tick.latency_sum_ns += share * population.latency_sum_ns


def _add_queue(made: Sequence[Tick], own: Sequence[Interval], frame: Frame) -> None:
    """Adds what an agent had waiting at the end of each tick, and nothing that came to wait after
    the last one: a fault may have begun there."""
    place = 0
    waiting = unsent = 0
    for tick in made:
        until_ns = min(tick.to_ns + frame.width_ns // 2, frame.to_ns)
        while place < len(own) and own[place].to_ns <= until_ns:
            populations = own[place].populations
            waiting = sum(_waiting(populations[index]) for index in frame.publishers)
            unsent = sum(populations[index].backlog for index in frame.publishers)
            place += 1
        tick.queue += waiting
        tick.unsent += unsent


def _waiting(population: PopulationInterval) -> int:
    return population.in_flight + population.backlog
