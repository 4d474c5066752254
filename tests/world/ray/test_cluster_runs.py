"""Whole runs on a cluster: the same numbers as on one host.

Clocks differ by hours, and one runs too fast. Impossible plans are refused in words, and no secret
is printed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.kit.runs import Run
from tests.world.ray.cluster import AHEAD_S, DRIFT_PPB, Cluster

pytestmark = pytest.mark.xdist_group("heavy")

RunMaker = Callable[..., Run]

THOUSANDS = """
target: {broker}
populations:
  device:
    clients: 1000
    publications: [{{topic: "up/{{n}}", rate: 1/s, qos: 1}}]
    subscriptions: ["down/{{n}}"]
  mobile:
    clients: 1000
    first: 1
    publications: [{{topic: "down/{{n}}", rate: 0.5/s}}]
    subscriptions: [{{topic: "up/{{n}}", qos: 1}}]
  backend:
    clients: 2
    subscriptions: [{{topic: "up/#", qos: 1}}]
stages: [connect: {{rate: 1000/s}}, publish: 4s, disconnect: {{}}]
"""
COUNTS = (
    "connected_max",
    "connected_total",
    "sent_total",
    "acked_total",
    "expected_total",
    "received_total",
    "lost_total",
    "duplicate_total",
)
LITTLE = """
target: {broker}
populations:
  device: {{clients: 6, publications: [{{topic: "up/{{n}}", rate: 5/s}}]}}
stages: [connect, publish: 60s]
"""


def stored(run: Run) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((run.directory / "result.json").read_text())
    return result


def counts(result: Mapping[str, Any]) -> dict[tuple[str, str], object]:
    populations = result["populations"]
    return {(name, key): populations[name][key] for name in populations for key in COUNTS}


@pytest.mark.slow("a Ray cluster of three hosts starts, for two runs")
def test_two_thousand_clients_count_the_same_on_one_host_and_on_three(
    start: RunMaker, broker: str, cluster: Cluster
) -> None:
    scenario = THOUSANDS.format(broker=broker)
    local = start(scenario, "--set", "fleet.agents=3", on="local")
    assert local.finish() == 0, local.stderr
    spread = start(scenario, "--set", "fleet.agents=3")
    assert spread.finish() == 0, spread.stderr
    alone, apart = stored(local), stored(spread)
    assert counts(apart) == counts(alone)
    assert apart["populations"]["device"]["connected_max"] == 1000
    assert apart["populations"]["device"]["sent_total"] == 4000
    assert apart["populations"]["backend"]["received_total"] == 2 * 4000
    assert not any(apart["populations"][name]["lost_total"] for name in apart["populations"])
    hosts = [agent["host"] for agent in apart["fleet"]["agents"]]
    assert hosts == [host.address for host in cluster.hosts[1:]]
    assert alone["fleet"]["clock_bound_us"] == 0
    agents_know_the_time(apart, cluster)


def agents_know_the_time(result: Mapping[str, Any], cluster: Cluster) -> None:
    """Checks the bounds of the clocks: the kernel offsets the clocks of pretended hosts."""
    clocks = {agent["host"]: agent["clock"] for agent in result["fleet"]["agents"]}
    for host in cluster.hosts[1:]:
        clock = clocks[host.address]
        assert 0 < clock["bound_us"] < 100_000
        if host.number in AHEAD_S:
            truth_us = -AHEAD_S[host.number] * 1e6
            assert abs(clock["offset_us"] - truth_us) <= clock["bound_us"]
        if host.number in DRIFT_PPB:
            assert clock["drift_ppm"] == pytest.approx(-DRIFT_PPB[host.number] / 1000, abs=30)
    two = sorted(clock["bound_us"] for clock in clocks.values())[-2:]
    bound_us = result["fleet"]["clock_bound_us"]
    assert bound_us == pytest.approx(sum(two))
    for name in ("device", "mobile", "backend"):
        latency = result["populations"][name]["latency_us"]["intended"]
        assert latency["bound_us"] == bound_us
        assert latency["max"] < 60e6
        assert latency["count"] + latency["negative_total"] > 0
        assert latency["negative_total"] == 0 or latency["min"] <= bound_us


def test_more_agents_than_hosts_are_refused_by_the_names_of_the_hosts(
    start: RunMaker, broker: str, cluster: Cluster
) -> None:
    run = start(LITTLE.format(broker=broker), "--set", "fleet.agents=5")
    assert run.finish() == 3
    for host in cluster.hosts[1:]:
        assert f"{host.address} (2 cores)" in run.stderr
    assert "hint: " in run.stderr


@pytest.fixture
def environment(cluster: Cluster) -> dict[str, str]:
    """Of a run on the head, to be spoilt."""
    return cluster.head.environment


def test_a_node_without_keys_is_refused(
    start: RunMaker, broker: str, environment: dict[str, str], tmp_path: Path
) -> None:
    bare = {name: text for name, text in environment.items() if not name.startswith("RAY_")}
    run = start(LITTLE.format(broker=broker), environment={**bare, "HOME": str(tmp_path)})
    assert run.finish() == 3
    assert "RAY_AUTH_MODE must be token" in run.stderr
    assert "RAY_USE_TLS must be 1" in run.stderr
    assert "hint: pubstorm ray-keys" in run.stderr


def test_a_wrong_token_is_refused(
    start: RunMaker, broker: str, environment: dict[str, str], tmp_path: Path
) -> None:
    wrong = tmp_path / "token"
    wrong.write_text("0123456789abcdef" * 4)
    run = start(
        LITTLE.format(broker=broker),
        environment={**environment, "RAY_AUTH_TOKEN_PATH": str(wrong)},
    )
    assert run.finish() == 3
    assert "refused the token" in run.stderr, run.stderr
    assert "RAY_AUTH_TOKEN_PATH" in run.stderr


def test_a_terminated_run_drains_and_has_printed_no_secret(
    start: RunMaker, broker: str, cluster: Cluster
) -> None:
    run = start(LITTLE.format(broker=broker), "--set", "fleet.agents=2")
    run.wait_for_stage("publish")
    agents = [psutil.Process(pid) for pids in cluster.engines().values() for pid in pids]
    (clock_key,) = {agent.environ()["PUBSTORM_CLOCK_KEY"] for agent in agents}
    processes = [each for host in cluster.hosts for each in host.processes()]
    said = [" ".join(process.cmdline()) for process in processes]
    run.process.terminate()
    assert run.finish() == 130
    result = stored(run)
    device = result["populations"]["device"]
    assert device["sent_total"] > 0
    assert [agent["ending"] for agent in result["fleet"]["agents"]] == ["bye", "bye"]
    said += [run.stderr, run.stdout]
    said += [path.read_text("latin-1") for path in run.directory.rglob("*") if path.is_file()]
    for secret in (*secrets_of(cluster), clock_key):
        assert not [text for text in said if secret in text]


def secrets_of(cluster: Cluster) -> list[str]:
    """Tokens, and the second line of each key."""
    keys = cluster.folder / "keys"
    return [
        *(path.read_text() for path in keys.rglob("token")),
        *(path.read_text().splitlines()[1] for path in keys.rglob("*.key")),
    ]
