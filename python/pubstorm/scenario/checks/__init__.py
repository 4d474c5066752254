"""What the keys of a scenario ask of one another: names that exist, keys that exclude each other,
clients that can be told apart, stages that follow each other. Only `check_rows` reads a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import combinations

from pubstorm.scenario.at import At, Finding
from pubstorm.scenario.checks.bridges import check_bridges
from pubstorm.scenario.checks.brokers import check_brokers
from pubstorm.scenario.checks.changes import check_change_keys, check_changes
from pubstorm.scenario.checks.faults import check_fault_keys, check_faults
from pubstorm.scenario.checks.fleet import check_fleet
from pubstorm.scenario.checks.networks import check_networks
from pubstorm.scenario.checks.ports import check_ports
from pubstorm.scenario.checks.rows import check_payloads, check_rows
from pubstorm.scenario.checks.search import check_search
from pubstorm.scenario.checks.services import check_services
from pubstorm.scenario.checks.shares import check_named, check_shares
from pubstorm.scenario.checks.tables import check_tables
from pubstorm.scenario.checks.tls import check_tls
from pubstorm.scenario.checks.topics import check_topics
from pubstorm.scenario.checks.variants import check_variants
from pubstorm.scenario.checks.zeromq import check_zeromq
from pubstorm.scenario.divisions import divisions_of, meant_by
from pubstorm.scenario.document import Path
from pubstorm.scenario.expressions import (
    check_expressions,
    check_spans,
    check_subject_names,
    population_names,
    unknown,
)
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import Population
from pubstorm.scenario.roles import is_zeromq, publishers_of
from pubstorm.scenario.stages import Connect, Disconnect, Publish
from pubstorm.scenario.sweep import Sweep, Variation
from pubstorm.scenario.turnout import Turnout
from pubstorm.template import Kind, Template
from pubstorm.units import describe

__all__ = ["check_keys", "check_rows", "check_values"]


def check_keys(data: object) -> Iterator[Finding]:
    """What can be said of the file as it stands, even where values in it are wrong."""
    root = At(data)
    names = population_names(root)
    yield from _check_target(root)
    for population in root["populations"].entries():
        for publication in population["publications"].entries():
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
    yield from check_topics(root)
    yield from check_subject_names(root)
    yield from check_expressions(root)
    if root["tables"].data and "sweep" not in root:
        message = "found tables of a scenario without a sweep, needed is one"
        yield ("tables",), message, "one run has a `table`: its headings and what they show"


def check_values(scenario: Scenario) -> Iterator[Finding]:
    """What can be said once every value is right by itself."""
    shares = [*check_shares(scenario)]
    shares = shares or [*check_named(scenario)]
    yield from shares
    if not shares:
        yield from _check_played(scenario)
    yield from _check_client_ids(scenario)
    yield from check_payloads(scenario)
    yield from check_services(scenario)
    yield from check_tls(scenario)
    yield from check_networks(scenario)
    yield from check_bridges(scenario)
    yield from check_zeromq(scenario)
    yield from check_faults(scenario)
    yield from check_fleet(scenario)
    yield from _check_sources(scenario)
    yield from _check_profile(scenario)
    yield from check_ports(scenario)
    if scenario.sweep is not None:
        yield from _check_sweep(scenario.sweep)
        yield from check_tables(scenario.tables, scenario.sweep)
    yield from check_search(scenario)


def _check_played(scenario: Scenario) -> Iterator[Finding]:
    """What asks who is played: populations and shares, with clients in each."""
    yield from _check_stages(scenario)
    yield from check_brokers(scenario)
    yield from check_spans(scenario)
    yield from check_changes(scenario)
    divisions = divisions_of(scenario).values()
    streams = sum(len(division.population.publications) for division in divisions)
    if streams > PUBLICATIONS_MAX:
        message = f"found {streams} publications, allowed are {PUBLICATIONS_MAX} in all"
        yield ("populations",), message, None


def _check_target(root: At) -> Iterator[Finding]:
    brokers = root["topology"]["brokers"].data
    publishers = any("publisher" in each for each in root["populations"].named())
    leads_to_it = any(b["to"].data == "target" for b in root["topology"]["bridges"].entries())
    if "target" in root and brokers and not leads_to_it:
        hint = "leave target out, or bridge the brokers that the run starts to it"
        yield ("target",), "found a target and topology.brokers, allowed is one of them", hint
    if "target" not in root and not brokers and not publishers:
        hint = "write target: mqtt://localhost:1883, or start a broker with topology.brokers"
        yield (), "found neither target nor topology.brokers, needed is one of them", hint


def _check_publication(publication: At) -> Iterator[Finding]:
    if not isinstance(publication.data, dict):
        return
    path = publication.path
    paces = [key for key in ("rate", "interval") if key in publication]
    if len(paces) != 1:
        found = " and ".join(paces) or "neither rate nor interval"
        yield path, f"found {found}, needed is one of rate and interval", None
    if "size" in publication and "payload" in publication:
        yield path, "found size and payload, allowed is one of them", None
    if publication["rate"].data == "max":
        for key in ("jitter", "spread", "phase", "late"):
            if key in publication:
                message = f"found {key} with rate max, allowed is {key} with a rate in numbers"
                yield (*path, key), message, "rate max has no schedule that it could change"


def _check_population(path: Path, name: str, names: Sequence[str]) -> Iterator[Finding]:
    if name not in names:
        yield path, *unknown("population", name, names)


def _check_sweep(sweep: Sweep) -> Iterator[Finding]:
    path: Path = ("sweep",)
    if sweep.vary and sweep.steps:
        yield path, "found vary and steps, needed is one of them", None
        return
    if not (sweep.vary or sweep.steps or sweep.variants):
        yield path, "found neither vary nor steps, needed is one of them, or variants", None
        return
    wrong = [*check_variants(sweep)]
    yield from wrong
    if wrong:
        return
    steps = sweep.size * sweep.repeat
    if steps > STEPS_MAX:
        yield path, f"found {steps} steps with repeats, allowed are {STEPS_MAX}", None
        return
    variations = sweep.variations()
    places = {name: place for v in variations for name, place in v.places.items()}
    for name, place in places.items():
        if name.partition(".")[0] in FIXED_IN_SWEEP:
            message = f"found {describe(name)}, allowed are the other keys of a scenario"
            yield place, message, f"{', '.join(FIXED_IN_SWEEP)} belong to the whole series"
    allowed = [v.label for v in variations] + [str(n) for n in range(1, len(variations) + 1)]
    for note in sweep.notes:
        if note not in allowed:
            close = get_close_matches(note, allowed, n=1)
            message = f"found {describe(note)}, allowed are labels and numbers of the steps"
            hint = f"did you mean {describe(close[0])}?" if close else _first_label(variations)
            yield (*path, "notes", note), message, hint


def _first_label(variations: Sequence[Variation]) -> str:
    label = variations[0].label
    return f"the first step is {describe(label)}; --set sweep.notes={{}} leaves the notes out"


def _check_client_ids(scenario: Scenario) -> Iterator[Finding]:
    for name, population in scenario.populations.items():
        twice = _shared_id(population)
        if twice is not None:
            path = ("populations", name, "client_id")
            message = f"found the client id {describe(twice)} more than once, allowed is one each"
            yield path, message, "a broker disconnects the first when the second comes: use {n}"
    for (name, one), (other_name, other) in combinations(scenario.populations.items(), 2):
        overlap = one.first < other.first + other.clients and other.first < one.first + one.clients
        if one.client_id is not None and one.client_id == other.client_id and overlap:
            path = ("populations", other_name, "client_id")
            message = f"found client ids of population {name} again, allowed is one client each"
            yield path, message, f"set first to {one.first + one.clients}, or another client_id"


def _shared_id(population: Population) -> str | None:
    """A client id that two clients of the population have, as far as the first ones tell; where
    it depends on rows, `check_rows` does."""
    if population.client_id is None:
        return None
    template = Template.parse(population.client_id)
    if template.has(Kind.NUMBER, Kind.ROW) or population.clients == 1:
        return None
    seen: set[str] = set()
    for n in range(population.first, population.first + min(population.clients, IDS_CHECKED)):
        client_id = template.text(n)
        if client_id in seen:
            return client_id
        seen.add(client_id)
    return None


def _check_stages(scenario: Scenario) -> Iterator[Finding]:
    turnout = Turnout(scenario)
    connected: set[str] = set()
    for n, stage in enumerate(scenario.stages):
        path = ("stages", n)
        chosen = turnout.chosen(stage)
        if isinstance(stage.step, Connect):
            connected.update(chosen)
            continue
        if isinstance(stage.step, Publish):
            joining = (c.population for c in stage.step.changes if c.add is not None)
            connected.update(each for name in joining for each in meant_by(turnout.divisions, name))
        there = connected.intersection(chosen)
        if not there:
            message = f"found {stage.verb} where none of its populations is connected"
            yield path, f"{message}, needed is a connect stage before it", None
        elif isinstance(stage.step, Publish) and not any(
            turnout.divisions[name].population.publications for name in there
        ):
            message = "found publish where no connected population has publications"
            hint = "write hold: 60s to count what arrives" if is_zeromq(scenario) else None
            yield path, message, hint
        if isinstance(stage.step, Disconnect):
            connected.difference_update(chosen)


def _check_sources(scenario: Scenario) -> Iterator[Finding]:
    """Names that a broker, a publisher or an engine has by its number."""
    publishers = publishers_of(scenario).items()
    taken = [
        *_brokers_here(scenario),
        *(f"{n}-{k}" for n, p in publishers for k in range(p.clients)),
    ]
    for name in scenario.monitors.sources:
        if name in taken or re.fullmatch(r"agent-\d+", name):
            message = f"found the name {describe(name)}, allowed is one that nothing else has"
            yield ("monitors", "sources", name), message, "its figures would be mixed with others"


def _brokers_here(scenario: Scenario) -> list[str]:
    """What the brokers that are watched by default are called."""
    started = [f"{n}-{i}" for n, b in scenario.topology.brokers.items() for i in range(b.count)]
    targets = enumerate(scenario.target)
    given = [f"broker-{number}" for number, target in targets if target.is_loopback]
    return [*given, *started]


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
    names = _brokers_here(scenario)
    names += [name for name, source in monitors.sources.items() if source.process]
    if not names:
        hint = "name its process under monitors.sources, on the machine that pubstorm runs on"
        yield ("profile",), "found no broker of this machine, needed is one to profile", hint
    elif profile.broker and not {profile.broker, f"{profile.broker}-0"} & {*names}:
        found = f"found the unknown broker {describe(profile.broker)}"
        yield ("profile", "broker"), f"{found}, allowed are {', '.join(names)}", None


IDS_CHECKED = 70_000
STEPS_MAX = 1000
FIXED_IN_SWEEP = ("sweep", "table", "tables")
PUBLICATIONS_MAX = 65_536
