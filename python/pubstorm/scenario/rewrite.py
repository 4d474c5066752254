"""Rewrites a scenario as written: overrides of the command line, and numbers for `count: auto`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pubstorm.quantities import UnfitError, count
from pubstorm.scenario.descriptors import processes_needed
from pubstorm.scenario.document import At, DocumentError, read_document
from pubstorm.scenario.shape import Shape

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
