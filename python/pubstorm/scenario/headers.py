"""Headers of the request of HTTP with which clients open a WebSocket."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from pubstorm.quantities import UnfitError
from pubstorm.scenario.fields import client_text

OWN = frozenset({"upgrade", "connection", "content-length", "transfer-encoding"})
"""Headers that the clients write themselves, or that a request without a body must not have."""
OWN_PREFIX = "sec-websocket-"

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def header_name(value: object) -> str:
    """A name of HTTP (RFC 9110, 5.6.2) that the clients do not write themselves."""
    if not isinstance(value, str) or _NAME.fullmatch(value) is None:
        raise UnfitError(value, "are names of headers such as Authorization")
    if value.lower() in OWN or value.lower().startswith(OWN_PREFIX):
        raise UnfitError(value, "are headers that the clients do not write themselves")
    return value


def header_value(value: object) -> str:
    """A template on one line."""
    source = client_text(value)
    if _CONTROL.search(source) is not None:
        raise UnfitError(value, "is a text on one line, without control characters")
    return source


Headers = Mapping[
    Annotated[
        str,
        BeforeValidator(header_name),
        WithJsonSchema({"title": "header name", "type": "string"}),
    ],
    Annotated[
        str,
        BeforeValidator(header_value),
        WithJsonSchema({"title": "template", "type": "string"}),
    ],
]
