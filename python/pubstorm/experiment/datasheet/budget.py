"""The time of a data sheet: the cells that it lets in. Pure arithmetic on seconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pubstorm.quantities import span_text

PACE_MIN, PACE_MAX = 0.5, 3.0
"""Bounds of the factor by which cells take longer than planned."""


@dataclass(slots=True)
class Budget:
    """The time that a sheet was given, and the time that its cells took."""

    for_s: float
    """Time of the sheet, in seconds."""
    kept_s: float = 0.0
    """Time that the last cells need by their plans."""
    spent_s: float = 0.0
    _planned: list[float] = field(default_factory=list)
    _took: list[float] = field(default_factory=list)

    def take(self, planned_s: float, took_s: float) -> None:
        """Notes a cell that was played."""
        self.spent_s += took_s
        self._planned.append(planned_s)
        self._took.append(took_s)

    @property
    def pace(self) -> float:
        """Factor by which cells take longer than planned."""
        planned_s = sum(self._planned)
        if not planned_s:
            return 1.0
        return min(max(sum(self._took) / planned_s, PACE_MIN), PACE_MAX)

    def refusal(self, planned_s: float, *, is_last: bool = False) -> str | None:
        """Returns the reason why a cell does not fit; None if it does. Time is kept for the last
        cells. Those need it as planned: the pace may have risen since it was kept."""
        needed_s = planned_s if is_last else self.pace * planned_s
        kept_s = 0.0 if is_last else self.pace * self.kept_s
        left_s = self.for_s - self.spent_s - kept_s
        if needed_s <= left_s:
            return None
        left = span_text(max(left_s, 0.0))
        return f"not measured in this time: it needs about {span_text(needed_s)}, {left} were left"


def fitting(planned_s: Sequence[float], for_s: float, kept_s: float) -> Iterator[bool]:
    """Yields for each cell in order whether it will fit, if all take the planned time."""
    budget = Budget(for_s, kept_s)
    for each_s in planned_s:
        fits = budget.refusal(each_s) is None
        if fits:
            budget.take(each_s, each_s)
        yield fits
