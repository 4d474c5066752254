"""The monitors that a scenario asks for, by default or by name. Starts none."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

from pubstorm.contract import Source
from pubstorm.contract.plan import Plan, PublishAction
from pubstorm.contract.target import Target, sources_of
from pubstorm.host.children import parent_death_prefix
from pubstorm.host.counters import datagrams_dropped
from pubstorm.host.deputy.remote import RemoteMachine
from pubstorm.host.machine import Machine
from pubstorm.host.members import PROCESSES_HERE, LocalProcesses, Processes
from pubstorm.host.sockets import datagrams_dropped_at
from pubstorm.measure.monitors import Monitor, MonitorError
from pubstorm.measure.monitors.connections import ClientsMonitor
from pubstorm.measure.monitors.host import BridgeMonitor, DatagramsMonitor, HostMonitor
from pubstorm.measure.monitors.monitoring import Monitoring
from pubstorm.measure.monitors.process import (
    GroupMonitor,
    GroupPart,
    PidNow,
    ProcessMonitor,
    process_monitors,
)
from pubstorm.measure.monitors.profiling import FOLDER as PROFILE_FOLDER
from pubstorm.measure.monitors.profiling import Perf, Profiler, ProfileSpec, Recording
from pubstorm.measure.monitors.sys_topics import SysTopicsMonitor, client_login, observed_by
from pubstorm.metrics.monitors import SYS_PREFIX
from pubstorm.result import BrokerResult
from pubstorm.scenario import Scenario
from pubstorm.scenario.expressions import asked_of
from pubstorm.scenario.monitors import (
    TOGETHER_ABOVE,
    Monitorable,
    Process,
    Prometheus,
    SysTopics,
)
from pubstorm.topology import Topology
from pubstorm.topology.broker import ServerProcess
from pubstorm.topology.observer import Login
from pubstorm.topology.services import RedisService


@dataclass(frozen=True)
class WatchedBroker:
    """A broker that can be watched."""

    source: Source
    """The source of its readings."""
    process: Process | PidNow
    """Process of the broker."""
    target: Target
    """Address for an observer."""
    speaks_sys: bool
    """True if the broker is expected to publish under `$SYS`."""
    metrics_url: str | None = None
    """Address of its counters in Prometheus' format; None if it has none."""
    login: Login | None = None
    """Login of an observer; None for the login of a client of the load."""
    processes: Processes = PROCESSES_HERE
    """The processes of its machine."""


@dataclass(frozen=True)
class WatchedGroup:
    """Brokers of one name, too many to be watched one by one."""

    source: Source
    """The source of their sums."""
    parts: Sequence[GroupPart]
    """Their processes, by machine."""


@dataclass(frozen=True)
class Watchable:
    """The brokers that can be watched."""

    brokers: tuple[WatchedBroker, ...] = ()
    """Those that are watched one by one."""
    groups: tuple[WatchedGroup, ...] = ()
    """Those that are watched together."""


@dataclass(frozen=True)
class MonitoredRun:
    """Parts of a run that can be monitored."""

    topology: Topology
    publishers: Mapping[Source, tuple[str, Callable[[], int]]]
    """Programs under test: address of the host, empty for this one, and present process id."""
    directory: Path
    """Directory of the run."""


def monitoring_of(
    scenario: Scenario, plan: Plan, run: MonitoredRun, warn: Callable[[str], None]
) -> Monitoring:
    """Returns the monitors of a run. `plan` has the targets where observers find the brokers."""
    topology, publishers = run.topology, run.publishers
    brokers = len(scenario.target) + len(topology.addresses)
    watched = watched_brokers(
        topology.results(),
        plan.targets[:brokers],
        lambda name: topology.broker(name).pid,
        topology.keys.observer,
        partial(_processes_of, topology),
    )
    others = {machine.address: machine for machine in topology.hosts.others}
    programs = [
        ProcessMonitor(source, pid_now, _processes_at(others.get(host)))
        for source, (host, pid_now) in publishers.items()
    ]
    profiler = None
    if (spec := profile_spec(scenario, plan, watched.brokers)) is not None:
        recording = _recording(scenario, spec, run.directory / PROFILE_FOLDER)
        profiler = Profiler(spec, plan, recording)
    monitors = (
        *monitors_for(scenario, plan, watched),
        *(programs if scenario.monitors.brokers else ()),
        *_datagram_monitors(scenario, topology, watched.brokers),
        *topology_monitors(
            topology, plan, services=scenario.monitors.brokers, hosts=scenario.monitors.host
        ),
    )
    return Monitoring(monitors, scenario.monitors.interval, warn, profiler)


