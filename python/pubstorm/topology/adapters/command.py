"""Any other broker: a command that listens on the port it is told. Nothing else is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pubstorm.scenario.command_words import filled
from pubstorm.topology.broker import BrokerProcess
from pubstorm.topology.ports import free_port


class CommandBroker(BrokerProcess):
    """A program as a child process; it has to stay in the foreground."""

    kind: ClassVar[str] = "command"
    has_helpers: ClassVar[bool] = True

    def program(self) -> str:
        """The first word of the command."""
        return self._words(0)[0]

    async def version_of(self, program: str) -> str:  # noqa: ARG002
        """No program is asked that may not know the question."""
        return ""

    def configure(self, program: str) -> Sequence[str]:  # noqa: ARG002
        """Everything is on the command line."""
        self.port = self.observer_port = self.place.port or free_port()
        return self._words(self.port)

    def _words(self, port: int) -> list[str]:
        values = {"port": str(port), "folder": str(self.folder.absolute())}
        return [filled(word, values) for word in self.place.command]
