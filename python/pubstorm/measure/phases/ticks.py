"""The load of a stage tick by tick: what all agents together sent, saw and had waiting in equal
steps of time, from rows that each agent cut by its own clock. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pubstorm.result.timeline import Timeline
from pubstorm.result.timeline.rows import Row

TICKS_MAX = 100_000
"""Ticks of a span: 40 MB. Those of a longer span are longer."""


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
    starved_ns: float = 0.0
    """Time in which an agent had no processor: that of the agent with the longest."""
    expected: float = 0.0
    """Deliveries that follow from the messages sent in it."""
    expected_unsent: float = 0.0
    """Deliveries that would follow from those that are due and unsent at its end."""


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
    fan_out: Mapping[int, float] = field(default_factory=dict)
    """Deliveries expected of each message, by population."""


def width_of(from_ns: int, to_ns: int, interval_ns: int) -> int:
    """Returns the length of the ticks of a span: an interval, or as many as it takes."""
    return interval_ns * max(-(-(to_ns - from_ns) // (interval_ns * TICKS_MAX)), 1)


def ticks(timeline: Timeline, stage: int, grid: Grid) -> list[Tick]:
    """The ticks of a stage that every agent's rows cover."""
    starts = range(grid.from_ns, grid.to_ns - grid.width_ns + 1, grid.width_ns)
    made = [Tick(start, start + grid.width_ns) for start in starts]
    ends: list[int] = []
    for agent in timeline.agents:
        last = timeline.last(agent, stage)
        if last is not None:
            ends.append(last.to_ns)
            before = timeline.last(agent, stage, grid.from_ns)
            waiting = _Waiting() if before is None else _Waiting.of(before, grid)
            rows = timeline.rows_of(agent, stage, grid.from_ns, grid.to_ns)
            _add_agent(made, waiting, rows, grid)
    # Agents cut their intervals at nearly the same instants.
    covered_ns = min(min(ends, default=grid.from_ns) + grid.width_ns // 2, grid.to_ns)
    return made[: max(covered_ns - grid.from_ns, 0) // grid.width_ns]


def _add_agent(made: Sequence[Tick], waiting: _Waiting, rows: Iterable[Row], grid: Grid) -> None:
    """Adds the rows of an agent, in the order of their ends. Messages that came to wait after the
    end of the last tick do not count: a fault may have begun there."""
    starved_ns, place = [0.0] * len(made), 0
    for row in rows:
        while place < len(made) and row.to_ns > _until_ns(made[place], grid):
            waiting.add_to(made[place])
            place += 1
        waiting = _Waiting.of(row, grid)
        for number, share in row.shares(grid.from_ns, grid.width_ns):
            if 0 <= number < len(made):
                _add_counts(made[number], row, share, grid)
                starved_ns[number] += share * row.starved_ns
    for tick in made[place:]:
        waiting.add_to(tick)
    for tick, time_ns in zip(made, starved_ns, strict=True):
        tick.starved_ns = max(tick.starved_ns, time_ns)


def _until_ns(tick: Tick, grid: Grid) -> int:
    return min(tick.to_ns + grid.width_ns // 2, grid.to_ns)


def _add_counts(tick: Tick, row: Row, share: float, grid: Grid) -> None:
    everybody = range(row.populations)
    tick.sent += share * row.count("sent", grid.publishers)
    tick.acked += share * row.count("acked", grid.publishers)
    tick.received += share * row.count("received", grid.receivers)
    tick.missing += share * row.count("missing", grid.receivers)
    tick.latency_count += share * row.count("latency_count", everybody)
    tick.latency_sum_ns += share * row.count("latency_sum_ns", everybody)
    for population, each in grid.fan_out.items():
        tick.expected += each * share * row.count("sent", [population])


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Messages of an agent that wait at an instant."""

    queue: int = 0
    expected_unsent: float = 0.0

    @classmethod
    def of(cls, row: Row, grid: Grid) -> _Waiting:
        """Returns those at the end of a row."""
        unsent = row.gauge("backlog", grid.publishers)
        expected = (each * row.gauge("backlog", [n]) for n, each in grid.fan_out.items())
        return cls(row.gauge("in_flight", grid.publishers) + unsent, sum(expected))

    def add_to(self, tick: Tick) -> None:
        """Adds them to a tick, at whose end they wait."""
        tick.queue += self.queue
        tick.expected_unsent += self.expected_unsent
