"""Whether a scenario fits into the memory of this host: one step or point that does not is not run,
since those before it are worth more than a machine out of memory."""

from __future__ import annotations

from pubstorm.plan import provisional_plan
from pubstorm.preflight import MEMORY, Host, agents_needed, broker_kinds, needs
from pubstorm.quantity import bytes_text
from pubstorm.scenario import Scenario


def unfit_here(scenario: Scenario, host: Host | None = None) -> str | None:
    """What a scenario needs that the host does not have, by default this one; None: it fits, or is
    played on hosts of which nobody knows before."""
    if scenario.fleet.on != "local":
        return None
    plan, host = provisional_plan(scenario), host or Host.here()
    agents = scenario.fleet.agents or agents_needed(
        plan, descriptors=host.descriptors, cores=host.cores
    )
    needed = needs(plan, host, agents=agents, brokers=broker_kinds(scenario.topology))
    memory = next(need for need in needed if need.what == MEMORY)
    if memory.is_met:
        return None
    return (
        f"it needs about {bytes_text(memory.needed)} of memory, "
        f"{bytes_text(memory.available or 0)} are there"
    )
