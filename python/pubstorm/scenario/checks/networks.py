"""Checks the networks of bridges against brokers, one another and faults.
`pubstorm.host.preflight.network` checks that this host can make them.
"""

from __future__ import annotations

from collections.abc import Iterator

from pubstorm.quantities import describe
from pubstorm.scenario.document import Finding, Path
from pubstorm.scenario.faults import BRIDGE_FAULTS, Fault, victims_of
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.topology import ScenarioTopology


def check_networks(scenario: Scenario) -> Iterator[Finding]:
    """Yields what does not fit together."""
    for name, bridge in scenario.topology.bridges.items():
        if bridge.network is None:
            continue
        path = ("topology", "bridges", name, "network")
        yield from _check_reached(path, name, scenario.topology)
        if scenario.sources is not None:
            message = "found sources and a network, which they cannot reach, allowed is one of them"
            yield ("sources",), message, "write sources: auto"
    for n, stage in enumerate(scenario.stages):
        for number, fault in enumerate(stage.faults):
            place = ("stages", n, stage.verb, "faults", number)
            yield from _check_fault(place, fault, scenario.topology)


def _check_reached(path: Path, name: str, topology: ScenarioTopology) -> Iterator[Finding]:
    """The brokers at both ends: who can be reached from inside the network."""
    bridge = topology.bridges[name]
    main = topology.brokers.get(bridge.to)
    if bridge.to == "target":
        hint = "leave network out, or put the delay on the way to that broker with tc there"
        message = "found a network whose link would lead to target, allowed is a broker of the run"
        yield path, message, hint
    elif main is not None and main.kind != "mosquitto":
        message = f"found a network whose link leads to a broker of kind {main.kind}"
        yield path, f"{message}, allowed is mosquitto", "only it listens at a second address"
    for other_name, other in topology.bridges.items():
        if other_name != name and other.from_ == bridge.from_:
            message = f"found a network for {bridge.from_}, and another bridge from it"
            hint = f"{describe(other_name)} would have to leave the network: give it brokers"
            yield path, f"{message}, allowed is one bridge", f"{hint} of its own"


def _check_fault(path: Path, fault: Fault, topology: ScenarioTopology) -> Iterator[Finding]:
    """Links that are unplugged, and bridges that cannot be cut in another way."""
    if fault.kind not in BRIDGE_FAULTS:
        return
    try:
        name, _ = victims_of(topology, fault)
    except KeyError:
        return
    if topology.bridges[name].network is None:
        if fault.how == "unplug":
            message = f"found unplug for bridge {name}, which has no network"
            hint = f"add network: {{}} to topology.bridges.{name}, or write how: stall"
            yield (*path, "how"), f"{message}, allowed are close and stall", hint
    elif fault.kind == "delay":
        message = f"found delay for bridge {name}, which has a network"
        hint = "its link has a delay for the whole run: network: {delay: ...}"
        yield (*path, "delay"), f"{message}, allowed is cut with how: unplug", hint
    elif fault.how != "unplug":
        message = f"found {fault.how} for bridge {name}, which has a network"
        yield (*path, "how"), f"{message}, allowed is how: unplug", None
    elif fault.count is not None or name != fault.victims:
        found = f"a part of {name}" if fault.count is None else str(fault.count)
        message = f"found {found}, allowed is unplug for all: bridges of {name} share one link"
        yield (*path, "cut" if fault.count is None else "count"), message, None
