"""Generated files are current, and fit the things that they describe."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from docs.generate import generated

ROOT = Path(__file__).parents[3]
SCENARIOS = sorted((ROOT / "scenarios").glob("*.yaml"))


GENERATED = generated()
SCHEMA = json.loads(GENERATED["contract/scenario.schema.json"])


@pytest.mark.parametrize("path", GENERATED)
def test_what_is_generated_is_current(path: str) -> None:
    assert (ROOT / path).read_text(encoding="utf-8") == GENERATED[path], "run: make docs"


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.stem)
def test_shipped_scenarios_fit_the_schema(file: Path) -> None:
    jsonschema.validate(yaml.safe_load(file.read_text()), SCHEMA)


@pytest.mark.parametrize(
    "part",
    [
        {"stages": ["connect", {"publish": "5s"}, {"hold": {"for": "5s"}}, {"disconnect": None}]},
        {"populations": {"d": {"clients": 5, "reconnect": "never", "subscriptions": ["a/#"]}}},
        {"populations": {"d": {"clients": "5k", "reconnect": {"after": "1s"}, "will": None}}},
        {"sources": "auto", "target": ["mqtt://a", "mqtt://b"]},
    ],
)
def test_the_schema_takes_what_the_parser_takes(part: dict[str, object]) -> None:
    whole = {"populations": {"d": {"clients": 1}}, **part}
    jsonschema.validate(whole, SCHEMA)


@pytest.mark.parametrize(
    "part",
    [
        {"stage": []},
        {"stages": [{"connect": {}, "hold": "5s"}]},
        {"stages": [{"wait": "5s"}]},
        {"populations": {"d": {"clients": 5, "reconnect": "soon"}}},
        {"populations": {"d": {"publications": []}}},
    ],
)
def test_the_schema_refuses_what_the_parser_refuses(part: dict[str, object]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"populations": {"d": {"clients": 1}}, **part}, SCHEMA)
