"""How many engines play a plan on a cluster, and what each host there needs for its own. It knows
hosts by what they say of themselves, and nothing of how engines get there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pubstorm.descriptors import DESCRIPTORS_KEPT
from pubstorm.errors import FleetError
from pubstorm.fleet.site import AgentHost
from pubstorm.plan import Plan
from pubstorm.preflight.engines import agents_needed, agents_that_fit, largest_share
from pubstorm.preflight.fixes import Fix
from pubstorm.preflight.need import Need
from pubstorm.preflight.needs import KERNEL_END_BYTES, MEMORY, engine_bytes
from pubstorm.scenario.fleet import Fleet


def agents_on(hosts: Sequence[AgentHost], plan: Plan, fleet: Fleet) -> int:
    """Engines for a plan: one on each host, or packed as many as it asks for, one on a processor.
    Raises FleetError where there is no room for as many as the scenario wants."""
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
    plan: Plan, hosts: Sequence[AgentHost], agents: Mapping[str, int]
) -> dict[str, list[Need]]:
    """What each host needs for its engines, by its address; `agents` says how many are there."""
    return {
        host.address: [*_host_needs(plan, host, agents[host.address], sum(agents.values()))]
        for host in hosts
        if agents.get(host.address)
    }


def host_name(address: str) -> str:
    """What a host is called in messages."""
    return address or "this host"


def _host_needs(plan: Plan, host: AgentHost, here: int, agents: int) -> list[Need]:
    share = largest_share(plan, agents)
    clients = here * share
    files = share + DESCRIPTORS_KEPT
    fitting = agents_that_fit(plan, descriptors=host.descriptors)
    return [
        Need(
            "open files of an engine",
            files,
            host.descriptors,
            "files",
            Fix("ulimit", "n", files),
            f"{fitting} agents: as many hosts, or --set fleet.spread=pack",
        ),
        Need(
            MEMORY,
            engine_bytes(plan, clients=clients, engines=here) + clients * KERNEL_END_BYTES,
            host.memory_bytes,
            "bytes",
            otherwise="more hosts, or hosts with more memory",
        ),
    ]
