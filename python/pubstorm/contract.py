"""The JSON Schemas of what agents say and what a run leaves: control, snapshot and result. They
are generated from the models; it knows nothing of their use."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pydantic import BaseModel, TypeAdapter

from pubstorm.control import BeatAnswer, Bye, Command, Failure, Hello, ReferenceHello
from pubstorm.descriptions import Described
from pubstorm.result import Result, SearchResult, Series
from pubstorm.snapshot import Snapshot

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def control_schema() -> dict[str, Any]:
    """A line between conductor and agent other than plan and snapshot."""
    said = Hello | ReferenceHello | BeatAnswer | Failure | Bye
    lines: TypeAdapter[object] = TypeAdapter(Command | said)
    title = "A line between conductor and agent, other than plan and snapshot"
    schema = lines.json_schema(mode="serialization", schema_generator=Described)
    return {"$schema": DRAFT, "title": title, **schema}


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of a line or file that holds one model."""
    schema = model.model_json_schema(mode="serialization", schema_generator=Described)
    return {"$schema": DRAFT, **schema}


SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "control.schema.json": control_schema,
    "snapshot.schema.json": partial(schema_of, Snapshot),
    "result.schema.json": partial(schema_of, Result),
    "series.schema.json": partial(schema_of, Series),
    "search.schema.json": partial(schema_of, SearchResult),
}
"""How each file in `contract/` is made."""
