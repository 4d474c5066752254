"""The sizes of a fleet on a cluster: hosts and agents that a plan needs, the load of each,
duration and price of the run. Arithmetic on the plan, on the host in the scenario, and on the costs
of clients; reads no cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from pubstorm.contract.plan import (
    ConnectAction,
    Plan,
)
from pubstorm.host.binaries import offered_load
from pubstorm.host.calibration import Cost, Costs, least_seconds
from pubstorm.host.preflight.engines import (
    PORTS_SHARE_EASY,
    clients_bytes,
    connections_at,
    sockets,
)
from pubstorm.host.preflight.links import links_bytes
from pubstorm.host.sizing.traffic import SEGMENT, Moment, moments
from pubstorm.quantities import bytes_text
from pubstorm.scenario.fleet import FleetHost, ScenarioFleet
from pubstorm.scenario.sizes import DESCRIPTORS_KEPT

CPU_SHARE = 0.5
"""Share of its core that an agent may use. Bursts, the network's interrupts and other work of the
host need the rest."""
MEMORY_SHARE = 0.8
"""Share of a host's memory that agents may have; the rest is the system's and Ray's."""
BANDWIDTH_SHARE = 0.8
"""Share of the network that may be in use in the mean of the busiest second."""
HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class Resource:
    """One thing that hosts have so much of."""

    what: str
    needed: float
    """By all agents together."""
    capacity: float
    """Capacity of one host."""
    unit: str
    reason: str
    """The need and the capacity, in words."""

    @property
    def hosts(self) -> int:
        """Number of hosts that provide the resource."""
        return max(1, ceil(self.needed / self.capacity)) if self.capacity > 0 else 1


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a cluster for a plan."""

    host: FleetHost
    hosts: int
    """Hosts with agents; one more has the controller."""
    servers: int
    """Hosts with brokers and other servers of the run, besides the controller's."""
    agents: int
    clients: int
    """Clients of the agent that has the most."""
    resources: tuple[Resource, ...]
    """The resources, ordered by the number of hosts that they need, the largest first."""
    given: bool
    """True if the scenario sets the number of agents."""
    runs: int
    """Runs of all steps and trials, at least."""
    seconds: float
    """Least duration of all runs, in seconds."""
    costs: tuple[str, ...]
    """Figures that the sizes are reckoned with, a line for each."""
    remarks: tuple[str, ...]

    @property
    def all_hosts(self) -> int:
        """Hosts of agents, of servers, and the controller's."""
        return self.hosts + self.servers + 1

    @property
    def price_per_hour(self) -> float:
        """Price of all hosts; 0 if unknown."""
        return self.host.price * self.all_hosts

    @property
    def price(self) -> float:
        """Of all runs."""
        return self.price_per_hour * self.seconds / HOUR_S


@dataclass(frozen=True, slots=True)
class PlannedRuns:
    """The runs that a cluster is for."""

    plans: Sequence[tuple[Plan, int]]
    """The plan of each step, with its number of runs."""
    servers: int = 0
    """Hosts with brokers and other servers of the largest step, besides the controller's."""


def sizes_of(
    plan: Plan, fleet: ScenarioFleet, costs: Costs, ports: int, planned: PlannedRuns
) -> Sizes:
    """The sizes for a plan, the largest of a series, with `ports` ports for each address and
    target."""
    busy = list(moments(plan, costs))
    found = _resources(plan, fleet, costs, ports, busy)
    found.sort(key=lambda resource: resource.hosts, reverse=True)
    per_host = _agents_per_host(fleet)
    if fleet.agents is None:
        hosts = found[0].hosts
        agents = hosts if per_host == 1 else min(hosts * per_host, max(hosts, _least(plan, found)))
    else:
        agents, hosts = fleet.agents, ceil(fleet.agents / per_host)
    connects_per_s = agents * CPU_SHARE * 1e6 / costs.connect.value
    engine_clients = [each.clients for each in plan.populations if each.player == "engine"]
    return Sizes(
        host=fleet.host,
        hosts=hosts,
        servers=planned.servers,
        agents=agents,
        clients=sum(ceil(clients / agents) for clients in engine_clients),
        resources=tuple(found),
        given=fleet.agents is not None,
        runs=sum(runs for _, runs in planned.plans),
        seconds=sum(runs * least_seconds(step, connects_per_s) for step, runs in planned.plans),
        costs=tuple(_figures(plan, costs)),
        remarks=(
            *_unreachable(plan),
            *_remarks(plan, fleet, hosts, ports),
            *filter(None, [costs.word]),
        ),
    )


