"""The load of a stage tick by tick: what all agents together sent, saw and had waiting in equal
steps of time, from intervals that each agent cut by its own clock. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pubstorm.measure.series import Interval, PopulationInterval, overlaps


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
    """Messages received by populations that are evaluated."""
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
class Grid:
    """The ticks to make, and the populations that count."""

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


def ticks(intervals: Iterable[Interval], grid: Grid) -> list[Tick]:
    """The ticks that every agent's intervals cover."""
    by_agent: dict[int, list[Interval]] = {}
    for interval in intervals:
        by_agent.setdefault(interval.agent, []).append(interval)
    ends = [max(interval.to_ns for interval in own) for own in by_agent.values()]
    # Agents cut their intervals at nearly the same instants.
    covered_ns = min(min(ends, default=grid.from_ns) + grid.width_ns // 2, grid.to_ns)
    count = max(covered_ns - grid.from_ns, 0) // grid.width_ns
    starts = [grid.from_ns + n * grid.width_ns for n in range(count)]
    made = [Tick(start, start + grid.width_ns) for start in starts]
    for own in by_agent.values():
        own.sort(key=lambda interval: interval.to_ns)
        for interval in own:
            _add_counts(made, interval, grid)
        _add_queue(made, own, grid)
        _add_starved(made, own, grid)
    return made


def _shares(interval: Interval, grid: Grid, count: int) -> Iterator[tuple[int, float]]:
    """Yields the numbers of the ticks that an interval overlaps, each with its share of it."""
    length_ns = interval.to_ns - interval.from_ns
    if length_ns > 0:
        for number, overlap_ns in overlaps(
            (interval.from_ns, interval.to_ns), grid.from_ns, grid.width_ns
        ):
            if 0 <= number < count:
                yield number, overlap_ns / length_ns


def _add_starved(made: Sequence[Tick], own: Iterable[Interval], grid: Grid) -> None:
    """Raises the time without a processor of each tick to that of an agent."""
    starved_ns = [0.0] * len(made)
    for interval in own:
        if interval.starved_ns:
            for number, share in _shares(interval, grid, len(made)):
                starved_ns[number] += share * interval.starved_ns
    for tick, time_ns in zip(made, starved_ns, strict=True):
        tick.starved_ns = max(tick.starved_ns, time_ns)


def _add_counts(made: Sequence[Tick], interval: Interval, grid: Grid) -> None:
    """Adds an interval's counts to the ticks that it overlaps, to each its share."""
    for number, share in _shares(interval, grid, len(made)):
        tick = made[number]
        for index, population in enumerate(interval.populations):
            if index in grid.publishers:
                tick.sent += share * population.sent
                tick.acked += share * population.acked
            if index in grid.receivers:
                tick.received += share * population.received
                tick.missing += share * population.missing
            tick.latency_count += share * population.latency_count
            tick.latency_sum_ns += share * population.latency_sum_ns


def _add_queue(made: Sequence[Tick], own: Sequence[Interval], grid: Grid) -> None:
    """Adds an agent's waiting messages at the end of each tick, without messages that came to wait
    after the last one: a fault may have begun there."""
    place = 0
    waiting = unsent = 0
    for tick in made:
        until_ns = min(tick.to_ns + grid.width_ns // 2, grid.to_ns)
        while place < len(own) and own[place].to_ns <= until_ns:
            populations = own[place].populations
            waiting = sum(_waiting(populations[index]) for index in grid.publishers)
            unsent = sum(populations[index].backlog for index in grid.publishers)
            place += 1
        tick.queue += waiting
        tick.unsent += unsent


def _waiting(population: PopulationInterval) -> int:
    return population.in_flight + population.backlog
