"""The order of one agent's lines: hello, snapshots without a gap, bye or failure; answers to beats
anywhere. It knows no slot and no time."""

from __future__ import annotations

from pydantic import ValidationError

from pubstorm.control import AGENT_LINE, BeatAnswer, Bye, Failure, Hello
from pubstorm.snapshot import Snapshot


class ContractError(Exception):
    """An agent said what it may not say there."""


class Reader:
    """Reads the lines of one incarnation of an agent."""

    def __init__(self, agent: int, agents: int) -> None:
        self._agent = agent
        self._agents = agents
        self._greeted = False
        self._snapshots = 0
        self.bye = False
        self.failure: Failure | None = None

    def read(self, line: bytes) -> Hello | Snapshot | None:
        """What a line says, if it is more than a beat or the manner of the end."""
        try:
            said = AGENT_LINE.validate_json(line)
        except ValidationError as error:
            start = line[:200].decode(errors="replace").rstrip()
            raise ContractError(f"{error.errors()[0]['msg']} in {start!r}") from error
        # Another thread of the agent answers beats, before its first line and after its last.
        if isinstance(said, BeatAnswer):
            return None
        if self.bye or self.failure:
            raise ContractError(f"a {said.kind} after the last line")
        if isinstance(said, Failure):
            self.failure = said
            return None
        self._check_place(said)
        return None if isinstance(said, Bye) else said

    def _check_place(self, said: Hello | Snapshot | Bye) -> None:
        if isinstance(said, Hello) == self._greeted:
            raise ContractError(f"{said.kind} where {'no ' * self._greeted}hello is due")
        if isinstance(said, Hello):
            self._greeted = True
            if (said.agent, said.agents) != (self._agent, self._agents):
                raise ContractError(f"it says that it is agent {said.agent} of {said.agents}")
            return
        number = said.snapshots if isinstance(said, Bye) else said.sequence
        if number != self._snapshots:
            raise ContractError(f"{said.kind} number {number} after {self._snapshots} snapshots")
        self.bye = isinstance(said, Bye)
        self._snapshots += isinstance(said, Snapshot)
