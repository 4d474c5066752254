"""Where agents run. `Fleet` owns what holds for every kind of agent, wherever it is: all said hello
before it is up, one ordered queue of events, exactly one last event for each incarnation of an
agent, silence and loss are noticed, a lost one can be replaced, stop has a grace, and close can be
called twice and always returns. It knows no stage and adds nothing up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import TypeVar

from pubstorm.control import ApplyChange, Close, EnterStage, Hello, Stop, Unjudge
from pubstorm.errors import FleetError
from pubstorm.fleet.incarnation import Ended, FleetEvent, Frame, Incarnation
from pubstorm.fleet.patience import Patience
from pubstorm.fleet.slot import Slot, SlotLostError

__all__ = ["Ended", "Fleet", "FleetEvent", "Frame", "Patience", "Slot", "SlotLostError"]

T = TypeVar("T")


class Fleet:
    """All agents of a run."""

    def __init__(
        self,
        slots: Sequence[Slot],
        emit: Callable[[FleetEvent], None],
        patience: Patience | None = None,
        replace: Callable[[int], Awaitable[Slot]] | None = None,
    ) -> None:
        """`replace` finds another place for an agent that is lost, or raises FleetError."""
        self.patience = patience or Patience()
        self._slots = list(slots)
        self._emit = emit
        self._find_place = replace
        self._members: dict[int, Incarnation] = {}
        self._former: list[Incarnation] = []
        self._plan_line = ""
        self._closed = asyncio.Event()

    @property
    def agents(self) -> int:
        """How many there are."""
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
        """What each agent said at first, in its last incarnation that said it."""
        members = (*self._former, *self._members.values())
        return {each.agent: each.hello.result() for each in members if each.has_greeted}

    async def up(self, plan_line: str) -> tuple[Hello, ...]:
        """Starts every agent; returns when all said hello, else raises FleetError naming one."""
        self._plan_line = plan_line
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
        """Once its last event has come, starts the agent anew in another place, and returns when it
        has said hello. Raises FleetError where that does not succeed; then no event comes of it."""
        if self._find_place is None:
            raise FleetError(f"there is no other place for agent {agent}")
        old = self._members[agent]
        await self._unless_closed(asyncio.wait({old.over}))
        finding = asyncio.wait_for(self._find_place(agent), self.patience.replace_s)
        try:
            self._slots[agent] = await self._unless_closed(finding)
        except TimeoutError as error:
            limit_s = f"{self.patience.replace_s:g} s"
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
        command: EnterStage | ApplyChange | Close | Unjudge | Stop,
        to: Collection[int] | None = None,
    ) -> None:
        """Sends a command to every agent that is left, or to these of them. After a stop they may
        be silent, as they are while their clients leave; who stops them sets them a limit."""
        line = command.model_dump_json() + "\n"
        agents = self.alive if to is None else self.alive.intersection(to)
        members = [self._members[agent] for agent in agents]
        for member in members:
            member.is_stopping = member.is_stopping or isinstance(command, Stop)
        await asyncio.gather(*(member.send(line) for member in members))

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
                _, running = await asyncio.wait(running, timeout=self.patience.answer_s)
            for task in running:
                task.cancel()
        for member in members:
            member.give_up()
            member.hello.exception()

    def _begin(self, agent: int, number: int) -> Incarnation:
        """Starts an incarnation of an agent in its present place."""
        member = Incarnation((agent, number), self._slots[agent], self.patience, self._emit)
        self._members[agent] = member
        member.start(self._plan_line)
        return member

    async def _unless_closed(self, work: Coroutine[None, None, T]) -> T:
        """What comes of it, or FleetError once the fleet is closed."""
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
