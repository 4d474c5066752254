"""An agent's ends of stdin and stdout: the plan and commands in, lines of JSON out."""

from __future__ import annotations

import os
import select
import sys

from pydantic import BaseModel, ValidationError

from pubstorm.contract.commands import COMMAND, AnyCommand

STDIN = 0
CHUNK_BYTES = 1 << 16
COMMAND_BYTES_MAX = 1 << 24


class Pipes:
    """stdin and stdout of this process."""

    def __init__(self) -> None:
        self.closed = False
        """True after the end of stdin, which ends the run."""
        self._pending = b""

    def plan_line(self) -> bytes:
        """The first line; empty where there is none."""
        while b"\n" not in self._pending and not self.closed:
            self._fill()
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    @property
    def has_commands(self) -> bool:
        """True if a command waits to be taken."""
        return b"\n" in self._pending

    def wait(self, wait_s: float) -> None:
        """Until something has come, or for so many seconds."""
        if not self.has_commands:
            select.select([STDIN], [], [], wait_s)

    def commands(self) -> list[AnyCommand]:
        """The commands that have come."""
        if select.select([STDIN], [], [], 0)[0]:
            self._fill()
        *lines, self._pending = self._pending.split(b"\n")
        commands = []
        for line in lines:
            try:
                commands.append(COMMAND.validate_json(line))
            except ValidationError:
                # A line that is no command is not the controller's: the agent stops.
                self.closed = True
        return commands

    def say(self, line: BaseModel) -> None:
        """Writes a line; a closed stdout ends the run."""
        try:
            sys.stdout.write(line.model_dump_json(by_alias=True) + "\n")
            sys.stdout.flush()
        except OSError:
            self.closed = True

    def _fill(self) -> None:
        data = os.read(STDIN, CHUNK_BYTES)
        self.closed = self.closed or not data or len(self._pending) > COMMAND_BYTES_MAX
        self._pending += data
