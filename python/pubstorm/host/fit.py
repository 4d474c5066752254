"""Compares the memory that a scenario needs with the memory of this host. A step or trial that
needs more is not run, so that the results before it are not lost."""

from __future__ import annotations

from pubstorm.host.preflight import MEMORY, Host, agents_here, broker_kinds, needs
from pubstorm.plan import provisional_plan
from pubstorm.quantities import bytes_text
from pubstorm.scenario import Scenario


def unfit_here(scenario: Scenario, host: Host | None = None) -> str | None:
    """The memory that a host lacks for a scenario, in words. None if it suffices, or if the
    scenario runs on a cluster. Default host: this one."""
    if scenario.fleet.on != "local":
        return None
    plan, host = provisional_plan(scenario), host or Host.here()
    agents = agents_here(plan, scenario.fleet, host)
    needed = needs(plan, host, agents=agents, brokers=broker_kinds(scenario.topology))
    memory = next(need for need in needed if need.what == MEMORY)
    if memory.is_met:
        return None
    return (
        f"it needs about {bytes_text(memory.needed)} of memory, "
        f"{bytes_text(memory.available or 0)} are available"
    )
