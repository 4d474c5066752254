"""A whole run with a Redis of its own: its users get in at the embedded broker, others do not, and
nothing of it is left."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pubstorm.topology.started import STARTED_FILE, read_record
from tests.kit.starved import passes

RunMaker = Callable[..., Any]
Gone = Callable[[Sequence[int]], None]
SCENARIO = """
topology:
  services: {redis: {kind: redis, seed: [device]}}
  brokers: {main: {kind: embedded, auth: redis}}
monitors: {interval: 100ms}
populations:
  device:
    clients: 50
    username: "device-{n}"
    password: "secret-{n}"
    publications: [{topic: "up/{n}", rate: 10/s, qos: 1}]
    subscriptions: ["up/{n}"]
  stranger:
    clients: 7
    username: "stranger-{n}"
    password: "secret-{n}"
    reconnect: never
stages: [connect, {publish: 1s}]
thresholds:
  - device.lost == 0
  - device.connected == 50
  - stranger.never_ready == 7
  - redis.keys == 100
"""


@pytest.fixture(autouse=True)
def redis_path() -> None:
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed (scripts/install-test-tools)")


def pids(run: Any) -> list[int]:
    entries = read_record(run.directory / "topology" / STARTED_FILE)
    return [entry.pid for entry in entries if entry.kind == "process"]


def test_users_that_were_written_get_in_and_others_do_not(start: RunMaker, gone: Gone) -> None:
    run = start(SCENARIO)
    code, result = run.finish(), run.result()
    assert passes(code, result), run.stderr
    assert result["populations"]["device"]["outcomes"] == {}
    assert result["populations"]["stranger"]["outcomes"] == {"bad_credentials": 7}
    [service] = result["services"]
    assert (service["name"], service["seeded_rows"], service["died"]) == ("redis", 100, False)
    watched = {each["metric"] for each in result["monitors"] if each["source"] == "redis"}
    assert {"cpu", "rss_bytes", "used_memory_bytes", "keys"} <= watched
    assert any("pubstorm seed" in fact for fact in result["verdict"]["evidence"])
    assert len(pids(run)) == 2
    gone(pids(run))