def watched_brokers(
    started: Sequence[BrokerResult],
    targets: Sequence[Target],
    pid_of: Callable[[str], int],
    login_of: Callable[[str], Login | None] = lambda _: None,
    processes_of: Callable[[str], Processes] = lambda _: PROCESSES_HERE,
) -> Watchable:
    """Returns the targets on this machine by their names, and then the brokers that the run has
    started. Each has the target for an observer. `pid_of` returns the present process
    id of a broker, `login_of` the observers' own login at the brokers of a name, if they have
    one, `processes_of` the processes of a broker's machine."""
    given = targets[: len(targets) - len(started)]
    found = (
        WatchedBroker(
            source=source,
            process=Process(port=target.port),
            target=target,
            speaks_sys=target.speaks_mqtt,
        )
        for source, target in zip(sources_of(given), given, strict=True)
        if target.is_loopback
    )
    sizes = Counter(broker.group for broker in started)
    numbers = {group: count() for group in sizes}
    together = [group for group, size in sizes.items() if group and size > TOGETHER_ABOVE]
    own = (
        WatchedBroker(
            source=Source(
                "broker", broker.name, broker.group or broker.name, next(numbers[broker.group])
            ),
            process=partial(pid_of, broker.name),
            target=target,
            speaks_sys=broker.speaks_sys,
            metrics_url=broker.metrics_url,
            login=login_of(broker.group),
            processes=processes_of(broker.name),
        )
        for broker, target in zip(started, targets[len(given) :], strict=True)
        if broker.group not in together
    )
    members = {group: [b.name for b in started if b.group == group] for group in together}
    groups = (
        WatchedGroup(Source.single("broker", group), _parts(names, pid_of, processes_of))
        for group, names in members.items()
    )
    return Watchable((*found, *own), tuple(groups))


def _parts(
    names: Sequence[str], pid_of: Callable[[str], int], processes_of: Callable[[str], Processes]
) -> Sequence[GroupPart]:
    """Returns the processes of brokers by their machine."""
    by_machine: dict[int, tuple[Processes, list[str]]] = {}
    for name in names:
        machine = processes_of(name)
        by_machine.setdefault(id(machine), (machine, []))[1].append(name)

    def pids(there: Sequence[str]) -> Sequence[int]:
        return [pid_of(name) for name in there]

    return [GroupPart(machine, partial(pids, there)) for machine, there in by_machine.values()]


def _datagram_monitors(
    scenario: Scenario, topology: Topology, watched: Sequence[WatchedBroker]
) -> Iterator[Monitor]:
    """The monitors of full sockets, if clients connect to one of the brokers over QUIC."""
    targets = zip(scenario.target_sources, scenario.target, strict=True)
    ports = {source.name: target.port for source, target in targets if target.quic}
    started = (each.name for each in topology.results())
    ports |= {name: port for name in started if (port := topology.broker(name).quic_port)}
    if ports and scenario.monitors.host:
        yield DatagramsMonitor(Source.host(), datagrams_dropped)
    for broker in watched if scenario.monitors.brokers else ():
        port = ports.get(broker.source.name, 0)
        if port and isinstance(broker.processes, LocalProcesses):
            yield DatagramsMonitor(broker.source, partial(datagrams_dropped_at, port))


def monitors_for(scenario: Scenario, plan: Plan, watched: Watchable) -> Iterator[Monitor]:
    """The monitors of a run."""
    if scenario.monitors.host:
        yield HostMonitor()
        yield ClientsMonitor(target.port for target in plan.targets)
    if scenario.monitors.brokers:
        for broker in watched.brokers:
            port = broker.target.port
            yield from process_monitors(broker.source, broker.process, broker.processes, port)
            if broker.speaks_sys:
                login = broker.login or client_login(plan, broker.target)
                yield SysTopicsMonitor(broker.source, broker.target, SysTopics().topics, login)
            if broker.metrics_url is not None:
                yield from _made(broker.source, Prometheus(url=broker.metrics_url), plan)
        for group in watched.groups:
            yield GroupMonitor(group.source, group.parts)
    targets = {source.name: source for source in scenario.target_sources}
    if scenario.monitors.brokers:
        yield from _observers_elsewhere(scenario, plan)
    for name, found in scenario.monitors.sources.items():
        # A source can have the name of a target, which it watches then.
        source = targets.get(name) or Source.single(found.wanted.KIND, name)
        yield from _made(source, found.wanted, plan)


