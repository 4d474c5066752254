"""A plan in words, before it is played: targets, populations, and what happens stage by stage."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pubstorm.cli.describe import many
from pubstorm.cli.describe.queues import consumer_words, exchange_words, promised_words
from pubstorm.cli.describe.sparkplug import sparkplug_words
from pubstorm.cli.describe.tls import tls_words
from pubstorm.contract.amqp import Amqp1Protocol, AmqpProtocol
from pubstorm.contract.commands import change_name, together
from pubstorm.contract.offered_load import StageLoad
from pubstorm.contract.plan import (
    ChangeRate,
    ConnectAction,
    DisconnectAction,
    HoldAction,
    Plan,
    PlannedChange,
    PlannedFlapping,
    PlannedLifetime,
    PlannedPopulation,
    PlannedStage,
    PublishAction,
)
from pubstorm.contract.protocol import (
    FixedPayload,
    GaussianPayload,
    HistogramPayload,
    KafkaProtocol,
    Mqtt,
    NatsProtocol,
    OpenPace,
    PlannedPublication,
    RecordedPayload,
    RecordsPayload,
    SparkplugPayload,
)
from pubstorm.contract.target import TARGET
from pubstorm.contract.template import Template
from pubstorm.host.binaries import offered_load
from pubstorm.host.preflight import queues_bytes
from pubstorm.host.preflight.need import amount_text
from pubstorm.play.progress import DRAINS_MAX, connect_bound_ns, schedule_ns, wills_wait_ns
from pubstorm.quantities import (
    MILLISECOND_NS,
    SECOND_NS,
    counted,
    write_bits_per_s,
    write_bytes,
    write_duration,
    write_rate,
    write_share,
)
from pubstorm.scenario import Scenario
from pubstorm.scenario.defaults import conditions_of
from pubstorm.scenario.faults import Fault, tcp_address, victims_of
from pubstorm.scenario.populations import Connecting, LinkKeys
from pubstorm.scenario.services import Program
from pubstorm.scenario.shares import shares_of
from pubstorm.scenario.stages import Hold, Publish
from pubstorm.scenario.topology import Bridge, Broker, Rabbitmq, ScenarioNetwork
from pubstorm.topology.identities.accounts import accounts_of

ENDS = {
    "disconnect": "",
    "disconnect_with_will": "ends its connections with DISCONNECT and its wills",
    "abort": "ends its connections without DISCONNECT",
    "vanish": "falls silent and leaves its connections open",
}
"""Ends of connections, in words."""
TOPIC_CHARS_MAX = 100
"""Characters of a topic that are shown."""
PHASES_MAX = 24
"""Phases of a stage that are described one by one."""
CUTS = {
    "close": "connections are closed",
    "stall": "nothing gets through",
    "unplug": "every packet of all of them is lost",
}
"""Words for the ways in which bridges are cut."""


def plan_in_words(scenario: Scenario, plan: Plan) -> Iterator[str]:
    """Yields the lines about a plan."""
    yield f"{plan.name}: {scenario.description}" if scenario.description else plan.name
    yield ""
    yield f"targets      {_targets(scenario, plan)}"
    for name, service in scenario.topology.services.items():
        yield f"services     {name} ({service.kind}), {_users(scenario, plan, name)}"
    for name, bridge in scenario.topology.bridges.items():
        yield from _bridge(scenario, name, bridge)
    for flow in scenario.flows:
        yield f"flows        {flow.from_} of {flow.of} arrives as {flow.to} at {flow.at}"
    if plan.sources:
        yield f"sources      {plan.sources[0]} to {plan.sources[-1]}, {len(plan.sources)} in turn"
    left_out = scenario.source.left_out
    clients = [line for each in plan.populations for line in _population(scenario, plan, each)]
    conditions = conditions_of(scenario)
    thresholds = [f"{c.source} (default)" if c.is_default else c.source for c in conditions]
    aborts = [condition.source for condition in scenario.abort_when]
    for title, lines in (
        ("populations", clients),
        ("stages", [line for n in range(len(plan.stages)) for line in _stage(scenario, plan, n)]),
        ("thresholds", thresholds),
        *((("aborted when", aborts),) if aborts else ()),
        *((("left out", left_out),) if left_out else ()),
    ):
        yield ""
        yield title
        yield from (f"  {line}" for line in lines or ["none"])


def _targets(scenario: Scenario, plan: Plan) -> str:
    brokers = scenario.topology.brokers
    given = list[str]()
    for name in scenario.target_sizes:
        addresses = list(map(str, scenario.targets_called(name)))
        given += addresses if name == TARGET else [f"{name} ({', '.join(addresses)})"]
    if brokers:
        count = many(sum(broker.count for broker in brokers.values()), "broker")
        names = ", ".join(f"{name} ({_broker(broker)})" for name, broker in brokers.items())
        given.append(f"{count}: {names}, started and stopped by the run")
    publishers = [each for each in plan.populations if each.is_publisher]
    if publishers:
        count = many(sum(each.clients for each in publishers), "publisher")
        names = ", ".join(f"{each.name} ({each.player})" for each in publishers)
        given.append(f"{count} of ZeroMQ: {names}, started and stopped by the run")
    where = "; ".join(given)
    if len(plan.targets) == 1 or scenario.topology.bridges or publishers:
        return where
    return f"{where}; {'joined' if plan.targets_joined else 'separate'}"


def _broker(broker: Broker) -> str:
    times = "" if broker.count == 1 else f"{broker.count:,} × "
    tls = "" if broker.tls_mode == "none" else " over QUIC" if broker.serves_quic else " under TLS"
    tls += " over WebSocket" if broker.serves_websocket else ""
    federation = broker.federation if isinstance(broker, Rabbitmq) else None
    vhosts = federation and many(federation.vhosts, "virtual host")
    where = re.sub("//.*@", "//", broker.user_store or "")
    users = f" with users from {where}" if where else ""
    return f"{times}{broker.kind}{tls}{users}" + (f" with {vhosts}, federated" if vhosts else "")


def _users(scenario: Scenario, plan: Plan, service: str) -> str:
    """Returns the users that a run writes to a service; raises UsageError if it cannot."""
    topology = scenario.topology
    if isinstance(topology.services[service], Program):
        return "after the brokers"
    if not topology.is_seeded(service):
        return "without users"
    found = accounts_of(plan.populations, topology.services[service].seeded_populations)
    of = ", ".join(accounts.population for accounts in found)
    return f"with users and rights of {of}: {many(sum(each.rows for each in found), 'row')}"


def _bridge(scenario: Scenario, name: str, bridge: Bridge) -> Iterator[str]:
    count = many(scenario.topology.brokers[bridge.from_].count, "bridge")
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


def _link(network: ScenarioNetwork) -> str:
    """Returns the properties of a link in each direction."""
    words = _conditions(network, " for all")
    return f", in each direction: {words}" if words else ""


def _conditions(link: ScenarioNetwork | LinkKeys, of: str) -> str:
    jitter = f" ± {write_duration(link.jitter)}" if link.jitter else ""
    properties = (
        f"delay {write_duration(link.delay)}{jitter}" if link.delay else "",
        f"loss {write_share(link.loss)}" if link.loss else "",
        f"{write_bits_per_s(link.rate)}{of}" if link.rate else "",
    )
    return ", ".join(filter(None, properties))


def _client_links(population: PlannedPopulation) -> Iterator[str]:
    for each in population.link:
        keys = LinkKeys.model_construct(
            delay=each.delay_ns, jitter=each.jitter_ns, loss=each.loss, rate=each.bits_per_s
        )
        at = f" from {write_duration(each.after_ns)} of a stage on" if each.after_ns else ""
        words = _conditions(keys, " for each client") or "no delay, no limit"
        yield f"  link in each direction{at}: {words}"


def _population(scenario: Scenario, plan: Plan, population: PlannedPopulation) -> Iterator[str]:
    if population.is_publisher:
        yield from _publisher(plan, population)
        return
    clients = many(population.clients, "client") + _attached(scenario, population)
    if population.whole is not None:
        last = population.first + population.clients - 1
        clients += f", numbers {population.first:,} to {last:,}"
    victim, rate = population.takes_over, population.read_rate_per_s
    parts = (
        f"{population.name}: {clients}",
        _kind(population),
        ENDS[population.end],
        "" if victim is None else f"takes connections over from {plan.populations[victim].name}",
        "connects as a bridge" if population.sets_bridge_bit else "",
        "" if rate is None else f"takes at most {write_rate(rate)}",
        "" if population.lifetime is None else _lifetime(population.lifetime),
        "" if population.flapping is None else _flapping(population.flapping),
    )
    yield ", ".join(filter(None, parts))
    yield from _client_links(population)
    yield from sparkplug_words(population)
    if population.tls is not None:
        targets = [plan.targets[index] for index in population.at.targets]
        yield f"  connects under {tls_words(scenario, population.tls, targets)}"
    if population.headers:
        names = ", ".join(header.name for header in population.headers)
        yield f"  opens WebSockets with the headers {names}"
    for number, subscription in enumerate(population.subscriptions):
        if population.can.names is None:
            prefix = subscription.filter
            topics = f"topics that begin with {prefix}" if prefix else "everything"
            yield f"  subscribes to {topics}"
        elif population.can.has_qos:
            yield f"  subscribes to {subscription.filter} at QoS {subscription.qos}"
        elif isinstance(population.protocol, AmqpProtocol):
            yield f"  {consumer_words(population.protocol.queues[number], subscription)}"
        else:
            words = _subject(subscription.filter, GROUPS[population.protocol.kind])
            yield f"  subscribes to {words}{_durable(population)}"
    for number, publication in enumerate(population.publications):
        qos = f" at QoS {publication.qos}" if population.can.has_qos else ""
        if publication.qos and not qos:
            qos = ", acknowledged by a stream"
        if isinstance(population.protocol, AmqpProtocol):
            qos = promised_words(population.protocol, number, publication)
            publication = publication.model_copy(update={"topic": exchange_words(publication)})
        yield f"  publishes to {_topics(publication)}: {_publication(publication, qos)}"


def _kind(population: PlannedPopulation) -> str:
    """Returns the kind of clients, and their keep-alive."""
    keep_alive = f"{population.keep_alive_s}s"
    heartbeats = f"heartbeats every {keep_alive}" if population.keep_alive_s else "no heartbeats"
    match population.protocol:
        case Mqtt() as mqtt:
            version = "" if mqtt.version == "3.1.1" else f"MQTT {mqtt.version}, "
            session = "persistent" if population.keeps_session else "clean"
            return f"{version}{session} session, keep-alive {keep_alive}"
        case NatsProtocol() as nats:
            return f"NATS{'' if nats.echo else ' without echo'}, {heartbeats}"
        case KafkaProtocol():
            return "consumers of Kafka, by librdkafka"
        case Amqp1Protocol():
            return f"receivers of AMQP 1.0, by Qpid Proton, {heartbeats}"
        case AmqpProtocol() as amqp:
            host, channels = amqp.virtual_host, counted(amqp.channels, "channel")
            login = ", login by certificate" if amqp.mechanism == "external" else ""
            return f"AMQP, virtual host {host}, {channels}, {heartbeats}{login}"
        case zmtp:
            security = _security(population)
            if population.player != "engine":
                mark = _mark(zmtp.high_water_mark)
                return f"SUB sockets of {population.player}, high-water mark {mark}{security}"
            return f"simulated SUB sockets, {heartbeats}{security}"


def _publisher(plan: Plan, population: PlannedPopulation) -> Iterator[str]:
    """A publisher of ZeroMQ: its sockets, what it sends, and what its queues may come to."""
    zmq, ports = population.zmtp, [plan.targets[at].port for at in population.at.targets]
    if zmq is None:
        return
    first, last = ports[0], ports[-1]
    port = "free ports" if len(ports) > 1 else "a free port"
    if first:
        port = f"ports {first} to {last}" if len(ports) > 1 else f"port {first}"
    mark, io_threads = _mark(zmq.high_water_mark), many(zmq.io_threads, "I/O thread")
    where = f"at {plan.targets[population.at.first].host}, {port}"
    sockets = f"{many(population.clients, 'PUB socket')} of {population.player} {where}"
    marked = f"high-water mark {mark}, {io_threads}{_security(population)}"
    yield f"{population.name}: {sockets}, {marked}"
    for publication in population.publications:
        topic = f"topic {publication.topic}" if publication.topic else "no topic"
        yield f"  sends {_size(publication)} with {topic}, {_pace(publication)}"
    full_bytes = queues_bytes(plan, population)
    if full_bytes is None:
        yield "  queues without end: its memory grows while subscribers are slower than it"
    elif full_bytes:
        full = amount_text(full_bytes, "bytes")
        yield f"  queues up to {mark} messages for each subscriber: {full} in all, beside payloads"


def _mark(high_water_mark: int) -> str:
    return f"{high_water_mark:,}" if high_water_mark else "none"


def _security(population: PlannedPopulation) -> str:
    security = "null" if population.zmtp is None else population.zmtp.security
    return {"null": "", "plain": ", security PLAIN", "curve": ", security CURVE"}[security]


GROUPS = {"nats": "queue group", "kafka": "group", "amqp1": "the queue"}
"""Word of each protocol for clients that share messages."""


def _subject(filter_: str, word: str) -> str:
    """Returns the subject of a subscription in words, with its group."""
    group, _, subject = filter_.removeprefix("$share/").rpartition("/")
    return f"{subject} in {word} {group}" if group else filter_


def _durable(population: PlannedPopulation) -> str:
    """Returns the streams of durable consumers in words; nothing without."""
    options = population.protocol
    consumers = options.consumers if isinstance(options, NatsProtocol) else ()
    streams = sorted({each.stream for each in consumers})
    return f" through durable consumers of {' and '.join(streams)}" if streams else ""


def _attached(scenario: Scenario, population: PlannedPopulation) -> str:
    at = scenario.populations[population.of].attached_to
    if at is None:
        return " at all in turn" if population.at.count > 1 else ""
    among = at.brokers if at.count is None else f"{at.count:,} of {at.brokers}"
    among += f" from {at.brokers}-{at.first} on" if at.first else ""
    shift = f", {at.shift:,} further on" if at.shift else ""
    return f" at {among}" + (", at random" if at.choice == "random" else shift)


def _lifetime(lifetime: PlannedLifetime) -> str:
    if lifetime.recorded is not None:
        return f"plays the sessions of {lifetime.recorded.clients:,} recorded clients"
    stays = f"stays {_times(lifetime)}"
    if lifetime.offline_ns is None:
        return f"{stays}, goes for good"
    return f"{stays}, back after {write_duration(lifetime.offline_ns)}"


def _flapping(flapping: PlannedFlapping) -> str:
    back_ns = flapping.unsubscribed_ns
    back = f"after {write_duration(back_ns)}" if back_ns else "at once"
    return f"unsubscribes after {_times(flapping)}, subscribes again {back}"


def _times(span: PlannedLifetime | PlannedFlapping) -> str:
    shortest, longest = write_duration(span.min_ns), write_duration(span.max_ns)
    if span.min_ns < MILLISECOND_NS:
        return f"up to {longest}"
    return shortest if shortest == longest else f"{shortest} to {longest}"


def _topics(publication: PlannedPublication) -> str:
    """Returns the topic of a publication, shortened if it has many values, and its weights."""
    topic, weights = publication.topic, publication.weights
    variants = Template.parse(topic).variants
    if len(topic) > TOPIC_CHARS_MAX and variants > 1:
        topic = f"{topic[:TOPIC_CHARS_MAX]}… ({counted(variants, 'topic')})"
    if not weights:
        return topic
    most = write_share(round(max(weights) / sum(weights), 4))
    return f"{topic} by weights, {most} of messages to the most frequent"


def _publication(publication: PlannedPublication, qos: str) -> str:
    if isinstance(publication.pace, OpenPace):
        rate = f"{_pace(publication)} from each client"
    elif qos:
        rate = f"as fast as a window of {publication.window} takes them"
    else:
        rate = "as fast as the socket takes them"
    retained = ", retained" if publication.retain else ""
    return f"{_size(publication)}{qos}, {rate}{retained}"


def _size(publication: PlannedPublication) -> str:
    match publication.payload:
        case FixedPayload(bytes=size_bytes):
            return write_bytes(size_bytes)
        case GaussianPayload(mean_bytes=mean_bytes, sd_bytes=sd_bytes):
            return f"{write_bytes(mean_bytes)} ± {write_bytes(sd_bytes)}"
        case HistogramPayload(bins=bins):
            ends = f"{write_bytes(bins[0].bytes)} to {write_bytes(bins[-1].bytes)}"
            return f"{ends} by a histogram of {counted(len(bins), 'size')}"
        case RecordsPayload(sizes=sizes):
            mean = write_bytes(round(sum(sizes) / len(sizes)))
            return f"{counted(len(sizes), 'payload')} of {mean} in the mean from a file"
        case SparkplugPayload(metrics=metrics, changed=changed):
            return f"{changed:,} of {counted(metrics, 'metric')} of Sparkplug B"
        case RecordedPayload(mean_bytes=mean_bytes, max_bytes=max_bytes):
            return (
                f"recorded, {write_bytes(mean_bytes)} in the mean, up to {write_bytes(max_bytes)}"
            )
        case text:
            return f"the text {text.template!r}"


def _pace(publication: PlannedPublication) -> str:
    pace = publication.pace
    if not isinstance(pace, OpenPace):
        return "as fast as it can"
    mean = " in the mean (Poisson arrivals)" if pace.arrivals == "poisson" else ""
    mean = " in the mean (recorded instants)" if publication.recorded else mean
    if pace.burst == 1:
        return f"every {write_duration(pace.period_ns)}{mean}"
    return f"bursts of {pace.burst:,} every {write_duration(pace.burst * pace.period_ns)}{mean}"


def _stage(scenario: Scenario, plan: Plan, number: int) -> Iterator[str]:
    stage = plan.stages[number]
    names = ", ".join(_names(plan, stage))
    yield f"{number + 1}. {stage.name} ({names}): {_action(plan, stage)}"
    load = offered_load(plan).stages[number]
    action = stage.action
    changes = action.changes if isinstance(action, PublishAction | HoldAction) else ()
    begins = ["", *(_change(plan, same) for same in together(changes))]
    step = scenario.stages[number].step
    profiles = step.client_profiles if isinstance(step, Publish | Hold) else ()
    yield from (f"     {_profile(plan, changes, load, name)}" for name in profiles)
    totals = f"{load.sent_total:,.0f} sent and {load.delivered_total:,.0f} delivered"
    for n, (begin, phase) in enumerate(zip(begins, load.phases, strict=False)):
        if n == PHASES_MAX:
            rest = load.phases[n:]
            most = max(each.at_peak.sent_per_s for each in rest)
            yield f"     and {many(len(rest), 'further change')}, up to about {most:,.0f} sent/s"
            break
        if load.sent_total:
            rates = f"{phase.sent_per_s:,.0f} sent/s and {phase.delivered_per_s:,.0f} delivered/s"
            if phase.peak > 1:
                peak = phase.at_peak
                rates += f" in the mean, {peak.sent_per_s:,.0f} and {peak.delivered_per_s:,.0f}"
                rates += " at the peak"
            yield f"     {begin}about {rates}" + (f": {totals}" if len(begins) == 1 else "")
        elif begin:
            yield f"     {begin.removesuffix(', ')}"
    if load.sent_total and len(begins) > 1:
        yield f"     {totals} in all"
    requests_per_s = max(phase.requests_per_s for phase in load.phases)
    if requests_per_s and not isinstance(action, ConnectAction):
        yield f"     and up to {requests_per_s:,.0f} UNSUBSCRIBE and SUBSCRIBE/s"
    if load.closed_loop:
        publishes = any(plan.populations[index].is_publisher for index in stage.populations)
        whose = "publisher" if publishes else "broker"
        yield f"     and a closed loop, whose rate the {whose} sets"
    for fault in sorted(scenario.stages[number].faults, key=lambda fault: fault.at):
        yield f"     at {write_duration(fault.at)}: {_fault(fault)}"
        yield from (f"       hint: {hint}" for hint in _fault_hints(scenario, fault))


def _names(plan: Plan, stage: PlannedStage) -> Iterator[str]:
    """The populations of a stage; one whose shares are all in it by its own name."""
    entire = {n for n, shares in plan.wholes.items() if {*shares} <= {*stage.populations}}
    each = (plan.populations[index] for index in stage.populations)
    yield from dict.fromkeys(p.of if p.of in entire else p.name for p in each)


def _fault(fault: Fault) -> str:
    if fault.command is not None:
        return _fault_by_command(fault)
    part = "" if fault.count is None else f"{fault.count:,} of "
    by = "" if fault.by is None else f" by {write_duration(fault.by)}"
    words = f"{fault.kind} {part}{fault.victims}{by}"
    if fault.kind == "cut":
        words += f" ({CUTS[fault.how]})"
    if fault.rotate is not None:
        return f"{words}: a new certificate"
    if fault.lasts is None:
        return f"{words}, not repaired in this run"
    return f"{words}, repaired after {write_duration(fault.lasts)}"


def _fault_by_command(fault: Fault) -> str:
    words = f"run {fault.command}"
    if fault.lasts is None:
        return f"{words}, not repaired in this run"
    if fault.repair is not None:
        words += f", after {write_duration(fault.lasts)} {fault.repair}"
    if fault.repaired_when is None:
        return words
    is_address = tcp_address(fault.repaired_when) is not None
    shows = "accepts a connection" if is_address else "exits with 0"
    return f"{words}, repaired when {fault.repaired_when} {shows}"


def _fault_hints(scenario: Scenario, fault: Fault) -> Iterator[str]:
    """Yields the populations that do not connect again after a fault."""
    if fault.kind in {"stop", "kill", "command"} and fault.lasts is not None:
        group, _ = victims_of(scenario, fault)
        for name, played in shares_of(scenario).items():
            population = played.population
            if not isinstance(population, Connecting) or population.reconnect is not None:
                continue
            if fault.command or population.at is None or population.at.brokers == group:
                yield f"clients of {name} do not come back: their reconnect is never"


def _profile(plan: Plan, changes: Sequence[PlannedChange], load: StageLoad, name: str) -> str:
    """Returns the profile of a population in words: its clients, and their joins and leaves."""
    indices = plan.members[name]
    moves: list[tuple[str, int, int]] = []
    for same in together(change for change in changes if change.population in indices):
        moved = [each.action for each in same if not isinstance(each.action, ChangeRate)]
        if moved and moved[0].kind != "migrate":
            moves.append((moved[0].kind, sum(each.clients for each in moved), moved[0].over_ns))
    # Before a step at the start of the stage, the clients of the stage before are active.
    played = load.phases[bool(moves) and load.phases[0].seconds == moves[0][2] == 0 :]
    counts = [sum(phase.clients[index] for index in indices) for phase in played]
    speeds: list[str] = []
    for kind, noun in (("add", "joins"), ("remove", "leaves")):
        of_kind = [(clients, over_ns) for each, clients, over_ns in moves if each == kind]
        per_s = max((n * SECOND_NS / over_ns for n, over_ns in of_kind if over_ns), default=0.0)
        at_once = max((n for n, over_ns in of_kind if not over_ns), default=0)
        speeds += [f"{noun} at up to {write_rate(per_s)}"] if per_s else []
        speeds += [f"{noun} of {at_once:,} at once"] if at_once else []
    words = f"{name} follows its profile: {min(counts):,} to {max(counts):,} clients"
    return f"{words}, {many(len(moves), 'change')}{': ' if speeds else ''}{', '.join(speeds)}"


def _change(plan: Plan, same: Sequence[PlannedChange]) -> str:
    """Returns a change in words, for each share of a population."""
    first, action = same[0], same[0].action
    each = (change_name(change.action, plan.populations[change.population].name) for change in same)
    words = ", ".join(each)
    if first.name != words:
        words = f"{first.name}: {words}"
    if not isinstance(action, ChangeRate) and action.over_ns:
        words += f" over {write_duration(action.over_ns)}"
    return f"at {write_duration(first.after_ns)}: {words}, "


def _action(plan: Plan, stage: PlannedStage) -> str:
    match stage.action:
        case ConnectAction(rate_per_s=rate_per_s, parallelism=parallelism, timeout_ns=timeout_ns):
            clients = sum(plan.populations[index].clients for index in stage.populations)
            words = many(clients, "client")
            if stage.action.clients is not None:
                clients = sum(stage.action.clients)
                words = f"{clients:,} of {words}"
            words += f", {write_rate(rate_per_s)}" if rate_per_s is not None else ""
            words += f", {parallelism} at once" if parallelism is not None else ""
            wait = write_duration(timeout_ns)
            longest_ns = schedule_ns(clients, rate_per_s) + connect_bound_ns(clients, timeout_ns)
            longest = write_duration(-(-longest_ns // SECOND_NS) * SECOND_NS)
            return (
                f"{words}; ends when all are subscribed, {wait} after the last start, or at "
                f"most after {longest}"
            )
        case DisconnectAction(rate_per_s=rate_per_s):
            words = "all at once" if rate_per_s is None else write_rate(rate_per_s)
            wills_ns = wills_wait_ns(plan.populations[index] for index in stage.populations)
            words += f"; waits for wills, about {write_duration(wills_ns)}" if wills_ns else ""
            return words
        case HoldAction(duration_ns=duration_ns):
            return f"{write_duration(duration_ns)} without publishing"
        case action:
            words = write_duration(action.duration_ns)
            if action.messages is not None:
                words = f"{counted(sum(action.messages), 'message')}, {words} at most"
            drain = write_duration(plan.drain_ns)
            longest = write_duration(DRAINS_MAX * plan.drain_ns)
            return (
                f"{words}; ends when all has arrived, after {drain} without progress, or at "
                f"most {longest} later"
            )
