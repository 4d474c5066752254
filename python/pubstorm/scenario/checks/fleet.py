"""Checks scenarios whose agents run on other hosts, or that continue without an agent. The cluster
checks that agents reach their targets."""

from __future__ import annotations

from collections.abc import Iterator

from pubstorm.scenario.document import Finding, Path
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import Simulated


def check_fleet(scenario: Scenario) -> Iterator[Finding]:
    """Yields what does not fit together."""
    fleet = scenario.fleet
    if fleet.on != "local":
        yield from _check_networks(scenario)
        yield from _check_placed(scenario)
    has_programs = any(not isinstance(each, Simulated) for each in scenario.populations.values())
    if fleet.on_agent_failure != "fail" and has_programs:
        message = (
            f"found {fleet.on_agent_failure} with programs that are no engines, allowed is fail"
        )
        hint = "no other agent can play publishers and real sockets"
        yield ("fleet", "on_agent_failure"), message, hint
    yield from _check_parallelism(scenario)


def _check_parallelism(scenario: Scenario) -> Iterator[Finding]:
    """Yields connect stages that allow fewer connections under way than there are agents."""
    agents = scenario.fleet.agents or 1
    for index, stage in enumerate(scenario.stages):
        at_once = stage.connect.parallelism if stage.connect is not None else None
        if at_once is not None and at_once < agents:
            message = f"found {at_once} with fleet.agents {agents}, allowed is {agents} or more"
            hint = "each agent connects one client at a time, or more"
            yield ("stages", index, "connect", "parallelism"), message, hint


def _check_placed(scenario: Scenario) -> Iterator[Finding]:
    """Yields servers on other hosts that only this host can have."""
    topology = scenario.topology
    for name, broker in topology.brokers.items():
        if broker.hosts is None:
            continue
        path: Path = ("topology", "brokers", name, "hosts")
        for bridge, each in topology.bridges.items():
            if each.network is not None and name in {each.from_, each.to}:
                message = f"found hosts with topology.bridges.{bridge}.network, allowed is one"
                hint = "a network joins brokers of one host: leave network or hosts out"
                yield path, message, hint


def _check_networks(scenario: Scenario) -> Iterator[Finding]:
    """Clients at brokers in a network that this host alone reaches."""
    networks = {
        bridge.from_: name
        for name, bridge in scenario.topology.bridges.items()
        if bridge.network is not None
    }
    for name, population in scenario.populations.items():
        at = population.attached_to
        inside = [g for g in networks if at is None or at.brokers == g]
        if inside:
            message = (
                f"found clients at {inside[0]} with fleet.on {scenario.fleet.on}, allowed are "
                "brokers that other hosts reach"
            )
            hint = f"leave network out of topology.bridges.{networks[inside[0]]}, or run on local"
            yield ("populations", name, "at"), message, hint