def _observers_elsewhere(scenario: Scenario, plan: Plan) -> Iterator[Monitor]:
    """Yields the observers of targets on other machines of which the scenario asks for figures of
    `$SYS`, unless one of its sources observes such a target."""
    asked = asked_of(scenario, SYS_PREFIX)
    sources = scenario.monitors.sources.items()
    observed = {observed_by(n, each.sys, plan).host for n, each in sources if each.sys is not None}
    for broker, target in zip(scenario.target_sources, plan.targets, strict=False):
        is_asked = not asked.isdisjoint({broker.name, broker.group})
        is_found = target.is_loopback or target.host in observed
        is_found = is_found or target.quic or not target.speaks_mqtt
        if is_asked and not is_found:
            yield SysTopicsMonitor(broker, target, SysTopics().topics, client_login(plan, target))


def _made(source: Source, wanted: Monitorable, plan: Plan) -> Iterable[Monitor]:
    """Returns the monitors of a thing. Their module is imported only if there is such a thing."""
    return maker_of(type(wanted))(source, wanted, plan)


def maker_of(kind: type[Monitorable]) -> Callable[[Source, Any, Plan], Iterable[Monitor]]:
    """Returns the function that makes the monitors of a kind of thing."""
    name = "_".join(re.findall("[A-Z][a-z]*", kind.__name__)).lower()
    maker: Callable[[Source, Any, Plan], Iterable[Monitor]]
    maker = import_module(f"pubstorm.measure.monitors.{name}").monitors_of
    return maker


def topology_monitors(
    topology: Topology, plan: Plan, *, services: bool, hosts: bool = True
) -> Iterator[Monitor]:
    """The monitors of bridges, and of services and other hosts if asked for, once all are
    started."""
    for machine in topology.hosts.others if hosts else ():
        yield HostMonitor(machine.address, machine.counters)
    for server in topology.services.servers if services else ():
        processes = _processes_at(server.place.machine)
        source = Source.single("service", server.name)
        yield ProcessMonitor(source, partial(_pid, server), processes)
        if isinstance(server, RedisService):
            yield from _made(source, server.watched, plan)
    for states in topology.bridges.states():
        yield BridgeMonitor(states)


def profile_spec(
    scenario: Scenario, plan: Plan, brokers: Sequence[WatchedBroker]
) -> ProfileSpec | None:
    """Returns the profile that the scenario asks for; None if it asks for none or there is no such
    broker."""
    wanted = scenario.profile
    if wanted is None:
        return None
    named: dict[str, Process | PidNow] = {
        broker.source.name: broker.process
        if broker.processes is PROCESSES_HERE
        else partial(_elsewhere, broker.source.name)
        for broker in reversed(brokers)
    }
    # A source can have the name of a target, whose place it takes.
    named |= {
        name: process
        for name, source in scenario.monitors.sources.items()
        if (process := source.process or (source.remote and source.remote.process))
    }
    first = brokers[0].source.name if brokers else next(iter(named), None)
    name = wanted.broker or first
    found = next((each for each in (name, f"{name}-0") if each in named), None)
    stages = [n for n, stage in enumerate(scenario.stages) if stage.name == wanted.stage]
    stages += [n for n, s in enumerate(plan.stages) if isinstance(s.action, PublishAction)]
    if found is None or not stages:
        return None
    return ProfileSpec(
        broker=found,
        process=named[found],
        stage=stages[0],
        after_ns=wanted.after,
        duration_ns=wanted.duration,
        frequency=wanted.frequency,
    )


def _elsewhere(broker: str) -> int:
    """Raises MonitorError: the id of the broker is another process on this machine."""
    hint = "run pubstorm monitor there, and profile its source"
    raise MonitorError(f"{broker} runs on another host: {hint}")


def _recording(scenario: Scenario, spec: ProfileSpec, folder: Path) -> Recording:
    source = scenario.monitors.sources.get(spec.broker)
    if source is None or source.remote is None:
        return Perf(folder, spec.frequency, parent_death_prefix())
    from pubstorm.measure.monitors.remote.client import RemotePerf

    return RemotePerf(source.remote, folder, spec.frequency, spec.duration_ns)


def _processes_of(topology: Topology, name: str) -> Processes:
    return _processes_at(topology.broker(name).place.machine)


def _processes_at(machine: Machine | None) -> Processes:
    """Returns the processes of a machine; None is this one."""
    return machine if isinstance(machine, RemoteMachine) else PROCESSES_HERE


def _pid(server: ServerProcess) -> int:
    return server.pid
