"""From pydantic's errors to problems in a user's words: what was found, what is allowed, a hint.
The keys, names and indices that can follow each other on a path are read from the models' own
types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import reduce
from operator import or_
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import Tag, ValidationError

from pubstorm.quantities import UnfitError, describe
from pubstorm.scenario.base import Part, hints_of, keys_of
from pubstorm.scenario.fields import ClientText, PropertyText, Text
from pubstorm.scenario.model import Scenario

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from pubstorm.scenario.document import Path


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
        fields = (item for part in self.parts.values() for item in part.model_fields.items())
        found = [shape_of(f.annotation) for name, f in fields if key == (f.alias or name)]
        if found:
            inner = tuple(dict.fromkeys(each.inner for each in found))
            return found[0] if len(inner) == 1 else replace(found[0], inner=reduce(or_, inner))
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
        # The author of a plain text, such as a column of a table, chooses its name, too.
        free = arguments[1] is Any or arguments[1] in (Text, ClientText, PropertyText)
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
        yield next((mark.tag for mark in marks if isinstance(mark, Tag)), part.__name__), part


VALUE = Shape("value")


def explain(
    error: ValidationError, root: type[Part] = Scenario
) -> list[tuple[Path, str, str | None]]:
    """Each error of a file, whose values make a `root`, as path, message and hint."""
    details = error.errors(include_url=False)
    # A list whose only item is wrong counts as empty; the item's own error says more.
    found = [each for each in details if each["type"] != "too_short" or not each["input"]]
    return [_explain(each, shape_of(root)) for each in found]


def _explain(details: ErrorDetails, root: Shape) -> tuple[Path, str, str | None]:
    place = _Place.of(tuple(step for step in details["loc"] if step != "[key]"), root)
    path, found = place.path, details["input"]
    match details["type"]:
        case "value_error":
            unfit = details["ctx"]["error"]
            return path, str(unfit), unfit.hint if isinstance(unfit, UnfitError) else None
        case "missing":
            return path, f"found no {path[-1]!r}, which is needed", None
        case "extra_forbidden":
            return path, *_unknown_key(place)
        case "literal_error":
            return path, f"found {describe(found)}, allowed is {details['ctx']['expected']}", None
        case "union_tag_invalid" | "union_tag_not_found" if isinstance(found, dict | str):
            return _unknown_kind(place, found)
        case (
            "model_type"
            | "mapping_type"
            | "dict_type"
            | "model_attributes_type"
            | "union_tag_not_found"
        ):
            keys = place.shape.keys
            hint = f"its keys are {', '.join(keys)}" if keys else None
            return path, f"found {describe(found)}, allowed is a mapping", hint
        case "tuple_type" | "list_type":
            hint = f"write [{found}]" if isinstance(found, str) and len(found) < 40 else None
            return path, f"found {describe(found)}, allowed is a list", hint
        case "too_short":
            return path, f"found {describe(found)}, allowed is at least one", None
        case _:
            return path, f"found {describe(found)}: {details['msg']}", None


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of an error in a scenario."""

    path: Path
    """Keys, names and indices, as written."""
    shape: Shape
    """The shape there."""
    around: Shape
    """The shape of the part that has the last key."""
    kind: str = ""
    """Name of the kind of the innermost part around it that has kinds; empty if there is none."""
    hints: Mapping[str, str] = field(default_factory=dict)
    """Hints of that kind for keys of the other kinds."""
    others: Mapping[str, Shape] = field(default_factory=dict)
    """The shapes of the other kinds, by kind."""

    @classmethod
    def of(cls, location: Path, root: Shape) -> _Place:
        """Follows a location of pydantic from the root. It names the kinds that it passes."""
        shape = around = root
        path: Path = ()
        kind, hints, others = "", dict[str, str](), dict[str, Shape]()
        for step in location:
            if step in shape.kinds:
                kind = str(step)
                others = {name: each for name, each in shape.kinds.items() if name != kind}
                shape = shape.kinds[kind]
                hints = hints_of(shape.parts[kind])
                continue
            others = {
                name: each.below(step)
                for name, each in others.items()
                if each.kind != "keys" or step in each.keys
            }
            path, shape, around = (*path, step), shape.below(step), shape
        return cls(path, shape, around, kind, hints, others)


def _unknown_key(place: _Place) -> tuple[str, str | None]:
    key, keys = place.path[-1], place.around.keys
    if place.others:
        allowed = ", ".join(place.others)
        message = f"found {key} with {place.kind}, allowed with {allowed}"
        return message, place.hints.get(str(key))
    close = get_close_matches(str(key), keys, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else None
    return f"found the unknown key {key!r}, allowed are {', '.join(keys)}", hint


def _unknown_kind(place: _Place, found: dict[str, object] | str) -> tuple[Path, str, str | None]:
    key = str(place.shape.short_for)
    if isinstance(found, dict) and key not in found:
        return (*place.path, key), f"found no {key!r}, which is needed", None
    kinds = ", ".join(kind.removeprefix(f"{key} ") for kind in place.shape.kinds)
    given = describe(found[key] if isinstance(found, dict) else found)
    return (*place.path, key), f"found {given}, allowed are {kinds}", None
