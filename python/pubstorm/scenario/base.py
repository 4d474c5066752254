"""What all parts of a scenario share: immutable values that refuse unknown keys, and a short form
that stands for the one key that matters. It knows no key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema

from pubstorm.units import Quantity


class Part(BaseModel):
    """A mapping of a scenario. An empty value means all defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    SHORT_FOR: ClassVar[str | None] = None
    """The key that a plain value stands for."""

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


@dataclass(frozen=True, slots=True)
class OrWord:
    """Marks a field that can be a word instead, for the JSON Schema."""

    word: str

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """The field's schema, or the word."""
        return {"anyOf": [handler(schema), {"const": self.word}]}


def default_of(field: FieldInfo) -> str | int | float | bool | None:
    """A field's default as a user would write it; `None` where it has none to show."""
    default = field.default
    if not isinstance(default, (str, int, float)) or default == "":
        return None
    quantities = [mark for mark in field.metadata if isinstance(mark, Quantity)]
    if not quantities or isinstance(default, str):
        return default
    return quantities[0].kind.write(default)
