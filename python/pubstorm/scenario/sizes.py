"""Sizes of a scenario as written: its numbers of clients and of bridged brokers. `scale` multiplies
them together, `{each NAME}` in a topic is the range of the numbers of a population or broker, and
open files say how many processes they need."""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Any

from pubstorm.contract.template import RANGE_VALUES_MAX, Part, Template, TemplateError, VariableKind
from pubstorm.quantities import (
    UnfitError,
    count,
    factor,
    rounded,
    share,
    write_count,
    write_rate,
)
from pubstorm.scenario.document import At, Finding, Path
from pubstorm.scenario.expressions import unknown
from pubstorm.scenario.faults import FAULT_KINDS
from pubstorm.scenario.fields import CLIENTS_MAX, RATE, SMALL_COUNT_MAX
from pubstorm.scenario.flows import Publication
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import Population
from pubstorm.scenario.series import Sweep


def scale_of(data: object) -> float:
    """Returns the scale that a scenario has as written; 1 if it has none that can be read."""
    written = At(data)["scale"].data
    try:
        times = 1.0 if written is None else factor(written)
    except UnfitError:
        return 1.0
    return times if times > 0 else 1.0


def scaled(data: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Finding]]:
    """The file's values with every size times the scale, and what cannot be scaled."""
    times = scale_of(data)
    if times == 1:
        return data, []
    root = At(data)
    findings: list[Finding] = []
    if not _by_path(root):
        message = "found a scale, and no size that follows it, allowed is a scenario without scale"
        findings.append((("scale",), message, "every population says scales: false"))
    larger: object = data
    for size in _sizes(root):
        try:
            number = size.times(times)
        except UnfitError:
            continue  # The type of the field reports it.
        if number > size.most:
            found = f"found a scale that makes {write_count(number)} of {size.noun}"
            findings.append((("scale",), f"{found}, allowed are {write_count(size.most)}", None))
        else:
            larger = put(larger, size.at.path, number)
    for path, part in [*_shares(root, At(larger))]:
        larger = put(larger, path, part)
    vary = root["search"]["vary"].data
    if isinstance(vary, str) and vary in _by_path(root):
        message = f"found a search over {vary} with a scale, needed is scale 1"
        findings.append((("search", "vary"), message, "scale from and to of the search instead"))
    findings += _left_behind(root, At(larger))
    return (larger if isinstance(larger, Mapping) else data), findings


def scaled_sweep(sweep: Sweep, data: object) -> Sweep:
    """The sweep with its sizes times the scale, for labels and tables."""
    times, sizes = scale_of(data), _by_path(At(data))
    if times == 1:
        return sweep

    def of(path: str, value: object) -> object:
        try:
            return sizes[path].of(value, times) if path in sizes else value
        except UnfitError:
            return value

    def all_of(step: Mapping[str, Any]) -> dict[str, Any]:
        return {path: of(path, value) for path, value in step.items()}

    lists = {path: [of(path, value) for value in values] for path, values in sweep.vary.items()}
    variants = {name: all_of(variant) for name, variant in sweep.variants.items()}
    steps = tuple(all_of(step) for step in sweep.steps)
    return sweep.model_copy(update={"vary": lists, "steps": steps, "variants": variants})


def with_numbers(data: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Finding]]:
    """The file's values with a range for each `{each NAME}` of its populations."""
    numbers = _numbers(At(data))
    findings: list[Finding] = []

    def walk(at: At) -> object:
        if isinstance(at.data, str):
            return _EACH.sub(lambda found: written(at, found), at.data)
        if isinstance(at.data, Mapping):
            return {str(inner.path[-1]): walk(inner) for inner in at.entries()}
        return [walk(inner) for inner in at.entries()] if isinstance(at.data, list) else at.data

    def written(at: At, found: re.Match[str]) -> str:
        name = found["name"]
        if name is None:
            return found[0]
        those = numbers.get(name)
        if those is None:
            findings.append((at.path, *unknown("population or broker", name, [*numbers])))
            return "0"
        if len(those) > RANGE_VALUES_MAX:
            message = f"found {found[0]}, which are {write_count(len(those))} numbers"
            hint = "write {n} in publications of clients that have the same numbers"
            findings.append((at.path, f"{message}, allowed are {RANGE_VALUES_MAX}", hint))
            return "0"
        return f"{{{those[0]}..{those[-1]}}}"

    populations = At(data)["populations"]
    if not isinstance(populations.data, Mapping):
        return data, []
    return {**data, "populations": walk(populations)}, findings


def check_rates(scenario: Scenario) -> Iterator[Finding]:
    """Yields each `total_rate` that leaves a client no rate that can be played."""
    for name, population in scenario.populations.items():
        for number, each in enumerate(population.flows):
            rate_per_s = _rate_of_each(scenario, population, each)
            if rate_per_s is not None and not RATE.low <= rate_per_s <= RATE.high:
                path = ("populations", name, "publications", number, "total_rate")
                found = f"found {write_rate(rate_per_s)} for each of {population.clients} clients"
                yield path, f"{found}, allowed is {RATE.bounds()}", None


