"""The base of all values that are sent or stored: frozen, without unknown keys."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

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
Number = Annotated[float, Field(ge=-1e36, le=1e36)]
"""A figure that can be multiplied, and summed up with others. Rates of the largest counts fit."""
Positive = Annotated[float, Field(gt=0, le=1e36)]
"""A figure that has a logarithm."""
Probability = Annotated[float, Field(gt=0, lt=1)]
"""The confidence of an interval."""


def _moment(text: str) -> str:
    """Returns a date and time in ISO 8601. Raises ValueError if no clock shows that time."""
    if FIRST_YEAR <= datetime.fromisoformat(text).year <= LAST_YEAR:
        return text
    raise ValueError(f"found {text}, allowed are the years {FIRST_YEAR} to {LAST_YEAR}")


FIRST_YEAR, LAST_YEAR = 1971, 2500
Moment = Annotated[str, AfterValidator(_moment)]
"""A date and time on the wall clock, in ISO 8601."""

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
