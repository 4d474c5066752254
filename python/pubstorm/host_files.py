"""Files of this host that a run is going to use, looked at before anything starts: programs of
brokers, keys and certificates."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from pubstorm.errors import Problem, ScenarioError
from pubstorm.keys.check import key_problems
from pubstorm.plan import Plan
from pubstorm.scenario import Scenario


def check_host_files(scenario: Scenario, plan: Plan) -> None:
    """Raises ScenarioError with everything that is wrong."""
    problems = [*_program_problems(scenario), *key_problems(plan)]
    if problems:
        raise ScenarioError(problems)


def _program_problems(scenario: Scenario) -> Iterator[Problem]:
    for name, broker in scenario.topology.brokers.items():
        path = broker.binary
        if path is not None and not (Path(path).is_file() and os.access(path, os.X_OK)):
            place = f"topology.brokers.{name}.binary"
            hint = "a relative path is from the folder of the scenario file"
            yield Problem(place, "", f"found {path}, allowed is a file that can be executed", hint)
        program = broker.command[0] if broker.command else None
        if program is not None and "{" not in program and shutil.which(program) is None:
            place = f"topology.brokers.{name}.command.0"
            yield Problem(place, "", f"found {program}, allowed is a program of this host", None)
