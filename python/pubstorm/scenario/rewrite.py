"""Rewrites a scenario as written: overrides of the command line, numbers for `count: auto`, and the
scenario for other targets or a cluster. For other targets it leaves out what the scenario starts
itself, but for small brokers that are bridged to a main one, which the target becomes; expressions
follow. For a cluster it leaves out what only the controller's host can do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from pubstorm.contract import TARGET_BROKER, split_member
from pubstorm.contract.target import TARGET, parse_target
from pubstorm.quantities import UnfitError, count
from pubstorm.scenario.addresses import written_targets
from pubstorm.scenario.document import At, DocumentError, read_document
from pubstorm.scenario.expressions import CONDITIONS
from pubstorm.scenario.kinds import AT_THE_CONTROLLER
from pubstorm.scenario.problems import Shape
from pubstorm.scenario.sizes import processes_needed

_KEY = r"""(?:"[^"]+"|'[^']+'|[^.="'\s][^.=]*)"""
_STEP = re.compile(_KEY)
_OVERRIDE = re.compile(rf"\s*(?P<path>{_KEY}(?:\.{_KEY})*)\s*=(?P<value>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Override:
    """A value for a path."""

    path: tuple[str | int, ...]
    value: object
    source: str


def parse_override(text: str) -> Override:
    """Parses `a.b.c=value`, the value as YAML; a key with dots is quoted: `a."b.c"=value`. Raises
    `UnfitError`."""
    found = _OVERRIDE.fullmatch(text)
    if found is None:
        raise UnfitError(text, "is PATH=VALUE", "for example: --set populations.device.clients=10k")
    steps, value_text = _STEP.findall(found["path"]), found["value"]
    try:
        document = read_document(value_text)
    except DocumentError as error:
        raise UnfitError(value_text, f"is a YAML value: {error}") from None
    path = tuple(int(step) if _is_index(step) else step.strip("\"'") for step in steps)
    return Override(path, document.data, text)


def apply_override(data: object, shape: Shape, override: Override) -> object:
    """`data` with the value at its path; raises `UnfitError` where the path leads nowhere."""
    return _put(data, shape, override.path, override.value)


def _put(data: object, shape: Shape, path: Sequence[str | int], value: object) -> object:
    if not path:
        return value
    key, rest = path[0], path[1:]
    match shape.kind:
        case "keys":
            mapping = _as_mapping(data, shape)
            _require(key, shape.keys, "key")
            return {**mapping, str(key): _put(mapping.get(str(key)), shape.below(key), rest, value)}
        case "names":
            names = data if isinstance(data, dict) else {}
            key = str(key)
            _require(key, tuple(names), "name")
            return {**names, key: _put(names[key], shape.below(key), rest, value)}
        case "items":
            items = list(data) if isinstance(data, (list, tuple)) else []
            index = _index(key, len(items))
            items[index] = _put(items[index], shape.below(index), rest, value)
            return items
        case "free" if not rest:
            return {**(data if isinstance(data, dict) else {}), str(key): value}
        case "free":
            hint = 'a key with dots is written in quotes: sweep.steps.0."stages.1.publish"=30s'
            raise UnfitError(str(key), "is nothing below a plain value", hint)
        case _:
            raise UnfitError(str(key), "is nothing below a plain value")


def _as_mapping(data: object, shape: Shape) -> dict[str, object]:
    """A part as a mapping, with its short form written out."""
    if isinstance(data, dict):
        return data
    if shape.short_for is not None and data is not None:
        return {shape.short_for: data}
    if isinstance(data, str) and data in shape.keys:
        return {data: {}}
    return {}


def _require(key: str | int, allowed: Sequence[str], noun: str) -> None:
    if key in allowed:
        return
    close = get_close_matches(str(key), allowed, n=1)
    hint = f"did you mean {close[0]}?" if close else None
    words = f"are the {noun}s {', '.join(allowed)}" if allowed else f"is no {noun} here"
    raise UnfitError(str(key), words, hint)


def _index(key: str | int, length: int) -> int:
    if isinstance(key, int) and key < length:
        return key
    if length == 0:
        raise UnfitError(key, "is nothing: the file has no such list", "give the whole list")
    raise UnfitError(key, f"are the indices 0 to {length - 1}")


def _is_index(step: str) -> bool:
    return step.isascii() and step.isdigit() and len(step) < 10


AUTO = "auto"


def counted(data: Mapping[str, Any], descriptors: int) -> Mapping[str, Any]:
    """The file's values, with so many brokers that each has at most `descriptors` open files."""
    brokers = At(data)["topology"]["brokers"]
    names = [str(broker.path[-1]) for broker in brokers.entries() if broker["count"].data == AUTO]
    if not names or not isinstance(brokers.data, Mapping):
        return data
    numbers = {name: _needed(data, name, descriptors) for name in names}
    settled = {name: {**brokers.data[name], "count": number} for name, number in numbers.items()}
    return {**data, "topology": {**data["topology"], "brokers": {**brokers.data, **settled}}}


def _needed(data: Mapping[str, Any], name: str, descriptors: int) -> int:
    """Returns the number of brokers that a name needs; 1 if something else is wrong."""
    return processes_needed(list(_clients_at(data, name)), descriptors) or 1


def _clients_at(data: Mapping[str, Any], name: str) -> Iterator[int]:
    """Yields the clients of each population that connects to brokers of the name."""
    for population in At(data)["populations"].entries():
        if "publisher" in population:
            continue
        at = population["at"]
        brokers = at["brokers"].data if isinstance(at.data, Mapping) else at.data
        if brokers in (None, name):
            try:
                yield count(population["clients"].data)
            except UnfitError:
                continue


@dataclass(frozen=True, slots=True)
class Retargeted:
    """The values of a file for another place."""

    data: Mapping[str, Any]
    left_out: tuple[str, ...] = ()
    """Keys and conditions that make no sense there, each with the reason."""


def placed(data: Mapping[str, Any]) -> Retargeted:
    """Returns the file's values for its cluster, if it names one: without a profile of a broker on
    another host, and with publishers on the controller's host that have no clock elsewhere."""
    root = At(data)
    if root["fleet"]["on"].data in (None, "local"):
        return Retargeted(data)
    changed, left_out = dict(data), []
    if isinstance(data.get("profile"), Mapping) and _is_elsewhere(root):
        changed["profile"] = None
        left_out.append("profile: perf runs on the controller's host, and the broker on another")
    populations = {}
    for population in root["populations"].named():
        name, publisher = str(population.path[-1]), population["publisher"]
        kind = publisher["kind"].data or publisher.data
        values = population.data
        populations[name] = values
        if kind in AT_THE_CONTROLLER and isinstance(values, Mapping) and values.get("hosts"):
            populations[name] = {key: each for key, each in values.items() if key != "hosts"}
            why = f"a publisher of kind {kind} is on the controller's host, whose clock it reads"
            left_out.append(f"populations.{name}.hosts: {why}")
    if populations:
        changed["populations"] = populations
    return Retargeted(changed, tuple(left_out))


def _is_elsewhere(root: At) -> bool:
    """Returns True if the broker of the profile is one that the run places on another host."""
    brokers = {str(each.path[-1]): each for each in root["topology"]["brokers"].named()}
    name = root["profile"]["broker"].data or next(iter(brokers), None)
    if not isinstance(name, str) or name in root["monitors"]["sources"]:
        return False
    broker = brokers.get(name) or brokers.get(split_member(name)[0])
    return broker is not None and broker["hosts"].data is not None


def retargeted(data: Mapping[str, Any], targets: Sequence[str]) -> Retargeted:
    """Returns the file's values with other targets: an address each, or `NAME=ADDRESS` in place of
    the targets or brokers of a name."""
    given = _given(targets)
    if is_named := given.keys() != {TARGET}:
        written = data.get(TARGET)
        others = written_targets(written) if isinstance(written, Mapping) else {}
        kept = {name: own for name, own in others.items() if name not in given}
        target: object = {name: _short(own) for name, own in {**kept, **given}.items()}
    else:
        target = _short(given[TARGET])
    moved, gone, services = _moved_to(data, target)
    renamed = {name: name if is_named else TARGET for name in gone}
    addresses = [str(each) for own in written_targets(target).values() for each in own]
    single = {name for name, new in renamed.items() if len(given.get(new, ())) == 1}
    expressions = _Expressions(addresses, renamed, single, services)
    changed = {**moved, **dict(expressions.changed(moved))}
    if isinstance(names := At(data)["addresses"]["names"].data, Mapping):
        hosts = _hosts(addresses)
        kept = {name: each for name, each in names.items() if name in hosts}
        changed["addresses"] = {**data["addresses"], "names": kept}
    if isinstance(changed.get("profile"), Mapping):
        changed["profile"] = expressions.profile(changed)
    return Retargeted(changed, tuple(expressions.left_out))


def _given(words: Sequence[str]) -> dict[str, list[object]]:
    """Returns the addresses of a command line by the name of the targets."""
    given: dict[str, list[object]] = {}
    for word in words:
        name, _, address = word.partition("=") if _NAMED.match(word) else (TARGET, "", word)
        given.setdefault(name, []).append(address)
    return given


def _short(addresses: list[object]) -> object:
    return addresses[0] if len(addresses) == 1 else addresses


def _hosts(targets: Sequence[str]) -> set[str]:
    """Returns the hosts of targets; none of one that is wrong, which the checks name."""
    found = set[str]()
    for target in targets:
        with suppress(UnfitError):
            found.add(parse_target(target).host)
    return found


def _moved_to(data: Mapping[str, Any], target: object) -> tuple[dict[str, Any], set[str], set[str]]:
    """Returns the values with the target, and the brokers and services that are not started. Names
    of targets replace brokers of the same name, and those of the file."""
    root, own = At(data), data.get("topology")
    topology = dict(own) if isinstance(own, Mapping) else {}
    bridges = [*root["topology"]["bridges"].named()]
    brokers = {str(each.path[-1]): each for each in root["topology"]["brokers"].named()}
    mains = (bridge["to"].data for bridge in bridges)
    gone = {name for name in mains if isinstance(name, str)} if bridges else {*brokers}
    gone |= {str(each.path[-1]) for each in root[TARGET].named()}
    renamed = dict.fromkeys(gone, TARGET)
    if isinstance(target, Mapping):
        gone, renamed = gone & target.keys(), {}
    left, services = {name: brokers[name].data for name in brokers if name not in gone}, set[str]()
    if bridges:
        topology["bridges"] = {b.path[-1]: _with(b.data, "to", renamed) for b in bridges}
    if (bridges or left) and brokers:
        topology["brokers"] = left
    elif not bridges:
        services = {str(each.path[-1]) for each in root["topology"]["services"].named()}
        topology = {key: each for key, each in topology.items() if key not in OWN}
        is_many = any(len(addresses) > 1 for addresses in written_targets(target).values())
        if is_many and any(broker["cluster"].data for broker in brokers.values()):
            topology["joined"] = True
    moved = {**data, TARGET: target}
    if isinstance(own, Mapping):
        moved["topology"] = topology
    if isinstance(populations := data.get("populations"), Mapping):
        moved["populations"] = {name: _moved(each, renamed) for name, each in populations.items()}
    return moved, gone, services


@dataclass
class _Expressions:
    """Expressions of a file on their way to another target."""

    addresses: Sequence[str]
    """Addresses of all targets."""
    renamed: Mapping[str, str]
    """Brokers that are not started, each with the name of the targets in its place."""
    single: set[str]
    """Those of them in whose place there is one target."""
    services: set[str]
    """Services that are not started."""
    left_out: list[str] = field(default_factory=list)

    def changed(self, data: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """Yields the keys that hold expressions, each with its new value."""
        if isinstance(data.get("table"), Mapping):
            yield "table", self._columns("table", data["table"])
        if isinstance(data.get("tables"), Mapping):
            tables = data["tables"].items()
            yield "tables", {n: self._columns(f"tables.{n}", each) for n, each in tables}
        for key in CONDITIONS:
            if isinstance(data.get(key), list):
                yield key, self._conditions(data[key])
        for key, inner in (("sweep", "stop_when"), ("search", "figure")):
            part = data.get(key)
            if isinstance(part, Mapping) and inner in part:
                value = part[inner]
                new = self._conditions(value) if isinstance(value, list) else self._renamed(value)
                yield key, {**part, inner: new}

    def profile(self, data: Mapping[str, Any]) -> object:
        """Returns the profile, or None if its broker is not on this machine."""
        profile = data["profile"]
        sources = [*At(data)["monitors"]["sources"].named()]
        watched = any("process" in each or "process" in each["remote"] for each in sources)
        try:
            is_here = any(parse_target(target).is_loopback for target in self.addresses)
        except UnfitError:
            return profile
        if not is_here and not watched:
            self.left_out.append("profile: the broker is not on this machine")
            return None
        names = {old: TARGET_BROKER if new == TARGET else new for old, new in self.renamed.items()}
        return _with(profile, "broker", names)

    def _columns(self, path: str, columns: object) -> object:
        if not isinstance(columns, Mapping):
            return columns
        changed: dict[object, object] = {}
        for heading, column in columns.items():
            asked = column.get("metric") if isinstance(column, Mapping) else column
            if self._subject(asked) in self.services:
                self.left_out.append(f"{path}.{heading}: {self._subject(asked)} is not started")
            elif isinstance(column, Mapping):
                changed[heading] = {**column, "metric": self._renamed(asked)}
            else:
                changed[heading] = self._renamed(asked)
        return changed

    def _conditions(self, lines: list[object]) -> list[object]:
        kept = []
        for line in lines:
            subject = self._subject(line)
            if subject in self.services:
                self.left_out.append(f"{line}: {subject} is not started")
            elif subject in self.single and _BALANCE.search(str(line)):
                self.left_out.append(f"{line}: one target has no balance")
            else:
                kept.append(self._renamed(line))
        return kept

    def _subject(self, text: object) -> str | None:
        """Returns the broker or service that an expression begins with."""
        found = _EXPRESSION.match(text) if isinstance(text, str) else None
        if found is None:
            return None
        group, number = split_member(found["name"])
        name = group if group in self.renamed and number is not None else found["name"]
        return name if name in self.renamed or name in self.services else None

    def _renamed(self, text: object) -> object:
        if self.renamed.get(self._subject(text) or "") != TARGET or not isinstance(text, str):
            return text
        new = TARGET if _BALANCE.search(text) else TARGET_BROKER
        return _EXPRESSION.sub(lambda found: f"{found['point'] or ''}{new}.", text, count=1)


def _moved(population: object, renamed: Mapping[str, str]) -> object:
    """A population that connects to the target instead of a main broker of the run."""
    at = At(population)["at"]
    if isinstance(at.data, str):
        return _with(population, "at", renamed)
    if "brokers" in at and isinstance(population, Mapping):
        return {**population, "at": _with(at.data, "brokers", renamed)}
    return population


def _with(mapping: object, key: str, renamed: Mapping[str, str]) -> object:
    """The mapping with the name under a key replaced."""
    if not isinstance(mapping, Mapping) or not isinstance(mapping.get(key), str):
        return mapping
    return {**mapping, key: renamed.get(mapping[key], mapping[key])}


OWN = ("brokers", "services")
"""Keys of a topology that the run starts."""
_EXPRESSION = re.compile(r"\s*(?P<point>search\.\w+:)?(?P<name>[A-Za-z][\w-]*)\.", re.ASCII)
_BALANCE = re.compile(r"\.balance\b")
_NAMED = re.compile(r"[A-Za-z][\w-]*=", re.ASCII)
