"""The broker that comes with Pubstorm. It takes free ports itself, says which, and ends with its
stdin, so that it never outlives a run. It receives secrets in environment variables, which neither
the list of processes nor a file shows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import ClassVar

from pubstorm.host.binaries import broker_path
from pubstorm.host.preflight.need import Appetite
from pubstorm.host.sockets import LOOPBACK
from pubstorm.topology.broker import BrokerProcess, Place

AUTH, TRUSTED = "PUBSTORM_BROKER_AUTH", "PUBSTORM_BROKER_TRUSTED"
"""The Redis that knows who may log in; one more user, who may do everything."""


class EmbeddedBroker(BrokerProcess):
    """`pubstorm-broker` as a child process."""

    kind: ClassVar[str] = "embedded"
    appetite: ClassVar[Appetite] = Appetite(
        4 * 2**20, 4, threads_per_core=1, pipes=2, client_bytes=20_000
    )
    """10 000 clients, half of them with a subscription, take 18 kB each."""
    dies_with_us: ClassVar[bool] = True

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._metrics_port = 0

    async def program(self) -> str:
        """The one that is given, or that came with Pubstorm."""
        return self.place.binary or str(broker_path())

    async def configure(self, program: str) -> Sequence[str]:
        """Everything else is an option; port 0 is any free one."""
        ports: tuple[str, ...] = ("--port", str(self.port))
        ports += ("--metrics-port", str(self._metrics_port))
        if self.place.serves_websocket:
            ports += ("--websocket-port", str(self.websocket_port))
        if self.place.serves_quic:
            ports += ("--quic-port", str(self.quic_port))
        listen = () if self.host == LOOPBACK else ("--listen", self.host)
        own = options(self.place.settings)
        return (program, *ports, *listen, "--follow-stdin", *own)

    def environment(self) -> Mapping[str, str]:
        """Both variables, so that those of the user's own shell say nothing here."""
        trusted = self.place.trusted
        user = f"{trusted.username}:{trusted.password}" if trusted else ""
        return {AUTH: self.place.auth or "", TRUSTED: user}

    @property
    def metrics_url(self) -> str | None:
        """Address of its counters; None before the start."""
        port = self._metrics_port
        return f"http://{self.host}:{port}/metrics" if port else None

    async def ready(self) -> bool:
        """Waits until the broker says that it is ready, and on which ports."""
        assert self._process is not None, "it is started"
        try:
            async with asyncio.timeout(self.ready_timeout_s):
                line = await self._process.line()
            said = json.loads(line)
            self.port = self.observer_port = int(said["port"])
            self.version = str(said["version"])
            self._metrics_port = int(said.get("metrics_port", 0))
            self.websocket_port = int(said.get("websocket_port", 0))
            self.quic_port = int(said.get("quic_port", 0))
            # A restarted broker has the same ports.
            self._command = (*self.prefix, *await self.configure(await self.program()))
        except TimeoutError:
            return False
        except (ValueError, KeyError, TypeError):
            if not line:
                await self._process.wait()
            return False
        return True


def options(settings: Mapping[str, object]) -> list[str]:
    """Settings as long options; true is an option without a value, false leaves it out."""
    options: list[str] = []
    for key, value in settings.items():
        option = f"--{key.replace('_', '-')}"
        if value is True:
            options.append(option)
        elif value is not False:
            options += [option, str(value)]
    return options
