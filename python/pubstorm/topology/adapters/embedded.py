"""The broker that comes with Pubstorm. It takes free ports itself, says which, and ends with its
stdin, so that it never outlives a run. What is secret it is told in variables, which nobody sees in
the list of processes and no file keeps."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import ClassVar

from pubstorm.binaries import broker_path
from pubstorm.topology.broker import BrokerProcess, Place

AUTH, TRUSTED = "PUBSTORM_BROKER_AUTH", "PUBSTORM_BROKER_TRUSTED"
"""The Redis that knows who may log in; one more user, who may do everything."""


class EmbeddedBroker(BrokerProcess):
    """`pubstorm-broker` as a child process."""

    kind: ClassVar[str] = "embedded"
    dies_with_us: ClassVar[bool] = True

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._metrics_port = 0

    def program(self) -> str:
        """The one that is given, or that came with Pubstorm."""
        return self.place.binary or str(broker_path())

    async def version_of(self, program: str) -> str:  # noqa: ARG002
        """It is said with the port."""
        return ""

    def configure(self, program: str) -> Sequence[str]:
        """Everything else is an option; port 0 is any free one."""
        ports = ("--port", str(self.port), "--metrics-port", str(self._metrics_port))
        return (program, *ports, "--follow-stdin", *options(self.place.settings))

    def environment(self) -> Mapping[str, str]:
        """Both variables, so that those of the user's own shell say nothing here."""
        trusted = self.place.trusted
        user = f"{trusted.username}:{trusted.password}" if trusted else ""
        return {AUTH: self.place.auth or "", TRUSTED: user}

    @property
    def metrics_url(self) -> str | None:
        """What it counts; None before the start."""
        port = self._metrics_port
        return f"http://{self.host}:{port}/metrics" if port else None

    async def ready(self) -> bool:
        """Waits until the broker says that it is ready, and on which ports."""
        assert self._process is not None and self._process.stdout is not None, "it is started"
        stdout = self._process.stdout
        try:
            line = await asyncio.wait_for(stdout.readline(), self.ready_timeout_s)
            said = json.loads(line)
            self.port = self.observer_port = int(said["port"])
            self.version = str(said["version"])
            self._metrics_port = int(said.get("metrics_port", 0))
            # When it is started again, it is on the same ports.
            self._command = (*self.place.prefix, *self.configure(self.program()))
        except (TimeoutError, ValueError, KeyError, TypeError):
            if stdout.at_eof():
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
