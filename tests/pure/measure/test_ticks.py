"""Ticks: intervals of agents, cut into equal steps of time."""

from dataclasses import replace

from pubstorm.measure.phases.ticks import Grid, ticks
from pubstorm.measure.series import Interval, PopulationInterval

MS = 10**6


def interval(from_ms: int, to_ms: int, in_flight: int) -> Interval:
    population = replace(PopulationInterval.nothing(), sent=25, in_flight=in_flight)
    return Interval(0, from_ms, 0, from_ms * MS, to_ms * MS, 0, (population,))


def test_what_waits_after_a_fault_began_is_not_in_the_queue_before_it() -> None:
    """The interval around the fault ends less than half a tick after it."""
    intervals = [interval(0, 250, 1), interval(250, 500, 2), interval(500, 750, 40)]
    grid = Grid(0, 660 * MS, 220 * MS, publishers=[0], receivers=[])
    assert [tick.queue for tick in ticks(intervals, grid)] == [1, 2, 2]
