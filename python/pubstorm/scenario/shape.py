"""The shape of a scenario: which keys, names and indices can follow each other on a path, read
from the models' own types. Overrides and error messages use it; it holds no key itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import Tag

from pubstorm.scenario.base import Part, keys_of
from pubstorm.scenario.fields import Text


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape at a path: `keys` of a part, `names` of a mapping, `items` of a list, `free` keys
    of settings and of texts, or a plain `value`.
    """

    kind: Literal["keys", "names", "items", "free", "value"]
    parts: Mapping[str, type[Part]] = field(default_factory=dict)
    """The part that has the keys, or the parts of each kind, by what the kind is called."""
    inner: Any = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of a part, or of all its kinds."""
        return tuple(dict.fromkeys(key for part in self.parts.values() for key in keys_of(part)))

    @property
    def short_for(self) -> str | None:
        """The key that a plain value stands for."""
        return next((part.SHORT_FOR for part in self.parts.values()), None)

    @property
    def kinds(self) -> Mapping[str, Shape]:
        """The shape of each kind; empty if there is only one."""
        shapes = {kind: Shape("keys", {kind: part}) for kind, part in self.parts.items()}
        return shapes if len(shapes) > 1 else {}

    def below(self, key: str | int) -> Shape:
        """Returns the shape under `key`, which must be allowed here."""
        for part in self.parts.values():
            for name, described in part.model_fields.items():
                if key == (described.alias or name):
                    return shape_of(described.annotation)
        return shape_of(self.inner) if self.kind in {"names", "items"} else VALUE


def shape_of(annotation: Any) -> Shape:
    """The shape of a field with this type."""
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return Shape("keys", {"": annotation})
    if get_origin(annotation) is Annotated:
        return shape_of(get_args(annotation)[0])
    arguments = [a for a in get_args(annotation) if a is not type(None) and a is not ...]
    origin = get_origin(annotation)
    if origin is Mapping:
        # Who writes a plain text, such as a column of a table, chooses its name too.
        free = arguments[1] is Any or arguments[1] == Text
        return Shape("free") if free else Shape("names", inner=arguments[1])
    if origin is tuple:
        return Shape("items", inner=arguments[0])
    if origin in {Union, UnionType} and len(arguments) == 1:
        return shape_of(arguments[0])
    parts = dict(each for argument in arguments for each in _tagged(argument))
    return Shape("keys", parts) if parts else VALUE


def _tagged(argument: Any) -> Iterator[tuple[str, type[Part]]]:
    part, *marks = get_args(argument) or (argument,)
    if isinstance(part, type) and issubclass(part, Part):
        yield next((mark.tag for mark in marks if isinstance(mark, Tag)), ""), part


VALUE = Shape("value")
