"""The base of all values that are sent or stored: frozen, without unknown keys."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

LATER = ConfigDict(defer_build=True)
"""Settings of a TypeAdapter that is built when it is first used."""


class Value(BaseModel):
    """A frozen value that refuses unknown keys."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        defer_build=True,
        json_schema_serialization_defaults_required=True,
    )
