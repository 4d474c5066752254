"""A change of a population as it was applied while a publish stage went on. It knows neither who
asked for it nor what came of it."""

from __future__ import annotations

from dataclasses import dataclass

from pubstorm.plan import ChangeAction


@dataclass(frozen=True, slots=True)
class AppliedChange:
    """A change that the agents made; a phase begins with it."""

    stage: int
    """Index of the stage."""
    at_ns: int
    """When it began, in nanoseconds on the monotonic clock."""
    name: str
    """Name of the phase."""
    population: int
    """Index of the population."""
    action: ChangeAction
    """What changed."""
