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


def test_golden_snapshots_obey_the_schema() -> None:
    jsonschema.validate(stored("golden/snapshot.json"), stored("snapshot.schema.json"))


def test_the_golden_load_obeys_the_schema() -> None:
    jsonschema.validate(stored("golden/offered_load.json"), stored("offered_load.schema.json"))


def test_golden_control_lines_obey_the_schema() -> None:
    schema, golden = stored("control.schema.json"), stored("golden/control.json")
    for line in golden["commands"] + golden["agent_lines"] + golden["reference_lines"]:
        jsonschema.validate(line, schema)
    for line in golden["commands_refused"]:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(line, schema)


def test_golden_plans_obey_the_schema() -> None:
    jsonschema.validate(stored("golden/plan.json"), stored("plan.schema.json"))


def test_unknown_keys_break_the_schema() -> None:
    snapshot = {**stored("golden/snapshot.json"), "mood": "good"}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(snapshot, stored("snapshot.schema.json"))
