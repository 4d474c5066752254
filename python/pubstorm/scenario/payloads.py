"""Payloads as users write them: a text, or a mapping or list that becomes JSON. It renders none."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from pubstorm.scenario.document import Path
from pubstorm.scenario.fields import template_text, text
from pubstorm.units import UnfitError


def payload(value: object) -> object:
    """A text with variables, or a mapping or list with such texts in it; these are looked at by
    `payload_texts`, each in its place."""
    if isinstance(value, (dict, list)):
        _check_numbers(value)
        return value
    return template_text(value)


def payload_texts(value: object) -> Iterator[tuple[Path, str]]:
    """The texts in a payload, each with its path."""
    if isinstance(value, str):
        yield (), value
    elif isinstance(value, (dict, list)):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in entries:
            yield from (((key, *path), found) for path, found in payload_texts(inner))


def _check_numbers(value: object) -> None:
    inner: list[object] = []
    if isinstance(value, dict):
        inner = [*map(text, value), *value.values()]
    elif isinstance(value, list):
        inner = value
    elif isinstance(value, float) and not math.isfinite(value):
        raise UnfitError(value, "in JSON are finite numbers")
    for each in inner:
        _check_numbers(each)


Payload = Annotated[
    str | dict[str, Any] | list[Any],
    BeforeValidator(payload),
    WithJsonSchema(
        {
            "title": "template, mapping or list",
            "anyOf": [{"type": "string"}, {"type": "object"}, {"type": "array"}],
        }
    ),
]
