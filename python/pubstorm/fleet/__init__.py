"""The agents of a run, wherever they are. `Fleet` guarantees: all agents said hello before it is
up; one ordered queue of events; exactly one last event for each incarnation of an agent; silence
and failure are noticed; a failed agent can be replaced; stop has a grace; close can be called twice
and always returns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TypeVar

from pubstorm.contract.commands import (
    ApplyChange,
    Close,
    EnterStage,
    ExcludeFromLoss,
    Hello,
    Resume,
)
from pubstorm.errors import FleetError
from pubstorm.fleet.incarnation import (
    Ended,
    FleetEvent,
    Incarnation,
    Slot,
    SlotLostError,
    SnapshotReceived,
    Timeouts,
)

__all__ = ["Ended", "Fleet", "FleetEvent", "Slot", "SlotLostError", "SnapshotReceived", "Timeouts"]

T = TypeVar("T")


class Fleet:
    """All agents of a run."""

    def __init__(
        self,
        slots: Sequence[Slot],
        emit: Callable[[FleetEvent], None],
        timeouts: Timeouts | None = None,
        replace: Callable[[int], Awaitable[Slot]] | None = None,
    ) -> None:
        """`replace` finds another place for an agent that is lost, or raises FleetError."""
        self.timeouts = timeouts or Timeouts()
        self._slots = list(slots)
        self._emit = emit
        self._find_place = replace
        self._members: dict[int, Incarnation] = {}
        self._former: list[Incarnation] = []
        self._plan_line = ""
        self._plan_lines: Mapping[int, str] = {}
        self._closed = asyncio.Event()

    @property
    def agents(self) -> int:
        """Number of agents."""
        return len(self._slots)

    @property
    def alive(self) -> frozenset[int]:
        """Agents that have said hello and whose last event has not come."""
        return frozenset(agent for agent, member in self._members.items() if member.is_alive)

    @property
    def hosts(self) -> Mapping[int, str]:
        """The address of each agent's host, where it is now or was last; empty: this one."""
        return {agent: slot.host for agent, slot in enumerate(self._slots)}

    @property
    def hellos(self) -> Mapping[int, Hello]:
        """The first message of each agent, in its last incarnation that sent one."""
        members = (*self._former, *self._members.values())
        return {each.agent: each.hello.result() for each in members if each.has_greeted}

    async def up(
        self, plan_line: str, others: Mapping[int, str] | None = None
    ) -> tuple[Hello, ...]:
        """Starts every agent. Returns when all said hello, else raises FleetError with the name of
        one. `others` has the plans of agents for which files have other paths."""
        self._plan_line, self._plan_lines = plan_line, others or {}
        try:
            hellos = [self._begin(agent, 0).hello for agent in range(self.agents)]
            done, _ = await asyncio.wait(hellos, return_when=asyncio.FIRST_EXCEPTION)
            for hello in done:
                hello.result()
            return tuple(hello.result() for hello in hellos)
        except BaseException:
            await self.close()
            raise

    async def replace(self, agent: int) -> Hello:
        """Waits for the agent's last event, then starts the agent in another place. Returns when
        the replacement has said hello. Raises FleetError if that fails; then the replacement has no
        event."""
        if self._find_place is None:
            raise FleetError(f"there is no other place for agent {agent}")
        old = self._members[agent]
        await self._unless_closed(asyncio.wait({old.over}))
        try:
            async with asyncio.timeout(self.timeouts.replace_s):
                self._slots[agent] = await self._unless_closed(self._find_place(agent))
        except TimeoutError as error:
            limit_s = f"{self.timeouts.replace_s:g} s"
            raise FleetError(f"no other place for agent {agent} within {limit_s}") from error
        self._former.append(old)
        member = self._begin(agent, old.number + 1)
        try:
            await asyncio.wait({member.hello})
        except BaseException:
            member.kill()
            raise
        return member.hello.result()

    async def command(
        self,
        command: EnterStage | Resume | ApplyChange | Close | ExcludeFromLoss,
        to: Collection[int] | None = None,
    ) -> None:
        """Sends a command to every agent that is left, or to these of them."""
        line = command.model_dump_json() + "\n"
        await asyncio.gather(*(member.send(line) for member in self._left(to)))

    async def stop(self, limit_s: float, to: Collection[int] | None = None) -> None:
        """Stops every agent that is left, or these of them. They may be silent while their clients
        leave; one that neither ends nor reports in this time that some have left is ended."""
        await asyncio.gather(*(member.stop(limit_s) for member in self._left(to)))

    def kill(self) -> None:
        """Ends every agent at once."""
        for member in self._members.values():
            if not member.over.done():
                member.kill()

    async def close(self) -> None:
        """Ends what is left. Every agent's last event has come when it returns, which does not take
        for ever even where a place answers nothing."""
        self._closed.set()
        self.kill()
        members = [*self._former, *self._members.values()]
        running = {member.task for member in members if member.task is not None}
        for _ in range(2):
            if running:
                _, running = await asyncio.wait(running, timeout=self.timeouts.answer_s)
            for task in running:
                task.cancel()
        for member in members:
            member.give_up()
            member.hello.exception()

    def _left(self, to: Collection[int] | None) -> list[Incarnation]:
        agents = self.alive if to is None else self.alive.intersection(to)
        return [self._members[agent] for agent in agents]

    def _begin(self, agent: int, number: int) -> Incarnation:
        """Starts an incarnation of an agent in its present place."""
        member = Incarnation((agent, number), self._slots[agent], self.timeouts, self._emit)
        self._members[agent] = member
        member.start(self._plan_lines.get(agent, self._plan_line))
        return member

    async def _unless_closed(self, work: Awaitable[T]) -> T:
        """Returns the result of an awaitable. Raises FleetError once the fleet is closed."""
        working = asyncio.ensure_future(work)
        closing = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait({working, closing}, return_when=asyncio.FIRST_COMPLETED)
            if self._closed.is_set():
                raise FleetError("the fleet is closed")
            return working.result()
        finally:
            working.cancel()
            closing.cancel()
