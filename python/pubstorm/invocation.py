"""What a run was asked for on the command line: scenario, overrides and target; and the command
line that asks for the same or a part of it again. It reads the scenario and plays nothing."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from pubstorm.scenario import Scenario, load_scenario
from pubstorm.shipped import find_scenario


@dataclass(frozen=True, slots=True)
class Invocation:
    """A scenario as a user asks for it."""

    scenario: str
    """A file or the name of a ready scenario."""
    overrides: tuple[str, ...] = ()
    """`PATH=VALUE` each."""
    target: str | None = None
    """What replaces the scenario's target."""
    reports: bool = True
    """Whether files for people and other programs are made of the results."""

    def load(self) -> Scenario:
        """The scenario; raises PubstormError."""
        return load_scenario(find_scenario(self.scenario), self.overrides, self.target)

    def command(self) -> str:
        """The command line, for a shell."""
        return self._command(self.overrides)

    def step_command(self, alone: str, changes: Iterable[str]) -> str:
        """The command line that plays one step of its sweep: with the override `alone` instead of
        those of the sweep, and the step's own."""
        kept = (o for o in self.overrides if o.partition("=")[0].split(".")[0] != "sweep")
        return self._command((*kept, alone, *changes))

    def _command(self, overrides: Iterable[str]) -> str:
        words = ["pubstorm", "run", self.scenario]
        words += [] if self.target is None else ["--target", self.target]
        words += [word for override in overrides for word in ("--set", override)]
        return shlex.join(words)
