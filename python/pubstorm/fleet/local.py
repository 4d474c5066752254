"""Agents as processes of this machine. It starts the engine with pipes and a log file, and knows
what a process is; it knows nothing of what its lines say."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path

from pubstorm.children import signal_child
from pubstorm.errors import FleetError
from pubstorm.log_tail import last_lines, open_log
from pubstorm.shortage import CANNOT_START, start_failure

LINE_BYTES_MAX = 64 << 20
"""Longest line that is taken from an agent."""


class LocalSlot:
    """One engine process. It gets a session of its own: a Ctrl-C at the terminal reaches Pubstorm
    only, which then drains the engines. They exit by themselves when Pubstorm is gone."""

    def __init__(self, engine: Path, agent: int, agents: int, log: Path) -> None:
        self.engine = engine
        self._shard = f"{agent}/{agents}"
        self._agent = agent
        self._log = log
        self._process: Process | None = None

    @property
    def name(self) -> str:
        """The agent by number and process id."""
        pid = f" (pid {self._process.pid})" if self._process else ""
        return f"agent {self._agent}{pid}"

    async def spawn(self) -> None:
        """Starts the engine."""
        with open_log(self._log) as log:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    self.engine,
                    "--shard",
                    self._shard,
                    stdin=PIPE,
                    stdout=PIPE,
                    stderr=log or DEVNULL,
                    limit=LINE_BYTES_MAX,
                    start_new_session=True,
                )
            except CANNOT_START as error:
                raise FleetError(*start_failure(str(self.engine), error)) from error

    async def send(self, line: str) -> None:
        """Writes a line to the engine's stdin."""
        stdin = self._running.stdin
        assert stdin is not None, "the engine is started with a pipe as stdin"
        with contextlib.suppress(ConnectionError):
            stdin.write(line.encode())
            await stdin.drain()

    async def line(self) -> bytes:
        """The next line of the engine's stdout."""
        stdout = self._running.stdout
        assert stdout is not None, "the engine is started with a pipe as stdout"
        return await stdout.readline()

    async def wait(self) -> int:
        """The engine's exit code."""
        return await self._running.wait()

    def kill(self) -> None:
        """Kills the engine by its process id."""
        if self._process is not None:
            signal_child(self._process, signal.SIGKILL)

    def last_words(self) -> str:
        """The last lines of the engine's log."""
        return last_lines(self._log)

    @property
    def _running(self) -> Process:
        assert self._process is not None, "spawn comes first"
        return self._process