def with_rates(scenario: Scenario) -> Scenario:
    """The scenario with the rate of one client for each `total_rate`, which follows the scale."""
    populations = dict(scenario.populations)
    for name, population in populations.items():
        if any(each.total_rate is not None for each in population.flows):
            rates = ((each, _rate_of_each(scenario, population, each)) for each in population.flows)
            flows = tuple(e if r is None else e.model_copy(update={"rate": r}) for e, r in rates)
            populations[name] = population.model_copy(update={"publications": flows})
    return scenario.model_copy(update={"populations": populations})


def _rate_of_each(
    scenario: Scenario, population: Population, publication: Publication
) -> float | None:
    """Returns the rate of one client; None without a total rate."""
    if publication.total_rate is None:
        return None
    times = scenario.scale if population.scales and not population.is_publisher else 1
    return publication.total_rate * times / population.clients


def put(data: object, path: Path, value: object) -> object:
    """The data with another value at a path that it has."""
    if not path:
        return value
    key, rest = path[0], path[1:]
    if isinstance(data, Mapping):
        return {**data, key: put(data[key], rest, value)}
    assert isinstance(data, list) and isinstance(key, int), "the path was read from the data"
    return [put(item, rest, value) if n == key else item for n, item in enumerate(data)]


@dataclass(frozen=True, slots=True)
class _Size:
    """A number that the scale multiplies."""

    at: At
    noun: str
    """Name of the clients or brokers that it counts."""
    most: int
    """Largest number allowed."""
    least: int = 1
    """Smallest number that is left; 0 for the number of the first one, which is rounded down."""

    def times(self, times: float) -> int:
        """Returns the number times the scale; raises UnfitError for anything but a number."""
        return self.of(self.at.data, times)

    def of(self, value: object, times: float) -> int:
        """Returns another number in its place times the scale."""
        exact = count(value) * times
        return max(rounded(exact), self.least) if self.least else floor(exact)


def _by_path(root: At) -> dict[str, _Size]:
    return {".".join(map(str, size.at.path)): size for size in _sizes(root)}


def _sizes(root: At) -> Iterator[_Size]:
    """Yields the sizes that the file has. Publishers of the run and brokers without a bridge are
    under test, so that they keep their number."""
    bridged = _bridged(root)
    for population in root["populations"].named():
        if "publisher" not in population and population["scales"].data is not False:
            noun, least = str(population.path[-1]), _least(population)
            yield _Size(population["clients"], noun, CLIENTS_MAX, least)
        at = population["at"]
        if at["brokers"].data in bridged:
            noun = str(at["brokers"].data)
            yield from _present(_Size(at["count"], noun, SMALL_COUNT_MAX))
            yield from _present(_Size(at["first"], noun, SMALL_COUNT_MAX, least=0))
    for broker in root["topology"]["brokers"].named():
        name = str(broker.path[-1])
        if name in bridged:
            yield from _present(_Size(broker["count"], name, SMALL_COUNT_MAX))
        yield from _present(_Size(broker["federation"]["vhosts"], "vhosts", SMALL_COUNT_MAX))
    for stage in root["stages"].entries():
        for verb in stage.named():
            yield from _sizes_of_stage(verb, [*bridged, *_bridges(root)])


def _sizes_of_stage(verb: At, bridged: list[object]) -> Iterator[_Size]:
    clients = verb["clients"]
    for each in clients.entries() if isinstance(clients.data, Mapping) else [clients]:
        yield from _present(_Size(each, "clients", CLIENTS_MAX))
    for change in verb["changes"].entries():
        for key in ("add", "remove"):
            yield from _present(_Size(change[key], "clients", CLIENTS_MAX))
    for profile in verb["client_profiles"].named():
        for point in profile["points"].entries():
            if point["clients"].data != 0:
                yield from _present(_Size(point["clients"], "clients", CLIENTS_MAX))
    for fault in verb["faults"].entries():
        if any(fault[kind].data in bridged for kind in FAULT_KINDS):
            yield from _present(_Size(fault["count"], "faults", SMALL_COUNT_MAX))


def _least(population: At) -> int:
    """Returns the clients that each share and the rest need at least, one each."""
    shares = [*population["shares"].named()]
    return min(len(shares) + 1 if shares else 1, _range(0, population["clients"].data).stop or 1)


def _present(size: _Size) -> Iterator[_Size]:
    if size.at.data is not None:
        yield size


def _bridges(root: At) -> dict[str, At]:
    return {str(bridge.path[-1]): bridge for bridge in root["topology"]["bridges"].named()}


def _bridged(root: At) -> list[object]:
    """Returns the names of the brokers at the small end of bridges."""
    ends = (bridge["from"].data for bridge in _bridges(root).values())
    return [end for end in ends if isinstance(end, str)]


