"""A scenario as it was written, played against another target: what it starts itself is left out,
but for small brokers that are bridged to a main one; then the target is the main one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pubstorm.scenario.at import At

TARGET = "target"


def retargeted(data: Mapping[str, Any], target: str) -> dict[str, Any]:
    """The file's values with another target."""
    root = At(data)
    topology, bridges = data.get("topology"), list(root["topology"]["bridges"].entries())
    if not isinstance(topology, Mapping):
        return {**data, TARGET: target}
    if not bridges or not isinstance(topology["bridges"], Mapping):
        own = ("brokers", "services")
        kept = {key: value for key, value in topology.items() if key not in own}
        return {**data, TARGET: target, "topology": kept}
    mains = {bridge["to"].data for bridge in bridges}
    renamed = {name: TARGET for name in mains if isinstance(name, str)}
    brokers = topology.get("brokers")
    if isinstance(brokers, Mapping):
        brokers = {name: broker for name, broker in brokers.items() if name not in mains}
    led = {bridge.path[-1]: _with(bridge.data, "to", renamed) for bridge in bridges}
    populations = data.get("populations")
    if isinstance(populations, Mapping):
        populations = {name: _moved(each, renamed) for name, each in populations.items()}
    changed = {**topology, "brokers": brokers, "bridges": led}
    return {**data, TARGET: target, "topology": changed, "populations": populations}


def _moved(population: object, renamed: Mapping[str, str]) -> object:
    """A population that connects to the target instead of a main broker of the run."""
    at = At(population)["at"]
    if isinstance(at.data, str):
        return _with(population, "at", renamed)
    if "brokers" in at and isinstance(population, Mapping):
        return {**population, "at": _with(at.data, "brokers", renamed)}
    return population


def _with(mapping: object, key: str, renamed: Mapping[str, str]) -> object:
    """The mapping with the name under a key replaced."""
    if not isinstance(mapping, Mapping) or not isinstance(mapping.get(key), str):
        return mapping
    return {**mapping, key: renamed.get(mapping[key], mapping[key])}
