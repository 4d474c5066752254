"""From scenario to plan: every default filled in, every name an index, every unit the contract's.
The targets are given, since brokers that the run starts have no port before they run."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import ceil
from types import SimpleNamespace
from typing import Any

from pydantic import BaseModel

from pubstorm.contract import RATE_MIN_PER_S, plan, protocol
from pubstorm.contract.offered_load import clients_at, most_at_a_target, target_of, template_of
from pubstorm.contract.recorded import Content, read_recorded
from pubstorm.contract.sessions import SessionsRecording, read_sessions
from pubstorm.contract.target import SOURCES_MAX, Target
from pubstorm.contract.template import NUMERIC, Template, Variable, VariableKind
from pubstorm.plan.stages import planned_stages
from pubstorm.quantities import SECOND_NS, PartOf
from pubstorm.scenario.base import Part, every_key
from pubstorm.scenario.credentials import Tls
from pubstorm.scenario.data import JSON_VALUE, bins_of
from pubstorm.scenario.flows import Publication, Replay, Subscription, properties_of
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import ClientLinks, Population
from pubstorm.scenario.shares import PopulationShare, mean_stay_ns, mean_subscribed_ns, shares_of
from pubstorm.scenario.topology import WEBSOCKET_PATH

UNKNOWN_HOST = "0.0.0.0"
"""Address of what a run starts on some host of a cluster, until it is started."""
COALESCING_PART, COALESCING_MAX_NS = 10, 1_000_000
"""Timers wait for each other for this part of the lateness that counts as valid, up to 1 ms."""


def compile_plan(scenario: Scenario, targets: Sequence[Target], *, run_tag: int) -> plan.Plan:
    """The plan for these targets; `run_tag` marks this run's payloads."""
    shares = tuple(shares_of(scenario).values())
    places = _Places.of(scenario)
    attached = tuple(map(places.attachment, shares))
    among = [(at, played.clients) for played, at in zip(shares, attached, strict=True)]
    compiled = plan.Plan(
        name=scenario.name,
        run_tag=run_tag,
        seed=scenario.seed,
        targets=tuple(_with_addresses(scenario, targets)),
        targets_joined=scenario.topology.is_joined,
        bridges=tuple(_bridges(scenario)),
        flows=tuple(_flows(scenario, shares)),
        sources=_sources(scenario, targets, among),
        addresses=None if scenario.addresses is None else scenario.addresses.planned,
        snapshot_interval_ns=scenario.snapshot_interval,
        drain_ns=scenario.drain,
        coalescing_ns=_coalescing_ns(scenario),
        stall_ns=None if scenario.topology.bridges else scenario.stall_after,
        max_packet_bytes=scenario.max_packet,
        populations=tuple(
            _population(scenario, played, at, targets)
            for played, at in zip(shares, attached, strict=True)
        ),
        stages=tuple(planned_stages(scenario)),
    )
    populations = tuple(_slowed(compiled, index, played) for index, played in enumerate(shares))
    return compiled.model_copy(update={"populations": populations})


