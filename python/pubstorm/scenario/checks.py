"""What the keys of a scenario ask of one another: names that exist, keys that exclude each other,
clients that can be told apart, stages that follow each other. It reads no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import combinations

from pubstorm.scenario.document import Path
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import Population
from pubstorm.scenario.stages import Connect, Disconnect, Publish, Stage
from pubstorm.scenario.sweep import Sweep, Variation
from pubstorm.template import Kind, Template
from pubstorm.thresholds import population_hint
from pubstorm.units import describe

Finding = tuple[Path, str, str | None]


def check_keys(data: object) -> Iterator[Finding]:
    """What can be said of the file as it stands, even where values in it are wrong."""
    root = _At(data)
    names = [str(population.path[-1]) for population in root["populations"].entries()]
    yield from _check_target(root)
    for population in root["populations"].entries():
        for publication in population["publications"].entries():
            yield from _check_publication(publication)
    for stage in root["stages"].entries():
        for verb in stage.entries():
            for entry in verb["populations"].entries():
                if isinstance(entry.data, str):
                    yield from _check_population(entry.path, entry.data, names)
    lines = (*root["thresholds"].entries(), *root["sweep"]["stop_when"].entries())
    for line in lines:
        name, dot, _ = str(line.data).strip().partition(".")
        if dot and name.replace("-", "_").isidentifier():
            yield from _check_population(line.path, name, names)


def check_values(scenario: Scenario) -> Iterator[Finding]:
    """What can be said once every value is right by itself."""
    yield from _check_client_ids(scenario)
    yield from _check_stages(scenario)
    streams = sum(len(population.publications) for population in scenario.populations.values())
    if streams > PUBLICATIONS_MAX:
        message = f"found {streams} publications, allowed are {PUBLICATIONS_MAX} in all"
        yield ("populations",), message, None
    if scenario.sweep is not None:
        yield from _check_sweep(scenario.sweep)


@dataclass(frozen=True, slots=True)
class _At:
    """A value of the file with its path; what is no mapping or list reads as empty."""

    data: object
    path: Path = ()

    def __getitem__(self, key: str) -> _At:
        inner = self.data.get(key) if isinstance(self.data, dict) else None
        return _At(inner, (*self.path, key))

    def __contains__(self, key: str) -> bool:
        return isinstance(self.data, dict) and key in self.data

    def entries(self) -> Iterator[_At]:
        if isinstance(self.data, dict):
            yield from (_At(value, (*self.path, key)) for key, value in self.data.items())
        elif isinstance(self.data, (list, tuple)):
            yield from (_At(value, (*self.path, n)) for n, value in enumerate(self.data))


def _check_target(root: _At) -> Iterator[Finding]:
    brokers = root["topology"]["brokers"].data
    if "target" in root and brokers:
        hint = "leave target out: the brokers that the run starts are the targets"
        yield ("target",), "found a target and topology.brokers, allowed is one of them", hint
    if "target" not in root and not brokers:
        hint = "write target: mqtt://localhost:1883, or start a broker with topology.brokers"
        yield (), "found neither target nor topology.brokers, needed is one of them", hint


def _check_publication(publication: _At) -> Iterator[Finding]:
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
        allowed = ", ".join(names) or "none, since there are no populations"
        message = f"found the unknown population {describe(name)}, allowed are {allowed}"
        yield path, message, population_hint(name, names)


def _check_sweep(sweep: Sweep) -> Iterator[Finding]:
    path: Path = ("sweep",)
    if bool(sweep.vary) == bool(sweep.steps):
        found = "vary and steps" if sweep.vary else "neither vary nor steps"
        yield path, f"found {found}, needed is one of them", None
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
            yield place, message, f"{' and '.join(FIXED_IN_SWEEP)} belong to the whole series"
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
    """A client id that two clients of the population have, as far as the first ones tell."""
    if population.client_id is None:
        return None
    template = Template.parse(population.client_id)
    if template.has(Kind.NUMBER) or population.clients == 1:
        return None
    seen: set[str] = set()
    for n in range(population.first, population.first + min(population.clients, IDS_CHECKED)):
        client_id = template.text(n)
        if client_id in seen:
            return client_id
        seen.add(client_id)
    return None


def _check_stages(scenario: Scenario) -> Iterator[Finding]:
    connected: set[str] = set()
    for n, stage in enumerate(scenario.stages):
        path = ("stages", n)
        chosen = stage.populations or tuple(scenario.populations)
        if isinstance(stage.step, Connect):
            connected.update(chosen)
            continue
        if not connected.intersection(chosen):
            message = f"found {stage.verb} where none of its populations is connected"
            yield path, f"{message}, needed is a connect stage before it", None
        elif isinstance(stage.step, Publish) and not _publishes(scenario, stage, connected):
            yield path, "found publish where no connected population has publications", None
        if isinstance(stage.step, Disconnect):
            connected.difference_update(chosen)


def _publishes(scenario: Scenario, stage: Stage, connected: set[str]) -> bool:
    chosen = connected.intersection(stage.populations or scenario.populations)
    return any(scenario.populations[name].publications for name in chosen)


IDS_CHECKED = 70_000
STEPS_MAX = 1000
FIXED_IN_SWEEP = ("sweep", "table")
PUBLICATIONS_MAX = 65_536
