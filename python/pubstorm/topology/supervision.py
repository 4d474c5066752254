"""Starts many brokers, some at once, reports progress, and watches them and the services. One that
ends unexpectedly is started again as often as its scenario allows; many events become sums."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import ClassVar

from pubstorm.errors import TopologyError
from pubstorm.host.ends import end_tasks
from pubstorm.quantities import write_duration
from pubstorm.scenario.topology import Restart
from pubstorm.topology.broker import BrokerProcess, ServerProcess

RESTARTS_AT_ONCE = 16
REPORTED_SINGLY = 10
"""Events of a kind that are reported one by one."""
SUM_AFTER_S = 10.0
"""Time over which further events are added up."""


@dataclass(frozen=True)
class ServerEvent:
    """Something that happened to a broker or to a program beside it, and was not asked for."""

    name: str
    text: str
    """Description of the event, with the name."""

    SEVERAL: ClassVar[str]
    """Subject and verb of several such events."""


class BrokerDied(ServerEvent):
    """A broker ended before the run stopped it, and is not started again."""

    SEVERAL = "brokers ended"


class ServiceDied(ServerEvent):
    """A service ended before the run stopped it. It is not started again."""

    SEVERAL = "services ended"


class BrokerRestarted(ServerEvent):
    """A broker ended before the run stopped it, and was started again."""

    SEVERAL = "brokers were started again"


class LinksDied(ServerEvent):
    """The program that bridges go through ended before the run stopped it."""

    SEVERAL = "programs of bridges ended"


BrokerEvent = BrokerDied | ServiceDied | BrokerRestarted | LinksDied


class EventReporter:
    """Reports events of brokers to a run, and sums up frequent ones."""

    def __init__(self, emit: Callable[[BrokerEvent], None]) -> None:
        self.emit = emit
        self._reported: dict[type[BrokerEvent], int] = {}
        self._held: dict[type[BrokerEvent], list[BrokerEvent]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def report(self, event: BrokerEvent) -> None:
        """Reports an event, at once or in a sum."""
        kind = type(event)
        self._reported[kind] = self._reported.get(kind, 0) + 1
        if self._reported[kind] <= REPORTED_SINGLY:
            self.emit(event)
            return
        self._held.setdefault(kind, []).append(event)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SUM_AFTER_S, self.flush)

    def close(self) -> None:
        """Reports no more events."""
        if self._timer is not None:
            self._timer.cancel()

    def flush(self) -> None:
        """Reports the events that are held."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        held, self._held = self._held, {}
        for kind, events in held.items():
            last = events[-1]
            text = f"{len(events)} more {kind.SEVERAL}, the last: {last.text}"
            self.emit(last if len(events) == 1 else kind(last.name, text))


@dataclass
class Standing:
    """State of a broker or service."""

    broker: ServerProcess
    policy: Restart | None
    """Allowed restarts; None for none."""
    final: type[BrokerDied | ServiceDied]
    """The event of its final end."""
    died: str = ""
    """Description of its unexpected and final end; empty if there was none."""
    restarts: int = 0
    """Restarts after unexpected ends."""
    times_s: deque[float] = field(default_factory=deque)
    """Instants of these restarts, on the loop's clock, within the time of the policy."""
    unexpected: asyncio.Event = field(default_factory=asyncio.Event)
    """Set unless a fault is about to end it, or has done so."""


class Supervision:
    """Watches brokers."""

    def __init__(self, report: Callable[[BrokerEvent], None]) -> None:
        self.report = report
        """Receives events of brokers that end."""
        self._standings: dict[str, Standing] = {}
        self._watchers: list[asyncio.Task[None]] = []
        self._places = asyncio.Semaphore(RESTARTS_AT_ONCE)

    def watch(self, brokers: Iterable[tuple[ServerProcess, Restart | None]]) -> None:
        """From now on it watches these brokers too, which are up."""
        for broker, policy in brokers:
            self._begin(Standing(broker, policy, BrokerDied))

    def watch_services(self, services: Iterable[ServerProcess]) -> None:
        """From now on it watches these services too, which are up and never started again."""
        for service in services:
            self._begin(Standing(service, None, ServiceDied))

    @property
    def is_watching(self) -> bool:
        """True if there is anything to supervise."""
        return bool(self._watchers)

    def expect(self, name: str, ending: bool) -> None:
        """Sets whether the end of a broker is expected. An expected end causes no event; the caller
        starts the broker again before it expects no end any more."""
        unexpected = self._standings[name].unexpected
        if ending:
            unexpected.clear()
        else:
            unexpected.set()

    def died(self, name: str) -> str:
        """Returns the description of a broker's unexpected and final end; empty if there was
        none."""
        return self._standings[name].died if name in self._standings else ""

    def restarts(self, name: str) -> int:
        """Returns the restarts of a broker after unexpected ends."""
        return self._standings[name].restarts if name in self._standings else 0

    async def end(self) -> None:
        """Watches nothing any more; no broker is started when this has returned."""
        await end_tasks(self._watchers)
        self._watchers = []

    def _begin(self, standing: Standing) -> None:
        standing.unexpected.set()
        self._standings[standing.broker.name] = standing
        self._watchers.append(asyncio.create_task(self._watch(standing)))

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
            self.report(standing.final(name, standing.died))
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
                self.report(BrokerRestarted(name, text))
            return
        standing.restarts += 1
        self.report(BrokerRestarted(name, f"{ending}, and was started again (pid {broker.pid})"))

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


STARTS_AT_ONCE = 8
"""Brokers that are on their way at once."""
NOTIFY_EVERY_S = 1.0
"""Interval of progress reports; a shorter start has none."""

Notify = Callable[[str], None]
"""Takes the progress of the start, in words."""


async def start_all(brokers: Sequence[BrokerProcess], notify: Notify, before: int = 0) -> None:
    """Returns when every broker accepts connections; with the first that does not, the others are
    given up and its TopologyError is raised. So many were started `before`."""
    if not brokers:
        return
    places = asyncio.Semaphore(STARTS_AT_ONCE)
    total = before + len(brokers)
    up = before

    async def start_one(broker: BrokerProcess) -> None:
        nonlocal up
        async with places:
            await broker.start()
        up += 1

    async with notifying(lambda: f"{up} of {total} brokers up", notify):
        starts = [asyncio.create_task(start_one(broker)) for broker in brokers]
        try:
            await asyncio.gather(*starts)
        except BaseException:
            for start in starts:
                start.cancel()
            await asyncio.wait(starts)
            raise


@asynccontextmanager
async def notifying(words: Callable[[], str], notify: Notify) -> AsyncIterator[None]:
    """Calls `notify` with new words every second while the block runs. The last call is at its end,
    unless the block takes less than a second."""

    async def repeat() -> None:
        while True:
            await asyncio.sleep(NOTIFY_EVERY_S)
            notify(words())

    loop = asyncio.get_running_loop()
    began_s, repeating = loop.time(), asyncio.create_task(repeat())
    try:
        yield
    finally:
        repeating.cancel()
        if loop.time() - began_s >= NOTIFY_EVERY_S:
            notify(words())


def paced(notify: Notify) -> Notify:
    """Returns a `notify` that passes on one text a second at most, and none in the first second."""
    clock = asyncio.get_running_loop().time
    next_s = clock() + NOTIFY_EVERY_S

    def notify_at_times(text: str) -> None:
        nonlocal next_s
        if clock() >= next_s:
            next_s = clock() + NOTIFY_EVERY_S
            notify(text)

    return notify_at_times
