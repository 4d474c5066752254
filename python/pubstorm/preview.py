"""A plan in words, before it is played: who connects where, who sends what to whom, stage by stage,
and what that takes. It gives lines of text and prints none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from pubstorm.offered import stage_load
from pubstorm.plan import (
    Change,
    ChangeRate,
    ConnectAction,
    DisconnectAction,
    FixedPayload,
    GaussianPayload,
    HoldAction,
    OpenPace,
    Plan,
    Population,
    Publication,
    PublishAction,
    Stage,
    Tls,
    change_name,
    targets_by_name,
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
        ("populations", [line for p in plan.populations for line in _population(scenario, p)]),
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


def needs_in_words(needs: Sequence[Need], agents: int) -> Iterator[str]:
    """What it takes, against what there is."""
    yield ""
    yield f"needs, with {_many(agents, 'engine')}"
    for need in needs:
        word = "ok   " if need.is_met else "short"
        yield f"  {word}  {need_in_words(need)}"
        if not need.is_met:
            yield f"         fix: {need.fix}"
        elif need.hint:
            yield f"         hint: {need.hint}"


def broker_needs_in_words(needs: Sequence[Need]) -> Iterator[str]:
    """What the host of a broker ought to have, which is not looked at."""
    yield ""
    yield "the broker's own host should have, which is not looked at here"
    for need in needs:
        fix = f"   ({need.fix})" if need.fix else ""
        yield f"         {need_in_words(need)}{fix}"


def need_in_words(need: Need) -> str:
    """One need: how much of how much."""
    needed = _amount(need.needed, need.unit)
    if need.available is None:
        return f"{need.what}: {needed}"
    return f"{need.what}: {needed} of {_amount(need.available, need.unit)}"


def _targets(scenario: Scenario, plan: Plan) -> str:
    brokers = scenario.topology.brokers.values()
    if brokers:
        words = ", ".join(
            _many(b.count, f"{b.kind} broker") + (" under TLS" if b.tls != "none" else "")
            for b in brokers
        )
        where = f"{words}, started and stopped by the run"
    else:
        where = ", ".join(map(str, plan.targets))
    if len(plan.targets) == 1:
        return where
    apart = "bridged" if plan.bridges else "separate"
    return f"{where}; {'joined' if plan.targets_joined else apart}"


def _population(scenario: Scenario, population: Population) -> Iterator[str]:
    session = "clean" if population.clean_session else "persistent"
    line = (
        f"{population.name}: {_many(population.clients, 'client')}{_at(scenario, population)}, "
        f"{session} session, "
        f"keep-alive {population.keep_alive_s}s"
    )
    if population.read_rate_per_s is not None:
        line += f", takes at most {write_rate(population.read_rate_per_s)}"
    yield line
    if population.tls is not None:
        yield f"  connects under {_tls(scenario, population.tls)}"
    for subscription in population.subscriptions:
        yield f"  subscribes to {subscription.filter} at QoS {subscription.qos}"
    for publication in population.publications:
        yield f"  publishes to {publication.topic}: {_publication(publication)}"


def _at(scenario: Scenario, population: Population) -> str:
    """Which brokers they connect to; nothing where there is one only."""
    at, drawn = population.at, population.at.choice == "random"
    named = targets_by_name(scenario)
    if sum(map(len, named.values())) == 1:
        return ""
    among = range(at.first, at.first + at.count)
    name = next((name for name, indices in named.items() if at.first in indices), "")
    indices = named.get(name, range(0))
    if among.stop > indices.stop:
        where = "all targets"
    elif len(indices) == 1:
        return f" at {name}"
    elif len(among) == 1:
        return f" at {name}-{at.first - indices.start}"
    elif among == indices:
        where = f"all {name}"
    else:
        where = f"{name} {at.first - indices.start} to {among.stop - 1 - indices.start}"
    return f" at {where} {'at random' if drawn else 'in turn'}"


def _tls(scenario: Scenario, tls: Tls) -> str:
    """Versions, whom the clients trust and who they are."""
    low, high = tls.min_version, tls.max_version
    versions = f"TLS {low}" if low == high else f"TLS {low} to {high}"
    made = {broker.tls for broker in scenario.topology.brokers.values()}
    return ", ".join((versions, *_credentials(made, tls)))


def _credentials(made: Collection[str], tls: Tls) -> Iterator[str]:
    """What both sides show; `made` says what the run makes for its own brokers."""
    if tls.psk is not None:
        yield f"pre-shared keys of {tls.psk.file}, identity {tls.psk.identity}"
        return
    if "psk" in made and tls.certificate is None:
        yield "pre-shared keys made by the run"
        return
    default = "made by the run" if {"server", "mutual"} & set(made) else "of the system"
    trusted = tls.ca or f"authorities {default}"
    yield f"the broker verified by {trusted}" if tls.verify else "the broker not verified"
    if tls.certificate is not None:
        yield f"client certificates {tls.certificate}"
    elif "mutual" in made:
        yield "client certificates made by the run"


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
    begins = ["", *(_change(plan, change) for change in _changes(stage))]
    totals = f"{load.sent_total:,.0f} sent and {load.delivered_total:,.0f} delivered"
    for begin, phase in zip(begins, load.phases, strict=False):
        if load.sent_total:
            rates = f"{phase.sent_per_s:,.0f} sent/s and {phase.delivered_per_s:,.0f} delivered/s"
            yield f"     {begin}about {rates}" + (f": {totals}" if len(begins) == 1 else "")
        elif begin:
            yield f"     {begin.removesuffix(', ')}"
    if load.sent_total and len(begins) > 1:
        yield f"     {totals} in all"
    if load.has_closed_loop:
        yield "     and a closed loop, whose rate the broker sets"


def _changes(stage: Stage) -> tuple[Change, ...]:
    return stage.action.changes if isinstance(stage.action, PublishAction) else ()


def _change(plan: Plan, change: Change) -> str:
    action = change.action
    words = change_name(action, plan.populations[change.population].name)
    if change.name != words:
        words = f"{change.name}: {words}"
    if not isinstance(action, ChangeRate) and action.over_ns:
        words += f" over {write_duration(action.over_ns)}"
    return f"at {write_duration(change.after_ns)}: {words}, "


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
