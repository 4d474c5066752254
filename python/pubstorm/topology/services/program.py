"""A program of the user beside the brokers, such as a bridge that carries messages between them. It
gets their addresses in its command, and states in its output when it is ready."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from typing import ClassVar

from pubstorm.errors import TopologyError
from pubstorm.scenario.fields import filled
from pubstorm.topology.broker import PROBE_AFTER_MAX_S, PROBE_AFTER_S, Place, ServerProcess

READY_TIMEOUT_S = 60.0
"""Longest time until a program is ready: a JVM starts slowly."""


class ProgramService(ServerProcess):
    """A program as a child process, which stays in the foreground."""

    noun: ClassVar[str] = "service"
    kind: ClassVar[str] = "command"
    has_helpers: ClassVar[bool] = True
    ready_timeout_s = READY_TIMEOUT_S

    def __init__(self, place: Place, ready_text: str) -> None:
        super().__init__(place)
        self._ready_text = ready_text
        self.addresses: Mapping[str, str] = {}
        """Values for its texts: hosts and ports of the brokers."""

    async def program(self) -> str:
        """The first word of the command; raises TopologyError if there is no such program."""
        program = self._filled(self.place.command)[0]
        if shutil.which(program) is None:
            text = f"service {self.name}: {program} is no program on this host"
            raise TopologyError(text, "correct the first word of its command", exit_code=2)
        return program

    async def configure(self, program: str) -> Sequence[str]:  # noqa: ARG002
        """Returns the command, with the addresses of the brokers in it."""
        return self._filled(self.place.command)

    def environment(self) -> Mapping[str, str]:
        """The variables of the scenario."""
        return {name: filled(text, self._values) for name, text in self.place.variables.items()}

    async def ready(self) -> bool:
        """Waits for the text that the program prints; at once without one."""
        clock = asyncio.get_running_loop().time
        deadline_s, wait_s = clock() + self.ready_timeout_s, PROBE_AFTER_S
        while not (self.gone() or self._ready_text in self.log_text()):
            if clock() > deadline_s:
                return False
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, PROBE_AFTER_MAX_S)
        return not self.gone()

    def port_was_taken(self) -> bool:
        """Returns False: it has no port of the run's."""
        return False

    def not_ready(self) -> str:
        """Returns the text that is missing, as the end of a sentence."""
        return f"has not printed {self._ready_text!r}"

    def _filled(self, words: Sequence[str]) -> list[str]:
        return [filled(word, self._values) for word in words]

    @property
    def _values(self) -> Mapping[str, str]:
        return {**self.addresses, "folder": str(self.folder.absolute())}
