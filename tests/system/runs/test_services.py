"""Whole runs with a Redis of their own: its users get in at the embedded broker, others do not, and
nothing of it is left, however the run ends."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pubstorm.topology.started import STARTED_FILE, read_record

RunMaker = Callable[..., Any]
Gone = Callable[[Sequence[int]], None]
SCENARIO = """
topology:
  services: {{redis: {{kind: redis, seed: [device]}}}}
  brokers: {{main: {{kind: embedded, auth: redis}}}}
monitors: {{interval: 100ms}}
populations:
  device:
    clients: 50
    username: "device-{{n}}"
    password: "secret-{{n}}"
    publications: [{{topic: "up/{{n}}", rate: 10/s, qos: 1}}]
    subscriptions: ["up/{{n}}"]
  stranger:
    clients: 7
    username: "stranger-{{n}}"
    password: "secret-{{n}}"
    reconnect: never
stages: [connect, {{publish: {time}}}]
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
    run = start(SCENARIO.format(time="1s"))
    assert run.finish() == 0, run.stderr
    result = run.result()
    assert result["populations"]["device"]["outcomes"] == {}
    assert result["populations"]["stranger"]["outcomes"] == {"bad_credentials": 7}
    [service] = result["services"]
    assert (service["name"], service["seeded_rows"], service["died"]) == ("redis", 100, False)
    watched = {each["metric"] for each in result["monitors"] if each["source"] == "redis"}
    assert {"cpu", "rss_bytes", "used_memory_bytes", "keys"} <= watched
    assert any("pubstorm seed" in fact for fact in result["verdict"]["evidence"])
    assert len(pids(run)) == 2
    gone(pids(run))


def test_a_redis_that_dies_fails_the_run(start: RunMaker, gone: Gone) -> None:
    run = start(SCENARIO.format(time="3s"))
    run.wait_for("publish")
    os.kill(pids(run)[0], signal.SIGKILL)
    assert run.finish() == 1
    result = run.result()
    assert result["services"][0]["died"]
    assert any("service redis (pid" in event["text"] for event in result["events"])
    gone(pids(run))


def test_nothing_is_left_of_a_run_that_is_killed(start: RunMaker, gone: Gone) -> None:
    run = start(SCENARIO.format(time="60s"))
    run.wait_for("publish")
    os.kill(run.process.pid, signal.SIGKILL)
    run.process.wait()
    gone(pids(run))
