"""The steps of a series as lines over a horizontal axis: where each step stands, and in which line.
A grid of several variables has its first one on the axis and a line for each value of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pubstorm.result import SeriesStep


@dataclass(frozen=True)
class Grid:
    """The axis and the lines of a series."""

    path: str | None
    """The variable on the axis; None: its steps by their labels."""
    others: tuple[str, ...] = ()
    """Variables that have a line for each of their values."""

    @property
    def title(self) -> str:
        """Name of the axis."""
        return "step" if self.path is None else _name(self.path)

    def at(self, step: SeriesStep) -> str:
        """The place of a step on the axis."""
        return (step.base or step.label) if self.path is None else step.values[self.path]

    def group(self, step: SeriesStep) -> str:
        """The line that a step belongs to; empty if there is one line."""
        values = (f"{_name(path)} {step.values[path]}" for path in self.others)
        return ", ".join((*values, *([step.variant] if step.variant else ())))


def grid_of(steps: Sequence[SeriesStep]) -> Grid:
    """The grid of a series: of several variables, if every value of the first one is played with
    every combination of the others. Otherwise the steps stand side by side."""
    paths = [path for path in _shared_paths(steps) if len({s.values[path] for s in steps}) > 1]
    if len(paths) < 2:
        return Grid(None)
    first, *others = paths
    rows = {step.values[first] for step in steps}
    lines = {tuple(step.values[path] for path in others) for step in steps}
    played = {tuple(step.values[path] for path in paths) for step in steps}
    if len(lines) < 2 or len(played) != len(rows) * len(lines):
        return Grid(None)
    return Grid(first, tuple(others))


def _shared_paths(steps: Sequence[SeriesStep]) -> list[str]:
    """Paths that every step gives a value, without those that variants differ in."""
    variants = {step.variant for step in steps}
    of_variant = [s for s in steps if s.variant == next(iter(variants), None)]
    return [
        path
        for path in (of_variant[0].values if of_variant else ())
        if all(path in step.values for step in steps)
        and len({s.values[path] for s in of_variant}) > 1
    ]


def _name(path: str) -> str:
    """The last word of a path that is no number: `clients`, `qos`."""
    words = [word for word in path.split(".") if not word.isdigit()]
    return words[-1] if words else path
