"""Overrides from the command line: `a.b.c=value` puts a value at a path of the scenario. A path
that leads nowhere is an error that names what there is. It validates no value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from pubstorm.scenario.document import DocumentError, read_document
from pubstorm.scenario.shape import Shape
from pubstorm.units import UnfitError


@dataclass(frozen=True, slots=True)
class Override:
    """A value for a path."""

    path: tuple[str | int, ...]
    value: object
    source: str


def parse_override(text: str) -> Override:
    """Parses `a.b.c=value`, the value as YAML; raises `UnfitError`."""
    written, equals, value_text = text.partition("=")
    steps = written.strip().split(".")
    if not equals or not all(steps):
        raise UnfitError(text, "is PATH=VALUE", "for example: --set populations.device.clients=10k")
    try:
        document = read_document(value_text)
    except DocumentError as error:
        raise UnfitError(value_text, f"is a YAML value: {error}") from None
    path = tuple(int(step) if _is_index(step) else step for step in steps)
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
        case _:
            raise UnfitError(str(key), "is nothing below a plain value")


def _as_mapping(data: object, shape: Shape) -> dict[str, object]:
    """A part as a mapping, with its short form written out."""
    if isinstance(data, dict):
        return data
    if shape.part is not None and shape.part.SHORT_FOR is not None and data is not None:
        return {shape.part.SHORT_FOR: data}
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
