"""A scenario as it was written, with a number in place of each `count: auto`: as many brokers as
the clients need that connect to them, by the open files that a process may have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any

from pubstorm.descriptors import processes_needed
from pubstorm.scenario.at import At
from pubstorm.units import UnfitError, count, factor

AUTO = "auto"


def counted(data: Mapping[str, Any], descriptors: int) -> Mapping[str, Any]:
    """The file's values, with so many brokers that each has at most `descriptors` open files."""
    brokers = At(data)["topology"]["brokers"]
    names = [str(broker.path[-1]) for broker in brokers.entries() if broker["count"].data == AUTO]
    if not names or not isinstance(brokers.data, Mapping):
        return data
    numbers = {name: _needed(data, name, descriptors) for name in names}
    settled = {name: {**brokers.data[name], "count": number} for name, number in numbers.items()}
    return {**data, "topology": {**data["topology"], "brokers": {**brokers.data, **settled}}}


def _needed(data: Mapping[str, Any], name: str, descriptors: int) -> int:
    """How many brokers of a name; one where that cannot be said, since something else is wrong."""
    return processes_needed(list(_clients_at(data, name)), descriptors) or 1


def _clients_at(data: Mapping[str, Any], name: str) -> Iterator[int]:
    """How many clients each population has that connects to brokers of the name."""
    for population in At(data)["populations"].entries():
        if "publisher" in population:
            continue
        at = population["at"]
        brokers = at["brokers"].data if isinstance(at.data, Mapping) else at.data
        if brokers in {None, name}:
            try:
                scale = 1.0 if data.get("scale") is None else factor(data["scale"])
                yield ceil(count(population["clients"].data) * scale)
            except UnfitError:
                continue
