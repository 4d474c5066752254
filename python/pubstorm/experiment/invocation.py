"""The command line of a run: scenario, overrides and target. It gives the command line that plays
the run, or a part of the run, again."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pubstorm.errors import REDACTED, StoredRunError
from pubstorm.play.directory import stored_scenario
from pubstorm.scenario import Scenario, load_scenario, parse_scenario
from pubstorm.scenario.document import redacted_override
from pubstorm.scenario.load import STDIN, find_scenario, read_standard_input, unchanged


@dataclass(frozen=True, slots=True)
class Invocation:
    """A scenario as a user asks for it."""

    scenario: str
    """A file, the name of a ready scenario, or `-` for stdin."""
    overrides: tuple[str, ...] = ()
    """`PATH=VALUE` each."""
    target: str | None = None
    """Targets in place of the scenario's, separated by spaces."""
    reports: bool = True
    """True if Pubstorm renders reports of the results."""

    @property
    def stored_overrides(self) -> tuple[str, ...]:
        """The overrides, without secrets."""
        return tuple(map(redacted_override, self.overrides))

    @property
    def file(self) -> str:
        """Name of the scenario in messages."""
        return STDIN if self.scenario == "-" else self.scenario

    def load(self) -> Scenario:
        """The scenario; raises PubstormError. Stdin can be read once."""
        if self.scenario == "-":
            return read_standard_input(self.overrides, self.target)
        return load_scenario(find_scenario(self.scenario), self.overrides, self.target)

    def command(self) -> str:
        """The command line, for a shell, without secrets."""
        return self._command(self.overrides)

    def step_command(self, alone: str, changes: Iterable[str]) -> str:
        """The command line that plays one step of its sweep: with the override `alone` instead of
        those of the sweep, and the step's own."""
        kept = (o for o in self.overrides if o.partition("=")[0].split(".")[0] != "sweep")
        return self._command((*kept, alone, *changes))

    def _command(self, overrides: Iterable[str]) -> str:
        words = ["pubstorm", "run", self.scenario]
        words += [word for each in (self.target or "").split() for word in ("--target", each)]
        shown = map(redacted_override, overrides)
        words += [word for override in shown for word in ("--set", override)]
        return shlex.join(words)


def again(asked: Invocation, path: Path) -> Scenario:
    """The scenario that was stored at a path. Secrets that were left out there come from the file
    that it was read from; raises StoredRunError if they cannot."""
    text = stored_scenario(path)
    lost = next((each for each in asked.overrides if each.endswith(f"={REDACTED}")), None)
    if lost is not None:
        key = lost.partition("=")[0]
        hint = f"start anew with --set '{key}=${{env:NAME}}', which is stored as it stands"
        raise StoredRunError(f"the secret given by --set {key} was not stored", hint)
    if f'"{REDACTED}"' in text:
        text = _with_secrets(asked, text, path)
    return parse_scenario(text, asked.file, asked.overrides, asked.target)


def _with_secrets(asked: Invocation, stored: str, path: Path) -> str:
    if (text := unchanged(asked.scenario, stored)) is not None:
        return text
    raise StoredRunError(
        f"{path} has no secrets, and {asked.scenario} is not the file that it was read from",
        "put that file back as it was, or write ${env:NAME} for secrets and start anew",
    )
