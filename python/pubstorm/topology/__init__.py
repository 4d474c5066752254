"""The brokers that a run starts and stops itself, and the services beside them. Each has a folder
and a port of its own, is up before the first stage, and is gone after the run."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pubstorm.contract.offered_load import virtual_hosts
from pubstorm.contract.plan import Plan
from pubstorm.contract.target import Target
from pubstorm.errors import TopologyError
from pubstorm.host.machine import Hosts, Machine, OneHost
from pubstorm.host.sockets import LOOPBACK
from pubstorm.result import BrokerResult, ServiceResult
from pubstorm.scenario.topology import Command, InstalledBroker, Rabbitmq
from pubstorm.scenario.topology import ScenarioTopology as TopologySpec
from pubstorm.topology.adapters import adapter_of
from pubstorm.topology.bridge_lines import state_topic
from pubstorm.topology.bridges import Bridges
from pubstorm.topology.bridges.network import Networks
from pubstorm.topology.broker import (
    BrokerProcess,
    Cluster,
    Place,
    ServerProcess,
    check_ports,
    fixed_ports,
)
from pubstorm.topology.credentials import RunKeys, forget_secrets
from pubstorm.topology.services import Services
from pubstorm.topology.shares import Shares, check_processors
from pubstorm.topology.started import StartRecord
from pubstorm.topology.supervision import (
    BrokerDied,
    BrokerEvent,
    BrokerRestarted,
    EventReporter,
    LinksDied,
    Notify,
    ServiceDied,
    Supervision,
    paced,
    start_all,
)

BRIDGES_TIMEOUT_S = 30.0
"""Longest time without a further bridge until the run continues without the others."""


@dataclass(frozen=True)
class TopologyContext:
    """Parts of a run beside its topology."""

    targets: Sequence[Target] = ()
    """Brokers that the run does not start."""
    cut: frozenset[str] = frozenset()
    """Names of the bridges that can be cut and delayed."""
    hosts: Hosts = field(default_factory=OneHost)
    """The hosts that servers are on."""
    directory: Path | None = None
    """Directory that commands of the scenario start in; None: that of Pubstorm."""


class Topology:
    """All brokers of a run, or of several runs in turn, in the order of the scenario."""

    def __init__(
        self,
        spec: TopologySpec,
        folder: Path,
        emit: Callable[[BrokerEvent], None],
        context: TopologyContext | None = None,
    ) -> None:
        context = context or TopologyContext()
        targets = context.targets
        self.hosts = context.hosts
        """The hosts that they are on."""
        # Files of servers elsewhere are found by their whole paths.
        folder = folder if self.hosts.are_here else folder.absolute()
        self.keys = RunKeys(spec, folder / "keys", names_hosts=self.hosts.are_here)
        """Keys for brokers under TLS; to be made before the start."""
        self.bridges = Bridges(spec, folder, self.keys, context.cut, targets)
        """The bridges between them, and to `targets`; those of the names in `cut` can be cut and
        delayed."""
        self.networks = Networks(spec.bridges)
        """The networks that small brokers live in."""
        self.record = StartRecord(folder)
        """Processes that were started, for `pubstorm down`."""
        self.services = Services(spec, folder, self.record, context.directory)
        """Services beside the brokers; they need their users before the start."""
        self._spec = spec
        self._folder = folder
        self._targets = targets
        self._directory = context.directory
        self._clusters = {
            group: Cluster(group, broker.count)
            for group, broker in spec.brokers.items()
            if broker.is_cluster
        }
        self._groups = {
            group: tuple(self._made(group, number, folder) for number in range(broker.count))
            for group, broker in spec.brokers.items()
        }
        self._brokers = tuple(broker for group in self._groups.values() for broker in group)
        self._by_name = {broker.name: broker for broker in self._brokers}
        self._shares = Shares(spec, self.record.note_cgroup)
        self._reporter = EventReporter(emit)
        self._supervision = Supervision(self._reporter.report)
        self.bridges.links.notify(self._report_links)

    def notify(self, emit: Callable[[BrokerEvent], None]) -> None:
        """Reports brokers that end to `emit` from now on."""
        self._reporter.close()
        self._reporter = EventReporter(emit)
        self._supervision.report = self._reporter.report

    async def start(self, notify: Notify = lambda _: None) -> None:
        """Starts every service and every broker, those that bridges lead to before the others;
        returns when all accept connections and bridges are up, else raises TopologyError. `notify`
        receives the progress. Once all are started, checks only that all still run."""
        if died := [text for s in self._servers if (text := self._supervision.died(s.name))]:
            more = f" and {len(died) - 1} more ended" if len(died) > 1 else ""
            raise TopologyError(f"{died[0]}{more}, in a run before this one")
        if not self._servers and self.hosts.watched:
            await self.hosts.open({})
        if self._supervision.is_watching or not self._servers:
            await self.bridges.up(BRIDGES_TIMEOUT_S, paced(notify))
            return
        if self.hosts.are_here:
            check_ports(fixed_ports(self._spec))
            check_processors(self._spec)
        self.record.open()
        if any(server.has_helpers for server in self._servers) or self._shares.are_limited:
            self.record.guard()
        for name, bridge in self._spec.bridges.items():
            if (main := self.bridges.given.get(bridge.to)) and bridge.notifications:
                self.record.note_bridged(main, state_topic(name, "+"))
        try:
            await self._start(notify)
        except BaseException:
            await self.stop()
            raise
        self._supervision.watch(
            (b, self._spec.brokers[b.place.group].restart) for b in self._brokers
        )
        self._supervision.watch_services(self.services.servers)

    async def provide(self, plan: Plan) -> None:
        """Makes the virtual hosts of a plan's clients at the brokers, which run."""
        for index, broker in enumerate(self._brokers, len(self._targets)):
            if hosts := virtual_hosts(plan, index):
                await broker.provide(hosts)

    async def stop(self) -> None:
        """Stops every broker and then every service; none is left when it returns, nor any of their
        keys. May be called twice."""
        self._reporter.close()
        async with AsyncExitStack() as last:
            # Each is done whatever comes of those below, which are done before it.
            last.push_async_callback(self.hosts.close)
            last.callback(forget_secrets, self._folder)
            last.callback(self.keys.discard)
            last.callback(self.record.close)
            last.callback(self._shares.close)
            last.push_async_callback(self.networks.stop)
            last.push_async_callback(_stop, self.services.stores)
            last.push_async_callback(_stop, self._mains)
            last.push_async_callback(self.bridges.close)
            last.push_async_callback(_stop, self._others)
            last.push_async_callback(_stop, self.services.programs)
            await self._supervision.end()

    def broker(self, name: str) -> BrokerProcess:
        """A broker by its name, such as `boxes-7`."""
        return self._by_name[name]

    def names(self, group: str) -> list[str]:
        """Names of the brokers that the scenario calls `group`, by number."""
        return [broker.name for broker in self._groups[group]]

    def rotate(self, names: Sequence[str]) -> None:
        """Replaces the certificate of brokers, which read it again at SIGHUP; raises TopologyError
        if the brokers are elsewhere, or if no file can be written."""
        if not self.hosts.are_here:
            raise TopologyError(f"{', '.join(names)}: certificates on other hosts stay as they are")
        self.keys.rotate()

    def expect(self, name: str, ending: bool) -> None:
        """Sets whether the end of a broker is expected. An expected end causes neither event nor
        restart; the caller starts the broker again before it expects no end any more."""
        self._supervision.expect(name, ending)

    @property
    def addresses(self) -> Sequence[tuple[str, int]]:
        """Host and port of each broker, for clients."""
        return [(broker.host, broker.client_port) for broker in self._brokers]

    @property
    def other_ports(self) -> Sequence[Mapping[str, int]]:
        """Ports of each broker for clients of other protocols than MQTT, by protocol."""
        return [broker.other_ports for broker in self._brokers]

    @property
    def observer_targets(self) -> Sequence[Target]:
        """Addresses of the brokers for monitors: without TLS, also if clients need keys."""
        return [Target(host=broker.host, port=broker.observer_port) for broker in self._brokers]

    def results(self) -> tuple[BrokerResult, ...]:
        """Returns the brokers for the result."""
        return tuple(
            BrokerResult(
                name=broker.name,
                group=broker.place.group,
                kind=broker.kind,
                version=broker.version,
                host=broker.host,
                port=broker.port,
                pid=broker.pid,
                died=bool(self._supervision.died(broker.name)),
                restarts=self._supervision.restarts(broker.name),
                speaks_sys=broker.speaks_sys,
                metrics_url=broker.metrics_url,
                cpus=tuple(broker.place.cpus),
                memory_limit_bytes=self._shares.limit_bytes(broker.name),
            )
            for broker in self._brokers
        )

    def unlimited(self) -> Sequence[str]:
        """Returns the brokers whose memory this host does not limit, in words with the reason."""
        return self._shares.refused

    def service_results(self) -> tuple[ServiceResult, ...]:
        """Returns the services for the result."""
        return self.services.results(self._supervision)

    def _report_links(self, text: str) -> None:
        self._reporter.report(LinksDied("links", text))

    async def _start(self, notify: Notify) -> None:
        await self._place()
        for broker in self._brokers:
            broker.place = self._shares.settled(broker.place)
        await self.networks.start(self.record.note_namespace)
        for broker in self._brokers:
            broker.place = self.networks.settled(broker.place.group, broker.place)
        await self._state_versions()
        await self.services.start(paced(notify))
        for broker in self._brokers:
            auth = self.services.resolved(self._spec.brokers[broker.place.group].user_store)
            broker.place = replace(broker.place, auth=auth)
        await start_all(self._mains, notify)
        await self.bridges.open(
            {broker.place.group: (broker.host, broker.port) for broker in self._mains},
            {broker.place.group: (broker.host, broker.observer_port) for broker in self._mains},
            self.networks.main_hosts,
        )
        for broker in self._others:
            more = self.bridges.lines(broker.place.group, broker.place.number)
            broker.place = replace(broker.place, more=more)
        await start_all(self._others, notify, len(self._mains))
        await self.bridges.up(BRIDGES_TIMEOUT_S, paced(notify))
        await self.services.start_programs(self._brokers, self._targets)
        for server in self._servers:
            if server.gone():
                raise await server.start_failure()

    async def _place(self) -> None:
        """Gives each server its machine, and checks the ports that the scenario asks for there."""
        if self.hosts.are_here:
            return
        counts = Counter[str]()
        for spec in self._spec.brokers.values():
            if spec.hosts is not None:
                counts[spec.hosts] += spec.count
        labels = (service.label for service in self._spec.services.values())
        counts.update(label for label in labels if label is not None)
        await self.hosts.open(counts)
        self.bridges.links_at = self.hosts.machine(None, 0).address
        for broker in self._brokers:
            group, number = broker.place.group, broker.place.number
            label, cluster = self._spec.brokers[group].hosts, self._clusters.get(group)
            if cluster is not None and label is None:
                continue  # Its nodes have an address each, on loopback.
            machine = self.hosts.machine(label, number)
            if cluster is not None:
                cluster.put(broker.name, machine)
            _settle(broker, machine)
        for service in self.services.servers:
            _settle(service, self.hosts.machine(self._spec.services[service.name].label, 0))
        for server in self._servers:
            await _check_port(server)

    async def _state_versions(self) -> None:
        """Asks each program once, before any broker starts."""
        versions: dict[tuple[str, str, str], str] = {}
        for broker in self._brokers:
            program = await broker.program()
            key = broker.kind, program, broker.place.machine.address
            if key not in versions:
                versions[key] = await broker.version_of(program)
            broker.version = versions[key]

    @property
    def _servers(self) -> Sequence[ServerProcess]:
        return (*self.services.servers, *self._brokers)

    @property
    def _mains(self) -> Sequence[BrokerProcess]:
        return [broker for broker in self._brokers if self.bridges.is_main(broker.place.group)]

    @property
    def _others(self) -> Sequence[BrokerProcess]:
        return [broker for broker in self._brokers if not self.bridges.is_main(broker.place.group)]

    def _made(self, group: str, number: int, folder: Path) -> BrokerProcess:
        spec = self._spec.brokers[group]
        name, cluster = f"{group}-{number}", self._clusters.get(group)
        place = Place(
            name=name,
            folder=folder / name,
            group=group,
            number=number,
            settings={
                **self.keys.settings(group),
                **(spec.settings if isinstance(spec, InstalledBroker) else {}),
            },
            port=None if spec.port is None else spec.port + number,
            binary=spec.binary if isinstance(spec, InstalledBroker) else None,
            **(_of_command(spec, self._directory) if isinstance(spec, Command) else {}),
            plugins=spec.plugins if isinstance(spec, Rabbitmq) else (),
            federation=spec.federation if isinstance(spec, Rabbitmq) else None,
            cluster=cluster,
            is_under_tls=spec.tls_mode != "none",
            serves_websocket=spec.serves_websocket,
            serves_quic=spec.serves_quic,
            host=cluster.host(name) if cluster else LOOPBACK,
            cpus=spec.cpus,
            trusted=self.keys.observer(group) if spec.user_store else None,
            environment=self.record.mark,
            note=self.record.note_process,
        )
        return adapter_of(spec.kind)(place)


