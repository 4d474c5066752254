"""Files of this host that a run is going to use, looked at before anything starts: programs of
brokers, keys, certificates, rows and rate profiles."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pubstorm.contract.plan import Plan
from pubstorm.contract.template import Template
from pubstorm.errors import ScenarioError, ScenarioProblem
from pubstorm.host.keys.check import key_problems, tls_problems
from pubstorm.plan import planned_tls
from pubstorm.scenario import Scenario
from pubstorm.scenario.checks import check_files
from pubstorm.scenario.topology import Command, InstalledBroker


def check_host_files(scenario: Scenario, plan: Plan) -> None:
    """Raises ScenarioError with everything that is wrong."""
    problems = [*_file_problems(scenario)]
    if not problems:
        problems = [*_program_problems(scenario), *key_problems(plan), *_bridge_problems(scenario)]
    if problems:
        raise ScenarioError(problems)


def _file_problems(scenario: Scenario) -> Iterator[ScenarioProblem]:
    """Files have been looked at with the scenario; a series may come to them hours later."""
    for path, message, hint in check_files(scenario):
        yield ScenarioProblem(".".join(map(str, path)), "", message, hint)


def _program_problems(scenario: Scenario) -> Iterator[ScenarioProblem]:
    topology = scenario.topology
    binaries = {f"services.{name}": service.binary for name, service in topology.services.items()}
    brokers = topology.brokers.items()
    installed = {n: b for n, b in brokers if isinstance(b, InstalledBroker)}
    binaries |= {f"brokers.{name}": broker.binary for name, broker in installed.items()}
    for name, path in binaries.items():
        if path is not None and not (Path(path).is_file() and os.access(path, os.X_OK)):
            place = f"topology.{name}.binary"
            hint = "a relative path is from the folder of the scenario file"
            yield ScenarioProblem(
                place, "", f"found {path}, allowed is a file that can be executed", hint
            )
    commands = {f"topology.brokers.{n}": b.command for n, b in brokers if isinstance(b, Command)}
    for name, population in scenario.publishers.items():
        commands[f"populations.{name}.publisher"] = population.publisher.command
    for name, command in commands.items():
        program = command[0] if command else None
        if program is not None and "{" not in program and shutil.which(program) is None:
            place = f"{name}.command.0"
            yield ScenarioProblem(
                place, "", f"found {program}, allowed is a program of this host", None
            )


def _bridge_problems(scenario: Scenario) -> Iterator[ScenarioProblem]:
    """Keys of bridges to a target that the run does not start."""
    for name, bridge in scenario.topology.bridges.items():
        if bridge.to != "target" or bridge.tls is None:
            continue
        tls = planned_tls(bridge.tls, bridge.client_id or f"{name}-{{n}}")
        count = scenario.topology.brokers[bridge.from_].count
        names = partial(_numbered, count=count)
        yield from tls_problems(f"topology.bridges.{name}.tls", names, tls)


def _numbered(template: str, count: int) -> list[str]:
    compiled = Template.parse(template)
    return [compiled.text(number) for number in range(count)]
