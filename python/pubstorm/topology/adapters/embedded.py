"""The broker that comes with Pubstorm. It takes a free port itself, says which, and ends with its
stdin, so that it never outlives a run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import ClassVar

from pubstorm.binaries import broker_path
from pubstorm.topology.broker import BrokerProcess


class EmbeddedBroker(BrokerProcess):
    """`pubstorm-broker` as a child process."""

    kind: ClassVar[str] = "embedded"
    dies_with_us: ClassVar[bool] = True

    def program(self) -> str:
        """The one that is given, or that came with Pubstorm."""
        return self.place.binary or str(broker_path())

    async def version_of(self, program: str) -> str:  # noqa: ARG002
        """It is said with the port."""
        return ""

    def configure(self, program: str) -> Sequence[str]:
        """Everything is an option; port 0 is any free one."""
        port = str(self.place.port or 0)
        return (program, "--port", port, "--follow-stdin", *options(self.place.settings))

    async def ready(self) -> bool:
        """Waits until the broker says that it is ready, and on which port."""
        assert self._process is not None and self._process.stdout is not None, "it is started"
        stdout = self._process.stdout
        try:
            line = await asyncio.wait_for(stdout.readline(), self.ready_timeout_s)
            said = json.loads(line)
            self.port = self.observer_port = int(said["port"])
            self.version = str(said["version"])
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
