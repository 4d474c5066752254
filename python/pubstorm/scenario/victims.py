"""Which brokers and bridges a fault may hit: all of a name, or one by its number. It knows no
stage.
"""

from __future__ import annotations

from collections.abc import Mapping

from pubstorm.scenario.faults import BROKER_FAULTS, Fault, FaultKind
from pubstorm.scenario.topology import Topology


def victims_of(topology: Topology, fault: Fault) -> tuple[str, range]:
    """The group that a fault names, and the numbers of those in it that it may hit. Raises
    KeyError where there is none of that name."""
    sizes = group_sizes(topology, fault.kind)
    if fault.victims in sizes:
        return fault.victims, range(sizes[fault.victims])
    group, _, number = fault.victims.rpartition("-")
    if group in sizes and number.isdecimal() and int(number) < sizes[group]:
        return group, range(int(number), int(number) + 1)
    raise KeyError(fault.victims)


def group_sizes(topology: Topology, kind: FaultKind) -> Mapping[str, int]:
    """How many there are of each name that a kind of fault may hit."""
    brokers = {name: broker.count for name, broker in topology.brokers.items()}
    if kind in BROKER_FAULTS:
        return brokers
    return {name: brokers.get(bridge.from_, 0) for name, bridge in topology.bridges.items()}
