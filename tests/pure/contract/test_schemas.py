"""The JSON Schemas in `contract/` are valid, and what both sides write obeys them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

CONTRACT = Path(__file__).parents[3] / "contract"
SCHEMAS = [path.name for path in sorted(CONTRACT.glob("*.schema.json"))]


def stored(file: str) -> Any:
    return json.loads((CONTRACT / file).read_text())


@pytest.mark.parametrize("file", SCHEMAS)
def test_the_stored_schema_is_a_schema(file: str) -> None:
    jsonschema.Draft202012Validator.check_schema(stored(file))


@pytest.mark.parametrize("name", ["snapshot", "offered_load", "plan"])
def test_a_golden_document_obeys_its_schema(name: str) -> None:
    jsonschema.validate(stored(f"golden/{name}.json"), stored(f"{name}.schema.json"))


def test_golden_control_lines_obey_the_schema() -> None:
    schema, golden = stored("control.schema.json"), stored("golden/control.json")
    for line in golden["commands"] + golden["agent_lines"] + golden["reference_lines"]:
        jsonschema.validate(line, schema)
    for line in golden["commands_refused"]:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(line, schema)


def test_unknown_keys_break_the_schema() -> None:
    snapshot = {**stored("golden/snapshot.json"), "mood": "good"}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(snapshot, stored("snapshot.schema.json"))
