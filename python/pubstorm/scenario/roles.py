"""Roles: which populations speak ZeroMQ, which of them are publishers, and whose subscribers the
others are. It knows neither targets by number nor the plan.
"""

from __future__ import annotations

from collections.abc import Collection

from pubstorm.scenario.at import At
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import Population
from pubstorm.scenario.target import ZMQ_SCHEME, ZmqTarget

TARGET = "target"


def publishers_of(scenario: Scenario) -> dict[str, Population]:
    """The populations of publishers that the run starts, in order: client k of one is a process
    of its own, with a target of its own."""
    return {name: each for name, each in scenario.populations.items() if each.publisher is not None}


def publisher_of(scenario: Scenario, population: Population) -> Population | None:
    """The population of publishers that a population connects to; None: it is at none."""
    at = population.at
    return None if at is None else publishers_of(scenario).get(at.brokers)


def speaks_zeromq(scenario: Scenario, population: Population) -> bool:
    """Whether clients of a population are ZeroMQ's sockets."""
    if population.publisher is not None or publisher_of(scenario, population) is not None:
        return True
    at_target = population.at is None or population.at.brokers == TARGET
    return at_target and is_zeromq(scenario)


def is_zeromq(scenario: Scenario) -> bool:
    """Whether the scenario's targets are publishers of ZeroMQ that already run."""
    return any(isinstance(target, ZmqTarget) for target in scenario.target)


def mqtt_names(root: At) -> Collection[str]:
    """The names of the populations that speak MQTT, in a file as it stands; of one whose `at` names
    nothing that is there, nobody can tell."""
    populations = list(root["populations"].named())
    publishers = {str(each.path[-1]) for each in populations if "publisher" in each}
    places = {str(each.path[-1]) for each in root["topology"]["brokers"].named()}
    target = root[TARGET].data
    first = target[0] if isinstance(target, list) and target else target
    if not (isinstance(first, str) and first.strip().startswith(ZMQ_SCHEME)):
        places.add(TARGET)
    names = {str(each.path[-1]) for each in populations if _place(each) in places}
    return names - publishers


def _place(population: At) -> object:
    """What the clients of a population connect to."""
    at = population["at"]
    place = at["brokers"].data if isinstance(at.data, dict) else at.data
    return TARGET if place is None else place
