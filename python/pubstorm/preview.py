"""A plan in words, before it is played: who connects where, who sends what to whom, stage by stage,
and what that takes. It gives lines of text and prints none.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from pubstorm.barriers import DRAINS_MAX, connect_bound_ns, schedule_ns
from pubstorm.identities.accounts import accounts_of
from pubstorm.offered import stage_load
from pubstorm.plan import (
    ZMTP,
    Change,
    ChangeRate,
    ConnectAction,
    DisconnectAction,
    FixedPayload,
    GaussianPayload,
    HoldAction,
    Lifetime,
    OpenPace,
    Plan,
    Population,
    Publication,
    PublishAction,
    Stage,
    Tls,
    change_name,
    planned_targets,
    together,
)
from pubstorm.preflight import Need, queues_bytes
from pubstorm.scenario import Scenario
from pubstorm.scenario.defaults import conditions_of
from pubstorm.scenario.divisions import divisions_of
from pubstorm.scenario.faults import Fault
from pubstorm.scenario.network import Network
from pubstorm.scenario.roles import publishers_of
from pubstorm.scenario.stages import Hold, Publish
from pubstorm.scenario.sweep import written
from pubstorm.scenario.topology import Bridge, Broker
from pubstorm.scenario.victims import victims_of
from pubstorm.units import (
    write_bits_per_s,
    write_bytes,
    write_duration,
    write_rate,
    write_share,
)

MILLISECOND_NS = 10**6
CUTS = {
    "close": "connections are closed",
    "stall": "nothing gets through",
    "unplug": "every packet of all of them is lost",
}
"""How bridges are cut."""


def plan_in_words(scenario: Scenario, plan: Plan) -> Iterator[str]:
    """What will be done."""
    yield f"{plan.name}: {scenario.description}" if scenario.description else plan.name
    yield ""
    yield f"targets      {_targets(scenario, plan)}"
    for name, service in scenario.topology.services.items():
        yield f"services     {name} ({service.kind}), {_users(scenario, plan, name)}"
    for name, bridge in scenario.topology.bridges.items():
        yield from _bridge(scenario, name, bridge)
    if plan.sources:
        yield f"sources      {plan.sources[0]} to {plan.sources[-1]}, {len(plan.sources)} in turn"
    left_out = scenario.source.left_out
    clients = [line for each in plan.populations for line in _population(scenario, plan, each)]
    for title, lines in (
        ("populations", clients),
        ("stages", [line for n in range(len(plan.stages)) for line in _stage(scenario, plan, n)]),
        ("thresholds", [*_thresholds(scenario)]),
        *((("left out with this target", left_out),) if left_out else ()),
    ):
        yield ""
        yield title
        yield from (f"  {line}" for line in lines or ["none"])


def brokers_in_words(scenario: Scenario, kind: str) -> str:
    """The brokers of each step or trial: `kind` is fresh or same."""
    if not scenario.topology.brokers:
        return "the same target" if len(scenario.target) == 1 else "the same targets"
    if scenario.target:
        return "the same target" + (", and small brokers of its own" if kind == "fresh" else "")
    return "brokers of its own" if kind == "fresh" else "the same brokers"


def _thresholds(scenario: Scenario) -> Iterator[str]:
    for threshold in conditions_of(scenario):
        yield f"{threshold.source} (default)" if threshold.is_default else threshold.source


def sweep_in_words(scenario: Scenario) -> Iterator[str]:
    """The steps of its sweep, and how they are played."""
    sweep = scenario.sweep
    if sweep is None:
        return
    brokers = brokers_in_words(scenario, sweep.broker)
    times = f", {_many(sweep.repeat, 'time')} each" if sweep.repeat > 1 else ""
    yield ""
    yield f"sweep, the plan above is its first step; each step with {brokers}{times}"
    bases = dict.fromkeys(step.variation.base for step in scenario.steps)
    for number, base in enumerate(bases, 1):
        yield f"  {number}. {base}"
    for name in sweep.played:
        changed = ", ".join(f"{path}={written(v)}" for path, v in sweep.variants[name].items())
        yield f"  each as {name}: {changed or 'as written'}"
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
    brokers = scenario.topology.brokers
    given = list(map(str, plan.targets[: len(scenario.target)]))
    if brokers:
        count = _many(sum(broker.count for broker in brokers.values()), "broker")
        names = ", ".join(f"{name} ({_broker(broker)})" for name, broker in brokers.items())
        given.append(f"{count}: {names}, started and stopped by the run")
    publishers = [each for each in plan.populations if each.is_publisher]
    if publishers:
        count = _many(sum(each.clients for each in publishers), "publisher")
        names = ", ".join(f"{each.name} ({each.player})" for each in publishers)
        given.append(f"{count} of ZeroMQ: {names}, started and stopped by the run")
    where = "; ".join(given)
    if len(plan.targets) == 1 or scenario.topology.bridges or publishers:
        return where
    return f"{where}; {'joined' if plan.targets_joined else 'separate'}"


def _broker(broker: Broker) -> str:
    many = "" if broker.count == 1 else f"{broker.count:,} × "
    tls = "" if broker.tls == "none" else " under TLS"
    vhosts = broker.federation and _many(broker.federation.vhosts, "virtual host")
    where = re.sub("//.*@", "//", broker.auth or "")
    users = f" with users from {where}" if where else ""
    return f"{many}{broker.kind}{tls}{users}" + (f" with {vhosts}, federated" if vhosts else "")


def _users(scenario: Scenario, plan: Plan, service: str) -> str:
    """What the run writes to a service; raises UsageError where that cannot be written."""
    topology = scenario.topology
    if not topology.is_seeded(service):
        return "without users"
    found = accounts_of(plan.populations, topology.services[service].seeded_populations)
    of = ", ".join(accounts.population for accounts in found)
    return f"with users and rights of {of}: {_many(sum(each.rows for each in found), 'row')}"


def _bridge(scenario: Scenario, name: str, bridge: Bridge) -> Iterator[str]:
    """Who is bridged to whom, and what crosses."""
    count = _many(scenario.topology.brokers[bridge.from_].count, "bridge")
    clean = "clean" if bridge.clean_session else "persistent"
    keep_alive = write_duration(bridge.keep_alive)
    yield (
        f"bridges      {count} {name}: {bridge.from_} -> {bridge.to}, {bridge.protocol}, "
        f"{clean} session, keep-alive {keep_alive}"
    )
    for topic in bridge.topics:
        local, remote = topic.local_prefix + topic.topic, topic.remote_prefix + topic.topic
        as_what = "" if local == remote else f", {remote} at {bridge.to}"
        yield f"             {topic.direction} {local} at QoS {topic.qos}{as_what}"
    if bridge.network is not None:
        yield f"             through a network of their own{_link(bridge.network)}"


def _link(network: Network) -> str:
    """What its link is like, in each direction."""
    jitter = f" ± {write_duration(network.jitter)}" if network.jitter else ""
    properties = (
        f"delay {write_duration(network.delay)}{jitter}" if network.delay else "",
        f"loss {write_share(network.loss)}" if network.loss else "",
        f"{write_bits_per_s(network.rate)} for all" if network.rate else "",
    )
    words = ", ".join(filter(None, properties))
    return f", in each direction: {words}" if words else ""


def _population(scenario: Scenario, plan: Plan, population: Population) -> Iterator[str]:
    if population.is_publisher:
        yield from _publisher(plan, population)
        return
    clients = _many(population.clients, "client") + _attached(scenario, population)
    if population.whole is not None:
        last = population.first + population.clients - 1
        clients += f", numbers {population.first:,} to {last:,}"
    line = f"{population.name}: {clients}, {_kind(population)}"
    if population.end == "abort":
        line += ", ends its connections without DISCONNECT"
    if population.bridge:
        line += ", connects as a bridge"
    if population.read_rate_per_s is not None:
        line += f", takes at most {write_rate(population.read_rate_per_s)}"
    if population.lifetime is not None:
        line += f", {_lifetime(population.lifetime)}"
    yield line
    if population.tls is not None:
        yield f"  connects under {_tls(scenario, population.tls)}"
    for subscription in population.subscriptions:
        if population.version == ZMTP:
            yield f"  subscribes to {_prefix(subscription.filter)}"
        else:
            yield f"  subscribes to {subscription.filter} at QoS {subscription.qos}"
    for publication in population.publications:
        yield f"  publishes to {publication.topic}: {_publication(publication)}"


def _kind(population: Population) -> str:
    """What its clients are, and what keeps their connections."""
    keep_alive = f"{population.keep_alive_s}s"
    if population.version != ZMTP or population.zmq is None:
        session = "clean" if population.clean_session else "persistent"
        return f"{session} session, keep-alive {keep_alive}"
    security = _security(population)
    if population.player != "engine":
        mark = _mark(population.zmq.high_water_mark)
        return f"SUB sockets of {population.player}, high-water mark {mark}{security}"
    heartbeats = f"heartbeats every {keep_alive}" if population.keep_alive_s else "no heartbeats"
    return f"simulated SUB sockets, {heartbeats}{security}"


def _publisher(plan: Plan, population: Population) -> Iterator[str]:
    """A publisher of ZeroMQ: its sockets, what it sends, and what its queues may come to."""
    zmq, ports = population.zmq, [plan.targets[at].port for at in population.at.targets]
    if zmq is None:
        return
    first, last = ports[0], ports[-1]
    port = "free ports" if len(ports) > 1 else "a free port"
    if first:
        port = f"ports {first} to {last}" if len(ports) > 1 else f"port {first}"
    mark, io_threads = _mark(zmq.high_water_mark), _many(zmq.io_threads, "I/O thread")
    where = f"at {plan.targets[population.at.first].host}, {port}"
    sockets = f"{_many(population.clients, 'PUB socket')} of {population.player} {where}"
    marked = f"high-water mark {mark}, {io_threads}{_security(population)}"
    yield f"{population.name}: {sockets}, {marked}"
    for publication in population.publications:
        topic = f"topic {publication.topic}" if publication.topic else "no topic"
        yield f"  sends {_size(publication)} with {topic}, {_pace(publication)}"
    full_bytes = queues_bytes(plan, population)
    if full_bytes is None:
        yield "  queues without end: its memory grows while subscribers are slower than it"
    elif full_bytes:
        full = _amount(full_bytes, "bytes")
        yield f"  queues up to {mark} messages for each subscriber: {full} in all, beside payloads"


def _mark(high_water_mark: int) -> str:
    return f"{high_water_mark:,}" if high_water_mark else "none"


def _security(population: Population) -> str:
    security = "null" if population.zmq is None else population.zmq.security
    return {"null": "", "plain": ", security PLAIN", "curve": ", security CURVE"}[security]


def _prefix(prefix: str) -> str:
    """What a subscriber of ZeroMQ asks for."""
    return f"topics that begin with {prefix}" if prefix else "everything"


def _attached(scenario: Scenario, population: Population) -> str:
    """Where its clients connect, where there is a choice."""
    at = scenario.populations[population.of].at
    if at is None:
        others = len(planned_targets(scenario)) - sum(
            each.clients for each in publishers_of(scenario).values()
        )
        return " at all in turn" if others > 1 else ""
    among = at.brokers if at.count is None else f"{at.count:,} of {at.brokers}"
    among += f" from {at.brokers}-{at.first} on" if at.first else ""
    shift = f", {at.shift:,} further on" if at.shift else ""
    return f" at {among}" + (", at random" if at.choice == "random" else shift)


def _lifetime(lifetime: Lifetime) -> str:
    """How long clients stay, and whether they come back."""
    shortest, longest = write_duration(lifetime.min_ns), write_duration(lifetime.max_ns)
    stays = shortest if shortest == longest else f"{shortest} to {longest}"
    if lifetime.min_ns < MILLISECOND_NS:
        stays = f"up to {longest}"
    if lifetime.again_ns is None:
        return f"stays {stays}, goes for good"
    return f"stays {stays}, back after {write_duration(lifetime.again_ns)}"


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
    if isinstance(publication.pace, OpenPace):
        rate = f"{_pace(publication)} from each client"
    else:
        rate = f"as fast as a window of {publication.window} takes them"
    retained = ", retained" if publication.retain else ""
    return f"{_size(publication)} at QoS {publication.qos}, {rate}{retained}"


def _size(publication: Publication) -> str:
    match publication.payload:
        case FixedPayload(bytes=size_bytes):
            return write_bytes(size_bytes)
        case GaussianPayload(mean_bytes=mean_bytes, sd_bytes=sd_bytes):
            return f"{write_bytes(mean_bytes)} ± {write_bytes(sd_bytes)}"
        case text:
            return f"the text {text.template!r}"


def _pace(publication: Publication) -> str:
    """Evenly, in bursts, or as fast as it can."""
    pace = publication.pace
    if not isinstance(pace, OpenPace):
        return "as fast as it can"
    if pace.burst == 1:
        return f"every {write_duration(pace.period_ns)}"
    return f"bursts of {pace.burst:,} every {write_duration(pace.burst * pace.period_ns)}"


def _stage(scenario: Scenario, plan: Plan, number: int) -> Iterator[str]:
    stage = plan.stages[number]
    names = ", ".join(_names(plan, stage))
    yield f"{number + 1}. {stage.name} ({names}): {_action(plan, stage)}"
    load = stage_load(plan, stage)
    begins = ["", *(_change(plan, same) for same in together(_changes(stage)))]
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
        whose = "publisher" if _publishes_zeromq(plan, stage) else "broker"
        yield f"     and a closed loop, whose rate the {whose} sets"
    step = scenario.stages[number].step
    faults = step.faults if isinstance(step, Publish | Hold) else ()
    for fault in sorted(faults, key=lambda fault: fault.at):
        yield f"     at {write_duration(fault.at)}: {_fault(fault)}"
        yield from (f"       hint: {hint}" for hint in _fault_hints(scenario, fault))


def _publishes_zeromq(plan: Plan, stage: Stage) -> bool:
    return any(plan.populations[index].is_publisher for index in stage.populations)


def _names(plan: Plan, stage: Stage) -> Iterator[str]:
    """The populations of a stage; one whose shares are all in it by its own name."""
    entire = {n for n, shares in plan.wholes.items() if {*shares} <= {*stage.populations}}
    each = (plan.populations[index] for index in stage.populations)
    yield from dict.fromkeys(p.of if p.of in entire else p.name for p in each)


def _fault(fault: Fault) -> str:
    """What is broken, and when it is mended."""
    many = "" if fault.count is None else f"{fault.count:,} of "
    by = "" if fault.by is None else f" by {write_duration(fault.by)}"
    words = f"{fault.kind} {many}{fault.victims}{by}"
    if fault.kind == "cut":
        words += f" ({CUTS[fault.how]})"
    if fault.lasts is None:
        return f"{words}, not mended in this run"
    return f"{words}, mended after {write_duration(fault.lasts)}"


def _fault_hints(scenario: Scenario, fault: Fault) -> Iterator[str]:
    """Who will not come back from it."""
    if fault.kind in {"stop", "kill"} and fault.lasts is not None:
        group, _ = victims_of(scenario.topology, fault)
        for name, division in divisions_of(scenario).items():
            population = division.population
            is_there = population.at is None or population.at.brokers == group
            if is_there and population.reconnect is None:
                yield f"clients of {name} do not come back: their reconnect is never"


def _changes(stage: Stage) -> tuple[Change, ...]:
    return stage.action.changes if isinstance(stage.action, PublishAction) else ()


def _change(plan: Plan, same: Sequence[Change]) -> str:
    """What changes, in each share of a population where it has any."""
    first, action = same[0], same[0].action
    each = (change_name(change.action, plan.populations[change.population].name) for change in same)
    words = ", ".join(each)
    if first.name != words:
        words = f"{first.name}: {words}"
    if not isinstance(action, ChangeRate) and action.over_ns:
        words += f" over {write_duration(action.over_ns)}"
    return f"at {write_duration(first.after_ns)}: {words}, "


def _action(plan: Plan, stage: Stage) -> str:
    match stage.action:
        case ConnectAction(rate_per_s=rate_per_s, parallelism=parallelism, timeout_ns=timeout_ns):
            clients = sum(plan.populations[index].clients for index in stage.populations)
            words = _many(clients, "client")
            if stage.action.clients is not None:
                clients = sum(stage.action.clients)
                words = f"{clients:,} of {words}"
            words += f", {write_rate(rate_per_s)}" if rate_per_s is not None else ""
            words += f", {parallelism} at once" if parallelism is not None else ""
            wait = write_duration(timeout_ns)
            longest_ns = schedule_ns(clients, rate_per_s) + connect_bound_ns(clients, timeout_ns)
            return (
                f"{words}; goes on when all are subscribed, {wait} after the last start, or at "
                f"most after {write_duration(longest_ns)}"
            )
        case DisconnectAction(rate_per_s=rate_per_s):
            return "all at once" if rate_per_s is None else write_rate(rate_per_s)
        case HoldAction(duration_ns=duration_ns):
            return f"{write_duration(duration_ns)} without publishing"
        case action:
            words = write_duration(action.duration_ns)
            drain = write_duration(plan.drain_ns)
            longest = write_duration(DRAINS_MAX * plan.drain_ns)
            return (
                f"{words}; goes on when all has arrived, after {drain} without progress, or at "
                f"most {longest} later"
            )


def _amount(number: int, unit: str) -> str:
    if unit == "bytes":
        return f"{number / 2**20:,.0f} MiB"
    return f"{number:,}" if number < 2**40 else "unlimited"


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
