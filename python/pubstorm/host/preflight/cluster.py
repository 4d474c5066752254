"""The number of engines for a plan on a cluster, and the needs of each host there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pubstorm.contract.plan import Plan
from pubstorm.errors import FleetError
from pubstorm.host.costs import Costs
from pubstorm.host.preflight.engines import agents_needed, clients_bytes, open_files
from pubstorm.host.preflight.need import Need
from pubstorm.host.preflight.needs import MEMORY
from pubstorm.scenario.fleet import ScenarioFleet


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
    """Number of engines for a plan: one on each host, or, if packed, as many as the plan needs, one
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
    """The needs of each host for its engines, by its address; `agents` has the number of engines
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
    """Returns the needs of a host; `engines` is their number there and in all."""
    here, agents = engines
    memory = clients_memory * here / agents + Costs.of(None).engines_bytes(here)
    remedy = "{} agents: as many hosts, or --set fleet.spread=pack"
    more = "more hosts, or hosts with more memory"
    return [
        open_files(plan, agents, host.descriptors, remedy),
        Need(MEMORY, round(memory), host.memory_bytes, "bytes", otherwise=more),
    ]
