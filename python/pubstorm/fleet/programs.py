"""How the agents of a run are started: engines, and for ZeroMQ one program for each publisher and
for each population of real subscribers. It finds programs and makes keys; it starts nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pubstorm.binaries import engine_path, zmq_path
from pubstorm.cast import Cast, Program
from pubstorm.fleet.curve import CurveKeys
from pubstorm.fleet.local import LocalSlot, engine_command, log_name
from pubstorm.fleet.site import AgentCommand
from pubstorm.plan import Plan, target_of
from pubstorm.scenario.command_words import filled


@dataclass(frozen=True)
class UserPrograms:
    """Publishers that are programs of the user."""

    commands: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Program and arguments by population, with `{host}`, `{port}` and `{folder}` in them."""
    prefix: Sequence[str] = ()
    """What stands before each: what ends it when this process is gone."""


def engine_commands(engines: int) -> list[AgentCommand]:
    """How each engine is started. Raises BinaryError where there is none."""
    engine = engine_path()
    return [engine_command(engine, agent, engines) for agent in range(engines)]


def program_slots(plan: Plan, cast: Cast, logs: Path, users: UserPrograms) -> list[LocalSlot]:
    """A slot of this host for each agent that is no engine, in the order of their numbers; logs go
    to this folder. Raises BinaryError where a program is not there."""
    commands = program_commands(plan, cast, logs, users)
    return [LocalSlot(command, logs / log_name(command.title)) for command in commands]


def program_commands(
    plan: Plan, cast: Cast, logs: Path, users: UserPrograms
) -> Iterator[AgentCommand]:
    """How each program is started. Keys are made anew; nobody stores them."""
    keys = CurveKeys(plan)
    for program in cast.programs:
        words = _words(plan, program, logs, users)
        options = ("--agents", str(cast.agents), *program.options)
        kind = "publisher" if program.publishes else "subscribers"
        yield AgentCommand(
            words=(*words, *options),
            title=f"{kind} {program.name}",
            agents=cast.agents,
            environment=keys.environment(program.population),
        )


def _words(plan: Plan, program: Program, logs: Path, users: UserPrograms) -> tuple[str, ...]:
    match plan.populations[program.population].player:
        case "libzmq":
            return (str(zmq_path()),)
        case "pyzmq":
            return (sys.executable, "-m", "pubstorm.zmq_agent")
        case _:
            name = plan.populations[program.population].name
            target = plan.targets[target_of(plan, program.population, program.share)]
            folder = str(logs.absolute())
            values = {"host": target.host, "port": str(target.port), "folder": folder}
            return (*users.prefix, *(filled(word, values) for word in users.commands[name]))
