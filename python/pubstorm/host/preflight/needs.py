"""The needs of a plan on the hosts of the agents and of the brokers, and on each host of a cluster,
by arithmetic on the plan. The peak counts: clients that join during a stage are part of their
population's number."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from math import ceil

from pubstorm.contract.offered_load import most_at_a_target
from pubstorm.contract.plan import ConnectAction, Plan
from pubstorm.contract.protocol import OpenPace
from pubstorm.errors import FleetError
from pubstorm.host.binaries import offered_load
from pubstorm.host.calibration import Costs
from pubstorm.host.preflight.engines import (
    PORTS_SHARE_EASY,
    UNDER_WAY_S,
    agents_needed,
    bridges_of,
    clients_bytes,
    connecting,
    connections_at,
    large_messages_bytes,
    open_files,
    programs_of,
)
from pubstorm.host.preflight.host import HostLimits
from pubstorm.host.preflight.links import links_bytes
from pubstorm.host.preflight.need import (
    Fix,
    Kinds,
    Need,
    broker_bytes,
    broker_threads,
    client_bytes,
    descriptors_for,
)
from pubstorm.scenario.fleet import ScenarioFleet
from pubstorm.scenario.sizes import DESCRIPTORS_KEPT, UNLIMITED

MEMORY = "memory, about"
"""Name of the need for memory."""
SOURCE_PORTS = "ports from a source address to a target"
"""Name of the need for ports of connections."""
BROKER_CLIENT_BYTES = 40_000
"""In a broker elsewhere and its end of the connection; brokers differ, this is a high one."""
BROKER_TLS_BYTES = 50_000
"""Memory of TLS for each client of a broker; brokers differ, this is a high estimate."""
ENGINE_PIPES = 3
"""Descriptors of Pubstorm for an agent: both its pipes, and one that stands for its process."""
ENGINE_THREADS = 3
"""The loop, and one for each of its pipes."""
BROKER_FILES = 20
"""Open files of a broker without clients."""
ACCEPT_PAUSE_S = 0.1
"""Time for which a busy broker may leave new connections waiting, in seconds."""
FEW_BROKERS = 10
"""Number of brokers whose own memory does not matter."""
TRACKED_LATER = 2
"""Entries of the packet filter for each connection: closed ones stay for two minutes."""


def needs(plan: Plan, host: HostLimits, *, agents: int, brokers: Kinds) -> list[Need]:
    """The needs of a plan on this host, with so many `agents` and the `brokers` that the run
    starts."""
    return [
        *_descriptors(plan, host, agents, brokers),
        *_programs(plan, host),
        *_threads(plan, host, agents, brokers),
        *_ports(plan, host),
        *_setpriv(host, brokers),
        *_listening(plan, host, brokers),
        *_sources(plan, host),
        *_memory(plan, host, agents, brokers),
        *_tracked(plan, host),
        *(_backlogs(plan, host) if brokers or _all_loopback(plan) else ()),
    ]


def broker_host_needs(plan: Plan) -> list[Need]:
    """The needs of a broker that the run does not start, on its own host. The host is not
    checked."""
    clients = _clients_at_target(plan)
    files = clients + DESCRIPTORS_KEPT
    memory_bytes = clients * _broker_client_bytes(plan)
    burst = _burst(plan)
    return [
        Need("open files of a broker", files, None, "files", Fix("ulimit", "n", files)),
        Need("memory of a broker, about", memory_bytes, None, "bytes"),
        Need(
            "connections waiting to be accepted",
            burst,
            None,
            "connections",
            Fix("sysctl", "net.core.somaxconn", _round_up(burst)),
        ),
        Need(
            "connections that a packet filter tracks",
            TRACKED_LATER * clients,
            None,
            "connections",
            Fix("sysctl", "net.netfilter.nf_conntrack_max", _round_up(TRACKED_LATER * clients)),
            "no filter that tracks connections",
        ),
    ]


def _descriptors(plan: Plan, host: HostLimits, agents: int, brokers: Kinds) -> Iterator[Need]:
    engine = open_files(plan, agents, host.descriptors, "--set fleet.agents={}")
    per_broker = _clients_at_target(plan) + DESCRIPTORS_KEPT if brokers else 0
    yield engine
    if brokers:
        yield Need(
            "open files of a broker",
            per_broker,
            host.descriptors,
            "files",
            Fix("ulimit", "n", per_broker),
            "more brokers: raise count in topology.brokers",
        )
        own = descriptors_for(brokers) + agents * ENGINE_PIPES + DESCRIPTORS_KEPT
        fix = Fix("ulimit", "n", own)
        yield Need("open files of Pubstorm itself", own, host.descriptors, "files", fix)
    largest = max(engine.needed, per_broker)
    if largest > host.descriptors:
        fix = Fix("sysctl", "fs.nr_open", _round_up(largest))
        yield Need("open files that a limit may allow", largest, host.nr_open, "files", fix)
    has_peers = brokers or any(each.is_publisher for each in plan.populations)
    files = connecting(plan) * (2 if has_peers else 1) + agents * DESCRIPTORS_KEPT
    files += 2 * bridges_of(plan) + BROKER_FILES * sum(brokers.values())
    fix = Fix("sysctl", "fs.file-max", files * 2)
    yield Need("open files of the system", files, host.system_descriptors, "files", fix)


def _programs(plan: Plan, host: HostLimits) -> Iterator[Need]:
    """Needs of processes with real sockets: for each population, those of its largest process."""
    largest: dict[str, int] = {}
    for program in programs_of(plan):
        name = program.population
        largest[name] = max(program.files, largest.get(name, 0))
    for name, files in largest.items():
        otherwise = f"fewer subscribers: clients of the populations at {name}"
        fix = Fix("ulimit", "n", files)
        yield Need(f"open files of {name}", files, host.descriptors, "files", fix, otherwise)


def _threads(plan: Plan, host: HostLimits, agents: int, brokers: Kinds) -> Iterator[Need]:
    """Every thread counts as a process: to the user's limit, the system's and the group's."""
    own = agents * ENGINE_THREADS + broker_threads(brokers, host.cores)
    own += sum(program.threads for program in programs_of(plan))
    user = host.user_threads_used + own
    system = host.system_threads_used + own
    rows = (
        ("of this user", user, host.user_threads, Fix("ulimit", "u", user), ""),
        (
            "of the system",
            system,
            host.system_threads,
            Fix("sysctl", "kernel.threads-max", _round_up(system)),
            "",
        ),
        (
            "that have a process id",
            system,
            host.process_ids,
            Fix("sysctl", "kernel.pid_max", _round_up(system)),
            "",
        ),
        (
            "of this control group",
            host.group_threads_used + own,
            host.group_threads,
            None,
            "raise the container's limit of processes (pids.max), or start fewer brokers",
        ),
    )
    for whose, needed, available, fix, otherwise in rows:
        what = f"processes and threads {whose}"
        yield Need(what, needed, available, "threads", fix, otherwise)


