"""Agents as processes of this machine, and this machine as the site of a fleet. Starts programs
with pipes and a log file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import signal
from asyncio.subprocess import Process
from collections.abc import Sequence
from pathlib import Path

from pubstorm.contract.plan import Plan
from pubstorm.errors import FleetError
from pubstorm.fleet.site import AgentCommand
from pubstorm.host.children import CANNOT_START, close_stdin, signal_session, start_failure
from pubstorm.host.environment import available_bytes
from pubstorm.host.machine import last_lines, start_piped
from pubstorm.host.preflight.needs import AgentHost
from pubstorm.scenario.sizes import allowed_descriptors

LINE_BYTES_MAX = 64 << 20
"""Longest line that is taken from an agent."""
END_TIMEOUT_S = 5.0
"""Longest time for a killed process to end."""


def engine_command(engine: Path, agent: int, engines: int) -> AgentCommand:
    """An agent that plays its share of the clients."""
    words = (str(engine), "--shard", f"{agent}/{engines}")
    return AgentCommand(words, f"agent {agent}", engines)


class LocalSlot:
    """One process. It gets a session of its own: a Ctrl-C at the terminal reaches Pubstorm only,
    which then drains the agents. They exit by themselves when Pubstorm is gone."""

    def __init__(self, command: AgentCommand, log: Path) -> None:
        self.command = command
        self._log = log
        self._process: Process | None = None

    @property
    def name(self) -> str:
        """Its name in messages, with its process id."""
        pid = f" (pid {self._process.pid})" if self._process else ""
        return f"{self.command.title}{pid}"

    @property
    def host(self) -> str:
        """This one."""
        return ""

    @property
    def agents(self) -> int:
        """Number of agents in its hello."""
        return self.command.agents

    def anew(self) -> LocalSlot:
        """Returns a slot for the same command, once this process has ended."""
        return LocalSlot(self.command, self._log)

    async def spawn(self) -> None:
        """Starts the program."""
        words, variables = self.command.words, self.command.environment
        own = self.command.directory
        try:
            self._process = await start_piped(words, self._log, variables, LINE_BYTES_MAX, own)
        except CANNOT_START as error:
            raise FleetError(*start_failure(words[0], error)) from error

    async def send(self, line: str) -> None:
        """Writes a line to its stdin."""
        stdin = self._running.stdin
        assert stdin is not None, "it is started with a pipe as stdin"
        with contextlib.suppress(ConnectionError):
            stdin.write(line.encode())
            await stdin.drain()

    async def line(self) -> bytes:
        """The next line of its stdout."""
        stdout = self._running.stdout
        assert stdout is not None, "it is started with a pipe as stdout"
        return await stdout.readline()

    async def wait(self) -> int:
        """Its exit code."""
        code = await self._running.wait()
        await close_stdin(self._running)
        return code

    def kill(self) -> None:
        """Kills it by its process id, with what it has started in its session."""
        if self._process is not None:
            signal_session(self._process, signal.SIGKILL)

    async def end(self) -> None:
        """Kills it, if it was ever started, and waits until it is gone; FleetError if it stays."""
        if self._process is None:
            return
        self.kill()
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                await self.wait()
        except TimeoutError as error:
            raise FleetError(f"{self.name} was killed and is still there") from error

    def last_words(self) -> str:
        """The last lines of its log."""
        return last_lines(self._log)

    @property
    def _running(self) -> Process:
        assert self._process is not None, "spawn comes first"
        return self._process


class LocalSite:
    """This machine. Another place for a lost agent is another process."""

    def __init__(self, logs: Path) -> None:
        """`logs`: the folder for what agents log."""
        self._logs = logs
        self._slots: list[LocalSlot] = []
        self._started: list[LocalSlot] = []

    def hosts(self, label: str | None) -> Sequence[AgentHost]:  # noqa: ARG002
        """Returns this one."""
        return (
            AgentHost(
                address="",
                machine=platform.machine(),
                cores=len(os.sched_getaffinity(0)),
                descriptors=allowed_descriptors(),
                memory_bytes=available_bytes(),
            ),
        )

    async def open(self) -> None:
        """Does nothing: this host is ready."""

    def localised(self, plan: Plan) -> Plan:
        """The same: paths are those of this host."""
        return plan

    async def place(self, commands: Sequence[AgentCommand]) -> Sequence[LocalSlot]:
        """A slot for each agent."""
        self._slots = [self._slot(command, log_name(command.title)) for command in commands]
        return tuple(self._slots)

    async def place_programs(
        self, commands: Sequence[AgentCommand], addresses: Sequence[str]
    ) -> Sequence[LocalSlot]:
        """Raises FleetError: there is no other host."""
        titles = ", ".join(command.title for command in commands)
        raise FleetError(f"found {titles} for {', '.join(addresses)}, allowed is this host")

    async def replace(self, agent: int) -> LocalSlot:
        """A slot for the agent's next incarnation, once the process of the last one is gone."""
        if agent >= len(self._slots):
            raise FleetError(f"agent {agent} is no engine, and no other program can replace it")
        old = self._slots[agent]
        await old.end()
        command = old.command.again()
        name = log_name(f"{command.title} {command.incarnation}")
        self._slots[agent] = self._slot(command, name)
        return self._slots[agent]

    async def close(self) -> None:
        """Ends what is left."""
        for slot in self._started:
            slot.kill()
        await asyncio.gather(*(slot.end() for slot in self._started), return_exceptions=True)
        self._started.clear()

    def _slot(self, command: AgentCommand, name: str) -> LocalSlot:
        slot = LocalSlot(command, self._logs / name)
        self._started.append(slot)
        return slot


def log_name(title: str) -> str:
    """The log file of an agent that is called so in messages: `agent-0.log`."""
    return title.replace(" ", "-").replace("/", "-") + ".log"
