"""Services in a scenario: demands on brokers and populations, checked before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubstorm.errors import ScenarioError
from pubstorm.host.files import check_host_files
from pubstorm.plan import provisional_plan
from pubstorm.scenario import load_scenario, parse_scenario

SCENARIO = """\
topology:
  services: {{{services}}}
  brokers: {{main: {{kind: embedded, port: 2000, count: 2{auth}}}}}
populations:
  device: {{clients: 2{user}}}
  backend: {{clients: 1}}
thresholds: [users.keys > 1, users.cpu < 90%, users.used_memory.max < 900MB]
stages: [connect]
"""
USER = ', username: "d{n}", password: p'


def problems(services: str, auth: str = "", user: str = USER) -> list[str]:
    written = SCENARIO.format(services=services, auth=auth and f", auth: {auth}", user=user)
    if "users" not in services:
        written = written.replace("users.", "main.").replace("main.keys > 1, ", "")
        written = written.replace(", main.used_memory.max < 900MB", "")
    try:
        parse_scenario(written, "s.yaml")
    except ScenarioError as error:
        return [str(problem) for problem in error.problems]
    return []


@pytest.mark.parametrize(
    ("services", "auth"),
    [
        ("users: redis", ""),
        ("users: redis", "users"),
        ("users: {kind: redis, seed: [device]}", "users"),
        ("users: {kind: redis, seed: false, port: 1999, settings: {maxmemory: 1gb}}", "users"),
        ("", "redis://localhost:6379/0"),
    ],
)
def test_what_fits_together_is_taken(services: str, auth: str) -> None:
    assert problems(services, auth) == []


@pytest.mark.parametrize(
    ("services", "auth", "user", "problem"),
    [
        ("users: redis", "user", USER, "brokers.main.auth: found 'user', allowed are the services"),
        ("", "users", USER, "(none, since there are no services)"),
        ("users: redis", "http://a", USER, "and redis://HOST:PORT/DB"),
        ("users: valkey", "", USER, "services.users: found 'valkey', allowed is 'redis'"),
        ("users: redis, main-1: redis", "", USER, "found the service 'main-1', which may also be"),
        ("users: redis, device: redis", "", USER, "which is also a service"),
        ("users: {kind: redis, port: 2001}", "", USER, "found port 2001 also for main"),
        ("users: redis", "users", "", "found no user names in the populations device, backend"),
        ("users: redis", "users", ", username: a", "device.username: found a user name without a"),
        ("users: {kind: redis, seed: [devices]}", "", USER, "did you mean device"),
        ("users: {kind: redis, seed: yes}", "", USER, "allowed are true, false and a list"),
        ("users: {kind: redis, settings: {a: {b: 1}}}", "", USER, "settings"),
    ],
)
def test_what_does_not_is_reported(services: str, auth: str, user: str, problem: str) -> None:
    found = problems(services, auth, user)
    if problem.startswith("did you mean"):
        assert "unknown population 'devices'" in found[0]
    else:
        assert problem in found[0], found


def test_a_target_elsewhere_takes_no_services() -> None:
    text = SCENARIO.format(services="users: redis", auth=", auth: users", user=USER)
    text = text.replace("thresholds", "# thresholds")
    assert parse_scenario(text, "s.yaml", target="mqtt://h").topology.services == {}


def test_the_program_is_looked_at_before_a_run(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    services = "users: {kind: redis, binary: own/redis}"
    path.write_text(SCENARIO.format(services=services, auth="", user=USER))
    scenario = load_scenario(path)
    with pytest.raises(ScenarioError, match=r"topology\.services\.users\.binary"):
        check_host_files(scenario, provisional_plan(scenario))
