"""Services in a scenario: demands on brokers and populations, checked before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubstorm.errors import ScenarioError
from pubstorm.host.keys.clients import check_host_files
from pubstorm.plan import provisional_plan
from pubstorm.scenario import load_scenario, parse_scenario
from tests.pure.scenario.bases import SERVED, changed

USERS = "topology.services.users"
AUTH = "topology.brokers.main.auth"


def test_a_target_elsewhere_takes_no_services() -> None:
    text = changed(SERVED, f"{AUTH}: users, thresholds: null")
    assert parse_scenario(text, "s.yaml", target="mqtt://h").topology.services == {}


def test_the_program_is_looked_at_before_a_run(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(changed(SERVED, f"{USERS}: {{kind: redis, binary: own/redis}}"))
    scenario = load_scenario(path)
    with pytest.raises(ScenarioError, match=r"topology\.services\.users\.binary"):
        check_host_files(scenario, provisional_plan(scenario))
