"""A plan in words, before it is played: who connects where, who sends what to whom, stage by stage,
and what that takes. It gives lines of text and prints none.
"""

from __future__ import annotations

from collections.abc import Iterator

from pubstorm.offered import stage_load
from pubstorm.plan import (
    ConnectAction,
    DisconnectAction,
    FixedPayload,
    GaussianPayload,
    HoldAction,
    OpenPace,
    Plan,
    Population,
    Publication,
    Stage,
)
from pubstorm.preflight import Need
from pubstorm.scenario import Scenario
from pubstorm.units import write_bytes, write_duration, write_rate


def plan_in_words(scenario: Scenario, plan: Plan) -> Iterator[str]:
    """What will be done."""
    yield f"{plan.name}: {scenario.description}" if scenario.description else plan.name
    yield ""
    yield f"targets      {_targets(scenario, plan)}"
    if plan.sources:
        yield f"sources      {plan.sources[0]} to {plan.sources[-1]}, {len(plan.sources)} in turn"
    for title, lines in (
        ("populations", [line for p in plan.populations for line in _population(p)]),
        ("stages", [line for n in range(len(plan.stages)) for line in _stage(plan, n)]),
        ("thresholds", [threshold.source for threshold in scenario.thresholds]),
    ):
        yield ""
        yield title
        yield from (f"  {line}" for line in lines or ["none"])


def sweep_in_words(scenario: Scenario) -> Iterator[str]:
    """The steps of its sweep, and how they are played."""
    sweep = scenario.sweep
    if sweep is None:
        return
    brokers = "brokers of its own" if sweep.broker == "fresh" else "the same brokers"
    times = f", {_many(sweep.repeat, 'time')} each" if sweep.repeat > 1 else ""
    yield ""
    yield f"sweep, the plan above is its first step; each step with {brokers}{times}"
    for number, step in enumerate(scenario.steps, 1):
        yield f"  {number}. {step.variation.label}"
    for line in sweep.stop_when:
        yield f"  ends early when {line if isinstance(line, str) else line.source}"


def needs_in_words(needs: list[Need], agents: int) -> Iterator[str]:
    """What it takes, against what there is."""
    yield ""
    yield f"needs, with {_many(agents, 'engine')}"
    for need in needs:
        word = "ok   " if need.is_met else "short"
        needed, there = _amount(need.needed, need.unit), _amount(need.available, need.unit)
        yield f"  {word}  {need.what}: {needed} of {there}"
        if not need.is_met:
            yield f"         fix: {need.fix}"


def _targets(scenario: Scenario, plan: Plan) -> str:
    brokers = scenario.topology.brokers.values()
    if brokers:
        words = ", ".join(_many(broker.count, f"{broker.kind} broker") for broker in brokers)
        where = f"{words}, started and stopped by the run"
    else:
        where = ", ".join(map(str, plan.targets))
    if len(plan.targets) == 1:
        return where
    return f"{where}; {'joined' if plan.targets_joined else 'separate'}, clients in turn"


def _population(population: Population) -> Iterator[str]:
    session = "clean" if population.clean_session else "persistent"
    line = (
        f"{population.name}: {_many(population.clients, 'client')}, {session} session, "
        f"keep-alive {population.keep_alive_s}s"
    )
    if population.read_rate_per_s is not None:
        line += f", takes at most {write_rate(population.read_rate_per_s)}"
    yield line
    for subscription in population.subscriptions:
        yield f"  subscribes to {subscription.filter} at QoS {subscription.qos}"
    for publication in population.publications:
        yield f"  publishes to {publication.topic}: {_publication(publication)}"


def _publication(publication: Publication) -> str:
    match publication.payload:
        case FixedPayload(bytes=size_bytes):
            size = write_bytes(size_bytes)
        case GaussianPayload(mean_bytes=mean_bytes, sd_bytes=sd_bytes):
            size = f"{write_bytes(mean_bytes)} ± {write_bytes(sd_bytes)}"
        case text:
            size = f"the text {text.template!r}"
    pace = publication.pace
    if isinstance(pace, OpenPace):
        rate = f"every {write_duration(pace.period_ns)} from each client"
    else:
        rate = f"as fast as a window of {publication.window} takes them"
    retained = ", retained" if publication.retain else ""
    return f"{size} at QoS {publication.qos}, {rate}{retained}"


def _stage(plan: Plan, number: int) -> Iterator[str]:
    stage = plan.stages[number]
    names = ", ".join(plan.populations[index].name for index in stage.populations)
    yield f"{number + 1}. {stage.name} ({names}): {_action(plan, stage)}"
    load = stage_load(plan, stage)
    if load.sent_per_s:
        yield (
            f"     about {load.sent_per_s:,.0f} sent/s and {load.delivered_per_s:,.0f} "
            f"delivered/s: {load.sent_total:,.0f} sent and {load.delivered_total:,.0f} delivered"
        )
    if load.has_closed_loop:
        yield "     and a closed loop, whose rate the broker sets"


def _action(plan: Plan, stage: Stage) -> str:
    match stage.action:
        case ConnectAction(rate_per_s=rate_per_s, parallelism=parallelism, timeout_ns=timeout_ns):
            clients = sum(plan.populations[index].clients for index in stage.populations)
            words = _many(clients, "client")
            words += f", {write_rate(rate_per_s)}" if rate_per_s is not None else ""
            words += f", {parallelism} at once" if parallelism is not None else ""
            wait = write_duration(timeout_ns)
            return f"{words}; goes on when all are subscribed, or {wait} after the last start"
        case DisconnectAction(rate_per_s=rate_per_s):
            return "all at once" if rate_per_s is None else write_rate(rate_per_s)
        case HoldAction(duration_ns=duration_ns):
            return f"{write_duration(duration_ns)} without publishing"
        case action:
            words = write_duration(action.duration_ns)
            drain = write_duration(plan.drain_ns)
            return f"{words}; goes on when all has arrived, or after {drain} without progress"


def _amount(number: int, unit: str) -> str:
    if unit == "bytes":
        return f"{number / 2**20:,.0f} MiB"
    return f"{number:,}" if number < 2**40 else "unlimited"


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