def _resources(
    plan: Plan, fleet: ScenarioFleet, costs: Costs, ports: int, busy: Sequence[Moment]
) -> list[Resource]:
    host, engines = fleet.host, _agents_per_host(fleet)
    at_one = _ports_at_one(plan)
    cpu = max(busy, key=lambda moment: moment.cpu_s)
    out = max(busy, key=lambda moment: moment.wire.out)
    into = max(busy, key=lambda moment: moment.wire.into)
    bytes_each, bytes_in_words = _memory(plan, costs, busy)
    link = host.bandwidth / 8 * BANDWIDTH_SHARE
    addresses = f"{host.addresses:,} × {ports:,} ports"
    files = host.descriptors - DESCRIPTORS_KEPT
    return [
        Resource(
            "ports to a target",
            at_one,
            host.addresses * ports,
            "connections",
            f"connections at the target that has the most; {addresses} on each host",
        ),
        Resource(
            "open files",
            sum(sockets(plan)),
            max(1, files) * engines,
            "files",
            f"one for each client, {DESCRIPTORS_KEPT} kept for an agent",
        ),
        Resource(
            "memory",
            bytes_each,
            host.memory * MEMORY_SHARE - costs.engines_bytes(engines),
            "bytes",
            f"{bytes_in_words}; {MEMORY_SHARE:.0%} of a host's",
        ),
        Resource(
            "processors",
            cpu.cpu_s,
            engines * CPU_SHARE,
            "cores",
            f"busiest in {cpu.name}; {CPU_SHARE:.0%} of a core for each agent",
        ),
        Resource(
            "network, out", out.wire.out, link, "bytes/s", f"busiest in {out.name}; {_of_link()}"
        ),
        Resource(
            "network, in", into.wire.into, link, "bytes/s", f"busiest in {into.name}; {_of_link()}"
        ),
    ]


def _memory(plan: Plan, costs: Costs, busy: Sequence[Moment]) -> tuple[float, str]:
    """Memory of all clients, in agents and kernels; that of one client, in words."""
    clients = sum(each.clients for each in plan.populations if each.player == "engine")
    under_way = min(2 * clients, max(moment.messages_per_s for moment in busy))
    if offered_load(plan).closed_loop:
        under_way = clients
    words = f"{costs.client.value + costs.end.value:,.0f} B for each client"
    if _has_tls(plan):
        words += f", {costs.tls_client.value:,.0f} B for TLS"
    if any(target.quic for target in plan.targets):
        words = words.replace("each client", "each client over TCP")
        words += f", {costs.quic_client.value:,.0f} B for QUIC"
    for cost in _sessions(plan, costs):
        words += f", {cost.value:,.0f} B for {cost.what}"
    if in_links := links_bytes(plan):
        words += f", {bytes_text(in_links)} in links"
    return clients_bytes(plan, costs) + in_links + under_way * costs.buffer.value, words


def _sessions(plan: Plan, costs: Costs) -> list[Cost]:
    """Returns what the protocols of a plan add to a client, each protocol once."""
    spoken = {each.can.title: each.can for each in plan.populations if each.can.session_bytes}
    return [costs.session(can) for can in spoken.values()]


def _has_tls(plan: Plan) -> bool:
    return any(target.tls and not target.quic for target in plan.targets)


def _ports_at_one(plan: Plan) -> int:
    """Connections with a port of their own at the target that has the most: those over TCP."""
    pairs = zip(connections_at(plan), plan.targets, strict=True)
    return max((number for number, target in pairs if not target.quic), default=0)


def _least(plan: Plan, resources: Sequence[Resource]) -> int:
    """Number of agents that the CPU time needs."""
    cores = next(resource.needed for resource in resources if resource.what == "processors")
    return min(ceil(cores / CPU_SHARE), max(1, plan.clients))


def _agents_per_host(fleet: ScenarioFleet) -> int:
    return 1 if fleet.spread == "strict" else fleet.host.cores


def _of_link() -> str:
    return f"{BANDWIDTH_SHARE:.0%} of the network's"


def _figures(plan: Plan, costs: Costs) -> Iterator[str]:
    qos = {p.qos for each in plan.populations for p in each.publications}
    used = [costs.engine, costs.client, costs.end, costs.buffer, costs.pair, costs.connect]
    used += [costs.sent[0], costs.received[0]] if 0 in qos else []
    used += [costs.sent[1], costs.received[1]] if qos & {1, 2} else []
    used += [costs.ping] if any(each.keep_alive_s for each in plan.populations) else []
    used += [costs.tls_client, costs.handshake] if _has_tls(plan) else []
    used += _sessions(plan, costs)
    if any(target.quic for target in plan.targets):
        used += [costs.quic_client, costs.quic_handshake, costs.quic_packet]
    for cost in used:
        number = f"{cost.value:,.0f}" if cost.value >= 100 else f"{cost.value:.1f}"
        yield f"{cost.what:24}{number:>12} {cost.unit:3}{cost.source}"
    yield f"{'headers of a segment':24}{SEGMENT:>12} B  Ethernet, IPv4, TCP with time stamps"


def _unreachable(plan: Plan) -> Iterator[str]:
    if all(target.is_loopback for target in plan.targets):
        yield (
            "agents on other hosts do not reach the targets, which are on loopback: name one that "
            "they reach (--target)"
        )


def _remarks(plan: Plan, fleet: ScenarioFleet, hosts: int, ports: int) -> Iterator[str]:
    at_one = ceil(_ports_at_one(plan) / hosts / fleet.host.addresses)
    easy = int(ports * PORTS_SHARE_EASY)
    if at_one > easy:
        yield (
            f"connecting gets slow beyond {easy:,} connections from an address to a target, here "
            f"{at_one:,}: give hosts more addresses (sources in the scenario)"
        )
    if offered_load(plan).closed_loop:
        yield "a closed loop takes what processors and network give, and is not in the figures"
    if any(isinstance(s.action, ConnectAction) and not s.action.rate_per_s for s in plan.stages):
        yield "a connect stage without a rate takes what processors and network give"
    if not all(each.can.has_broker for each in plan.populations):
        yield "what a publisher that already runs sends is not in the figures"
