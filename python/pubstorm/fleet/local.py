"""Agents as processes of this machine. It starts a program with pipes and a log file, and knows
what a process is; it knows nothing of what its lines say."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pubstorm.children import close_stdin, signal_session
from pubstorm.errors import FleetError
from pubstorm.log_tail import last_lines, open_log
from pubstorm.shortage import CANNOT_START, start_failure

LINE_BYTES_MAX = 64 << 20
"""Longest line that is taken from an agent."""


@dataclass(frozen=True)
class AgentCommand:
    """How an agent is started."""

    words: tuple[str, ...]
    """Program and arguments."""
    title: str
    """What it is called in messages."""
    agents: int
    """Of how many agents its hello tells."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables of its own, beside those of this process; they may be secrets."""


def engine_command(engine: Path, agent: int, engines: int) -> AgentCommand:
    """An engine that plays its share of the clients."""
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
        """What it is called, and its process id."""
        pid = f" (pid {self._process.pid})" if self._process else ""
        return f"{self.command.title}{pid}"

    @property
    def agents(self) -> int:
        """Of how many agents its hello tells."""
        return self.command.agents

    async def spawn(self) -> None:
        """Starts the program."""
        with open_log(self._log) as log:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *self.command.words,
                    stdin=PIPE,
                    stdout=PIPE,
                    stderr=log or DEVNULL,
                    limit=LINE_BYTES_MAX,
                    start_new_session=True,
                    env={**os.environ, **self.command.environment},
                )
            except CANNOT_START as error:
                raise FleetError(*start_failure(self.command.words[0], error)) from error

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

    def last_words(self) -> str:
        """The last lines of its log."""
        return last_lines(self._log)

    @property
    def _running(self) -> Process:
        assert self._process is not None, "spawn comes first"
        return self._process
