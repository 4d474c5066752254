"""The brokers that a run starts and stops itself, and the services beside them: each with a folder
and a port of its own, up before the first stage, watched while the run goes on, gone after it. It
knows no scenario file, and of clients only that they need keys and users."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from pubstorm.errors import TopologyError
from pubstorm.result import BrokerResult, ServiceResult
from pubstorm.scenario.target import Target
from pubstorm.scenario.topology import Topology as TopologySpec
from pubstorm.topology.adapters import ADAPTERS
from pubstorm.topology.bridges import TARGET, Bridges
from pubstorm.topology.bridges.lines import state_topic
from pubstorm.topology.bridges.network import Networks
from pubstorm.topology.broker import BrokerProcess, Place, ServerProcess
from pubstorm.topology.bulletin import BrokerDied, BrokerEvent, BrokerRestarted, Bulletin, LinksDied
from pubstorm.topology.cluster import Cluster
from pubstorm.topology.credentials.forget import forget_secrets
from pubstorm.topology.credentials.keys import RunKeys
from pubstorm.topology.ports import LOOPBACK, check_ports, fixed_ports
from pubstorm.topology.services import Services
from pubstorm.topology.start import Tell, paced, start_all
from pubstorm.topology.started import StartRecord
from pubstorm.topology.supervision import Supervision

BRIDGES_TIMEOUT_S = 30.0
"""How long the number of bridges that are up may stand still until the run goes on without."""


class Topology:
    """All brokers of a run, or of several runs in turn, in the order of the scenario."""

    def __init__(
        self,
        spec: TopologySpec,
        folder: Path,
        emit: Callable[[BrokerEvent], None],
        *,
        targets: Sequence[Target] = (),
        cut: frozenset[str] = frozenset(),
    ) -> None:
        self.keys = RunKeys(spec, folder / "keys")
        """Keys for brokers under TLS; to be made before the start."""
        self.bridges = Bridges(spec, folder, self.keys, cut, targets)
        """The bridges between them, and to the first of `targets`; those of the names in `cut` can
        be cut and delayed."""
        self.networks = Networks(spec.bridges)
        """The networks that small brokers live in."""
        self.record = StartRecord(folder)
        """What was started, for `pubstorm down`."""
        self.services = Services(spec, folder, self.record)
        """What is started beside the brokers; it has to know its users before the start."""
        self._spec = spec
        self._folder = folder
        self._targets = targets
        self._clusters = {
            group: Cluster(group, broker.count)
            for group, broker in spec.brokers.items()
            if broker.cluster
        }
        self._groups = {
            group: tuple(self._made(group, number, folder) for number in range(broker.count))
            for group, broker in spec.brokers.items()
        }
        self._brokers = tuple(broker for group in self._groups.values() for broker in group)
        self._by_name = {broker.name: broker for broker in self._brokers}
        self._bulletin = Bulletin(emit)
        self._supervision = Supervision(self._bulletin.tell)
        self.bridges.links.tell(self._tell_of_links)

    def tell(self, emit: Callable[[BrokerEvent], None]) -> None:
        """From now on `emit` hears of brokers that end."""
        self._bulletin.close()
        self._bulletin = Bulletin(emit)
        self._supervision.tell = self._bulletin.tell

    async def start(self, tell: Tell = lambda _: None) -> None:
        """Starts every service and every broker, those that bridges lead to before the others;
        returns when all accept connections and bridges are up, else raises TopologyError. `tell`
        hears how far it is. Once they are started it only looks whether all are still there."""
        if died := [text for s in self._servers if (text := self._supervision.died(s.name))]:
            more = f" and {len(died) - 1} more ended" if len(died) > 1 else ""
            raise TopologyError(f"{died[0]}{more}, in a run before this one")
        if self._supervision.is_watching or not self._servers:
            await self.bridges.up(BRIDGES_TIMEOUT_S, paced(tell))
            return
        check_ports(fixed_ports(self._spec))
        self.record.open()
        for name, bridge in self._spec.bridges.items():
            if bridge.to == TARGET and bridge.notifications:
                self.record.note_bridged(self._targets[0], state_topic(name, "+"))
        try:
            await self._start(tell)
        except BaseException:
            await self.stop()
            raise
        self._supervision.watch((b, self._spec.brokers[_group(b)].restart) for b in self._brokers)
        self._supervision.watch((service, None) for service in self.services.servers)

    async def stop(self) -> None:
        """Stops every broker and then every service; none is left when it returns, nor any of their
        keys. May be called twice."""
        self._bulletin.close()
        async with AsyncExitStack() as last:
            # Each is done whatever comes of those below, which are done before it.
            last.callback(forget_secrets, self._folder)
            last.callback(self.keys.discard)
            last.callback(self.record.close)
            last.push_async_callback(self.networks.stop)
            last.push_async_callback(_stop, self.services.servers)
            last.push_async_callback(_stop, self._mains)
            last.push_async_callback(self.bridges.close)
            last.push_async_callback(_stop, self._others)
            await self._supervision.end()

    def broker(self, name: str) -> BrokerProcess:
        """A broker by its name, such as `boxes-7`."""
        return self._by_name[name]

    def names(self, group: str) -> list[str]:
        """Names of the brokers that the scenario calls `group`, by number."""
        return [broker.name for broker in self._groups[group]]

    def expect(self, name: str, ending: bool) -> None:
        """Whether the end of a broker is expected: then there is neither event nor restart, and
        whoever expects it starts it again before no end is expected any more."""
        self._supervision.expect(name, ending)

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
                group=_group(broker),
                kind=broker.kind,
                version=broker.version,
                host=broker.host,
                port=broker.port,
                pid=broker.pid,
                died=bool(self._supervision.died(broker.name)),
                restarts=self._supervision.restarts(broker.name),
                speaks_sys=broker.speaks_sys,
                metrics_url=broker.metrics_url,
            )
            for broker in self._brokers
        )

    def service_results(self) -> tuple[ServiceResult, ...]:
        """What the result says of services."""
        return self.services.results(self._supervision)

    def _tell_of_links(self, text: str) -> None:
        self._bulletin.tell(LinksDied("links", text))

    async def _start(self, tell: Tell) -> None:
        await self.networks.start(self.record.note_namespace)
        for broker in self._brokers:
            broker.place = self.networks.settled(_group(broker), broker.place)
        await self._state_versions()
        await self.services.start(paced(tell))
        for broker in self._brokers:
            auth = self.services.resolved(self._spec.brokers[_group(broker)].auth)
            broker.place = replace(broker.place, auth=auth)
        await start_all(self._mains, tell)
        await self.bridges.open(
            {_group(broker): (broker.host, broker.port) for broker in self._mains},
            {_group(broker): (broker.host, broker.observer_port) for broker in self._mains},
            self.networks.main_hosts,
        )
        for broker in self._others:
            group, number = _group(broker), int(broker.name.rpartition("-")[2])
            broker.place = replace(broker.place, more=self.bridges.lines(group, number))
        await start_all(self._others, tell, len(self._mains))
        await self.bridges.up(BRIDGES_TIMEOUT_S, paced(tell))
        for server in self._servers:
            if server.gone():
                raise await server.start_failure()

    async def _state_versions(self) -> None:
        """Asks each program once, before any broker starts."""
        versions: dict[tuple[str, str], str] = {}
        for broker in self._brokers:
            program = broker.program()
            key = broker.kind, program
            if key not in versions:
                versions[key] = await broker.version_of(program)
            broker.version = versions[key]

    @property
    def _servers(self) -> Sequence[ServerProcess]:
        return (*self.services.servers, *self._brokers)

    @property
    def _mains(self) -> Sequence[BrokerProcess]:
        return [broker for broker in self._brokers if self.bridges.is_main(_group(broker))]

    @property
    def _others(self) -> Sequence[BrokerProcess]:
        return [broker for broker in self._brokers if not self.bridges.is_main(_group(broker))]

    def _made(self, group: str, number: int, folder: Path) -> BrokerProcess:
        spec = self._spec.brokers[group]
        name, cluster = f"{group}-{number}", self._clusters.get(group)
        place = Place(
            name=name,
            folder=folder / name,
            settings={
                **self.keys.settings(spec.tls),
                **self.bridges.settings(group),
                **spec.settings,
            },
            port=None if spec.port is None else spec.port + number,
            binary=spec.binary,
            command=spec.command,
            plugins=spec.plugins,
            federation=spec.federation,
            cluster=cluster,
            is_under_tls=spec.tls != "none",
            host=cluster.host(name) if cluster else LOOPBACK,
            trusted=self.keys.observer(group) if spec.auth else None,
            environment=self.record.mark,
            note=self.record.note_process,
        )
        return ADAPTERS[spec.kind](place)


async def _stop(servers: Sequence[ServerProcess]) -> None:
    """All at once, with one grace for all."""
    await asyncio.gather(*(server.stop() for server in servers))


def _group(broker: BrokerProcess) -> str:
    return broker.name.rpartition("-")[0]


__all__ = ["BrokerDied", "BrokerEvent", "BrokerRestarted", "LinksDied", "Topology", "TopologyError"]
