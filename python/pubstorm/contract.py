"""The JSON Schemas of what agents say and what a run leaves: control, snapshot and result. They
are generated from the models; it knows nothing of their use."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from pubstorm.control import BeatAnswer, Bye, Command, Failure, Hello, ReferenceHello
from pubstorm.result import Result, SearchResult, Series
from pubstorm.snapshot import Snapshot

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def control_schema() -> dict[str, Any]:
    """A line between conductor and agent other than plan and snapshot."""
    said = Hello | ReferenceHello | BeatAnswer | Failure | Bye
    lines: TypeAdapter[object] = TypeAdapter(Command | said)
    title = "A line between conductor and agent, other than plan and snapshot"
    return {"$schema": DRAFT, "title": title, **lines.json_schema(mode="serialization")}


def snapshot_schema() -> dict[str, Any]:
    """A snapshot line."""
    return {"$schema": DRAFT, **Snapshot.model_json_schema(mode="serialization")}


def result_schema() -> dict[str, Any]:
    """`result.json`."""
    return {"$schema": DRAFT, **Result.model_json_schema(mode="serialization")}


def series_schema() -> dict[str, Any]:
    """`series.json`."""
    return {"$schema": DRAFT, **Series.model_json_schema(mode="serialization")}


def search_schema() -> dict[str, Any]:
    """`search.json`."""
    return {"$schema": DRAFT, **SearchResult.model_json_schema(mode="serialization")}


SCHEMAS = {
    "control.schema.json": control_schema,
    "snapshot.schema.json": snapshot_schema,
    "result.schema.json": result_schema,
    "series.schema.json": series_schema,
    "search.schema.json": search_schema,
}
"""How each file in `contract/` is made."""
