"""What engines on other hosts, and runs that go on without one, ask of the rest of a scenario. That
agents reach their targets from where they are is asked of the cluster once it is joined."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pubstorm.scenario.document import Path
from pubstorm.scenario.model import Scenario

if TYPE_CHECKING:
    from pubstorm.scenario.at import Finding


def check_fleet(scenario: Scenario) -> Iterator[Finding]:
    """What does not fit together."""
    fleet = scenario.fleet
    programs = list(_programs(scenario))
    if fleet.on != "local":
        for path, found, hint in programs:
            message = f"{found} with fleet.on {fleet.on}, allowed is what engines play"
            yield path, message, hint
        yield from _check_networks(scenario)
    if fleet.on_agent_loss != "fail" and programs:
        message = f"found {fleet.on_agent_loss} with programs that are no engines, allowed is fail"
        hint = "nobody else can play publishers and real sockets of ZeroMQ"
        yield ("fleet", "on_agent_loss"), message, hint
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


def _programs(scenario: Scenario) -> Iterator[tuple[Path, str, str]]:
    """Populations that programs of this host play: where, what was found, and what to do."""
    for name, population in scenario.populations.items():
        path: Path = ("populations", name)
        if population.publisher is not None:
            hint = "start the publisher by itself, and write target: zmq://HOST:PORT"
            yield (*path, "publisher"), "found a publisher that the run starts", hint
        elif population.subscriber != "simulated":
            found = f"found subscribers of {population.subscriber}"
            yield (*path, "subscriber"), found, "write subscriber: simulated"


def _check_networks(scenario: Scenario) -> Iterator[Finding]:
    """Clients at brokers in a network that this host alone reaches."""
    networks = {
        bridge.from_: name
        for name, bridge in scenario.topology.bridges.items()
        if bridge.network is not None
    }
    for name, population in scenario.populations.items():
        at = population.at
        inside = [g for g in networks if at is None or at.brokers == g]
        if inside:
            message = (
                f"found clients at {inside[0]} with fleet.on {scenario.fleet.on}, allowed are "
                "brokers that other hosts reach"
            )
            hint = f"leave network out of topology.bridges.{networks[inside[0]]}, or run on local"
            yield ("populations", name, "at"), message, hint
