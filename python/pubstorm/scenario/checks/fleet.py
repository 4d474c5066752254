"""Checks scenarios whose agents run on other hosts, or that continue without an agent. The cluster
checks that agents reach their targets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pubstorm.scenario.document import Finding, Path
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import ZmqPublisher, ZmqSockets


def check_fleet(scenario: Scenario) -> Iterator[Finding]:
    """Yields what does not fit together."""
    fleet = scenario.fleet
    programs = list(_programs(scenario))
    if fleet.on != "local":
        yield from _check_programs(scenario, programs)
        yield from _check_networks(scenario)
        yield from _check_placed(scenario)
    if fleet.on_agent_failure != "fail" and programs:
        message = (
            f"found {fleet.on_agent_failure} with programs that are no engines, allowed is fail"
        )
        hint = "no other agent can play publishers and real sockets of ZeroMQ"
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


def _programs(scenario: Scenario) -> Iterator[tuple[str, ZmqPublisher | ZmqSockets]]:
    """Yields the populations that programs play, by name."""
    for name, population in scenario.populations.items():
        if isinstance(population, ZmqPublisher | ZmqSockets):
            yield name, population


def _check_programs(
    scenario: Scenario, programs: Sequence[tuple[str, ZmqPublisher | ZmqSockets]]
) -> Iterator[Finding]:
    """Yields programs on other hosts that cannot follow the clock of the controller's host."""
    for name, population in programs:
        if population.hosts is None:
            continue
        place: Path = ("populations", name, "hosts")
        hint = "leave hosts out: then it is on the controller's host"
        if isinstance(population, ZmqPublisher):
            kind = population.publisher.kind
            if kind != "libzmq":
                yield place, f"found hosts with kind {kind}, allowed with libzmq", hint
            continue
        publishers = scenario.publisher_of(population)
        if publishers is not None and publishers.publisher.security == "curve":
            yield place, "found hosts with security curve, allowed with none and plain", hint


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
        if scenario.profile is not None and scenario.profile.broker in {name, f"{name}-0", None}:
            message = f"found a profile of {name}, which is on another host"
            hint = "perf runs on the controller's host: profile a broker without hosts"
            yield ("profile",), message, hint


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
