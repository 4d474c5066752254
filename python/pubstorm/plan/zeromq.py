"""What a plan says of ZeroMQ's clients: who plays them, the options of their sockets, read rates
that are a share of what is due. It knows no target by number.
"""

from __future__ import annotations

from typing import Literal

from pubstorm.plan import model as plan
from pubstorm.plan.prefixes import due_per_s
from pubstorm.scenario.divisions import Division
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import Population
from pubstorm.scenario.roles import publisher_of, speaks_zeromq
from pubstorm.scenario.zeromq import DEFAULT_HIGH_WATER_MARK
from pubstorm.units import PartOf

Player = Literal["engine", "libzmq", "pyzmq", "command"]


def player_of(population: Population) -> Player:
    """Who plays the clients of a population."""
    if population.publisher is not None:
        return population.publisher.kind
    return "engine" if population.subscriber == "simulated" else population.subscriber


def sockets_of(scenario: Scenario, population: Population) -> plan.Zmq | None:
    """The options of a population's sockets; None where it speaks MQTT."""
    if not speaks_zeromq(scenario, population):
        return None
    publisher, high_water_mark = population.publisher, population.high_water_mark
    security = _security(publisher_of(scenario, population) or population)
    if publisher is not None:
        return plan.Zmq(
            high_water_mark=publisher.high_water_mark,
            io_threads=publisher.io_threads,
            security=security,
        )
    if population.subscriber == "simulated":
        # It hands on what it reads, and queues nothing.
        return plan.Zmq(high_water_mark=0, security=security)
    if high_water_mark is None:
        high_water_mark = DEFAULT_HIGH_WATER_MARK
    return plan.Zmq(high_water_mark=high_water_mark, security=security)


def slowed(compiled: plan.Plan, index: int, division: Division) -> plan.Population:
    """The population with this index, and its read rate where that is a share of what is due to a
    client."""
    population, part = compiled.populations[index], division.population.read_rate
    if not isinstance(part, PartOf):
        return population
    due = due_per_s(compiled, index)
    # Where nothing is due there is nothing to be slow with.
    read_rate_per_s = due * part.share if due else None
    return population.model_copy(update={"read_rate_per_s": read_rate_per_s})


def _security(population: Population) -> Literal["null", "plain", "curve"]:
    """The mechanism of a publisher and its subscribers; at one that already runs, `plain` where
    subscribers have a user name."""
    if population.publisher is None:
        return "null" if population.username is None else "plain"
    security = population.publisher.security
    return "null" if security == "none" else security
