"""The shape of a scenario: which keys, names and indices can follow each other on a path, read
from the models' own types. Overrides and error messages use it; it holds no key itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pubstorm.scenario.base import Part
from pubstorm.scenario.fields import Text


@dataclass(frozen=True, slots=True)
class Shape:
    """What stands at a path: `keys` of a part, `names` of a mapping, `items` of a list, `free`
    keys of settings and of texts, or a plain `value`.
    """

    kind: Literal["keys", "names", "items", "free", "value"]
    part: type[Part] | None = None
    inner: Any = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of a part."""
        return () if self.part is None else keys_of(self.part)

    def below(self, key: str | int) -> Shape:
        """What stands under `key`, which must be allowed here."""
        if self.kind == "keys" and self.part is not None:
            for name, field in self.part.model_fields.items():
                if key == (field.alias or name):
                    return shape_of(field.annotation)
        return shape_of(self.inner) if self.kind in {"names", "items"} else VALUE


def shape_of(annotation: Any) -> Shape:
    """The shape of a field with this type."""
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return Shape("keys", part=annotation)
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
    parts = [a for a in arguments if isinstance(a, type) and issubclass(a, Part)]
    return Shape("keys", part=parts[0]) if parts else VALUE


def keys_of(part: type[Part]) -> tuple[str, ...]:
    """The keys of a part, as they are written."""
    return tuple(field.alias or name for name, field in part.model_fields.items())


VALUE = Shape("value")
