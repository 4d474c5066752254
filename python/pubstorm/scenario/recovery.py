"""The recovery test of a search: the scenario in which the load is the answer, then the first value
that failed, then the answer again. A change of a publish stage makes each step, so that the brokers
and the other clients stay the same."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from pubstorm.quantities import write_duration
from pubstorm.scenario.document import Finding
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.stages import Connect, Publish

BEYOND = "beyond the answer"
AGAIN = "the answer again"
PARTS = 3
"""Parts of the stage, each as long as the stage of a trial."""
INTERVALS_MIN = 10
"""Snapshot intervals of a part, from which the load of the part can be evaluated."""


def recovery_settings(scenario: Scenario, value: float, beyond: float) -> tuple[str, ...]:
    """Returns the overrides of the recovery test of a scenario's search, from a value to one beyond
    it. The values are in the unit of the parser."""
    search = scenario.search
    assert search is not None, "only a scenario with a search has a recovery test"
    name, written = search.vary.split(".")[1], search.span.measure.written
    place = _publish_stage(scenario, name)
    assert place is not None, "the check of the search found a stage"
    part_ns = _publish(scenario, place).duration
    stage = f"stages.{place}.publish"
    first: tuple[str, ...] = (f"{search.vary}={written(value)}",)
    if _varies_clients(search.vary):
        ramp = _connect_stage(scenario, name, place)
        more = round(beyond - value)
        steps: tuple[Mapping[str, object], ...] = (
            {"add": more, "name": BEYOND},
            {"remove": more, "name": AGAIN},
        )
        first = (
            f"{search.vary}={written(beyond)}",
            f"stages.{ramp}.connect.clients={json.dumps({name: round(value)})}",
        )
    else:
        steps = ({"rate": beyond / value, "name": BEYOND}, {"rate": 1, "name": AGAIN})
    changes = [
        {"at": write_duration(part_ns * number), "population": name, **step}
        for number, step in enumerate(steps, 1)
    ]
    length = write_duration(part_ns * PARTS)
    return (*first, f"{stage}.for={length}", f"{stage}.changes={json.dumps(changes)}")


def recovery_extra_ns(scenario: Scenario) -> int:
    """Returns the time by which the recovery test is longer than a trial."""
    search = scenario.search
    place = None if search is None else _publish_stage(scenario, search.vary.split(".")[1])
    return 0 if place is None else (PARTS - 1) * _publish(scenario, place).duration


def check_recovery(scenario: Scenario) -> Iterator[Finding]:
    """Yields the reason why a scenario's search can have no recovery test."""
    search, path = scenario.search, ("search", "recovery")
    if search is None or not search.recovery:
        return
    found = "found a recovery test"
    name = _varied_population(scenario, search.vary)
    if name is None:
        message = f"{found} with vary: {search.vary}, allowed is a value that changes under load"
        hint = "vary the clients of a population, or a rate or total_rate of its publications"
        yield path, message, f"{hint}; or leave recovery out"
        return
    place = _publish_stage(scenario, name)
    if place is None:
        message = f"{found} without a publish stage of {name}, needed is one"
        yield path, message, "a recovery is that of messages; or leave recovery out"
        return
    yield from ((path, f"{found} {message}", hint) for message, hint in _obstacles(scenario, place))


def _obstacles(scenario: Scenario, place: int) -> Iterator[tuple[str, str]]:
    """Yields what else the stage and the population of a recovery test have, with hints."""
    assert scenario.search is not None, "only a search is checked"
    vary = scenario.search.vary
    name, publish = vary.split(".")[1], _publish(scenario, place)
    population = scenario.populations[name]
    keys = ("rate_profile", "client_profiles", "changes", "faults")
    others = [key for key in keys if getattr(publish, key)]
    if others:
        yield (
            f"in stage {place}, which has {others[0]}, allowed is a stage without",
            "the test makes changes of its own; or leave recovery out",
        )
    if publish.messages is not None:
        yield (
            f"in stage {place}, which has messages, allowed is a stage with a time only",
            "each part of the test has a time: give the stage one, such as for: 30s; or leave "
            "recovery out",
        )
    least_ns = INTERVALS_MIN * scenario.snapshot_interval
    if publish.duration < least_ns:
        yield (
            f"in stage {place} of {write_duration(publish.duration)}, needed are "
            f"{INTERVALS_MIN} snapshot intervals, {write_duration(least_ns)}",
            "make the stage longer, or snapshot_interval shorter",
        )
    if population.stay is not None:
        yield (
            f"with clients of {name} that have a lifetime, allowed are clients that stay",
            "the load due at an instant is not known with lifetimes; leave recovery out",
        )
    if not _varies_clients(vary):
        flows = len(getattr(population, "publications", ()))
        if flows > 1:
            yield (
                f"with one of {flows} publications of {name}, allowed is the only one",
                "a change is that of all publications of a population; split the population",
            )
    elif population.differing:
        yield (
            f"with the clients of {name}, which has shares, allowed is a population without",
            "make a population of each share",
        )
    elif _connect_stage(scenario, name, place) is None:
        yield (
            f"without a connect stage of all clients of {name} before stage {place}, needed is one",
            "add a connect stage without clients",
        )


def _varied_population(scenario: Scenario, vary: str) -> str | None:
    """Returns the population whose clients or rate a search varies; None if it varies another
    value."""
    match vary.split("."):
        case ["populations", name, "clients"] if name in scenario.populations:
            return name
        case ["populations", name, "publications", _, "rate" | "total_rate"] if (
            name in scenario.populations
        ):
            return name
        case _:
            return None


def _varies_clients(vary: str) -> bool:
    return vary.endswith(".clients")


def _publish_stage(scenario: Scenario, name: str) -> int | None:
    """Returns the number of the last publish stage of a population."""
    return _last(scenario, name, Publish, len(scenario.stages))


def _connect_stage(scenario: Scenario, name: str, before: int) -> int | None:
    """Returns the number of the last connect stage of a population before another stage; None if
    there is none, or one connects a part of the clients."""
    place = _last(scenario, name, Connect, before)
    step = None if place is None else scenario.stages[place].step
    return place if isinstance(step, Connect) and step.clients is None else None


def _last(scenario: Scenario, name: str, kind: type[Connect | Publish], before: int) -> int | None:
    return next(
        (
            number
            for number, stage in reversed([*enumerate(scenario.stages[:before])])
            if isinstance(stage.step, kind) and name in (stage.populations or (name,))
        ),
        None,
    )


def _publish(scenario: Scenario, place: int) -> Publish:
    step = scenario.stages[place].step
    assert isinstance(step, Publish), "the place is that of a publish stage"
    return step