def _of_command(spec: Command, directory: Path | None) -> dict[str, Any]:
    """Returns what a place has of a program that nothing else is known of."""
    return {
        "command": spec.command,
        "directory": directory,
        "files": spec.files,
        "variables": spec.environment,
        "version": spec.version,
    }


async def _stop(servers: Sequence[ServerProcess]) -> None:
    """Stops servers at the same time, with one grace period."""
    await asyncio.gather(*(server.stop() for server in servers))


def _settle(server: ServerProcess, machine: Machine) -> None:
    server.place = replace(server.place, machine=machine, host=machine.address)


async def _check_port(server: ServerProcess) -> None:
    """Checks that the port that the scenario asks for is free on its machine."""
    port, machine = server.place.port, server.place.machine
    name = f"{server.noun} {server.name}"
    if port is None:
        return
    if machine.is_here:
        check_ports([(name, port, server.host)])
    elif not await machine.is_free(port):
        text = f"port {port} of {name} is taken{server.where}"
        hint = "stop the program that has it there, choose another port, or leave port out"
        raise TopologyError(text, hint)


__all__ = [
    "BrokerDied",
    "BrokerEvent",
    "BrokerRestarted",
    "LinksDied",
    "ServiceDied",
    "Topology",
    "TopologyContext",
]
