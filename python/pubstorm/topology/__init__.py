"""The brokers that a run starts and stops itself: each with a folder and a free port of its own, up
before the first stage, watched while the run goes on, gone after it. It knows no scenario file,
and of clients only that they need keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pubstorm.errors import TopologyError
from pubstorm.result import BrokerResult
from pubstorm.scenario.target import Target
from pubstorm.scenario.topology import Broker as BrokerSpec
from pubstorm.scenario.topology import Topology as TopologySpec
from pubstorm.topology.adapters import ADAPTERS
from pubstorm.topology.broker import BrokerProcess, Place
from pubstorm.topology.keys import RunKeys

STARTS_AT_ONCE = 16


@dataclass(frozen=True)
class BrokerDied:
    """A broker ended before it was told to."""

    name: str
    text: str
    """What happened, naming the broker."""


class Topology:
    """All brokers of a run, or of several runs in turn, in the order of the scenario."""

    def __init__(
        self,
        spec: TopologySpec,
        folder: Path,
        emit: Callable[[BrokerDied], None],
    ) -> None:
        self.keys = RunKeys(spec.brokers, folder / "keys")
        """Keys for brokers under TLS; to be made before the start."""
        self._brokers = tuple(_brokers(spec.brokers, folder, self.keys))
        self._emit = emit
        self._watchers: list[asyncio.Task[None]] = []
        self._died: dict[str, str] = {}
        self._unexpected: dict[str, asyncio.Event] = {}

    def broker(self, name: str) -> BrokerProcess:
        """The broker of this name."""
        return next(broker for broker in self._brokers if broker.name == name)

    def expect(self, name: str, ending: bool) -> None:
        """Whether a fault ends this broker, so that nobody is told; said again when it is up."""
        unexpected = self._unexpected[name]
        if ending:
            unexpected.clear()
        else:
            unexpected.set()

    def tell(self, emit: Callable[[BrokerDied], None]) -> None:
        """From now on `emit` hears of brokers that end."""
        self._emit = emit

    async def start(self) -> None:
        """Starts every broker; returns when all accept connections, else raises TopologyError.
        Once they are started it only looks whether all are still there."""
        if self._died:
            raise TopologyError(f"{'; '.join(self._died.values())}, in a run before this one")
        if self._watchers:
            return
        places = asyncio.Semaphore(STARTS_AT_ONCE)

        async def start_one(broker: BrokerProcess) -> None:
            async with places:
                await broker.start()

        starts = [asyncio.create_task(start_one(broker)) for broker in self._brokers]
        try:
            await asyncio.gather(*starts)
        except BaseException:
            for start in starts:
                start.cancel()
            await asyncio.wait(starts)
            await self.stop()
            raise
        self._watchers = [asyncio.create_task(self._watch(broker)) for broker in self._brokers]

    async def stop(self) -> None:
        """Stops every broker; none is left when it returns, nor any of their keys. May be called
        twice."""
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*(broker.stop() for broker in self._brokers))
        self.keys.discard()

    @property
    def addresses(self) -> Sequence[tuple[str, int]]:
        """Host and port of each broker."""
        return [(broker.host, broker.port) for broker in self._brokers]

    @property
    def observer_targets(self) -> Sequence[Target]:
        """Where a monitor finds each broker: without TLS, also where clients need keys."""
        return [Target(host=broker.host, port=broker.observer_port) for broker in self._brokers]

    def results(self) -> tuple[BrokerResult, ...]:
        """What the result says of them."""
        return tuple(
            BrokerResult(
                name=broker.name,
                group=broker.name.rpartition("-")[0],
                kind=broker.kind,
                version=broker.version,
                host=broker.host,
                port=broker.port,
                pid=broker.pid,
                died=broker.name in self._died,
            )
            for broker in self._brokers
        )

    async def _watch(self, broker: BrokerProcess) -> None:
        unexpected = self._unexpected[broker.name] = asyncio.Event()
        unexpected.set()
        ending = await broker.ending()
        while not unexpected.is_set():
            await unexpected.wait()
            ending = await broker.ending()
        self._died[broker.name] = ending
        self._emit(BrokerDied(broker.name, ending))


def _brokers(specs: Mapping[str, BrokerSpec], folder: Path, keys: RunKeys) -> list[BrokerProcess]:
    brokers: list[BrokerProcess] = []
    for group, spec in specs.items():
        for number in range(spec.count):
            name = f"{group}-{number}"
            place = Place(
                name=name,
                folder=folder / name,
                settings={**keys.settings(spec.tls), **spec.settings},
                port=None if spec.port is None else spec.port + number,
                binary=spec.binary,
                command=spec.command,
                is_under_tls=spec.tls != "none",
            )
            brokers.append(ADAPTERS[spec.kind](place))
    return brokers


__all__ = ["BrokerDied", "Topology", "TopologyError"]
