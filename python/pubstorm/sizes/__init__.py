"""The sizes of a fleet on a cluster: how many hosts and engines a plan asks for, what each of them
carries, how long the run takes and what it costs. Arithmetic on the plan, on a host as the scenario
describes it, and on what clients cost: it looks at no cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from pubstorm.descriptors import DESCRIPTORS_KEPT
from pubstorm.offered import stage_load
from pubstorm.plan import (
    ZMTP,
    ConnectAction,
    DisconnectAction,
    HoldAction,
    Plan,
    Presence,
    PublishAction,
    Stage,
)
from pubstorm.preflight.connections import connections_at
from pubstorm.scenario.fleet import Fleet, FleetHost
from pubstorm.sizes.costs import Costs
from pubstorm.sizes.traffic import Moment, ledger_pairs, moments
from pubstorm.sizes.wire import SEGMENT

CPU_SHARE = 0.5
"""Share of its core that an engine is given to do: a burst, the network's interrupts and whatever
else the host does need the rest."""
MEMORY_SHARE = 0.8
"""Share of a host's memory that engines may have; the rest is the system's and Ray's."""
BANDWIDTH_SHARE = 0.8
"""Share of the network that may be in use in the mean of the busiest second."""
PORTS_SHARE_EASY = 0.5
"""Share of the port range up to which connect() is fast: it looks at every second port first."""
SECOND_NS = 10**9
HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class Resource:
    """One thing that hosts have so much of."""

    what: str
    needed: float
    """By all engines together."""
    capacity: float
    """What one host gives."""
    unit: str
    reason: str
    """What is needed and given, in words."""

    @property
    def hosts(self) -> int:
        """Hosts that give it."""
        return max(1, ceil(self.needed / self.capacity)) if self.capacity > 0 else 1


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a plan asks of a cluster."""

    host: FleetHost
    hosts: int
    """Hosts with engines; one more has the conductor."""
    agents: int
    clients: int
    """Clients of the engine that has the most."""
    resources: tuple[Resource, ...]
    """The one that asks for the most hosts first."""
    given: bool
    """Whether the scenario says how many engines there are."""
    seconds: float
    """How long the run takes at least."""
    costs: tuple[str, ...]
    """Figures that the sizes are reckoned with, a line for each."""
    remarks: tuple[str, ...]

    @property
    def price_per_hour(self) -> float:
        """Of all hosts, that of the conductor among them; 0: nobody knows."""
        return self.host.price * (self.hosts + 1)

    @property
    def price(self) -> float:
        """Of the run."""
        return self.price_per_hour * self.seconds / HOUR_S


def sizes_of(plan: Plan, fleet: Fleet, costs: Costs, ports: int) -> Sizes:
    """The sizes of a plan, where the kernel has so many ports for each address and target."""
    busy = list(moments(plan, costs))
    found = _resources(plan, fleet, costs, ports, busy)
    found.sort(key=lambda resource: resource.hosts, reverse=True)
    per_host = _agents_per_host(fleet)
    if fleet.agents is None:
        hosts = found[0].hosts
        agents = hosts if per_host == 1 else min(hosts * per_host, max(hosts, _least(plan, found)))
    else:
        agents, hosts = fleet.agents, ceil(fleet.agents / per_host)
    engine_clients = [each.clients for each in plan.populations if each.player == "engine"]
    return Sizes(
        host=fleet.host,
        hosts=hosts,
        agents=agents,
        clients=sum(ceil(clients / agents) for clients in engine_clients),
        resources=tuple(found),
        given=fleet.agents is not None,
        seconds=_seconds(plan, agents, costs),
        costs=tuple(_figures(plan, costs)),
        remarks=(*_remarks(plan, fleet, hosts, ports), *filter(None, [costs.word])),
    )


def _resources(
    plan: Plan, fleet: Fleet, costs: Costs, ports: int, busy: Sequence[Moment]
) -> list[Resource]:
    host, engines = fleet.host, _agents_per_host(fleet)
    clients = sum(each.clients for each in plan.populations if each.player == "engine")
    at_one = max(connections_at(plan))
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
            clients,
            max(1, files) * engines,
            "files",
            f"one for each client, {DESCRIPTORS_KEPT} kept for an engine",
        ),
        Resource(
            "memory",
            bytes_each,
            host.memory * MEMORY_SHARE - engines * costs.engine.value,
            "bytes",
            f"{bytes_in_words}; {MEMORY_SHARE:.0%} of a host's",
        ),
        Resource(
            "processors",
            cpu.cpu_s,
            engines * CPU_SHARE,
            "cores",
            f"busiest in {cpu.name}; {CPU_SHARE:.0%} of a core for each engine",
        ),
        Resource(
            "network, out", out.wire.out, link, "bytes/s", f"busiest in {out.name}; {_of_link()}"
        ),
        Resource(
            "network, in", into.wire.into, link, "bytes/s", f"busiest in {into.name}; {_of_link()}"
        ),
    ]


def _memory(plan: Plan, costs: Costs, busy: Sequence[Moment]) -> tuple[float, str]:
    """What all clients take, in engines and kernels; what each of them takes, in words."""
    clients = [each.clients for each in plan.populations if each.player == "engine"]
    secure = [
        each.clients
        for each in plan.populations
        if each.tls is not None and any(plan.targets[t].tls for t in each.at.targets)
    ]
    under_way = min(2 * sum(clients), max(moment.messages_per_s for moment in busy))
    if any(stage_load(plan, stage).has_closed_loop for stage in plan.stages):
        under_way = sum(clients)
    each = costs.client.value + costs.end.value
    total = sum(clients) * each + sum(secure) * costs.tls_client.value
    total += under_way * costs.buffer.value + ledger_pairs(plan) * costs.pair.value
    words = f"{each:,.0f} B for each client"
    if sum(secure):
        words += f", {costs.tls_client.value:,.0f} B for TLS"
    return total, words


def _least(plan: Plan, resources: Sequence[Resource]) -> int:
    """Engines that the processors ask for, by themselves."""
    cores = next(resource.needed for resource in resources if resource.what == "processors")
    return min(ceil(cores / CPU_SHARE), max(1, plan.clients))


def _agents_per_host(fleet: Fleet) -> int:
    return 1 if fleet.spread == "strict" else fleet.host.cores


def _of_link() -> str:
    return f"{BANDWIDTH_SHARE:.0%} of the network's"


def _seconds(plan: Plan, agents: int, costs: Costs) -> float:
    """Without drains, which take as long as messages are on their way. Where a connect stage has no
    rate, as fast as engines connect."""
    found = 0.0
    fastest = agents * CPU_SHARE * 1e6 / costs.connect.value
    for stage in plan.stages:
        before = Presence.before(plan, stage)
        match stage.action:
            case ConnectAction(rate_per_s=rate_per_s):
                earlier = _before(plan, stage)
                come = before.together(stage.populations) - earlier.together(stage.populations)
                found += max(0, come) / min(fastest, rate_per_s or fastest)
            case DisconnectAction(rate_per_s=rate_per_s):
                gone = _before(plan, stage).together(stage.populations)
                found += gone / rate_per_s if rate_per_s else 0
            case PublishAction(duration_ns=duration_ns) | HoldAction(duration_ns=duration_ns):
                found += duration_ns / SECOND_NS
    return found


def _before(plan: Plan, stage: Stage) -> Presence:
    """Who is there before a stage begins."""
    at = plan.stages.index(stage)
    if at == 0:
        return Presence(plan)
    last = plan.stages[at - 1]
    presence = Presence.before(plan, last)
    if isinstance(last.action, PublishAction):
        for change in last.action.changes:
            presence.change(change.population, change.action)
    return presence


def _figures(plan: Plan, costs: Costs) -> Iterator[str]:
    """The costs that count in this plan."""
    qos = {p.qos for each in plan.populations for p in each.publications}
    used = [costs.engine, costs.client, costs.end, costs.buffer, costs.pair, costs.connect]
    used += [costs.sent[0], costs.received[0]] if 0 in qos else []
    used += [costs.sent[1], costs.received[1]] if qos & {1, 2} else []
    used += [costs.ping] if any(each.keep_alive_s for each in plan.populations) else []
    used += [costs.tls_client, costs.handshake] if any(t.tls for t in plan.targets) else []
    for cost in used:
        number = f"{cost.value:,.0f}" if cost.value >= 100 else f"{cost.value:.1f}"
        yield f"{cost.what:24}{number:>12} {cost.unit:3}{cost.source}"
    yield f"{'headers of a segment':24}{SEGMENT:>12} B  Ethernet, IPv4, TCP with time stamps"


def _remarks(plan: Plan, fleet: Fleet, hosts: int, ports: int) -> Iterator[str]:
    if all(target.is_loopback for target in plan.targets):
        yield (
            "agents on other hosts do not reach the targets, which are on loopback as all brokers "
            "that a run starts: name one that they reach (--target)"
        )
    at_one = ceil(max(connections_at(plan)) / hosts / fleet.host.addresses)
    easy = int(ports * PORTS_SHARE_EASY)
    if at_one > easy:
        yield (
            f"connecting gets slow beyond {easy:,} connections from an address to a target, here "
            f"{at_one:,}: give hosts more addresses (sources in the scenario)"
        )
    if any(stage_load(plan, stage).has_closed_loop for stage in plan.stages):
        yield "a closed loop takes what processors and network give, and is not in the figures"
    if any(isinstance(s.action, ConnectAction) and not s.action.rate_per_s for s in plan.stages):
        yield "a connect stage without a rate takes what processors and network give"
    if any(each.version == ZMTP for each in plan.populations):
        yield "what a publisher of ZeroMQ that already runs sends is not in the figures"
