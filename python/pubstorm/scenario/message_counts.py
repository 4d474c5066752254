"""Publish stages with a number of messages instead of a time. The time follows from the schedule of
the clients, `crates/plan/src/schedule/pacer.rs`: it ends before the first message too many is due,
so that the clients send exactly as many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pubstorm.quantities import SECOND_NS, write_count, write_rate
from pubstorm.scenario.document import Finding
from pubstorm.scenario.flows import Publication
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.shares import PlannedClients
from pubstorm.scenario.stages import MessagesOfEach, Publish, Stage

GOLDEN_RATIO = 2_654_435_769
"""Factor of the phases of clients, as in the schedule."""
PHASES = 2**32
EXACT_NS = 2**53
"""Longest time that the schedule computes exactly."""
GIVE_A_TIME = "give the stage a time, such as for: 30s"


def check_messages(scenario: Scenario) -> Iterator[Finding]:
    """Yields numbers of messages that no time makes exactly."""
    for n, found in _lengths(scenario):
        if isinstance(found, _NoLengthError):
            message = f"found messages {found.found}, allowed {found.allowed}"
            yield ("stages", n, "publish", "messages"), message, found.hint


def with_lengths(scenario: Scenario) -> Scenario:
    """The scenario with the time of each publish stage that has a number of messages."""
    stages = list(scenario.stages)
    for n, found in _lengths(scenario):
        publish = stages[n].publish
        if publish is not None and isinstance(found, int):
            timed = publish.model_copy(update={"duration": found})
            stages[n] = stages[n].model_copy(update={"publish": timed})
    return scenario.model_copy(update={"stages": tuple(stages)})


@dataclass(eq=False)
class _NoLengthError(Exception):
    """No time makes exactly the number of messages."""

    found: str
    allowed: str
    hint: str = GIVE_A_TIME


def _lengths(scenario: Scenario) -> Iterator[tuple[int, int | _NoLengthError]]:
    """Yields the index of each stage with a number of messages, with its time in nanoseconds."""
    planned = PlannedClients(scenario)
    for n, stage in enumerate(scenario.stages):
        planned.enter(stage)
        if stage.publish is not None and stage.publish.messages is not None:
            try:
                yield n, _length_ns(stage, stage.publish, planned)
            except _NoLengthError as error:
                yield n, error
        for change in () if stage.publish is None else stage.publish.changes:
            planned.change(change)


def _length_ns(stage: Stage, publish: Publish, planned: PlannedClients) -> int:
    """Returns the time of a stage in nanoseconds. Raises _NoLengthError."""
    if publish.changes or publish.rate_profile is not None:
        key = "changes" if publish.changes else "rate_profile"
        raise _NoLengthError(f"with {key}", "is the same load all the time")
    clients, flows = 0, list[tuple[int, Publication]]()
    for name in planned.chosen(stage):
        population, active = planned.shares[name].population, planned.count([name])
        if not population.flows or not active:
            continue
        if population.is_publisher or population.stay is not None:
            what = "a lifetime" if population.stay is not None else "a process that publishes"
            raise _NoLengthError(f"of {name}, which has {what}", "are clients that stay connected")
        clients += active
        flows += [(active, _regular(name, each)) for each in population.flows]
    if not flows:
        return SECOND_NS
    period_ns, burst = _one_pace(flows)
    streams = sum(active for active, _ in flows)
    wanted = _wanted(publish, clients, flows)
    # All streams send a burst in a period, and nothing in the periods until the next burst.
    rounds, rest = divmod(wanted, streams * burst)
    instant = float(rounds * burst)
    if rest:
        first, whole = wanted - rest, streams * burst
        near = [write_count(each) for each in (first, first + whole) if each]
        instant += _phase_after(rest, burst, flows, f"is {' or '.join(near)}")
    length_ns = int(instant * period_ns)
    if length_ns > EXACT_NS:
        raise _NoLengthError(f"that take {length_ns // SECOND_NS} s", "are up to 104 days")
    return length_ns


def _regular(name: str, publication: Publication) -> Publication:
    """Returns a publication whose messages are due at even instants. Raises _NoLengthError."""
    if publication.rate_per_s is None:
        hint = f"{GIVE_A_TIME}, or give {name} a rate"
        raise _NoLengthError(f"of {name}, which has rate: max", "is a fixed rate", hint)
    for key, even in (("arrivals", "even"), ("jitter", 0), ("spread", 0)):
        if getattr(publication, key, even) != even:
            raise _NoLengthError(f"of {name}, which has {key}", "is an even rate")
    return publication


def _one_pace(flows: list[tuple[int, Publication]]) -> tuple[int, int]:
    """Returns the period in nanoseconds and the burst of all publications. Raises _NoLengthError
    if they differ."""
    paces = {
        (each.interval or max(1, round(SECOND_NS / (each.rate_per_s or 1))), each.burst)
        for _, each in flows
    }
    if len(paces) > 1:
        rates = sorted({write_rate(each.rate_per_s or 0) for _, each in flows})
        different = " and ".join(rates) if len(rates) > 1 else "several bursts"
        raise _NoLengthError(f"at {different}", "is one rate of every client")
    return paces.pop()


def _wanted(publish: Publish, clients: int, flows: list[tuple[int, Publication]]) -> int:
    """Returns the number of messages of all clients. Raises _NoLengthError."""
    messages = publish.messages
    if not isinstance(messages, MessagesOfEach):
        assert messages is not None, "the stage has a number of messages"
        return messages
    streams = sum(active for active, _ in flows)
    each, burst = streams // clients, flows[0][1].burst
    if streams % clients or messages.number % (each * burst):
        raise _NoLengthError(f"{messages}", f"is a multiple of {each * burst}")
    return messages.number * clients


def _phase_after(
    rest: int, burst: int, flows: list[tuple[int, Publication]], allowed: str
) -> float:
    """Returns the instant in a period before which `rest` messages are due. Raises
    _NoLengthError if there is none."""
    if rest % burst == 0 and all(each.phase != "random" for _, each in flows):
        phases = sorted(
            0.0 if each.phase == "aligned" else client * GOLDEN_RATIO % PHASES / PHASES
            for active, each in flows
            for client in range(active)
        )
        following = phases[rest // burst]
        if phases[rest // burst - 1] < following:
            return following
    raise _NoLengthError("whose last ones are due together, or at random", allowed)
