"""Faults by command: lines that a shell of this host runs to break brokers that the run did not
start, and to repair them. Each line has a time limit and a log in the run directory."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
from asyncio.subprocess import DEVNULL, STDOUT, Process
from pathlib import Path

from pubstorm.errors import without_credentials
from pubstorm.host.children import parent_death_prefix, signal_session
from pubstorm.host.log_tail import last_lines, open_log
from pubstorm.plan.faults import Commands, PlannedFault
from pubstorm.quantities import SECOND_NS, write_duration
from pubstorm.scenario.faults import tcp_address

SHELL = "/bin/sh"
PROBE_S = 0.1
"""Longest wait between two looks whether a fault is repaired."""
ATTEMPT_S = 1.0
"""Longest time for one connection."""
SHOWN = 80
"""Characters of a line that messages show."""
Problems = tuple[str, ...]
"""Failures, in words."""


class CommandFaults:
    """Begins faults by command, and repairs them."""

    def __init__(self, folder: Path, logs: Path) -> None:
        """`folder`: where commands run; `logs`: where their output is kept."""
        self._folder = folder
        self._logs = logs

    async def begin(self, fault: PlannedFault) -> Problems:
        """Runs the command; done when it has ended."""
        return await self._run(fault, _of(fault).begin)

    async def undo(self, fault: PlannedFault) -> Problems:
        """Runs the command that undoes it, if there is one."""
        line = _of(fault).repair
        return () if line is None else await self._run(fault, line)

    async def repair(self, fault: PlannedFault) -> Problems:
        """Undoes it, and waits until its end shows."""
        condition = _of(fault).repaired_when
        problems = await self.undo(fault)
        if problems or condition is None:
            return problems
        return await self._wait(fault, condition)

    async def _wait(self, fault: PlannedFault, condition: str) -> Problems:
        """Waits until an address accepts a connection or a command exits with 0."""
        address = tcp_address(condition)
        limit_ns = _of(fault).timeout_ns
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_ns / SECOND_NS):
                if address is not None:
                    while not await _accepts(*address):
                        await asyncio.sleep(PROBE_S)
                else:
                    while await self._run(fault, condition):
                        await asyncio.sleep(PROBE_S)
            return ()
        within = f"within {write_duration(limit_ns)}"
        if address is not None:
            return (f"{address[0]} port {address[1]} accepted no connection {within}",)
        log = self._log(fault).name
        return (f"{_shown(condition)} did not exit with 0 {within}; see logs/{log}",)

    async def _run(self, fault: PlannedFault, line: str) -> Problems:
        """Runs a line once. Returns why it failed."""
        limit_ns, log = _of(fault).timeout_ns, self._log(fault)
        try:
            async with asyncio.timeout(limit_ns / SECOND_NS):
                code = await self._exit_code(fault, line)
        except TimeoutError:
            text = f"{_shown(line)} did not end within {write_duration(limit_ns)} and was killed"
            return (f"{text}; see logs/{log.name}",)
        except OSError as error:
            return (f"{_shown(line)} cannot be run: {error.strerror}",)
        if not code:
            return ()
        ended = f"ended with exit code {code}" if code > 0 else f"was ended by signal {-code}"
        said = last_lines(log, 1)
        words = "" if said.startswith("$ ") else f": {_shown(said)}"
        return (f"{_shown(line)} {ended}{words}; see logs/{log.name}",)

    async def _exit_code(self, fault: PlannedFault, line: str) -> int:
        """Runs a line in a session of its own, and kills the session if the wait is cancelled."""
        with open_log(self._log(fault)) as log:
            if log is not None:
                log.write(f"$ {without_credentials(line)}\n".encode())
                log.flush()
            process = await asyncio.create_subprocess_exec(
                *parent_death_prefix(),
                SHELL,
                "-c",
                line,
                cwd=self._folder if self._folder.is_dir() else None,
                stdin=DEVNULL,
                stdout=DEVNULL if log is None else log,
                stderr=STDOUT,
                start_new_session=True,
            )
        try:
            return await process.wait()
        except asyncio.CancelledError:
            await _end(process)
            raise

    def _log(self, fault: PlannedFault) -> Path:
        return self._logs / f"fault-{re.sub(r'[^A-Za-z0-9_-]+', '-', fault.name)[:60]}.log"


async def _end(process: Process) -> None:
    signal_session(process, signal.SIGKILL)
    await process.wait()


async def _accepts(host: str, port: int) -> bool:
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(ATTEMPT_S):
            _, writer = await asyncio.open_connection(host, port)
        writer.close()
        return True
    return False


def _of(fault: PlannedFault) -> Commands:
    assert fault.commands is not None, "a fault by command has commands"
    return fault.commands


def _shown(text: str) -> str:
    line = " ".join(without_credentials(text).split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"
