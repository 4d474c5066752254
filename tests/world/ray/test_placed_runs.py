"""Whole runs on a cluster, each from one command: brokers, publishers and agents on hosts that the
scenario names. The clocks of hosts differ by hours, and one is too fast."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pubstorm.host.children import find
from tests.kit.runs import Run
from tests.kit.starved import passes
from tests.world.ray.cluster import AHEAD_S, DRIFT_PPB, MARKS, Cluster

pytestmark = MARKS

RunMaker = Callable[..., Run]
Result = Mapping[str, Any]

KINDS = ("main", "own")
SENT = 6 * 5 * 4
"""Messages to each of these brokers in one step."""
SERIES = """
topology:
  brokers:
    main: {kind: mosquitto, hosts: broker}
    own: {kind: embedded, hosts: broker}
    boxes: {kind: mosquitto, count: 4, hosts: broker}
  bridges:
    uplink: {from: boxes, to: main, topics: [{topic: box/#, direction: out, qos: 1}]}
fleet: {hosts: load}
populations:
  to-main: {clients: 6, at: main, publications: &up [{topic: "up/{n}", rate: 5/s, qos: 1}]}
  to-own: {clients: 6, at: own, publications: *up}
  to-boxes: {clients: 4, at: boxes, publications: [{topic: "box/{n}", rate: 5/s, qos: 1}]}
  of-main: {clients: 2, at: main, subscriptions: &all [{topic: "up/#", qos: 1}]}
  of-own: {clients: 2, at: own, subscriptions: *all}
  of-boxes: {clients: 1, at: main, subscriptions: [{topic: "box/#", qos: 1}]}
stages:
  - connect
  - publish: {for: 4s, faults: [{at: 1s, freeze: main, for: 1s}]}
  - disconnect
monitors: {interval: 500ms}
# Left out there: perf is on the controller's host.
profile: {for: 1s}
table:
  overall CPU: main.host.cpu
  both: boxes.host.cpu
  own: host.cpu
  clients: main.$SYS/clients/total.max
sweep:
  broker: same
  pause: 0s
  steps: [{populations.of-boxes.clients: 1}, {populations.of-boxes.clients: 2}]
"""
RABBITS = """
topology:
  brokers: {node: {kind: rabbitmq, count: 2, cluster: true, passwords: true, hosts: broker}}
fleet: {hosts: load}
populations:
  device: {clients: 4, publications: [{topic: "up/{n}", rate: 5/s}]}
  backend: {clients: 2, subscriptions: ["up/#"]}
stages: [connect, publish: 3s, disconnect]
"""
SPREAD = """
target: {broker}
fleet: {{agents: 3}}
populations:
  device:
    clients: 100
    publications: [{{topic: "up/{{n}}", rate: 1/s, qos: 1}}]
    subscriptions: ["down/{{n}}"]
  mobile:
    clients: 100
    first: 1
    publications: [{{topic: "down/{{n}}", rate: 0.5/s}}]
    subscriptions: [{{topic: "up/{{n}}", qos: 1}}]
  backend:
    clients: 2
    subscriptions: [{{topic: "up/#", qos: 1}}]
stages: [connect: {{rate: 1000/s}}, publish: 4s, disconnect: {{}}]
"""
ZEROMQ = """
fleet: {hosts: load}
populations:
  cpp:
    clients: 1
    hosts: broker
    publisher: {kind: libzmq, port: 7100}
    publications: [{topic: "", size: 32B, rate: 200/s}]
  python:
    clients: 1
    # Left out: it is on the controller's host.
    hosts: broker
    publisher: pyzmq
    publications: [{topic: "", size: 32B, rate: 100/s}]
  subscriber:
    clients: 20
    at: cpp
    subscriptions: [""]
    shares: {moving: {part: 10%, lifetime: {rate: 2/s, offline: 0s}}}
  real: {clients: 3, at: cpp, subscriber: libzmq, hosts: 10.77.0.3, subscriptions: [""]}
  reader: {clients: 5, at: python, hosts: 10.77.0.4, subscriptions: [""]}
stages: [connect: {}, publish: 3s, disconnect: {}]
drain: 1s
"""
MINUTE_US = 60e6
"""A clock that is wrong by an hour would show."""


@dataclass(frozen=True)
class Played:
    """Results of runs that ended as they should."""

    steps: list[Any]
    """Steps of the series, whose brokers are on hosts of the cluster."""
    spread: Any
    """A run with an agent on each of three hosts, and a broker of the tests."""
    rabbits: Any
    """A run with a cluster of RabbitMQ over two hosts."""
    zeromq: Any
    """A run with publishers of ZeroMQ."""


@pytest.fixture(scope="module")
def played(shared_start: RunMaker, broker: str, nodes: Cluster) -> Played:
    """Plays the runs, side by side."""
    if find("rabbitmq-server") is None:
        pytest.skip("rabbitmq-server is not installed (scripts/install-test-tools)")
    scenarios = (SERIES, SPREAD.format(broker=broker), RABBITS, ZEROMQ)
    series, *others = [shared_start(scenario) for scenario in scenarios]
    series.finish()
    steps = [stored(step) for step in sorted(series.directory.glob("steps/*/result.json"))]
    assert len(steps) == 2, series.stderr
    for step in steps:
        assert passes(0 if step["verdict"]["status"] == "pass" else 3, step), step["verdict"]
    codes = [run.finish() for run in others]
    results = [stored(run.directory / "result.json") for run in others]
    for code, result in zip(codes, results, strict=True):
        assert passes(code, result), result["verdict"]
    nodes.until_clean()
    return Played(steps, *results)


def stored(path: Path) -> Any:
    return json.loads(path.read_text())


def figures(result: Result, source: str) -> dict[str, Any]:
    return {w["metric"]: w["whole"] for w in result["monitors"] if w["source"] == source}


def hosts_of(result: Result) -> list[str]:
    return [agent["host"] for agent in result["fleet"]["agents"]]


@pytest.mark.slow("a series and three runs on a Ray cluster, one with nodes of RabbitMQ")
def test_brokers_on_hosts_of_a_label_carry_the_load_of_others(
    played: Played, nodes: Cluster
) -> None:
    first, second = ({b["name"]: (b["host"], b["pid"]) for b in r["brokers"]} for r in played.steps)
    assert first == second
    one, other = (host.address for host in nodes.hosts[1:3])
    on = {name: host for name, (host, _) in first.items()}
    assert (on["main-0"], on["own-0"]) == (one, one)
    assert [on[f"boxes-{n}"] for n in range(4)] == [one, other] * 2
    for result, readers in zip(played.steps, (1, 2), strict=True):
        assert set(hosts_of(result)) == {"", nodes.hosts[3].address}
        assert not any(broker["died"] for broker in result["brokers"])
        assert [bridges["up"] for bridges in result["bridges"]] == [4]
        assert [fault["kind"] for fault in result["faults"]] == ["freeze"]
        assert result["faults"][0]["repaired_at_s"] is not None
        populations = result["populations"]
        received = {name: each["received_total"] for name, each in populations.items()}
        assert [received[f"of-{name}"] for name in KINDS] == [2 * SENT] * len(KINDS)
        assert received["of-boxes"] == readers * 4 * 5 * 4
        assert not any(each["lost_total"] for each in populations.values())


def test_brokers_and_hosts_elsewhere_are_monitored(played: Played, nodes: Cluster) -> None:
    for result in played.steps:
        for source in ("main-0", "own-0"):
            found = figures(result, source)
            assert {"cpu", "rss_bytes", "threads", "descriptors"} <= found.keys()
            assert found["rss_bytes"]["max"] > 1e6
        assert any("$SYS" in metric for metric in figures(result, "main-0"))
        for host in nodes.hosts[1:]:
            found = figures(result, f"host-{host.address}")
            assert 0 <= found["cpu"]["max"] <= 1
            assert found["net_received_bytes_per_s"]["max"] > 0


def test_figures_of_the_host_of_a_broker_are_of_that_host(played: Played, nodes: Cluster) -> None:
    one, other = (f"host-{host.address}" for host in nodes.hosts[1:3])
    for result in played.steps:
        cpu = {
            w["source"]: w["load"]["mean"]
            for w in result["monitors"]
            if w["kind"] == "host" and w["metric"] == "cpu"
        }
        found = {heading: cell["value"] for heading, cell in result["table"].items()}
        assert found["overall CPU"] == pytest.approx(cpu[one])
        assert found["both"] == pytest.approx(max(cpu[one], cpu[other]))
        assert found["own"] == pytest.approx(cpu["host"])
        assert found["clients"] >= 6


def test_what_only_the_controllers_host_can_do_is_left_out_with_a_word(played: Played) -> None:
    for result, word in ((played.steps[0], "profile: "), (played.zeromq, "populations.python.")):
        assert result["profile"] is None
        texts = [each["text"] for each in result["events"] if each["kind"] == "host"]
        assert [text for text in texts if text.startswith(f"left out: {word}")]
        assert any(f"left out: {word}" in text for text in result["verdict"]["evidence"])


def test_nodes_of_rabbitmq_form_a_cluster_over_two_hosts(played: Played, nodes: Cluster) -> None:
    hosts = [broker["host"] for broker in played.rabbits["brokers"]]
    assert hosts == [host.address for host in nodes.hosts[1:3]]
    backend = played.rabbits["populations"]["backend"]
    assert (backend["received_total"], backend["lost_total"]) == (2 * 4 * 15, 0)


def test_clients_on_three_hosts_count_as_on_one(played: Played, nodes: Cluster) -> None:
    result = played.spread
    assert hosts_of(result) == [host.address for host in nodes.hosts[1:]]
    # Clients 1 to 99 of both populations have a partner.
    for name, clients, sent, acked, received in (
        ("device", 100, 400, 400, 2 * 99),
        ("mobile", 100, 200, 0, 4 * 99),
        ("backend", 2, 0, 0, 2 * 400),
    ):
        found = result["populations"][name]
        assert found["connected_max"] == found["connected_total"] == clients
        assert (found["sent_total"], found["acked_total"]) == (sent, acked)
        assert found["received_total"] == found["expected_total"] == received
        assert (found["lost_total"], found["duplicate_total"]) == (0, 0)


def knows_the_time(clock: Mapping[str, float], number: int) -> None:
    """Checks that the truth is within the bounds: the kernel offsets the clocks of hosts."""
    assert 0 < clock["bound_us"] < MINUTE_US
    if number in AHEAD_S:
        assert abs(clock["offset_us"] + AHEAD_S[number] * 1e6) <= clock["bound_us"]


def test_agents_know_the_time_on_hosts_whose_clocks_are_wrong(
    played: Played, nodes: Cluster
) -> None:
    result = played.spread
    clocks = {agent["host"]: agent["clock"] for agent in result["fleet"]["agents"]}
    for host in nodes.hosts[1:]:
        knows_the_time(clocks[host.address], host.number)
    (fast,) = DRIFT_PPB
    slowest = min(clocks, key=lambda address: clocks[address]["drift_ppm"])
    assert slowest == nodes.hosts[fast - 1].address
    bound_us = result["fleet"]["clock_bound_us"]
    two = sorted(clock["bound_us"] for clock in clocks.values())[-2:]
    assert bound_us == pytest.approx(sum(two))
    for population in result["populations"].values():
        latency = population["latency_us"]["intended"]
        assert latency["bound_us"] == bound_us
        assert latency["max"] < MINUTE_US
        assert latency["count"] + latency["negative_total"] > 0
        assert latency["negative_total"] == 0 or latency["min"] <= bound_us


def test_publishers_and_subscribers_are_on_hosts_of_their_own(
    played: Played, nodes: Cluster
) -> None:
    result = played.zeromq
    publisher_host, real_host, load_host = (host.address for host in nodes.hosts[1:])
    cpp, python = result["publishers"]
    assert (cpp["host"], cpp["address"]) == (publisher_host, f"{publisher_host}:7100")
    assert (python["host"], python["clock"]) == ("", None)
    knows_the_time(cpp["clock"], 2)
    agents = [(agent["host"], agent["clients"]) for agent in result["fleet"]["agents"]]
    assert sorted(agents) == [("", 10), (real_host, 3), (load_host, 5), (load_host, 10)]
    sent = {publisher["name"]: publisher["sent_total"] for publisher in result["publishers"]}
    assert min(sent.values()) > 0
    for name, scheduled in (
        ("subscriber/rest", 18 * sent["cpp"]),
        ("real", 3 * sent["cpp"]),
        ("reader", 5 * sent["python"]),
    ):
        assert result["populations"][name]["received_total"] == scheduled
        assert result["populations"][name]["latency_us"]["intended"]["max"] < MINUTE_US
    assert {"cpu", "rss_bytes", "thread_cpu_max"} <= figures(result, "cpp").keys()
    assert figures(result, "cpp")["rss_bytes"]["max"] > 1e6
    assert "cpu" in figures(result, f"host-{publisher_host}")


@pytest.mark.parametrize("spoilt", ["keys", "token"])
def test_a_node_that_may_not_join_is_refused(
    spoilt: str, start: RunMaker, broker: str, cluster: Cluster, tmp_path: Path
) -> None:
    environment, needed = cluster.head.environment, ["RAY_AUTH_MODE", "RAY_USE_TLS"]
    if spoilt == "keys":
        kept = {name: text for name, text in environment.items() if not name.startswith("RAY_")}
        environment = {**kept, "HOME": str(tmp_path)}
    else:
        (tmp_path / "token").write_text("0123456789abcdef" * 4)
        environment["RAY_AUTH_TOKEN_PATH"] = str(tmp_path / "token")
        needed = ["RAY_AUTH_TOKEN_PATH"]
    run = start(SPREAD.format(broker=broker), environment=environment)
    assert run.finish() == 3
    assert all(name in run.stderr for name in needed), run.stderr
