"""Brokers and services that are up, watched until they are told to stop: one that ends unasked is
started again as often as its scenario allows, else it stays down. It does not know how the others
stand."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pubstorm.errors import TopologyError
from pubstorm.scenario.topology import Restart
from pubstorm.topology.broker import ServerProcess
from pubstorm.topology.bulletin import BrokerDied, BrokerEvent, BrokerRestarted
from pubstorm.units import write_duration

RESTARTS_AT_ONCE = 16


@dataclass
class Standing:
    """How a broker or service stands."""

    broker: ServerProcess
    policy: Restart | None
    """How often it is started again; None: never."""
    died: str = ""
    """How it ended unasked and for good; empty as long as it did not."""
    restarts: int = 0
    """How often it was started again after it had ended unasked."""
    times_s: deque[float] = field(default_factory=deque)
    """When that was, on the loop's clock, within the time of the policy."""
    unexpected: asyncio.Event = field(default_factory=asyncio.Event)
    """Set unless a fault is about to end it, or has done so."""


class Supervision:
    """Watches brokers."""

    def __init__(self, tell: Callable[[BrokerEvent], None]) -> None:
        self.tell = tell
        """Hears of brokers that end."""
        self._standings: dict[str, Standing] = {}
        self._watchers: list[asyncio.Task[None]] = []
        self._places = asyncio.Semaphore(RESTARTS_AT_ONCE)

    def watch(self, brokers: Iterable[tuple[ServerProcess, Restart | None]]) -> None:
        """From now on it watches these too, which are up."""
        for broker, policy in brokers:
            standing = Standing(broker, policy)
            standing.unexpected.set()
            self._standings[broker.name] = standing
            self._watchers.append(asyncio.create_task(self._watch(standing)))

    @property
    def is_watching(self) -> bool:
        """Whether there is anything that it watches."""
        return bool(self._watchers)

    def expect(self, name: str, ending: bool) -> None:
        """Whether the end of a broker is expected: then it is told to nobody, and whoever expects
        it starts the broker again before it expects none any more."""
        unexpected = self._standings[name].unexpected
        if ending:
            unexpected.clear()
        else:
            unexpected.set()

    def died(self, name: str) -> str:
        """How a broker ended unasked and for good; empty if it did not."""
        return self._standings[name].died if name in self._standings else ""

    def restarts(self, name: str) -> int:
        """How often a broker was started again after it had ended unasked."""
        return self._standings[name].restarts if name in self._standings else 0

    async def end(self) -> None:
        """Watches nothing any more; no broker is started when this has returned."""
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        self._watchers = []

    async def _watch(self, standing: Standing) -> None:
        while not standing.died:
            ending = await standing.broker.ending()
            if not standing.unexpected.is_set():
                await standing.unexpected.wait()
                continue
            await self._after(standing, ending)

    async def _after(self, standing: Standing, ending: str) -> None:
        """Starts a broker again that has ended, or gives it up."""
        broker, name = standing.broker, standing.broker.name
        if not self._may_restart(standing):
            standing.died = _for_good(standing, ending)
            self.tell(BrokerDied(name, standing.died))
            return
        try:
            async with self._places:
                if not standing.unexpected.is_set():
                    return  # A fault has come meanwhile, and starts it again itself.
                await broker.restart()
        except TopologyError as error:
            # It has ended again, which is looked at as any other end.
            if standing.unexpected.is_set():
                text = f"{ending}, and did not come up again: {error.message}"
                self.tell(BrokerRestarted(name, text))
            return
        standing.restarts += 1
        self.tell(BrokerRestarted(name, f"{ending}, and was started again (pid {broker.pid})"))

    def _may_restart(self, standing: Standing) -> bool:
        policy, times_s = standing.policy, standing.times_s
        if policy is None:
            return False
        now_s = asyncio.get_running_loop().time()
        while times_s and times_s[0] < now_s - policy.within / 1e9:
            times_s.popleft()
        if len(times_s) >= policy.at_most:
            return False
        times_s.append(now_s)
        return True


def _for_good(standing: Standing, ending: str) -> str:
    if standing.policy is None:
        return ending
    times, within = standing.policy.at_most, write_duration(standing.policy.within)
    return f"{ending}: it flaps, was started again {times} times within {within} and stays down"
