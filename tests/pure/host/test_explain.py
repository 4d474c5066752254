"""The engine's answer about the load of a plan, or a clear error."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubstorm.contract.plan import Plan
from pubstorm.errors import BinaryError
from pubstorm.host.binaries import offered_load
from pubstorm.plan import provisional_plan
from pubstorm.scenario import parse_scenario

SCENARIO = "target: mqtt://localhost\npopulations: {NAME: {clients: 1}}\nstages: [connect]\n"


def plan_named(name: str) -> Plan:
    """A plan that no other test asks for: loads are kept."""
    return provisional_plan(parse_scenario(SCENARIO.replace("NAME", name), "some.yaml"))


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo old >&2; exit 2", "--explain: exit code 2: old"),
        (
            """echo '{"kind": "failure", "message": "no such plan", "hint": "h"}'; exit 1""",
            "engine: no such plan",
        ),
        # Control-C in a terminal reaches all processes of its group, which the engine must not be.
        ("test $(ps -o pgid= -p $$) = $$ && echo alone >&2; exit 2", "exit code 2: alone"),
    ],
)
def test_a_failing_engine_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    engine = tmp_path / "engine"
    engine.write_text(f"#!/bin/sh\ncat >/dev/null\n{script}\n")
    engine.chmod(0o755)
    monkeypatch.setenv("PUBSTORM_ENGINE", str(engine))
    with pytest.raises(BinaryError, match=message):
        offered_load(plan_named("failing"))
