"""The docstrings of fields, for the JSON Schemas and the reference. They are read when they are
asked for: to read them while the models are made took half of the time that a command starts in."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from types import ModuleType

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema


class Described(GenerateJsonSchema):
    """Makes JSON Schemas in which each field has its docstring as description."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Returns the schema of a model, with descriptions."""
        made = super().model_schema(schema)
        model: type[BaseModel] = schema["cls"]
        for name, description in descriptions(model).items():
            key = model.model_fields[name].alias or name
            property_ = made["properties"].get(key)
            if property_ is not None:
                property_.setdefault("description", description)
        return made


def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Returns the docstrings of a model's fields, also of those that it inherits, by name."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        found |= _docstrings(sys.modules[base.__module__]).get(base.__qualname__, {})
    return {name: text for name, text in found.items() if name in model.model_fields}


@cache
def _docstrings(module: ModuleType) -> dict[str, dict[str, str]]:
    """Returns the docstrings of all fields of a module's classes, by class and name."""
    if not module.__name__.startswith("pubstorm."):
        return {}
    tree = ast.parse(inspect.getsource(module))
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    return {each.name: dict(_fields(each)) for each in classes}


def _fields(of: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for pair in zip(of.body, of.body[1:], strict=False):
        match pair:
            case (
                ast.AnnAssign(target=ast.Name(name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, inspect.cleandoc(text)
