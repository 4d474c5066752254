"""Any other broker: a command that listens on the port of its arguments."""

from __future__ import annotations

import math
import signal
from collections.abc import Sequence
from typing import ClassVar

from pubstorm.host.preflight.need import Appetite
from pubstorm.scenario.fields import WEBSOCKET_PORT, filled
from pubstorm.topology.broker import BrokerProcess

HAND_OVER_S = 1.0
"""Time that a program takes at most to end if it does not get its port."""
FORCED = frozenset({signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT})


class CommandBroker(BrokerProcess):
    """A program as a child process; it has to stay in the foreground."""

    kind: ClassVar[str] = "command"
    appetite: ClassVar[Appetite] = Appetite(32 * 2**20, 8, threads_per_core=1)
    has_helpers: ClassVar[bool] = True

    async def program(self) -> str:
        """The first word of the command."""
        return self._words(0)[0]

    async def configure(self, program: str) -> Sequence[str]:  # noqa: ARG002
        """Everything is on the command line."""
        self.port = self.observer_port = self.place.port or await self.place.machine.free_port()
        await self.open_websocket()
        return self._words(self.port)

    async def spawn(self, command: Sequence[str]) -> None:
        """Starts the program. It may let a service of the host listen on its port, such as the one
        that runs containers; but not if another process answers there already."""
        self.hand_over_s = math.inf if await self.answers(self.port) else HAND_OVER_S
        await super().spawn(command)

    def send(self, number: signal.Signals) -> None:
        """Sends it a signal; those that leave it no choice go to all that it has started too, for
        it may be a script."""
        if number in FORCED and self._process is not None and not self.gone():
            self._process.signal_tree(number)
        else:
            super().send(number)

    def _words(self, port: int) -> list[str]:
        values = {"host": self.host, "port": str(port), "folder": str(self.folder.absolute())}
        values[WEBSOCKET_PORT] = str(self.websocket_port)
        return [filled(word, values) for word in self.place.command]
