"""Values over time in bounded memory: with the length of the run the steps get wider, not more."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Literal

STEPS_MAX = 900
"""Steps of a line at most: 15 minutes have steps of 1 s, an hour of 4 s."""
DIGITS = 5
"""Significant digits of a value."""

Mode = Literal["sum", "max"]
"""`sum` adds the sources of one instant up and takes the mean over time. `max` takes the largest
value of all."""


@dataclass
class LiveLine:
    """One line of a chart."""

    mode: Mode
    sums: dict[int, float] = field(default_factory=dict)
    """Sum or largest value of each step."""
    instants: dict[int, int] = field(default_factory=dict)
    """Instants with a value in each step."""
    changed: set[int] = field(default_factory=set)
    """Steps that changed since the last look."""
    latest_s: float = -1.0
    """Latest instant with a value."""

    def add(self, step: int, at_s: float, value: float) -> None:
        """Adds a value."""
        if self.mode == "max":
            self.sums[step] = max(self.sums.get(step, value), value)
        else:
            self.sums[step] = self.sums.get(step, 0.0) + value
            is_new = at_s != self.latest_s or step not in self.instants
            self.instants[step] = self.instants.get(step, 0) + is_new
        self.latest_s = at_s
        self.changed.add(step)

    def value(self, step: int) -> float:
        """The value of a step."""
        value = self.sums[step] / self.instants.get(step, 1)
        return float(f"{value:.{DIGITS}g}")

    def widen(self) -> None:
        """Joins each two steps."""
        sums, instants = self.sums, self.instants
        self.sums, self.instants, self.changed = {}, {}, set()
        for step, value in sums.items():
            before = self.sums.get(step // 2)
            if self.mode == "max":
                self.sums[step // 2] = value if before is None else max(before, value)
            else:
                self.sums[step // 2] = value + (before or 0.0)
        for step, count in instants.items():
            self.instants[step // 2] = self.instants.get(step // 2, 0) + count


class LiveHistory:
    """All lines of a run, in steps of one width."""

    def __init__(self, steps_max: int = STEPS_MAX) -> None:
        self.width_s = 1.0
        """Width of a step; step 0 begins at the start of the run."""
        self.lines: dict[Hashable, LiveLine] = {}
        self._steps_max = steps_max

    def add(self, key: Hashable, mode: Mode, at_s: float, value: float) -> None:
        """Adds a value of the line `key`, in the order of time."""
        # An interval that ends at 3 s belongs to the step that ends there.
        while (step := max(int((at_s - 1e-6) // self.width_s), 0)) >= self._steps_max:
            self.width_s *= 2
            for line in self.lines.values():
                line.widen()
        line = self.lines.get(key) or self.lines.setdefault(key, LiveLine(mode))
        line.add(step, at_s, value)

    def whole(self) -> dict[Hashable, list[float]]:
        """Every line as step and value in turn, in the order of time."""
        return {key: _flat(line, line.sums) for key, line in self.lines.items()}

    def changes(self) -> dict[Hashable, list[float]]:
        """Lines with the steps that changed since the last call."""
        found = {k: _flat(line, line.changed) for k, line in self.lines.items() if line.changed}
        for line in self.lines.values():
            line.changed.clear()
        return found


def _flat(line: LiveLine, steps: set[int] | dict[int, float]) -> list[float]:
    return [part for step in sorted(steps) for part in (step, line.value(step))]
