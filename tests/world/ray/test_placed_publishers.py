"""A scaled-down scale test of ZeroMQ on a cluster, from one command: publishers on some hosts,
simulated and real subscribers on others, whose clocks are wrong by hours."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.kit.runs import Run
from tests.world.ray.cluster import AHEAD_S, Cluster, Host, until
from tests.world.ray.test_placed_runs import figures, nothing_is_left, stored

pytestmark = pytest.mark.xdist_group("heavy")

RunMaker = Callable[..., Run]

SCALE = """
fleet: {hosts: load}
populations:
  cpp:
    clients: 1
    hosts: broker
    publisher: {kind: libzmq, port: 7100}
    publications: [{topic: "", size: 32B, rate: 200/s}]
  python:
    clients: 1
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
thresholds:
  # A clock that is wrong by an hour would show.
  - subscriber/rest.latency.max < 60s
  - real.latency.max < 60s
  - reader.latency.max < 60s
  - cpp.skipped < 500
  - python.skipped < 500
"""


@pytest.mark.slow("a run on a Ray cluster")
def test_publishers_and_subscribers_are_on_hosts_of_their_own(
    start: RunMaker, cluster: Cluster
) -> None:
    run = start(SCALE)
    assert run.finish() == 0, run.stderr
    result = stored(run)
    publisher_host, real_host, load_host = (host.address for host in cluster.hosts[1:])
    cpp, python = result["publishers"]
    assert (cpp["host"], cpp["address"]) == (publisher_host, f"{publisher_host}:7100")
    assert (python["host"], python["clock"]) == ("", None)
    assert cpp["clock"]["offset_us"] == pytest.approx(-AHEAD_S[2] * 1e6, abs=1e6)
    agents = [(agent["host"], agent["clients"]) for agent in result["fleet"]["agents"]]
    assert sorted(agents) == [("", 10), (real_host, 3), (load_host, 5), (load_host, 10)]
    assert 0 < result["fleet"]["clock_bound_us"] < 1e5
    sent = {publisher["name"]: publisher["sent_total"] for publisher in result["publishers"]}
    due = {"subscriber/rest": 18 * sent["cpp"], "real": 3 * sent["cpp"]}
    due["reader"] = 5 * sent["python"]
    assert min(sent.values()) > 0
    received = {name: each["received_total"] for name, each in result["populations"].items()}
    assert {name: received[name] for name in due} == due
    assert {"cpu", "rss_bytes", "thread_cpu_max"} <= figures(result, "cpp").keys()
    assert figures(result, "cpp")["rss_bytes"]["max"] > 1e6
    assert "cpu" in figures(result, f"host-{publisher_host}")
    nothing_is_left(cluster)


@contextmanager
def taken(host: Host, port: int) -> Iterator[None]:
    """Takes a port of a host."""
    code = f"import socket; s = socket.create_server(('', {port})); input()"
    words = host.within(sys.executable, "-c", code)
    with subprocess.Popen(words, stdin=subprocess.PIPE) as process:
        until(lambda: host.listens(port), 10, "the listener")
        yield
        process.communicate(b"\n")


@pytest.mark.slow("a run on a Ray cluster")
def test_a_port_that_is_taken_there_is_named(start: RunMaker, cluster: Cluster) -> None:
    with taken(cluster.hosts[1], 7100):
        run = start(SCALE)
        assert run.finish() == 3
    there = cluster.hosts[1].address
    assert f"publisher cpp on {there}" in run.stderr
    assert f"cannot listen at tcp://{there}:7100: Address already in use" in run.stderr
    assert "hint: another program listens there: end it, or name another port" in run.stderr
    nothing_is_left(cluster)