def _ports(plan: Plan, host: HostLimits) -> Iterator[Need]:
    """Source ports: each pair of source address and target has the whole port range."""
    at_target = _clients_at_target(plan)
    per_pair = ceil(at_target / max(1, len(plan.sources)))
    easy = max(1, int(host.ports * PORTS_SHARE_EASY))
    fix, otherwise = None, f"{ceil(at_target / easy)} source addresses: sources in the scenario"
    if _all_loopback(plan):
        last = min(254, ceil(at_target / max(1, host.ports)) + 1)
        otherwise = f"--set 'sources=127.0.0.1-127.0.0.{last}'"
    else:
        fix = Fix("sysctl", "net.ipv4.ip_local_port_range", "1024 65535")
    hint = ""
    if per_pair > easy:
        hint = f"connecting gets slow beyond {easy:,} ports: use more source addresses (sources)"
    yield Need(SOURCE_PORTS, per_pair, host.ports, "ports", fix, otherwise, hint)


def _setpriv(host: HostLimits, brokers: Kinds) -> Iterator[Need]:
    """A broker with pipes ends by itself when Pubstorm is gone."""
    if not all(kind.pipes for kind in brokers):
        what = "setpriv, which ends brokers with a Pubstorm that is killed"
        fix = "apt-get install util-linux; without it, pubstorm down ends what is left of a run"
        yield Need(what, 1, int(host.has_setpriv), "programs", otherwise=fix)


