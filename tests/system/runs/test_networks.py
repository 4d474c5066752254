"""Small brokers in a network of their own, in whole runs: what crosses its link, what an unplugged
one does, and that nothing of it is left."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from pathlib import Path

import psutil
import pytest

from pubstorm.host.preflight.host import NetworkHost
from pubstorm.topology.bridges.network import NAMESPACES, RANGE, outer_ends
from pubstorm.topology.started import STARTED_FILE, read_record
from tests.kit import program
from tests.kit.runs import RunMaker
from tests.kit.serving import until
from tests.system.runs.underway import change, end_stage, until_sampled, values

HOST = NetworkHost.here(("netem", "tbf"))
HAS = HOST.disciplines or frozenset()

pytestmark = [
    pytest.mark.xdist_group("networks"),
    pytest.mark.skipif(
        not HOST.makes_namespaces or "tbf" not in HAS,
        reason="this host or user makes no network namespaces with tbf",
    ),
]

BRIDGED = """
topology:
  brokers:
    cloud: {{kind: mosquitto, tls: {tls}}}
    boxes: {{kind: mosquitto, count: 3, tls: {tls}}}
  bridges:
    uplink:
      from: boxes
      to: cloud
      keep_alive: 5s
      reconnect: {{after: 1s, up_to: 1s}}
      topics: [{{topic: "up/#", direction: out, qos: 1, remote_prefix: "box/{{n}}/"}}]
      network: {{rate: 10Mbit/s}}
populations:
  device: {{clients: 3, at: boxes, publications: [{{topic: "up/{{n}}", rate: 10/s, qos: 1}}]}}
  observer: {{clients: 1, at: cloud, subscriptions: [{{topic: "box/#", qos: 1}}]}}
stages:
  - connect
  - publish: {{for: 10min, faults: [{{at: 1s, cut: uplink, how: unplug, for: 5min}}]}}
drain: 1min
"""


def networks_of(directory: Path) -> list[str]:
    """Names of the networks that a run has made."""
    record = read_record(directory / "topology" / STARTED_FILE)
    return [started.name for started in record if started.kind == "namespace"]


def left_of(names: Sequence[str]) -> list[str]:
    """Interfaces and namespaces of these networks that exist."""
    ends = [end for name in names for end in outer_ends(name.split("-")[1])]
    interfaces = [end for end in ends if end in psutil.net_if_addrs()]
    return interfaces + [name for name in names if (NAMESPACES / name).exists()]


@pytest.mark.slow("a link is unplugged until keep-alives end, and TCP sends again")
def test_what_an_unplugged_link_holds_up_comes_later(start: RunMaker) -> None:
    played = start(BRIDGED.format(tls="mutual"))
    until(lambda: values(played.directory, "uplink", "connected")[-1:] == [3])
    until(lambda: values(played.directory, "uplink", "connected")[-1:] == [0])
    change(played.directory, "repair", "cut", "uplink")
    until(lambda: values(played.directory, "uplink", "connected")[-1:] == [3])
    end_stage(played.directory)
    played.finish()
    result = played.result()
    boxes = [broker for broker in result["brokers"] if broker["group"] == "boxes"]
    assert all(ip_address(box["host"]) in RANGE for box in boxes)
    assert [bridge["up"] for bridge in result["bridges"]] == [3]
    (fault,) = result["faults"]
    assert fault["kind"] == "cut"
    assert fault["bridges"]["lowest"] == 0
    assert fault["bridges"]["most_s"] is not None
    device, observer = (result["populations"][name] for name in ("device", "observer"))
    assert device["connected_max"] == 3
    assert observer["received_total"] >= device["sent_total"] > 0
    (name,) = networks_of(played.directory)
    assert not left_of([name])


def test_a_run_that_was_killed_leaves_a_network_and_down_removes_it(
    start: RunMaker, gone: Callable[[Sequence[int]], None]
) -> None:
    played = start(BRIDGED.format(tls="psk"), prefix=program.NEW_PROCESS)
    until_sampled(played.directory, "uplink", "connected", 3)
    children = played.children()
    played.process.send_signal(signal.SIGKILL)
    played.process.wait()
    gone(children)
    (name,) = networks_of(played.directory)
    assert len(left_of([name])) == 3
    for removed in (True, False):
        words = ("down", str(played.directory))
        done = program.run(words, capture_output=True, text=True, timeout=60, check=True)
        assert (name in done.stdout) is removed
        assert not left_of([name])


@pytest.mark.skipif("netem" in HAS, reason="this kernel has netem")
def test_without_netem_a_run_ends_before_any_broker_starts(start: RunMaker) -> None:
    played = start(BRIDGED.format(tls="none").replace("rate: 10Mbit/s", "delay: 50ms"))
    assert played.finish() == 2
    assert "modprobe sch_netem" in played.stderr
    record = read_record(played.directory / "topology" / STARTED_FILE)
    assert not [started for started in record if started.kind == "process"]
    assert not left_of(networks_of(played.directory))
