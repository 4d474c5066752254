"""From scenario to plan: every default filled in, every name an index, every unit the contract's.
The targets are given, since brokers that the run starts have no port before they run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import ceil

from pubstorm.plan import model as plan
from pubstorm.plan.attachment import most_at_a_target
from pubstorm.plan.json_text import json_template
from pubstorm.plan.stages import planned_stages
from pubstorm.plan.zeromq import player_of, slowed, sockets_of
from pubstorm.scenario.divisions import Division, divisions_of, mean_stay_ns
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import Publication, Reconnect, Will
from pubstorm.scenario.roles import publishers_of
from pubstorm.scenario.target import SOURCES_MAX, Target
from pubstorm.scenario.tls import Tls
from pubstorm.units import PartOf

COALESCING_PART, COALESCING_MAX_NS = 10, 1_000_000
"""Timers wait for each other for this part of the lateness that counts as valid, up to 1 ms."""


def compile_plan(scenario: Scenario, targets: Sequence[Target], *, run_tag: int) -> plan.Plan:
    """The plan for these targets; `run_tag` marks this run's payloads."""
    divisions = tuple(divisions_of(scenario).values())
    compiled = plan.Plan(
        name=scenario.name,
        run_tag=run_tag,
        seed=scenario.seed,
        targets=tuple(targets),
        targets_joined=scenario.topology.is_joined,
        bridges=tuple(_bridges(scenario)),
        sources=_sources(scenario, targets),
        snapshot_interval_ns=scenario.snapshot_interval,
        drain_ns=scenario.drain,
        coalescing_ns=_coalescing_ns(scenario),
        stall_ns=None if scenario.topology.bridges else scenario.stall_after,
        max_packet_bytes=scenario.max_packet,
        populations=tuple(_population(scenario, division, targets) for division in divisions),
        stages=tuple(planned_stages(scenario)),
    )
    populations = tuple(
        slowed(compiled, index, division) for index, division in enumerate(divisions)
    )
    return compiled.model_copy(update={"populations": populations})