def _listening(plan: Plan, host: HostLimits, brokers: Kinds) -> Iterator[Need]:
    """Ports for brokers and publishers, apart from those that outgoing connections may take
    meanwhile."""
    publishers = sum(each.clients for each in plan.populations if each.is_publisher)
    needed = sum(brokers.values()) + publishers
    if needed:
        fix = Fix("sysctl", "net.ipv4.ip_local_port_range", "32768 60999")
        listeners = " and ".join(
            word for word, n in (("brokers", brokers), ("publishers", publishers)) if n
        )
        yield Need(f"ports for {listeners} to listen on", needed, host.listen_ports, "ports", fix)


def _sources(plan: Plan, host: HostLimits) -> Iterator[Need]:
    """The source addresses of clients that this host has."""
    if not plan.sources:
        return
    missing = [source for source in plan.sources if not _is_here(source, host)]
    yield Need(
        "source addresses of this host",
        len(plan.sources),
        len(plan.sources) - len(missing),
        "addresses",
        Fix("address", host.interface, " ".join(missing)),
        "leave them out of sources",
    )


def _memory(plan: Plan, host: HostLimits, agents: int, brokers: Kinds) -> Iterator[Need]:
    costs, clients, bridges = host.costs, connecting(plan), bridges_of(plan)
    others = (clients if brokers or _all_loopback(plan) else 0) + 2 * bridges
    bytes_needed = clients_bytes(plan, costs) + costs.engines_bytes(agents)
    in_links = links_bytes(plan)
    bytes_needed += others * costs.end.value + large_messages_bytes(plan) + in_links
    if brokers:
        tls_bytes = BROKER_TLS_BYTES if _has_tls(plan) else 0
        bytes_needed += (clients + bridges) * (client_bytes(brokers) + tls_bytes)
        bytes_needed += broker_bytes(brokers)
    bytes_needed += sum(program.bytes for program in programs_of(plan))
    fix = "play fewer clients, or give the host more memory"
    if sum(brokers.values()) > FEW_BROKERS:
        fix = "play fewer clients, start fewer brokers, or give the host more memory"
    yield Need(MEMORY, round(bytes_needed), host.memory_bytes, "bytes", otherwise=fix)
    if in_links:
        yield Need("memory of it for bytes in links, about", round(in_links), None, "bytes")
    buffered = min(clients + others, _ends_in_use(plan)) * round(costs.buffer.value)
    pages = _round_up(ceil(buffered / PAGE_BYTES))
    tcp_mem = Fix("sysctl", "net.ipv4.tcp_mem", f"{pages // 2} {pages // 4 * 3} {pages}")
    yield Need("memory of TCP sockets, about", buffered, host.socket_memory_bytes, "bytes", tcp_mem)


def _ends_in_use(plan: Plan) -> int:
    """Ends of connections with a message in transit at once: for paced messages those of one
    moment, otherwise all."""
    paces = [each.pace for population in plan.populations for each in population.publications]
    if all(isinstance(pace, OpenPace) and pace.phase != "aligned" for pace in paces):
        return ceil(2 * UNDER_WAY_S * offered_load(plan).peak_per_s) + 2 * _burst(plan)
    return UNLIMITED


def _tracked(plan: Plan, host: HostLimits) -> Iterator[Need]:
    """Entries of connection tracking, only where the kernel has it loaded."""
    if host.tracked_connections is None:
        return
    needed = TRACKED_LATER * (connecting(plan) + bridges_of(plan))
    yield Need(
        "connections that the packet filter tracks",
        needed,
        host.tracked_connections,
        "connections",
        Fix("sysctl", "net.netfilter.nf_conntrack_max", _round_up(needed)),
        "take the run's ports out of connection tracking (NOTRACK)",
    )


def _backlogs(plan: Plan, host: HostLimits) -> Iterator[Need]:
    """Connections that arrive while a broker on this host does not accept."""
    burst = _burst(plan)
    for what, available, name in (
        ("connections waiting to be accepted", host.accept_backlog, "net.core.somaxconn"),
        ("connections in their handshake", host.syn_backlog, "net.ipv4.tcp_max_syn_backlog"),
    ):
        fix = Fix("sysctl", name, _round_up(burst))
        slower = "connect with less parallelism or at a lower rate"
        yield Need(what, burst, available, "connections", fix, slower)


