"""Parts of a scenario: immutable values that refuse unknown keys, with a short form that stands for
one key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from pydantic import GetJsonSchemaHandler, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema

from pubstorm.contract import Value
from pubstorm.quantities import QuantityField
from pubstorm.scenario.document import Finding, Path


class Part(Value):
    """A mapping of a scenario. An empty value means all defaults."""

    SHORT_FOR: ClassVar[str | None] = None
    """The key that a plain value stands for."""

    def rules(self) -> Iterator[Finding]:
        """Yields what does not fit together within the part. Paths begin at the part."""
        yield from ()

    @model_validator(mode="before")
    @classmethod
    def expand(cls, value: object) -> object:
        """Turns nothing and the short form into the mapping they stand for."""
        if value is None:
            return {}
        if cls.SHORT_FOR is not None and isinstance(value, (str, int, float)):
            return {cls.SHORT_FOR: value}
        return value

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Adds the short form to the JSON Schema, where there is one."""
        full = handler.resolve_ref_schema(handler(schema))
        for name, field in cls.model_fields.items():
            written = default_of(field)
            described = full["properties"][field.alias or name]
            described.pop("default", None)
            if written is not None:
                described["default"] = written
        if cls.SHORT_FOR is None:
            return full
        short = full["properties"][cls.SHORT_FOR]
        described = {"title": full["title"], "description": full.get("description", "")}
        return {**described, "anyOf": [full, short]}


def parts_in(value: object, path: Path = ()) -> Iterator[tuple[Path, Part]]:
    """Yields a part and each part that is in it, with their paths."""
    inner: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, Part):
        yield path, value
        fields = type(value).model_fields.items()
        inner = ((field.alias or name, getattr(value, name)) for name, field in fields)
    elif isinstance(value, Mapping):
        inner = value.items()
    elif isinstance(value, tuple):
        inner = enumerate(value)
    for key, each in inner:
        yield from parts_in(each, (*path, key))


def broken_rules(value: object) -> Iterator[Finding]:
    """Yields what does not fit together within a part, and within each part that is in it."""
    for path, part in parts_in(value):
        yield from (((*path, *inner), message, hint) for inner, message, hint in part.rules())


class Variant(Part):
    """A part that stands where parts of other kinds can stand. The direct subclass is what all
    kinds have in common."""

    HINTS: ClassVar[Mapping[str, str]] = {}
    """Hints for keys that other kinds have, by key; a subclass adds to them."""
    ELSEWHERE: ClassVar[Mapping[str, str]] = {}
    """Hints of a kind for keys of its own where other kinds have them, by key."""

    @model_validator(mode="before")
    @classmethod
    def leave_out_absent(cls, value: object) -> object:
        """Leaves out keys of other kinds that are null, as if they were not there."""
        if not isinstance(value, dict):
            return value
        others = {key for each in _below(_root_of(cls)) for key in keys_of(each)} - {*keys_of(cls)}
        absent = {key for key in others & {*value} if value[key] is None}
        return {key: each for key, each in value.items() if key not in absent}


def hints_of(part: type[Part]) -> dict[str, str]:
    """Returns the hints of a kind for keys of other kinds, by key."""
    others = (vars(each).get("ELSEWHERE", {}) for each in _below(_root_of(part)))
    own = (vars(each).get("HINTS", {}) for each in reversed(part.__mro__))
    return {key: hint for hints in (*others, *own) for key, hint in hints.items()}


def _root_of(part: type[Part]) -> type[Part]:
    """Returns the class of all kinds of a part."""
    common: type[Part] = part.__mro__[part.__mro__.index(Variant) - 1]
    return common


def every_key(part: Part, common: type[Part]) -> dict[str, Any]:
    """Returns the values of a part by key. Keys that only other kinds have are at their defaults.
    `common` is the class of all kinds."""
    return {**_defaults(common), **dict(part)}


@cache
def _defaults(common: type[Part]) -> Mapping[str, Any]:
    """Returns the defaults of the keys that some kind has; the first kind that has a key counts."""
    kinds = reversed([*_below(common)])
    fields = {name: field for kind in kinds for name, field in kind.model_fields.items()}
    optional = {name: field for name, field in fields.items() if not field.is_required()}
    return {n: field.get_default(call_default_factory=True) for n, field in optional.items()}


def _below(part: type[Part]) -> Iterator[type[Part]]:
    for each in part.__subclasses__():
        yield each
        yield from _below(each)


def keys_of(part: type[Part]) -> tuple[str, ...]:
    """The keys of a part, as they are written."""
    return tuple(field.alias or name for name, field in part.model_fields.items())


@dataclass(frozen=True, slots=True)
class OrWord:
    """Marks a field that can be a word or flag instead, for the JSON Schema."""

    word: str | bool

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """The field's schema, or the word."""
        return {"anyOf": [handler(schema), {"const": self.word}]}


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Marks a union of parts that JSON Schema cannot distinguish: any part may fit."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """The schemas of the parts."""
        made = handler(schema)
        return {"anyOf": made.get("oneOf") or made["anyOf"]}


def default_of(field: FieldInfo) -> str | int | float | bool | None:
    """A field's default as a user would write it; `None` where it has none to show."""
    default = field.default
    if not isinstance(default, (str, int, float)) or default == "":
        return None
    quantities = [mark for mark in field.metadata if isinstance(mark, QuantityField)]
    if not quantities or isinstance(default, str):
        return default
    return quantities[0].kind.write(default)
