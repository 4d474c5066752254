"""Eclipse Mosquitto as a child process: its configuration, a free port, and the parent-death signal
that it does not ask for itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import socket
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from pathlib import Path

from pubstorm.errors import TopologyError
from pubstorm.shortage import CANNOT_START
from pubstorm.topology.process import LOOPBACK, READY_TIMEOUT_S, BrokerProcess

PORT_TRIES = 5
"""Ports tried: another process may take one between its choice and its use."""

NO_SETPRIV = "setpriv (util-linux) is missing: this broker outlives a Pubstorm that is killed.\n"


class MosquittoBroker(BrokerProcess):
    """`mosquitto` as a child process."""

    kind = "mosquitto"
    host = LOOPBACK

    def __init__(
        self,
        name: str,
        settings: Mapping[str, object],
        folder: Path,
        *,
        binary: str | None = None,
        has_tls: bool = False,
    ) -> None:
        super().__init__(name, folder)
        self._binary = binary
        self._has_tls = has_tls
        self.port = 0
        self.observer_port = 0
        self.version = ""
        self._settings = settings

    async def start(self) -> None:
        """Returns when the broker accepts connections."""
        binary = self._binary or find_mosquitto()
        if binary is None:
            raise TopologyError(
                f"broker {self.name}: mosquitto is not installed",
                "apt-get install mosquitto, or use kind: embedded",
                exit_code=2,
            )
        self.make_folder()
        self.version = await mosquitto_version(binary)
        prefix = parent_death_prefix()
        if not prefix:
            self.write("pubstorm.log", NO_SETPRIV)
        for attempt in range(1, PORT_TRIES + 1):
            self.port = self.observer_port = free_port()
            text = configuration(self._settings, self.port, self.folder)
            if self._has_tls:
                self.observer_port = free_port()
                text += lines_of({"listener": f"{self.observer_port} {LOOPBACK}"})
            path = self.write("mosquitto.conf", text)
            await self.spawn((*prefix, binary, "-c", str(path)), talks=False)
            if await self._accepts():
                return
            taken = self.gone() and "Address already in use" in _text_of(self.log)
            if not taken or attempt == PORT_TRIES:
                raise await self.start_failure()

    async def _accepts(self) -> bool:
        """Whether the port answers while the process is alive."""
        deadline_s = asyncio.get_running_loop().time() + READY_TIMEOUT_S
        while not self.gone() and asyncio.get_running_loop().time() < deadline_s:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(self.host, self.port)
                writer.close()
                return not self.gone()
            await asyncio.sleep(0.02)
        return False


def find_mosquitto() -> str | None:
    """The binary; Debian keeps it outside a user's PATH."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


async def mosquitto_version(binary: str) -> str:
    """The version that the binary states; empty if it states none or does not start: the start of
    the broker tells why."""
    try:
        process = await asyncio.create_subprocess_exec(
            binary, "-h", stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL
        )
    except CANNOT_START:
        return ""
    output, _ = await process.communicate()
    found = re.search(r"version (\S+)", output.decode(errors="replace"))
    return found[1] if found else ""


def parent_death_prefix() -> tuple[str, ...]:
    """Puts a command under the kernel's parent-death signal, where util-linux has the tool."""
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", "KILL", "--") if setpriv else ()


def configuration(settings: Mapping[str, object], port: int, folder: Path) -> str:
    """The text of mosquitto.conf: the user's settings win over our defaults."""
    defaults: dict[str, object] = {
        "listener": f"{port} {LOOPBACK}",
        "allow_anonymous": True,
        "persistence": False,
        "persistence_location": f"{folder}/",
        "set_tcp_nodelay": True,
        "log_dest": "stderr",
        "log_type": ["error", "warning", "notice"],
        "sys_interval": 1,
    }
    if os.geteuid() == 0:
        # A change of user would clear the parent-death signal.
        defaults["user"] = "root"
    return lines_of({**defaults, **settings, "listener": defaults["listener"]})


def lines_of(settings: Mapping[str, object]) -> str:
    """Settings as lines of mosquitto.conf, one for each value."""
    lines = [
        f"{key} {_written(item)}"
        for key, value in settings.items()
        for item in (value if isinstance(value, list) else [value])
    ]
    return "\n".join(lines) + "\n"


def free_port() -> int:
    """A port of the loopback address that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
