"""The interface to one agent's place: a process of this machine, or one elsewhere."""

from __future__ import annotations

from typing import Protocol

from pubstorm.errors import FleetError


class SlotLostError(FleetError):
    """A place cannot be reached any more, so that the state of its agent is not known."""


class Slot(Protocol):
    """One agent's place. A call that goes to another host may take for ever: who calls sets it a
    limit."""

    @property
    def name(self) -> str:
        """Name of the agent in messages, with its host if that is another one."""

    @property
    def host(self) -> str:
        """Address of its host; empty: this one."""

    @property
    def agents(self) -> int:
        """Number of agents in its hello: engines count engines only."""

    async def spawn(self) -> None:
        """Starts the agent, or raises FleetError; SlotLostError where the place is gone."""

    async def send(self, line: str) -> None:
        """Writes a line to it; nothing happens if it is gone."""

    async def line(self) -> bytes:
        """Its next line; empty when it has written its last. Raises SlotLostError."""

    async def wait(self) -> int:
        """Waits for its end; the exit code, negative for a signal. Raises SlotLostError."""

    def kill(self) -> None:
        """Ends it at once; nothing happens if it is gone."""

    def last_words(self) -> str:
        """The end of what it logged."""
