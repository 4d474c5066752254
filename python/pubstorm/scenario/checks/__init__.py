"""Checks the keys of a scenario against one another: names that exist, keys that exclude each
other, client ids, stages that follow each other, shares and lifetimes that fit into their
population. Only `check_files` reads files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from math import ceil

from pubstorm.contract import split_member
from pubstorm.contract.target import TARGET
from pubstorm.contract.template import RECORDED, Template, VariableKind
from pubstorm.quantities import describe, write_count, write_duration, write_share
from pubstorm.scenario.addresses import written_schemes, written_targets
from pubstorm.scenario.base import broken_rules
from pubstorm.scenario.checks.addresses import check_addresses
from pubstorm.scenario.checks.brokers import (
    check_bridges,
    check_brokers,
    check_networks,
    check_services,
)
from pubstorm.scenario.checks.flows import check_flows
from pubstorm.scenario.checks.populations import (
    check_data,
    check_lives,
    check_payloads,
    check_replays,
    check_retained,
    check_round_trips,
    check_rows,
    check_unnamed,
)
from pubstorm.scenario.checks.protocols import (
    check_fleet,
    check_mqtt5,
    check_publishers,
    check_quic,
    check_tls,
    check_websocket,
)
from pubstorm.scenario.checks.series import check_search, check_series
from pubstorm.scenario.checks.stages import (
    check_change_keys,
    check_changes,
    check_fault_keys,
    check_faults,
    check_rate_files,
    check_rate_profiles,
)
from pubstorm.scenario.document import At, Finding, Path
from pubstorm.scenario.expressions import (
    check_expressions,
    check_spans,
    check_subject_names,
    population_names,
    unknown,
)
from pubstorm.scenario.kinds import MqttClients
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import Lifetime, Population
from pubstorm.scenario.shares import REST, PlannedClients, meant_by, share_sizes, shares_of
from pubstorm.scenario.stages import EVERY, Connect, Disconnect, Publish


def check_shares(scenario: Scenario) -> Iterator[Finding]:
    """Yields the problems that make single shares unknown."""
    for name, population in scenario.populations.items():
        path = ("populations", name)
        yield from _check_lifetime((*path, "lifetime"), population.stay)
        yield from _check_parts((*path, "shares"), population)
        for share, each in population.differing.items():
            yield from _check_lifetime((*path, "shares", share, "lifetime"), each.lifetime)


def check_named(scenario: Scenario) -> Iterator[Finding]:
    """Yields names in stages that have no clients, such as an empty rest."""
    shares = shares_of(scenario)
    names = tuple(dict.fromkeys((*scenario.populations, *shares)))
    for n, stage in enumerate(scenario.stages):
        path: Path = ("stages", n, stage.verb)
        given = [
            ((*path, "populations", m), name) for m, name in enumerate(stage.populations or ())
        ]
        for m, change in enumerate(stage.changes):
            given.append(((*path, "changes", m, "population"), change.population))
        if stage.connect is not None and stage.connect.clients is not None:
            keys = (name for name in stage.connect.clients if name != EVERY)
            given += [((*path, "clients", name), name) for name in keys]
        for where, name in given:
            if not meant_by(shares, name):
                yield where, *unknown("population", name, names)


def _check_parts(path: Path, population: Population) -> Iterator[Finding]:
    if REST in population.differing:
        message = f"found a share called {REST}, allowed is another name"
        yield (*path, REST), message, "the clients that are in no share are called so"
        return
    together = sum(share.part for share in population.differing.values())
    if together > 1 + ROUNDING:
        message = f"found shares of {write_share(together)} together, allowed is up to 100%"
        yield path, message, "each client is in one share at most"
        return
    sizes = share_sizes(population)
    for name, share in population.differing.items():
        if sizes[name]:
            continue
        clients = write_count(population.clients)
        message = f"found {write_share(share.part)} of {clients} clients, which is no client"
        hint = "leave the share out"
        if share.part:
            enough = write_count(ceil(round(1 / share.part, 6)))
            hint = f"play at least {enough} clients, or {hint}"
        yield (*path, name, "part"), f"{message}, needed is one", hint


def _check_lifetime(path: Path, lifetime: Lifetime | None) -> Iterator[Finding]:
    if lifetime is None or lifetime.from_ is None:
        return
    if lifetime.to is not None and lifetime.to < lifetime.from_:
        least = write_duration(lifetime.from_)
        message = f"found {write_duration(lifetime.to)}, allowed is at least {least}"
        yield (*path, "to"), message, "a life is at least as long as its shortest"


ROUNDING = 1e-9


__all__ = ["check_files", "check_keys", "check_values"]

IDS_CHECKED = 70_000
PUBLICATIONS_MAX = 32_767
PORTS_END = 65_536
PACES = ("rate", "interval", "total_rate")
"""Keys of a publication, one of which sets its pace."""
CONTENTS = ("size", "payload", "data")
"""Keys of a publication, one of which sets its payloads."""
REPLACED = (
    *PACES,
    *CONTENTS,
    *("order", "weights", "burst", "phase", "late", "arrivals", "jitter", "spread"),
    *("topic_alias", "request"),
)
"""Keys of a publication that a recording replaces."""
FREE_HINT = "leave port out: then free ones are taken"


def check_keys(data: object) -> Iterator[Finding]:
    """Yields the problems of the file as it stands, also if values in it are wrong."""
    root = At(data)
    names = population_names(root)
    yield from _check_target(root)
    places = _places(root)
    for population in root["populations"].entries():
        at = (
            population["at"]["brokers"]
            if isinstance(population["at"].data, dict)
            else population["at"]
        )
        if isinstance(at.data, str) and at.data not in places:
            yield at.path, *unknown("broker", at.data, places)
        for whole in (population, *population["shares"].named()):
            for publication in whole["publications"].entries():
                yield from _check_publication(publication)
    for stage in root["stages"].entries():
        for verb in stage.entries():
            for entry in verb["populations"].entries():
                if isinstance(entry.data, str):
                    yield from _check_population(entry.path, entry.data, names)
            for entry in verb["clients"].named():
                yield from _check_population(entry.path, str(entry.path[-1]), names)
            for change in verb["changes"].entries():
                yield from check_change_keys(change.path, change.data)
                if isinstance(change["population"].data, str):
                    population = change["population"]
                    yield from _check_population(population.path, str(population.data), names)
            for fault in verb["faults"].entries():
                yield from check_fault_keys(fault.path, fault.data)
    yield from check_subject_names(root)
    yield from check_expressions(root)
    if root["tables"].data and "sweep" not in root:
        message = "found tables of a scenario without a sweep, needed is one"
        yield ("tables",), message, "one run has a `table`: its headings and what they show"


def check_values(scenario: Scenario) -> Iterator[Finding]:
    """Yields the problems of values that are right by themselves."""
    shares = [*check_shares(scenario)]
    shares = shares or [*check_named(scenario)]
    yield from shares
    if not shares:
        yield from _check_played(scenario)
    yield from _check_client_ids(scenario)
    yield from check_addresses(scenario)
    payloads = [*check_payloads(scenario)]
    yield from payloads or check_retained(scenario)
    yield from check_services(scenario)
    yield from check_tls(scenario)
    yield from check_websocket(scenario)
    yield from check_quic(scenario)
    yield from check_mqtt5(scenario)
    yield from check_round_trips(scenario)
    yield from check_lives(scenario)
    yield from check_networks(scenario)
    yield from check_bridges(scenario)
    yield from check_publishers(scenario)
    yield from check_flows(scenario)
    yield from check_faults(scenario)
    yield from check_fleet(scenario)
    yield from _check_members(scenario)
    yield from _check_profile(scenario)
    yield from _check_ports(scenario)
    if scenario.sweep is not None:
        yield from check_series(scenario.sweep, scenario.tables)
    yield from check_search(scenario)
    yield from broken_rules(scenario)


def check_files(scenario: Scenario) -> Iterator[Finding]:
    """Yields the problems of files that the scenario names. Their paths are absolute."""
    yield from check_rows(scenario)
    yield from check_data(scenario)
    yield from check_replays(scenario)
    yield from check_rate_files(scenario)


def _check_played(scenario: Scenario) -> Iterator[Finding]:
    """Yields the problems that depend on the shares that have clients."""
    yield from _check_stages(scenario)
    yield from check_brokers(scenario)
    yield from check_spans(scenario)
    yield from check_changes(scenario)
    yield from check_rate_profiles(scenario)
    shares = shares_of(scenario).values()
    streams = sum(len(played.population.flows) for played in shares)
    if streams > PUBLICATIONS_MAX:
        message = f"found {streams} publications, allowed are {PUBLICATIONS_MAX} in all"
        yield ("populations",), message, None


def _check_target(root: At) -> Iterator[Finding]:
    brokers = root["topology"]["brokers"].data
    publishers = _publishers(root)
    if TARGET not in root and not brokers and not publishers:
        hint = "write target: mqtt://localhost:1883, or start a broker with topology.brokers"
        yield (), "found neither target nor topology.brokers, needed is one of them", hint
    if TARGET in root[TARGET]:
        message = f"found the name {TARGET}, allowed is another one"
        yield (TARGET, TARGET), message, "without names, target is an address or a list of them"
    schemes = filter(None, written_schemes(root[TARGET].data).values())
    titles = dict.fromkeys(scheme.can.title for scheme in schemes)
    names = [name for name in _places(root) if name not in publishers]
    if len(titles) > 1:
        *others, last = titles
        yield from _check_unplaced(root, f"targets of {', '.join(others)} and {last}", names)
    elif TARGET in root and brokers and not root["topology"]["bridges"].data:
        yield from _check_unplaced(root, "a target and topology.brokers", names)


def _check_unplaced(root: At, found: str, names: Sequence[str]) -> Iterator[Finding]:
    """Yields populations that do not say which of several brokers they connect to."""
    for population in root["populations"].named():
        if population["at"].data is None and "publisher" not in population:
            message = f"found {found}, and no at, needed is one of the names {', '.join(names)}"
            yield population.path, message, f"write at: {names[0]}"


def _places(root: At) -> list[str]:
    """Returns the names that populations can connect to."""
    targets = written_targets(root[TARGET].data) or ((TARGET,) if TARGET in root else ())
    brokers = [str(each.path[-1]) for each in root["topology"]["brokers"].named()]
    return [*targets, *brokers, *_publishers(root)]


def _publishers(root: At) -> list[str]:
    return [str(p.path[-1]) for p in root["populations"].named() if "publisher" in p]


def _check_publication(publication: At) -> Iterator[Finding]:
    if not isinstance(publication.data, dict):
        return
    path = publication.path
    paces = [key for key in PACES if publication[key].data is not None]
    if publication["replay"].data is not None:
        paces = ["replay"]
        yield from _check_replay(publication)
    elif RECORDED in str(publication["topic"].data):
        message = f"found {RECORDED} without replay, needed is a file of recorded messages"
        yield (*path, "topic"), message, "write replay: FILE.csv"
    if len(paces) != 1:
        found = " and ".join(paces) or "no rate"
        yield path, f"found {found}, needed is one of rate, interval and total_rate", None
    if "total_rate" in publication and "shares" in path:
        message = "found total_rate in a share, allowed is rate or interval"
        yield (*path, "total_rate"), message, "a total is that of all clients of the population"
    contents = [key for key in CONTENTS if key in publication]
    if len(contents) > 1:
        yield path, f"found {' and '.join(contents)}, allowed is one of them", None
    if publication["rate"].data == "max":
        for key in ("jitter", "spread", "phase", "late", "arrivals"):
            if key in publication:
                message = f"found {key} with rate max, allowed is {key} with a rate in numbers"
                yield (*path, key), message, "rate max has no schedule that it could change"
    elif publication["arrivals"].data == "poisson":
        for key in ("jitter", "phase"):
            if key in publication:
                message = f"found {key} with arrivals poisson, allowed is {key} with even arrivals"
                yield (*path, key), message, "Poisson arrivals are at random already"


def _check_replay(publication: At) -> Iterator[Finding]:
    """Yields keys of a schedule beside that of a recording, and a topic without its topics."""
    path = publication.path
    for key in REPLACED:
        if publication[key].data not in (None, False):
            message = f"found {key} with replay, allowed is replay without it"
            yield (*path, key), message, "instants, topics and sizes are those of the recording"
    if RECORDED not in str(publication["topic"].data):
        message = f"found a topic without {RECORDED}, needed is it with replay"
        yield (*path, "topic"), message, f"write topic: '{RECORDED}'"


def _check_population(path: Path, name: str, names: Sequence[str]) -> Iterator[Finding]:
    if name not in names:
        yield path, *unknown("population", name, names)


def _check_client_ids(scenario: Scenario) -> Iterator[Finding]:
    named = scenario.populations.items()
    clients = {name: each for name, each in named if isinstance(each, MqttClients)}
    for name, population in clients.items():
        twice = _shared_id(population)
        if twice is not None:
            path = ("populations", name, "client_id")
            message = f"found the client id {describe(twice)} more than once, allowed is one each"
            yield path, message, "a broker disconnects the first when the second comes: use {n}"
        if population.client_id == "":
            yield from check_unnamed(("populations", name), population)
    alike: defaultdict[str, list[tuple[str, MqttClients]]] = defaultdict(list)
    for name, population in clients.items():
        if population.client_id:
            alike[population.client_id].append((name, population))
    pairs = (pair for named_alike in alike.values() for pair in combinations(named_alike, 2))
    for (name, one), (other_name, other) in pairs:
        if one.first < other.first + other.clients and other.first < one.first + one.clients:
            path = ("populations", other_name, "client_id")
            message = f"found client ids of population {name} again, allowed is one client each"
            yield path, message, f"set first to {one.first + one.clients}, or another client_id"


def _shared_id(population: MqttClients) -> str | None:
    """A client id that two clients of the population have, as far as the first clients show; where
    it depends on rows, `check_rows` does. Clients without one are no duplicates."""
    if not population.client_id:
        return None
    template = Template.parse(population.client_id)
    if template.has(VariableKind.NUMBER, VariableKind.ROW) or population.clients == 1:
        return None
    seen: set[str] = set()
    for n in range(population.first, population.first + min(population.clients, IDS_CHECKED)):
        client_id = template.text(n)
        if client_id in seen:
            return client_id
        seen.add(client_id)
    return None


def _check_stages(scenario: Scenario) -> Iterator[Finding]:
    planned = PlannedClients(scenario)
    connected: set[str] = set()
    for n, stage in enumerate(scenario.stages):
        path = ("stages", n)
        chosen = planned.chosen(stage)
        if isinstance(stage.step, Connect):
            connected.update(chosen)
            continue
        joining = (c.population for c in stage.changes if c.add is not None)
        connected.update(each for name in joining for each in meant_by(planned.shares, name))
        there = connected.intersection(chosen)
        if not there:
            message = f"found {stage.verb} where none of its populations is connected"
            yield path, f"{message}, needed is a connect stage before it", None
        elif isinstance(stage.step, Publish) and not any(
            planned.shares[name].population.flows for name in there
        ):
            message = "found publish where no connected population has publications"
            hint = "write hold: 60s to count what arrives" if scenario.targets_publish else None
            yield path, message, hint
        if isinstance(stage.step, Disconnect):
            connected.difference_update(chosen)


def _check_members(scenario: Scenario) -> Iterator[Finding]:
    """Yields names that a target, a broker, a publisher or an agent has by its number. A source can
    have the name of a target whose own monitors are off."""
    publishers = [(n, p.clients) for n, p in scenario.publishers.items() if p.clients > 1]
    numbered = [
        *(source.name for source in scenario.target_sources),
        *_started(scenario),
        *(f"{name}-{number}" for name, clients in publishers for number in range(clients)),
    ]
    targets = _targets_here(scenario) if scenario.monitors.brokers else []
    alone = {*numbered[: len(scenario.target)]}.difference(targets)
    topology = scenario.topology
    for noun, path, names in (
        ("target", (TARGET,), scenario.target_sizes),
        ("broker", ("topology", "brokers"), topology.brokers),
        ("bridge", ("topology", "bridges"), topology.bridges),
        ("population", ("populations",), scenario.populations),
        ("source", ("monitors", "sources"), scenario.monitors.sources),
    ):
        for name in names:
            group, number = split_member(name)
            is_member = name in numbered or (group == "agent" and number is not None)
            if is_member and (noun != "source" or name not in alone):
                message = f"found the name {describe(name)}, allowed is one that nothing else has"
                hint = f"rename it: its figures would be mixed with number {number} of {group}"
                if noun == "source" and name in targets:
                    hint += ", or write monitors.brokers: false to monitor this target by it alone"
                yield (*path, name), message, hint


def _targets_here(scenario: Scenario) -> list[str]:
    """Returns the names of the targets that are watched by default."""
    targets = zip(scenario.target_sources, scenario.target, strict=True)
    return [source.name for source, target in targets if target.is_loopback]


def _started(scenario: Scenario) -> list[str]:
    return [f"{n}-{i}" for n, b in scenario.topology.brokers.items() for i in range(b.count)]


def _check_profile(scenario: Scenario) -> Iterator[Finding]:
    profile, monitors = scenario.profile, scenario.monitors
    if profile is None:
        return
    stages = [stage.name for stage in scenario.stages]
    if profile.stage is None and not any(isinstance(s.step, Publish) for s in scenario.stages):
        hint = f"name one of the stages {', '.join(stages)}"
        yield ("profile",), "found no publish stage, needed is one or a stage to profile", hint
    if profile.stage is not None and profile.stage not in stages:
        found = f"found the unknown stage {describe(profile.stage)}"
        yield ("profile", "stage"), f"{found}, allowed are {', '.join(stages)}", None
    names = [*_targets_here(scenario), *_started(scenario)]
    names += [
        name
        for name, source in monitors.sources.items()
        if source.process or (source.remote and source.remote.process)
    ]
    if not names:
        hint = "name its process under monitors.sources, on another host with remote"
        yield ("profile",), "found no process of a broker, needed is one to profile", hint
    elif profile.broker and not {profile.broker, f"{profile.broker}-0"} & {*names}:
        found = f"found the unknown broker {describe(profile.broker)}"
        yield ("profile", "broker"), f"{found}, allowed are {', '.join(names)}", None


def _check_ports(scenario: Scenario) -> Iterator[Finding]:
    """Yields the problems of the ports of brokers, services and publishers: there are enough, and
    none is used twice."""
    ranges = {
        path: range(port, port + count)
        for path, port, count in _ports(scenario)
        if port is not None
    }
    for path, ports in ranges.items():
        if ports.stop > PORTS_END:
            noun = path[1] if path[0] == "topology" else "publishers"
            message = f"found {ports.start} for {len(ports)} {noun}"
            yield path, f"{message}, allowed is at most {PORTS_END - len(ports)}", FREE_HINT
    for (one, ports), (path, other) in combinations(ranges.items(), 2):
        both = range(max(ports.start, other.start), min(ports.stop, other.stop))
        if both:
            name = one[2] if one[0] == "topology" else one[1]
            message = f"found port {both.start} also for {name}, allowed is one for each"
            yield path, message, FREE_HINT


def _ports(scenario: Scenario) -> Iterator[tuple[Path, int | None, int]]:
    """Yields the place of each first port, the port, and the number of ports from it on."""
    for name, broker in scenario.topology.brokers.items():
        yield ("topology", "brokers", name, "port"), broker.port, broker.count
    for name, service in scenario.topology.services.items():
        yield ("topology", "services", name, "port"), service.fixed_port, 1
    for name, population in scenario.publishers.items():
        place: Path = ("populations", name, "publisher", "port")
        yield place, population.publisher.port, population.clients
