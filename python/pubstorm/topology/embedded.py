"""The broker that comes with Pubstorm. It takes a free port itself, says which, and ends with its
stdin, so that it never outlives a run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

from pubstorm.topology.process import LOOPBACK, READY_TIMEOUT_S, BrokerProcess


class EmbeddedBroker(BrokerProcess):
    """`pubstorm-broker` as a child process."""

    kind = "embedded"
    host = LOOPBACK

    def __init__(
        self, name: str, settings: Mapping[str, object], folder: Path, binary: Path
    ) -> None:
        super().__init__(name, folder)
        self.port = self.observer_port = 0
        self.version = ""
        self._command = (str(binary), "--port", "0", "--follow-stdin", *options(settings))

    async def start(self) -> None:
        """Returns when the broker says that it is ready."""
        self.make_folder()
        process = await self.spawn(self._command, talks=True)
        assert process.stdout is not None, "the broker is started with a pipe as stdout"
        try:
            line = await asyncio.wait_for(process.stdout.readline(), READY_TIMEOUT_S)
            ready = json.loads(line)
            self.port = self.observer_port = int(ready["port"])
            self.version = str(ready["version"])
        except (TimeoutError, ValueError, KeyError, TypeError):
            if process.stdout.at_eof():
                await process.wait()
            raise await self.start_failure() from None


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