def _coalescing_ns(scenario: Scenario) -> int:
    """Longest time that timers wait for each other. Default: a small part of the lateness that
    counts as valid."""
    if scenario.fleet.coalescing is not None:
        return scenario.fleet.coalescing
    return min(scenario.validity.lateness_p99 // COALESCING_PART, COALESCING_MAX_NS)


def provisional_plan(scenario: Scenario) -> plan.Plan:
    """The plan before any broker has a port, for checks before the run."""
    return compile_plan(scenario, planned_targets(scenario), run_tag=0)


def placed_plan(
    scenario: Scenario, provisional: plan.Plan, targets: Sequence[Target], *, run_tag: int
) -> plan.Plan:
    """The provisional plan at the addresses of what was started; `run_tag` marks this run's
    payloads."""
    attached = [(each.at, each.clients) for each in provisional.populations]
    sources = _sources(scenario, targets, attached)
    targets = tuple(_with_addresses(scenario, targets))
    changed = {"targets": targets, "run_tag": run_tag, "sources": sources}
    return provisional.model_copy(update=changed)


def planned_targets(scenario: Scenario) -> tuple[Target, ...]:
    """The scenario's targets, then the brokers and then the publishers that are yet to be started:
    these have port 0 unless the scenario gives them one, and on a cluster no address yet."""
    host = "127.0.0.1" if scenario.fleet.on == "local" else UNKNOWN_HOST
    started = (
        Target(
            host=host,
            port=0,
            tls=broker.tls_mode != "none",
            websocket=WEBSOCKET_PATH if broker.serves_websocket else None,
            quic=broker.serves_quic,
            ports={str(each): 0 for each in broker.other_ports},
        )
        for broker in scenario.topology.brokers.values()
        for _ in range(broker.count)
    )
    publishers = (
        Target(host=host, port=0 if publisher.port is None else publisher.port + number)
        for population in scenario.publishers.values()
        for publisher in (population.publisher,)
        for number in range(population.clients)
    )
    return (*scenario.target, *started, *publishers)


def targets_by_name(scenario: Scenario) -> dict[str, range]:
    """Indices of the targets that a name of targets, of a broker or of a population of publishers
    stands for."""
    counts = scenario.target_sizes
    counts |= {name: broker.count for name, broker in scenario.topology.brokers.items()}
    counts |= {name: each.clients for name, each in scenario.publishers.items()}
    firsts = accumulate(counts.values(), initial=0)
    named = zip(counts.items(), firsts, strict=False)
    return {name: range(first, first + count) for (name, count), first in named if count}


@dataclass(frozen=True, slots=True)
class _Places:
    """The targets that each name of a scenario stands for."""

    indices: Mapping[str, range]
    publishers: Collection[str]
    """Names of populations that the run starts as publishers."""
    others: int
    """Number of targets that are no such publishers."""

    @classmethod
    def of(cls, scenario: Scenario) -> _Places:
        """Returns the places of a scenario."""
        indices, publishers = targets_by_name(scenario), scenario.publishers.keys()
        others = sum(len(own) for name, own in indices.items() if name not in publishers)
        return cls(indices, publishers, others)

    def attachment(self, played: PopulationShare) -> plan.PlannedAttachment:
        """Returns the targets of a share's clients."""
        if played.whole in self.publishers:
            own = self.indices[played.whole]
            return plan.PlannedAttachment(first=own.start, count=len(own))
        chosen = played.population.attached_to
        if chosen is None:
            count = self.others
            return plan.PlannedAttachment(first=0, count=count, shift=played.start % count)
        among = self.indices[chosen.brokers][chosen.first :]
        count = len(among) if chosen.count is None else chosen.count
        # A share begins where the population has come to.
        shift = (chosen.shift + played.start) % count
        return plan.PlannedAttachment(
            first=among.start, count=count, choice=chosen.choice, shift=shift
        )


def _bridges(scenario: Scenario) -> Iterator[plan.PlannedBridges]:
    indices = targets_by_name(scenario)
    for bridge in scenario.topology.bridges.values():
        small = indices[bridge.from_]
        yield plan.PlannedBridges(
            main=indices[bridge.to].start,
            first=small.start,
            count=len(small),
            routes=tuple(
                plan.Route(filter=topic.topic, **topic.model_dump(exclude={"topic", "qos"}))
                for topic in bridge.topics
            ),
        )


def _flows(scenario: Scenario, shares: Sequence[PopulationShare]) -> Iterator[protocol.PlannedFlow]:
    for flow in scenario.flows:
        name, arrives = scenario.names_of(flow)
        at = next(index for index, played in enumerate(shares) if played.whole == flow.at)
        for population, played in enumerate(shares):
            own, around = played.population, scenario.around(played.population)
            for publication, each in enumerate(own.flows):
                if played.whole == flow.of and own.topic_of(each, around) == name:
                    yield protocol.PlannedFlow(
                        population=population, publication=publication, to=arrives, at=at
                    )


def _sources(
    scenario: Scenario,
    targets: Sequence[Target],
    attached: Sequence[tuple[plan.PlannedAttachment, int]],
) -> tuple[str, ...]:
    if scenario.sources is not None:
        return scenario.sources
    if not targets or not all(t.is_loopback and ":" not in t.host for t in targets):
        return ()
    addresses = min(ceil(most_at_a_target(attached) / CLIENTS_PER_SOURCE), SOURCES_MAX)
    if addresses <= 1:
        return ()
    return tuple(f"127.0.{n // 254}.{n % 254 + 1}" for n in range(addresses))


def _with_addresses(scenario: Scenario, targets: Sequence[Target]) -> Iterator[Target]:
    """Yields targets with the addresses that the scenario gives to their names."""
    given = {} if scenario.addresses is None else scenario.addresses.names
    for target in targets:
        addresses = given.get(target.host, ())
        yield target.model_copy(update={"addresses": addresses}) if addresses else target


def _population(
    scenario: Scenario,
    played: PopulationShare,
    at: plan.PlannedAttachment,
    targets: Sequence[Target],
) -> plan.PlannedPopulation:
    population, whole = _every_key(played.population), played.whole
    own_targets = targets[at.first : at.first + at.count]
    tls = any(target.tls for target in own_targets)
    over_websocket = any(target.websocket is not None for target in own_targets)
    reconnect, read_rate = population.reconnect, population.read_rate
    responds = population.responds
    victim = population.takes_over
    client_id = _client_id(scenario, whole, population)
    around = scenario.around(played.population)
    headers = tuple(plan.Header(name=n, value=value) for n, value in population.headers.items())
    return plan.PlannedPopulation(
        name=played.name,
        whole=None if played.share is None else whole,
        protocol=played.population.options(client_id, around),
        clients=population.clients,
        first=population.first if victim is None else scenario.populations[victim].first,
        at=at,
        username=population.username,
        password=population.password,
        tls=planned_tls(population.tls or Tls(), client_id) if tls else None,
        proxy_protocol=None
        if population.proxy_protocol is None
        else population.proxy_protocol.planned,
        headers=headers if over_websocket else (),
        keep_alive_s=population.keep_alive // SECOND_NS,
        end=population.end,
        connect_timeout_ns=population.connect_timeout,
        reconnect=None
        if reconnect is None
        else plan.PlannedReconnect(
            min_ns=reconnect.after, max_ns=max(reconnect.after, reconnect.up_to)
        ),
        read_rate_per_s=None if isinstance(read_rate, PartOf) else read_rate,
        delayed_acks=population.tcp_acks == "delayed",
        link=() if population.link is None else tuple(_conditions(population.link)),
        rows=_rows(played),
        lifetime=_lifetime(scenario, played),
        flapping=_flapping(scenario, played),
        takes_over=None if victim is None else [*shares_of(scenario)].index(victim),
        subscriptions=tuple(
            protocol.PlannedSubscription(
                filter=played.population.filter_of(each, around),
                **_alike(each, Subscription, protocol.PlannedSubscription),
            )
            for each in played.population.filters
        ),
        publications=tuple(
            _publication(each, played, played.population.topic_of(each, around))
            for each in played.population.flows
        ),
        responds=None
        if responds is None
        else plan.PlannedResponds(qos=responds.qos, bytes=responds.size),
    )


def _conditions(link: ClientLinks) -> Iterator[plan.LinkConditions]:
    changed = ((change.at, link.after(change)) for change in link.changes)
    for after_ns, keys in ((0, link), *changed):
        yield plan.LinkConditions(
            after_ns=after_ns,
            delay_ns=keys.delay,
            jitter_ns=keys.jitter,
            loss=keys.loss,
            bits_per_s=keys.rate,
        )


def _client_id(scenario: Scenario, name: str, population: SimpleNamespace) -> str:
    """Returns the template of the client identifiers; that of the victims if there are some."""
    victim = population.takes_over
    if victim is not None:
        return _client_id(scenario, victim, _every_key(scenario.populations[victim]))
    return f"{name}-{{n}}" if population.client_id is None else population.client_id


def _every_key(population: Population) -> SimpleNamespace:
    """Returns the keys of all kinds; those that the kind has not are at their defaults."""
    return SimpleNamespace(**every_key(population, Population))


def _alike(part: Part, common: type[Part], planned: type[BaseModel]) -> dict[str, Any]:
    """Returns the values that a part and its form in the plan have under the same key. `common` is
    the class of all kinds of the part."""
    values = every_key(part, common)
    return {key: values[key] for key in planned.model_fields.keys() & values.keys()}


def planned_tls(tls: Tls, client_id: str) -> plan.PlannedTls:
    """TLS with every default filled in; `client_id` is the identity where none is given."""
    psk = tls.psk
    planned = (
        None if psk is None else plan.PlannedPsk(file=psk.file, identity=psk.identity or client_id)
    )
    return plan.PlannedTls(**{**dict(tls), "psk": planned})


def _rows(played: PopulationShare) -> plan.PlannedRows | None:
    """The rows of a population; the first row belongs to the first client of the whole
    population."""
    rows = _every_key(played.population).rows
    first = played.population.first - played.start
    return (
        None if rows is None else plan.PlannedRows(file=rows.file, first=first, repeat=rows.repeat)
    )


def _lifetime(scenario: Scenario, played: PopulationShare) -> plan.PlannedLifetime | None:
    lifetime = played.population.stay
    if lifetime is None:
        return None
    if lifetime.replay is not None:
        return _recorded_lifetime(lifetime.replay, lifetime.shift, played)
    if lifetime.rate is not None:
        longest = 2 * mean_stay_ns(scenario, played)
        return plan.PlannedLifetime(min_ns=1, max_ns=longest, offline_ns=lifetime.offline)
    shortest = lifetime.from_ or 0
    longest = shortest if lifetime.to is None else lifetime.to
    return plan.PlannedLifetime(min_ns=shortest, max_ns=longest, offline_ns=lifetime.offline)


def _recorded_lifetime(path: str, shift_ns: int, played: PopulationShare) -> plan.PlannedLifetime:
    file = read_sessions(path)
    recorded = SessionsRecording(
        file=path,
        first=played.population.first - played.start,
        clients=file.clients,
        shift_ns=shift_ns,
    )
    mean_ns = file.stay_mean_ns
    return plan.PlannedLifetime(
        min_ns=mean_ns, max_ns=mean_ns, offline_ns=file.offline_mean_ns, recorded=recorded
    )


def _flapping(scenario: Scenario, played: PopulationShare) -> plan.PlannedFlapping | None:
    flapping = played.population.flaps
    if flapping is None:
        return None
    shortest = flapping.from_ or 1
    longest = shortest if flapping.to is None else flapping.to
    if flapping.rate is not None:
        longest = 2 * mean_subscribed_ns(scenario, played)
    return plan.PlannedFlapping(
        min_ns=shortest, max_ns=longest, unsubscribed_ns=flapping.unsubscribed
    )


def _publication(
    publication: Publication, played: PopulationShare, topic: str
) -> protocol.PlannedPublication:
    planned = {
        "topic": topic,
        "pace": _pace(publication),
        "payload": played.population.data_of_sparkplug
        or _recorded(publication, played)
        or _payload(publication),
        "properties": tuple(properties_of(publication)),
        "qos": publication.level,
        "weights": publication.round,
    }
    alike = _alike(publication, Publication, protocol.PlannedPublication)
    return protocol.PlannedPublication(**{**alike, **planned})


def _recorded(publication: Publication, played: PopulationShare) -> protocol.RecordedPayload | None:
    """Returns the recorded messages of a publication; None if it has a schedule of its own. The
    first recorded client belongs to the first client of the whole population."""
    replay: Replay | None = getattr(publication, "replay", None)
    if replay is None:
        return None
    file = read_recorded(replay.file)
    kind = file.kind(publication.level, bool(getattr(publication, "retain", False)))
    content: Content = replay.stamp if file.has_payloads else "sizes"
    mean_bytes, max_bytes = kind.sizes(content)
    return protocol.RecordedPayload(
        file=replay.file,
        first=played.population.first - played.start,
        clients=file.clients,
        mean_bytes=mean_bytes,
        max_bytes=max_bytes,
        shift_ns=replay.shift,
        content=content,
    )


def _recorded_period_ns(replay: Replay, publication: Publication) -> int:
    """Returns the mean time between two messages of a recorded client."""
    file = read_recorded(replay.file)
    messages = file.kind(publication.level, bool(getattr(publication, "retain", False))).messages
    return max(1, (file.last_ns + 1) * file.clients // max(1, messages))


def _pace(publication: Publication) -> protocol.OpenPace | protocol.ClosedPace:
    replay: Replay | None = getattr(publication, "replay", None)
    if replay is not None:
        alike = _alike(publication, Publication, protocol.OpenPace)
        period_ns = _recorded_period_ns(replay, publication)
        return protocol.OpenPace(period_ns=period_ns, **alike)
    rate_per_s = publication.rate_per_s
    if rate_per_s is None:
        return protocol.ClosedPace()
    period_ns = publication.interval or max(1, round(SECOND_NS / rate_per_s))
    alike = _alike(publication, Publication, protocol.OpenPace)
    return protocol.OpenPace(period_ns=period_ns, **alike)


def _payload(publication: Publication) -> protocol.Payload:
    data = publication.source
    if data is not None:
        records = tuple(base64.b64encode(each).decode() for each in data.records())
        is_stamped = data.stamp == "front"
        return protocol.RecordsPayload(records=records, order=data.order, stamped=is_stamped)
    if isinstance(publication.payload, str):
        return protocol.TextPayload(template=publication.payload)
    if publication.payload is not None:
        return protocol.TextPayload(template=json_template(publication.payload), is_json=True)
    size = publication.size
    if size.histogram is not None:
        bins = bins_of(size.histogram)
        planned = tuple(protocol.SizeBin(bytes=bytes_, end=end) for bytes_, end in bins)
        return protocol.HistogramPayload(bins=planned)
    assert size.mean is not None, "a size has a mean or a histogram"
    deviation_bytes = round(size.mean * size.spread)
    if deviation_bytes == 0:
        return protocol.FixedPayload(bytes=size.mean)
    return protocol.GaussianPayload(mean_bytes=size.mean, sd_bytes=deviation_bytes)


CLIENTS_PER_SOURCE = 10_000
"""Linux's connect() looks at every second port of its range first (of 28 232 by default) and gets
slow when those run out."""


SAMPLES = 16
"""Clients, or values of a topic, that are sampled at most."""


def _slowed(compiled: plan.Plan, index: int, played: PopulationShare) -> plan.PlannedPopulation:
    """The population with this index, and its read rate where that is a share of what is due to a
    client."""
    population, part = compiled.populations[index], _every_key(played.population).read_rate
    if not isinstance(part, PartOf):
        return population
    due = _scheduled_per_s(compiled, index)
    # A client without scheduled deliveries has no share of them.
    read_rate_per_s = max(due * part.share, RATE_MIN_PER_S) if due else None
    return population.model_copy(update={"read_rate_per_s": read_rate_per_s})


def _scheduled_per_s(compiled: plan.Plan, index: int) -> float | None:
    """Messages a second that are scheduled for a client of a population of subscribers, in the mean
    over sampled clients. None if one of their publishers sends as fast as it can."""
    each = [
        _scheduled_for(compiled, index, client)
        for client in _sampled(range(compiled.populations[index].clients))
    ]
    known = [rate_per_s for rate_per_s in each if rate_per_s is not None]
    return sum(known) / len(known) if len(known) == len(each) else None


def _scheduled_for(compiled: plan.Plan, index: int, client: int) -> float | None:
    subscriber, target = compiled.populations[index], target_of(compiled, index, client)
    filters = [template_of(subscriber, each.filter) for each in subscriber.subscriptions]
    number = subscriber.first + client
    prefixes = tuple(f.text(number, variant) for f in filters for variant in range(f.variants))
    rate_per_s = 0.0
    for publisher, population in enumerate(compiled.populations):
        for publication in population.publications if population.is_publisher else ():
            topic = template_of(population, publication.topic)
            for sender in clients_at(compiled, publisher, target):
                variants = _sampled(range(topic.variants))
                texts = (topic.text(population.first + sender, variant) for variant in variants)
                matching = sum(text.startswith(prefixes) for text in texts)
                if matching and not isinstance(publication.pace, protocol.OpenPace):
                    return None
                if isinstance(publication.pace, protocol.OpenPace):
                    share = matching / len(variants)
                    rate_per_s += share * SECOND_NS / publication.pace.period_ns
    return rate_per_s


def _sampled(values: range) -> Sequence[int]:
    """Up to `SAMPLES` of the values, evenly spread."""
    if len(values) <= SAMPLES:
        return values
    return [values[i * len(values) // SAMPLES] for i in range(SAMPLES)]


def json_template(value: object) -> str:
    """Returns the template of a value's JSON. A text of one variable is a number if the variable
    always is one; a text of one choice is what its options are in JSON. Every other text is a
    string, in which the readers of the template escape the values of rows."""
    match value:
        case str():
            return _text(Template.parse(value))
        case Mapping():
            pairs = (f"{_literal(key)}:{json_template(inner)}" for key, inner in value.items())
            return f"{{{{{','.join(pairs)}}}}}"
        case Sequence():
            return f"[{','.join(map(json_template, value))}]"
        case _:
            return json.dumps(value)


def _text(template: Template) -> str:
    match template.parts:
        case (Variable(kind=VariableKind.CHOICE) as choice,):
            return str(replace(choice, words=tuple(map(_option, choice.words))))
        case (Variable() as alone,) if alone.kind in NUMERIC:
            return str(alone)
    written = (
        str(_escaped_choice(part)) if isinstance(part, Variable) else _literal(part)[1:-1]
        for part in template.parts
    )
    return f'"{"".join(written)}"'


def _option(word: str) -> str:
    """Returns an option as JSON: as it is if it is a single value of JSON, else as a string."""
    return word if JSON_VALUE.fullmatch(word) else json.dumps(word, ensure_ascii=False)


def _escaped_choice(variable: Variable) -> Variable:
    if variable.kind is not VariableKind.CHOICE:
        return variable
    escaped = (json.dumps(word, ensure_ascii=False)[1:-1] for word in variable.words)
    return replace(variable, words=tuple(escaped))


def _literal(text: str) -> str:
    """A string of JSON, with the braces that a template wants."""
    return json.dumps(text, ensure_ascii=False).replace("{", "{{").replace("}", "}}")
