"""Compares the memory that a scenario needs with the memory of this host. A step or trial that
needs more is not run, so that the results before it are not lost."""

from __future__ import annotations

from pubstorm.host.preflight.brokers import Kinds
from pubstorm.host.preflight.engines import agents_here
from pubstorm.host.preflight.host import Host
from pubstorm.host.preflight.needs import MEMORY, needs
from pubstorm.plan import provisional_plan
from pubstorm.quantities import bytes_text
from pubstorm.scenario import Scenario


def unfit_here(scenario: Scenario, brokers: Kinds, host: Host | None = None) -> str | None:
    """The memory that a host lacks for a scenario with its brokers, in words. None if it suffices,
    or if the scenario runs on a cluster. Default host: this one."""
    if scenario.fleet.on != "local":
        return None
    plan, host = provisional_plan(scenario), host or Host.here()
    agents = agents_here(plan, scenario.fleet, host)
    needed = needs(plan, host, agents=agents, brokers=brokers)
    memory = next(need for need in needed if need.what == MEMORY)
    if memory.is_met:
        return None
    return (
        f"it needs about {bytes_text(memory.needed)} of memory, "
        f"{bytes_text(memory.available or 0)} are available"
    )
