"""Publish stages with a number of messages: the messages of each population, and the longest time
of the stage. Clients count by themselves, so that they send exactly as many at any rate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from pubstorm.quantities import SECOND_NS
from pubstorm.scenario.document import Finding
from pubstorm.scenario.fields import CENTURY_NS
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.shares import PlannedClients
from pubstorm.scenario.stages import MessagesOfEach, Publish, Stage

GIVE_A_TIME = "give the stage a time, such as for: 30s, instead of messages"
TIMES_MAX = 2
"""Times that a stage takes at most, in units of the time by its rates."""
MORE_NS = 30 * SECOND_NS
"""Further time of a stage."""
UNKNOWN_NS = 600 * SECOND_NS
"""Further time of a stage with `rate: max`."""
SLOWEST_PER_S = 1000
"""Messages a second of a stage with `rate: max`, beyond that further time."""


def check_messages(scenario: Scenario) -> Iterator[Finding]:
    """Yields numbers of messages of stages whose clients cannot count them."""
    planned = PlannedClients(scenario)
    for n, stage in enumerate(scenario.stages):
        planned.enter(stage)
        if stage.publish is not None and stage.publish.messages is not None:
            for found, allowed, hint in _obstacles(scenario, stage, planned):
                message = f"found messages {found}, allowed {allowed}"
                yield ("stages", n, "publish", "messages"), message, hint
        for change in stage.changes:
            planned.change(change)


def with_lengths(scenario: Scenario) -> Scenario:
    """The scenario with a longest time of each publish stage that has a number of messages and no
    time."""
    planned, stages = PlannedClients(scenario), list(scenario.stages)
    for n, stage in enumerate(scenario.stages):
        planned.enter(stage)
        publish = stage.publish
        if publish is not None and publish.messages is not None and not publish.duration:
            timed = publish.model_copy(update={"duration": _longest_ns(stage, publish, planned)})
            stages[n] = stage.model_copy(update={"publish": timed})
        for change in stage.changes:
            planned.change(change)
    return scenario.model_copy(update={"stages": tuple(stages)})


def messages_of(stage: Stage, publish: Publish, planned: PlannedClients) -> tuple[int, ...] | None:
    """Returns the messages of each population of a stage, by the active clients at its start; None
    if the stage has a time only. A number of all clients is divided in proportion to the rates;
    with `rate: max`, which is none, to the clients."""
    if publish.messages is None:
        return None
    chosen = planned.chosen(stage)
    publishers = [planned.count([name]) if _rates(planned, name) else 0 for name in chosen]
    if isinstance(publish.messages, MessagesOfEach):
        return tuple(clients * publish.messages.number for clients in publishers)
    rates = [_rate(planned, name) for name in chosen]
    known = not any(clients and not rate for clients, rate in zip(publishers, rates, strict=True))
    weights: list[float] = [*publishers]
    if known:
        weights = [clients * rate for clients, rate in zip(publishers, rates, strict=True)]
    return _divided(publish.messages, weights)


def _divided(number: int, weights: Sequence[float]) -> tuple[int, ...]:
    """Returns parts of a number, which are nearly in proportion to weights. All add up to the
    number, unless no weight is above 0."""
    sums = [0.0, *accumulate(weights)]
    whole = sums[-1]
    bounds = [number if each == whole else int(number * (each / whole)) for each in sums if whole]
    return tuple(end - start for start, end in pairwise(bounds)) or (0,) * len(weights)


def _rates(planned: PlannedClients, name: str) -> list[float | None]:
    return [each.rate_per_s for each in planned.shares[name].population.flows]


def _rate(planned: PlannedClients, name: str) -> float:
    """Messages a second of a client; 0 if it has none, or publishes with `rate: max`."""
    rates = _rates(planned, name)
    return 0.0 if None in rates else sum(rate or 0.0 for rate in rates)


def _longest_ns(stage: Stage, publish: Publish, planned: PlannedClients) -> int:
    """Returns the time after which a stage ends, whatever was sent."""
    numbers, longest_s, more_ns = messages_of(stage, publish, planned) or (), 0.0, MORE_NS
    for name, number in zip(planned.chosen(stage), numbers, strict=True):
        clients, rate = planned.count([name]), _rate(planned, name)
        if number and rate:
            longest_s = max(longest_s, -(-number // clients) / rate)
        elif number:
            more_ns = UNKNOWN_NS + sum(numbers) * SECOND_NS // SLOWEST_PER_S
    return min(round(TIMES_MAX * longest_s) * SECOND_NS + more_ns, CENTURY_NS)


def _obstacles(
    scenario: Scenario, stage: Stage, planned: PlannedClients
) -> Iterator[tuple[str, str, str]]:
    """Yields what does not fit to a number of messages, what is allowed, and a hint."""
    publish = stage.publish
    assert publish is not None, "only publish stages have messages"
    for key in ("changes", "rate_profile", "client_profiles"):
        if getattr(publish, key):
            yield f"with {key}", "is the same load all the time", GIVE_A_TIME
            return
    if scenario.fleet.on_agent_failure == "replace":
        hint = f"a replacement cannot continue the count of an agent: {GIVE_A_TIME}"
        yield "with on_agent_failure: replace", "is fail or continue", hint
    for name in planned.chosen(stage):
        population = planned.shares[name].population
        if population.flows and planned.count([name]):
            if population.is_publisher:
                yield f"of {name}, a process that publishes", "are simulated clients", GIVE_A_TIME
            elif population.stay is not None:
                found = f"of {name}, which has a lifetime"
                yield found, "are clients that stay connected", GIVE_A_TIME
            elif any(getattr(flow, "replay", None) is not None for flow in population.flows):
                found = f"of {name}, which plays recorded messages"
                yield found, "are clients with a rate", GIVE_A_TIME
