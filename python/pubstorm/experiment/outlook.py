"""The time that the further runs of a series or a search take, for the display."""

from __future__ import annotations

import time
from collections.abc import Callable

from pubstorm.plan import provisional_plan
from pubstorm.play.display.summary import planned_s
from pubstorm.scenario import Scenario
from pubstorm.scenario.load import smallest


class Outlook:
    """The time of runs to come: their plans, and what runs so far took beyond theirs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._beyond_s: list[float] = []
        self._began_s = 0.0
        self._planned_s = 0.0

    def begin(self, planned_s: float) -> None:
        """A run begins."""
        self._began_s, self._planned_s = self._clock(), planned_s

    def end(self) -> None:
        """The run has ended."""
        self._beyond_s.append(max(self._clock() - self._began_s - self._planned_s, 0.0))

    def of(self, planned_s: float, runs: float) -> float:
        """Returns the seconds of runs that take some seconds together by their plans."""
        mean_s = sum(self._beyond_s) / len(self._beyond_s) if self._beyond_s else 0.0
        return planned_s + runs * mean_s


def run_s(scenario: Scenario) -> float:
    """Returns the seconds of a run by its plan, with the pause of its experiment."""
    plan = provisional_plan(smallest(scenario))
    experiment = scenario.search or scenario.sweep
    pause_ns = 0 if experiment is None else experiment.pause
    return planned_s(plan, plan.stages) + pause_ns / 1e9
