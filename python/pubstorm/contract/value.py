"""The base of all values that are sent or stored: frozen, without unknown keys."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

U64_MAX = 2**64 - 1
U64 = Annotated[int, Field(ge=0, le=U64_MAX)]
U62 = Annotated[int, Field(ge=0, le=2**62)]
"""A duration or an instant in nanoseconds, or the number of a client. Three add up in 64 bits."""
PositiveU62 = Annotated[int, Field(gt=0, le=2**62)]
RATE_MIN_PER_S, RATE_MAX_PER_S = 1e-7, 1e9
"""One event in 116 days, and one in each nanosecond."""
Rate = Annotated[float, Field(ge=RATE_MIN_PER_S, le=RATE_MAX_PER_S)]
"""Events a second."""
Signed = Annotated[int, Field(ge=-U64_MAX, le=U64_MAX)]
"""A number with a sign. A sum of such numbers can be larger than 64 bits with a sign hold."""
Instant = Annotated[float, Field(ge=-1e9, le=1e9)]
"""An instant in seconds after the start of a run."""

LATER = ConfigDict(defer_build=True)
"""Settings of a TypeAdapter that is built when it is first used."""


class Value(BaseModel):
    """A frozen value that refuses unknown keys, and what is no number."""

    model_config = ConfigDict(
        allow_inf_nan=False,
        frozen=True,
        extra="forbid",
        defer_build=True,
        json_schema_serialization_defaults_required=True,
    )