def _burst(plan: Plan) -> int:
    """Connections that a target may have to keep waiting, in the steepest connect stage."""
    largest = 0
    for stage in plan.stages:
        if not isinstance(stage.action, ConnectAction):
            continue
        among = [plan.populations[index] for index in stage.populations]
        clients = sum(population.clients for population in among)
        by_rate = (stage.action.rate_per_s or clients / ACCEPT_PAUSE_S) * ACCEPT_PAUSE_S
        at_once = min(clients, ceil(by_rate), stage.action.parallelism or clients)
        busiest = most_at_a_target([(population.at, population.clients) for population in among])
        share = busiest / clients if clients else 0
        largest = max(largest, ceil(at_once * share))
    return largest


def _clients_at_target(plan: Plan) -> int:
    """Of the target that has the most, bridges among them."""
    return max(connections_at(plan))


def _broker_client_bytes(plan: Plan) -> int:
    return BROKER_CLIENT_BYTES + (BROKER_TLS_BYTES if _has_tls(plan) else 0)


def _has_tls(plan: Plan) -> bool:
    return any(target.tls for target in plan.targets)


def _all_loopback(plan: Plan) -> bool:
    return all(target.is_loopback for target in plan.targets)


def _is_here(source: str, host: HostLimits) -> bool:
    return ip_address(source).is_loopback or source in host.addresses


def _round_up(number: int) -> int:
    """The next power of two: settings that look chosen, with room to spare."""
    return int(2 ** max(0, number - 1).bit_length())


PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class AgentHost:
    """A host that agents are on."""

    address: str
    """Its address; empty: this host."""
    machine: str
    """Its architecture, such as `x86_64`."""
    cores: int
    """Processors that agents may use."""
    descriptors: int
    """Open files that a process may have there."""
    memory_bytes: int
    """Memory that is available there."""


def agents_on(hosts: Sequence[AgentHost], plan: Plan, fleet: ScenarioFleet) -> int:
    """Number of agents for a plan: one on each host, or, if packed, as many as the plan needs, one
    on a processor. Raises FleetError if the hosts have no room for the number in the scenario."""
    if not hosts:
        raise FleetError("found no host for agents", "add a node to the cluster")
    if fleet.spread == "strict":
        places, what, more = len(hosts), "hosts", "write fleet.spread: pack"
    else:
        places = sum(host.cores for host in hosts)
        what, more = "processors", "leave fleet.agents out"
    if fleet.agents is not None and fleet.agents > places:
        found = f"found fleet.agents {fleet.agents} with spread {fleet.spread}"
        there = ", ".join(f"{host_name(host.address)} ({host.cores} cores)" for host in hosts)
        text = f"{found}, allowed are {places}: the {what} of {there}"
        raise FleetError(text, f"add hosts to the cluster, or {more}")
    if fleet.agents is not None or fleet.spread == "strict":
        return fleet.agents or places
    descriptors = min(host.descriptors for host in hosts)
    return min(places, agents_needed(plan, descriptors=descriptors, cores=places))


def cluster_needs(
    plan: Plan, hosts: Sequence[AgentHost], agents: Mapping[str, int], populations: Collection[int]
) -> dict[str, list[Need]]:
    """The needs of each host for its agents, by its address; `agents` has the number of agents
    there, `populations` the indices of those that they play."""
    own = [each for index, each in enumerate(plan.populations) if index in populations]
    clients = sum(each.clients for each in plan.populations if each.player == "engine")
    part = sum(each.clients for each in own) / max(clients, 1)
    played = plan.model_copy(update={"populations": tuple(own)})
    clients_memory = part * clients_bytes(plan, Costs.of(None))
    return {
        host.address: [
            *_host_needs(played, host, (agents[host.address], sum(agents.values())), clients_memory)
        ]
        for host in hosts
        if agents.get(host.address)
    }


def host_name(address: str) -> str:
    """The name of a host in messages."""
    return address or "this host"


def _host_needs(
    plan: Plan, host: AgentHost, engines: tuple[int, int], clients_memory: float
) -> list[Need]:
    """Returns the needs of a host; `agents` is their number there and in all."""
    here, agents = engines
    memory = clients_memory * here / agents + Costs.of(None).engines_bytes(here)
    remedy = "{} agents: as many hosts, or --set fleet.spread=pack"
    more = "more hosts, or hosts with more memory"
    return [
        open_files(plan, agents, host.descriptors, remedy),
        Need(MEMORY, round(memory), host.memory_bytes, "bytes", otherwise=more),
    ]
