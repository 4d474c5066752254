"""Any other broker: a command that listens on the port of its arguments."""

from __future__ import annotations

import math
import os
import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from pubstorm.host.preflight.need import Appetite
from pubstorm.scenario.fields import AMQP1_PORT, WEBSOCKET_PORT, asked_for, filled
from pubstorm.topology.broker import BrokerProcess

HAND_OVER_S = 1.0
"""Time that a program takes at most to end if it does not get its port."""
READY_TIMEOUT_S = 60.0
"""Longest time until any program accepts connections: a JVM starts slowly."""
VERSION = re.compile(r"\d+(?:\.\d+)+\S*")
BROKERS = "PUBSTORM_BROKERS"
"""Variable with the folder of the brokers that scripts/install-brokers installs."""
FORCED = frozenset({signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT})


class CommandBroker(BrokerProcess):
    """A program as a child process; it has to stay in the foreground."""

    kind: ClassVar[str] = "command"
    appetite: ClassVar[Appetite] = Appetite(32 * 2**20, 8, threads_per_core=1)
    has_helpers: ClassVar[bool] = True
    ready_timeout_s = READY_TIMEOUT_S

    async def program(self) -> str:
        """The first word of the command."""
        return self._filled(self.place.command)[0]

    async def version_of(self, program: str) -> str:  # noqa: ARG002
        """Returns the first version in the output of the scenario's command for it; empty if the
        scenario has none."""
        words = self._filled(self.place.version)
        if not words:
            return ""
        machine, directory = self.place.machine, self.place.directory
        text = await machine.output(*words, environment=self.environment(), directory=directory)
        found = VERSION.search(text)
        return found[0] if found else ""

    async def configure(self, program: str) -> Sequence[str]:  # noqa: ARG002
        """Chooses ports and writes the files of the scenario."""
        machine = self.place.machine
        self.port = self.observer_port = self.place.port or await machine.free_port()
        texts = (*self.place.command, *self.place.files.values(), *self.place.variables.values())
        asked = {each for text in texts for each in asked_for(text)}
        if WEBSOCKET_PORT in asked:
            self.websocket_port = await machine.free_port(self.host)
        if AMQP1_PORT in asked:
            self.other_ports["amqp1"] = await machine.free_port(self.host)
        for name, text in self.place.files.items():
            self.write(name, filled(text, self._values))
        return self._filled(self.place.command)

    def environment(self) -> Mapping[str, str]:
        """The variables of the scenario."""
        return {name: filled(text, self._values) for name, text in self.place.variables.items()}

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

    def _filled(self, words: Sequence[str]) -> list[str]:
        return [filled(word, self._values) for word in words]

    @property
    def _values(self) -> Mapping[str, str]:
        return {
            "host": self.host,
            "port": str(self.port),
            "folder": str(self.folder.absolute()),
            "brokers": os.environ.get(BROKERS) or str(Path.home() / ".cache/pubstorm/brokers"),
            WEBSOCKET_PORT: str(self.websocket_port),
            AMQP1_PORT: str(self.other_ports.get("amqp1", 0)),
        }