def _shares(root: At, larger: At) -> Iterator[tuple[Path, float]]:
    """Yields shares that would be left without a client, with the part of one client."""
    for population in root["populations"].named():
        name = str(population.path[-1])
        for each in population["shares"].named():
            part = each["part"] if isinstance(each.data, Mapping) else each
            try:
                before = share(part.data) * count(population["clients"].data)
                clients = count(larger["populations"][name]["clients"].data)
                if before >= 1 and share(part.data) * clients < 1:
                    yield part.path, 1 / clients
            except UnfitError:
                continue


def _numbers(root: At) -> dict[str, range]:
    """Returns the numbers of the clients of each population and of the brokers of each name, as far
    as they can be read."""
    found: dict[str, range] = {}
    for population in root["populations"].named():
        first, clients = population["first"].data or 0, population["clients"].data
        found[str(population.path[-1])] = _range(first, clients)
    for broker in root["topology"]["brokers"].named():
        found[str(broker.path[-1])] = _range(0, broker["count"].data or 1)
    return {name: numbers for name, numbers in found.items() if numbers}


def _range(first: object, size: object) -> range:
    try:
        return range(count(first), count(first) + count(size))
    except UnfitError:
        return range(0)


def _left_behind(root: At, larger: At) -> Iterator[Finding]:
    """Yields ranges that were written for all clients or brokers of a name, or that lead to some
    that the scale leaves out."""
    before, after = _numbers(root), _numbers(larger)
    changed = {name for name in before if name in after and before[name] != after[name]}
    filters = [each for each in _numbered_filters(root) if each[0] in changed]
    for publication in _publications(root):
        topic = publication["topic"]
        levels = _levels(topic.data)
        for level, (low, high) in _ranges(levels):
            name = next((name for name, f in filters if _means(levels, f, level)), None)
            if name is None:
                continue
            if range(low, high + 1) == before[name] or high > after[name][-1]:
                numbers = f"{after[name][0]} to {after[name][-1]}"
                message = f"found {{{low}..{high}}}, and a scale that leaves {name} the numbers"
                hint = f"write {{each {name}}} instead: it follows the scale"
                yield topic.path, f"{message} {numbers}, allowed is a range of those", hint


def _publications(root: At) -> Iterator[At]:
    for population in root["populations"].named():
        for whole in (population, *population["shares"].named()):
            yield from whole["publications"].entries()


_Levels = tuple[tuple[Part, ...], ...]


def _numbered_filters(root: At) -> Iterator[tuple[str, _Levels]]:
    """Yields the topic filters that subscribers and bridges have, with the name of who has them."""
    for population in root["populations"].named():
        for whole in (population, *population["shares"].named()):
            for each in whole["subscriptions"].entries():
                text = each.data if isinstance(each.data, str) else each["topic"].data
                yield str(population.path[-1]), _levels(text)
    for bridge in _bridges(root).values():
        for topic in bridge["topics"].entries():
            prefix = topic["remote_prefix"].data or ""
            yield str(bridge["from"].data), _levels(f"{prefix}{topic['topic'].data}")


def _levels(text: object) -> _Levels:
    """Returns the levels of a topic; none if it is no template."""
    try:
        return Template.parse(str(text)).levels()
    except TemplateError:
        return ()


def _ranges(levels: _Levels) -> Iterator[tuple[int, tuple[int, int]]]:
    for number, level in enumerate(levels):
        for part in level:
            if not isinstance(part, str) and part.kind is VariableKind.RANGE:
                yield number, (part.a, part.b)


def _means(topic: _Levels, filter_: _Levels, level: int) -> bool:
    """Returns True if the range in a level of a topic stands where a filter has the number."""
    if len(filter_) <= level or not any(
        not isinstance(part, str) and part.kind is VariableKind.NUMBER for part in filter_[level]
    ):
        return False
    pairs = zip(topic[: level + 1], filter_, strict=False)
    return all(theirs == ("+",) or _texts(own) == _texts(theirs) for own, theirs in pairs)


def _texts(level: tuple[Part, ...]) -> list[str]:
    return [part for part in level if isinstance(part, str)]


_EACH = re.compile(r"\{\{|\}\}|\{each (?P<name>[^{}]*)\}")


UNLIMITED = 2**63
"""A limit that is none."""
DESCRIPTORS_KEPT = 200
"""Left to a process for everything that is no client."""


def allowed_descriptors() -> int:
    """Open files that a process of this user may have: the hard limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return UNLIMITED if hard == resource.RLIM_INFINITY else hard


def most_in_one(populations: Sequence[int], processes: int) -> int:
    """Clients of the process that has the most, where each population is dealt out evenly and from
    the same process on."""
    return sum(ceil(clients / processes) for clients in populations)


def processes_needed(populations: Sequence[int], descriptors: int) -> int | None:
    """The fewest processes that hold the clients of all populations, each with so many
    descriptors; None where these are too few for any number."""
    room = descriptors - DESCRIPTORS_KEPT
    if room < len(populations):
        return None
    processes = max(1, ceil(sum(populations) / room))
    while most_in_one(populations, processes) > room:
        processes += 1
    return processes
