"""The commands of a run's agents: engines, and for ZeroMQ one program for each publisher and for
each population of real subscribers."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pubstorm.contract.attachment import target_of
from pubstorm.contract.plan import Plan
from pubstorm.fleet.assignment import AgentProgram, Assignment
from pubstorm.fleet.curve import CurveKeys
from pubstorm.fleet.site import AgentCommand
from pubstorm.host.binaries import zmq_path
from pubstorm.scenario.command_words import filled


@dataclass(frozen=True)
class UserPrograms:
    """Publishers that are programs of the user."""

    commands: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Program and arguments by population, with `{host}`, `{port}` and `{folder}` in them."""
    prefix: Sequence[str] = ()
    """Words before each command, which end the program with this process."""


def program_commands(
    plan: Plan, assignment: Assignment, logs: Path, users: UserPrograms
) -> Iterator[AgentCommand]:
    """Yields the command of each agent that is no engine, in the order of their numbers. Keys are
    made anew and never stored. Raises BinaryError if a program is missing."""
    keys = CurveKeys(plan)
    for program in assignment.programs:
        words = _words(plan, program, logs, users)
        options = ("--agents", str(assignment.agents), *program.options)
        kind = "publisher" if program.publishes else "subscribers"
        yield AgentCommand(
            words=(*words, *options),
            title=f"{kind} {program.name}",
            agents=assignment.agents,
            environment=keys.environment(program.population),
        )


def _words(plan: Plan, program: AgentProgram, logs: Path, users: UserPrograms) -> tuple[str, ...]:
    match plan.populations[program.population].player:
        case "libzmq":
            return (str(zmq_path()),)
        case "pyzmq":
            return (sys.executable, "-m", "pubstorm.fleet.zmq_agent")
        case _:
            name = plan.populations[program.population].name
            target = plan.targets[target_of(plan, program.population, program.share)]
            folder = str(logs.absolute())
            values = {"host": target.host, "port": str(target.port), "folder": folder}
            return (*users.prefix, *(filled(word, values) for word in users.commands[name]))
