"""Memory by connections over the steps of a series: one line through what each step needed while
its load was steady. Pure arithmetic on stored results."""

from __future__ import annotations

from collections.abc import Iterable

from pubstorm.result import MemoryModel, MemoryPoint, Result, SeriesStep
from pubstorm.summary.memory import fitted

STEPS_MIN = 3
"""Steps with different numbers of connections from which a line is fitted."""


def steady_memory(result: Result) -> dict[str, MemoryPoint]:
    """What each part of a step needed while its load was steady."""
    return {model.subject: model.steady for model in result.memory if model.steady is not None}


def memory_of_steps(steps: Iterable[SeriesStep]) -> tuple[MemoryModel, ...]:
    """The lines through the steps of whatever has one."""
    points: dict[str, list[MemoryPoint]] = {}
    for step in steps:
        for subject, point in step.memory.items():
            points.setdefault(subject, []).append(point)
    models = (fitted(subject, each, points_min=STEPS_MIN) for subject, each in points.items())
    return tuple(model for model in models if model.problem is None)
