"""A broker as a child process: its folder, its log, its end. It knows no kind of broker; the
siblings say how theirs is started and when it is ready."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from pubstorm.errors import TopologyError
from pubstorm.log_tail import last_lines, open_log
from pubstorm.shortage import CANNOT_START, start_failure

STOP_GRACE_S = 5.0
"""How long a broker may take to end after SIGTERM."""
READY_TIMEOUT_S = 15.0
"""How long a broker may take until it accepts connections."""
LOOPBACK = "127.0.0.1"


class Broker(Protocol):
    """A broker that the run starts and stops."""

    kind: str
    name: str
    host: str
    port: int
    observer_port: int
    """Where this machine speaks to it without TLS: `port`, unless that is for TLS only."""
    version: str

    @property
    def pid(self) -> int:
        """Its process id; 0 before the start."""

    async def start(self) -> None:
        """Returns when it accepts connections; raises TopologyError if it does not come up."""

    async def stop(self) -> None:
        """It is gone when this returns."""

    async def ending(self) -> str:
        """Waits for its end and says how it came, naming the broker."""


class BrokerProcess:
    """A child process with a log file in a folder of its own."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.log = folder / "broker.log"
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        """Its process id; 0 before the start."""
        return self._process.pid if self._process else 0

    def make_folder(self) -> None:
        """Makes the broker's folder."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._refused_folder(error) from error

    def write(self, file: str, text: str) -> Path:
        """Writes a file into the broker's folder."""
        path = self.folder / file
        try:
            path.write_text(text)
        except OSError as error:
            raise self._refused_folder(error) from error
        return path

    async def spawn(self, command: Sequence[str], *, talks: bool) -> Process:
        """Starts the process in a session of its own, so that a Ctrl-C at the terminal does not
        reach it; with pipes as stdin and stdout if it talks to us."""
        with open_log(self.log) as log:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=PIPE if talks else DEVNULL,
                    stdout=PIPE if talks else log or DEVNULL,
                    stderr=log or DEVNULL,
                    start_new_session=True,
                )
            except CANNOT_START as error:
                text, hint = start_failure(command[0], error)
                raise TopologyError(f"broker {self.name}: {text}", hint) from error
        return self._process

    async def stop(self) -> None:
        """SIGTERM, then SIGKILL after a grace."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_GRACE_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def ending(self) -> str:
        """Waits for the end of the process and says how it came."""
        if self._process is None:
            return f"broker {self.name} was never started"
        code = await self._process.wait()
        how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
        return f"broker {self.name} (pid {self.pid}) {how}"

    def gone(self) -> bool:
        """Whether the process has ended."""
        return self._process is not None and self._process.returncode is not None

    async def start_failure(self) -> TopologyError:
        """Why it did not come up, with the end of its log."""
        if self.gone():
            text = await self.ending()
        else:
            text = f"broker {self.name} accepted no connection for {READY_TIMEOUT_S:.0f} s"
            await self.stop()
        words = last_lines(self.log)
        return TopologyError(text, f"its log {self.log} ends with:\n{words}" if words else None)

    def _refused_folder(self, error: OSError) -> TopologyError:
        return TopologyError(f"broker {self.name}: cannot write {self.folder}: {error.strerror}")
