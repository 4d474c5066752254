"""Holds what surrounds the stages of one run: the plan, the agents, the recorder, the display."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property

from pubstorm.contract.changes import ActiveClients
from pubstorm.contract.plan import Plan
from pubstorm.fleet import Fleet
from pubstorm.fleet.assignment import Assignment
from pubstorm.measure.recorder import Recorder
from pubstorm.play.barriers import Clock
from pubstorm.play.display import Live
from pubstorm.play.progress import Progress


@dataclass(frozen=True)
class RunContext:
    """Everything around the stages of one run."""

    plan: Plan
    fleet: Fleet
    recorder: Recorder
    live: Live
    clock: Clock = time.monotonic_ns

    @cached_property
    def progress(self) -> Progress:
        """The state of the run, for barriers."""
        return Progress(self.plan, self.assignment, self.recorder.sums, self.clock)

    @cached_property
    def active(self) -> ActiveClients:
        """Clients that should be connected now."""
        return ActiveClients(self.plan)

    @cached_property
    def assignment(self) -> Assignment:
        """The agents, and what each plays."""
        return Assignment.among(self.plan, self.fleet.agents)

    @property
    def receivers(self) -> list[int]:
        """Populations that subscribe."""
        return [p for p, each in enumerate(self.plan.populations) if each.subscriptions]

    def note(self, kind: str, text: str, at_ns: int | None = None) -> None:
        """Records and shows that something happened, now unless an instant is given."""
        self.recorder.note(kind, text, self.clock() if at_ns is None else at_ns)
        self.live.note(text)