def _coalescing_ns(scenario: Scenario) -> int:
    """Returns how long timers wait for each other: by default a small part of the lateness that
    counts as valid."""
    if scenario.fleet.coalescing is not None:
        return scenario.fleet.coalescing
    return min(scenario.validity.lateness_p99 // COALESCING_PART, COALESCING_MAX_NS)


def provisional_plan(scenario: Scenario) -> plan.Plan:
    """The plan before any broker has a port: for what is to be known beforehand."""
    return compile_plan(scenario, planned_targets(scenario), run_tag=0)


def planned_targets(scenario: Scenario) -> tuple[Target, ...]:
    """The scenario's targets, then the brokers and then the publishers that are yet to be started:
    these have port 0 unless the scenario gives them one."""
    started = (
        Target(host="127.0.0.1", port=0, tls=broker.tls != "none")
        for broker in scenario.topology.brokers.values()
        for _ in range(broker.count)
    )
    publishers = (
        Target(host="127.0.0.1", port=0 if publisher.port is None else publisher.port + number)
        for population in publishers_of(scenario).values()
        if (publisher := population.publisher) is not None
        for number in range(population.clients)
    )
    return (*scenario.target, *started, *publishers)


def targets_by_name(scenario: Scenario) -> dict[str, range]:
    """Indices of the targets that a name of a broker or of a population of publishers stands for,
    and those of `target`."""
    counts = {"target": len(scenario.target)}
    counts |= {name: broker.count for name, broker in scenario.topology.brokers.items()}
    counts |= {name: each.clients for name, each in publishers_of(scenario).items()}
    firsts = accumulate(counts.values(), initial=0)
    named = zip(counts.items(), firsts, strict=False)
    return {name: range(first, first + count) for (name, count), first in named if count}


def _attachment(scenario: Scenario, division: Division) -> plan.Attachment:
    chosen, indices = division.population.at, targets_by_name(scenario)
    publishers = publishers_of(scenario)
    if division.whole in publishers:
        own = indices[division.whole]
        return plan.Attachment(first=own.start, count=len(own))
    if chosen is None:
        first, count = 0, sum(len(own) for name, own in indices.items() if name not in publishers)
        return plan.Attachment(first=first, count=count, shift=division.start % count)
    among = indices[chosen.brokers][chosen.first :]
    count = len(among) if chosen.count is None else chosen.count
    # A share begins where the population has come to.
    shift = (chosen.shift + division.start) % count
    first = among.start
    return plan.Attachment(first=first, count=count, choice=chosen.choice, shift=shift)


def _bridges(scenario: Scenario) -> Iterator[plan.Bridges]:
    indices = targets_by_name(scenario)
    for bridge in scenario.topology.bridges.values():
        small = indices[bridge.from_]
        yield plan.Bridges(
            main=indices[bridge.to].start,
            first=small.start,
            count=len(small),
            routes=tuple(
                plan.Route(
                    filter=topic.topic,
                    direction=topic.direction,
                    local_prefix=topic.local_prefix,
                    remote_prefix=topic.remote_prefix,
                )
                for topic in bridge.topics
            ),
        )


def _sources(scenario: Scenario, targets: Sequence[Target]) -> tuple[str, ...]:
    if scenario.sources is not None:
        return scenario.sources
    if not targets or not all(t.is_loopback and ":" not in t.host for t in targets):
        return ()
    divisions = divisions_of(scenario).values()
    among = [(_attachment(scenario, division), division.clients) for division in divisions]
    addresses = min(ceil(most_at_a_target(among) / CLIENTS_PER_SOURCE), SOURCES_MAX)
    if addresses <= 1:
        return ()
    return tuple(f"127.0.{n // 254}.{n % 254 + 1}" for n in range(addresses))


def _population(
    scenario: Scenario, division: Division, targets: Sequence[Target]
) -> plan.Population:
    population, whole = division.population, division.whole
    at, sockets = _attachment(scenario, division), sockets_of(scenario, population)
    tls = any(target.tls for target in targets[at.first : at.first + at.count])
    reconnect, will, read_rate = population.reconnect, population.will, population.read_rate
    client_id = f"{whole}-{{n}}" if population.client_id is None else population.client_id
    return plan.Population(
        name=division.name,
        whole=None if division.share is None else whole,
        version="mqtt-3.1.1" if sockets is None else plan.ZMTP,
        player=player_of(population),
        zmq=sockets,
        clients=population.clients,
        first=population.first,
        at=at,
        bridge=population.bridge,
        client_id=client_id,
        username=population.username,
        password=population.password,
        tls=planned_tls(population.tls or Tls(), client_id) if tls else None,
        keep_alive_s=population.keep_alive // SECOND_NS,
        clean_session=population.session == "clean",
        will=None if will is None else _will(will),
        end=population.end,
        connect_timeout_ns=population.connect_timeout,
        reconnect=None if reconnect is None else _reconnect(reconnect),
        read_rate_per_s=None if isinstance(read_rate, PartOf) else read_rate,
        delayed_acks=population.tcp_acks == "delayed",
        rows=_rows(division),
        lifetime=_lifetime(scenario, division),
        subscriptions=tuple(
            plan.Subscription(filter=subscription.topic, qos=subscription.qos)
            for subscription in population.subscriptions
        ),
        publications=tuple(map(_publication, population.publications)),
    )


def planned_tls(tls: Tls, client_id: str) -> plan.Tls:
    """TLS with every default filled in; `client_id` is the identity where none is given."""
    psk = tls.psk
    return plan.Tls(
        ca=tls.ca,
        verify=tls.verify,
        server_name=tls.server_name,
        certificate=tls.certificate,
        key=tls.key,
        psk=None if psk is None else plan.Psk(file=psk.file, identity=psk.identity or client_id),
        min_version=tls.min_version,
        max_version=tls.max_version,
        ciphers=tls.ciphers,
    )


def _rows(division: Division) -> plan.Rows | None:
    """The first row is that of the first client of the whole population."""
    rows = division.population.rows
    if rows is None:
        return None
    first = division.population.first - division.start
    return plan.Rows(file=rows.file, first=first, repeat=rows.repeat)


def _will(will: Will) -> plan.Will:
    return plan.Will(topic=will.topic, payload=will.payload, qos=will.qos, retain=will.retain)


def _reconnect(reconnect: Reconnect) -> plan.Reconnect:
    return plan.Reconnect(min_ns=reconnect.after, max_ns=max(reconnect.after, reconnect.up_to))


def _lifetime(scenario: Scenario, division: Division) -> plan.Lifetime | None:
    lifetime = division.population.lifetime
    if lifetime is None:
        return None
    if lifetime.rate is not None:
        longest = 2 * mean_stay_ns(scenario, division)
        return plan.Lifetime(min_ns=1, max_ns=longest, again_ns=lifetime.again)
    shortest = lifetime.from_ or 0
    longest = shortest if lifetime.to is None else lifetime.to
    return plan.Lifetime(min_ns=shortest, max_ns=longest, again_ns=lifetime.again)


def _publication(publication: Publication) -> plan.Publication:
    return plan.Publication(
        topic=publication.topic,
        order=publication.order,
        qos=publication.qos,
        retain=publication.retain,
        pace=_pace(publication),
        window=publication.window,
        payload=_payload(publication),
    )


def _pace(publication: Publication) -> plan.OpenPace | plan.ClosedPace:
    rate_per_s = publication.rate_per_s
    if rate_per_s is None:
        return plan.ClosedPace()
    return plan.OpenPace(
        period_ns=publication.interval or max(1, round(SECOND_NS / rate_per_s)),
        spread=publication.spread,
        jitter=publication.jitter,
        phase=publication.phase,
        late=publication.late,
        burst=publication.burst,
    )


def _payload(
    publication: Publication,
) -> plan.FixedPayload | plan.GaussianPayload | plan.TextPayload:
    if isinstance(publication.payload, str):
        return plan.TextPayload(template=publication.payload)
    if publication.payload is not None:
        return plan.TextPayload(template=json_template(publication.payload), is_json=True)
    size = publication.size
    deviation_bytes = round(size.mean * size.spread)
    if deviation_bytes == 0:
        return plan.FixedPayload(bytes=size.mean)
    return plan.GaussianPayload(mean_bytes=size.mean, sd_bytes=deviation_bytes)


SECOND_NS = 10**9
CLIENTS_PER_SOURCE = 10_000
"""Linux's connect() looks at every second port of its range first (of 28 232 by default) and gets
slow when those run out."""
