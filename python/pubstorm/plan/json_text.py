"""A payload written as a mapping or a list, as the template of its JSON text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pubstorm.template import NUMERIC, Kind, Template, Variable


def json_template(value: object) -> str:
    """The template of a value's JSON. A text that is one variable, and that always a number, is a
    number; every other text a string, in which values of rows are to be escaped by who reads
    them."""
    match value:
        case str():
            return _text(Template.parse(value))
        case Mapping():
            pairs = (f"{_literal(key)}:{json_template(inner)}" for key, inner in value.items())
            return f"{{{{{','.join(pairs)}}}}}"
        case Sequence():
            return f"[{','.join(map(json_template, value))}]"
        case _:
            return json.dumps(value)


def _text(template: Template) -> str:
    variables = template.variables
    if len(template.parts) == 1 and variables and variables[0].kind in NUMERIC:
        return str(variables[0])
    written = (
        str(_escaped_choice(part)) if isinstance(part, Variable) else _literal(part)[1:-1]
        for part in template.parts
    )
    return f'"{"".join(written)}"'


def _escaped_choice(variable: Variable) -> Variable:
    if variable.kind is not Kind.CHOICE:
        return variable
    escaped = (json.dumps(word, ensure_ascii=False)[1:-1] for word in variable.words)
    return replace(variable, words=tuple(escaped))


def _literal(text: str) -> str:
    """A string of JSON, with the braces that a template wants."""
    return json.dumps(text, ensure_ascii=False).replace("{", "{{").replace("}", "}}")
