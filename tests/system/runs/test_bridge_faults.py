"""Bridges that a run breaks on purpose: real ones, cut, stalled and without their main broker, and
what their queues keep of the messages meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

Play = Callable[..., tuple[int, dict[str, Any]]]

pytestmark = pytest.mark.skipif(
    not (shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")),
    reason="mosquitto is not installed (apt-get install mosquitto)",
)

BOXES = 3
DEVICES = 6
LOAD = """\
topology:
  brokers:
    cloud: {{kind: mosquitto, settings: {{persistence: true, autosave_interval: 1}}}}
    boxes: {{kind: mosquitto, count: 3, settings: {{max_queued_messages: 0}}}}
  bridges:
    up:
      from: boxes
      to: cloud
      topics: [{{topic: "up/#", direction: out, qos: {qos}, remote_prefix: "box/{{n}}/"}}]
      keep_alive: 5s
      reconnect: {{after: 1s, up_to: 2s}}
populations:
  backend:
    clients: 1
    at: cloud
    session: persistent
    reconnect: {{after: 200ms, up_to: 400ms}}
    subscriptions: [{{topic: "box/#", qos: {qos}}}]
  device:
    clients: 6
    at: boxes
    session: persistent
    publications: [{{topic: "up/{{n}}", rate: 20/s, qos: {qos}}}]
stages:
  - connect
  - publish: {{for: {time}, name: load, faults: [{faults}]}}
drain: 5s
monitors: {{host: false}}
"""


def load(faults: str, qos: int = 1, time: str = "12s") -> str:
    return LOAD.format(faults=faults, qos=qos, time=time)


def assert_all_arrived(result: dict[str, Any], qos: int = 1) -> None:
    """All at QoS 1. At QoS 2 none comes twice; mosquitto 2.0 loses what a bridge had queued beyond
    its window of messages in flight."""
    stage = next(stage for stage in result["stages"] if stage["name"] == "load")
    (flow,) = stage["flows"]
    assert (flow["source"], flow["to"], flow["qos"]) == ("device", "backend", [qos])
    assert flow["expected_total"] == result["populations"]["device"]["sent_total"] > 0
    assert flow["expected_total"] == flow["received_total"] + flow["lost_total"]
    assert flow["lost_total"] == 0 or qos == 2
    assert flow["duplicate_total"] == 0 or qos == 1


@pytest.mark.slow("a broker is killed and all bridges have to be back; at QoS 2 some is lost")
@pytest.mark.parametrize("qos", [1, 2])
def test_bridges_keep_what_comes_while_their_main_broker_is_dead(run: Play, qos: int) -> None:
    # What a bridge loses at QoS 2 is counted below.
    limit = ["--set", "thresholds=[loss < 50%]"] if qos == 2 else []
    _, result = run(load("{at: 2s, kill: cloud, for: 2s}", qos), *limit)
    (fault,) = result["faults"]
    assert (fault["clients"]["before"], fault["clients"]["lowest"]) == (DEVICES + 1, DEVICES)
    bridges = fault["bridges"]
    assert (bridges["before"], bridges["lowest"]) == (BOXES, 0)
    assert 0 <= bridges["first_s"] <= bridges["most_s"] == bridges["all_s"]
    assert fault["backlog_peak"] >= DEVICES * 20
    assert fault["drained_s"] is not None
    assert_all_arrived(result, qos)
    assert result["verdict"]["status"] == "pass", result["verdict"]


@pytest.mark.slow("bridges are cut, and have to be back under load")
def test_bridges_that_are_cut_come_back_with_what_they_kept(run: Play) -> None:
    _, result = run(load("{at: 2s, cut: up, count: 2, for: 2s}", time="10s"))
    (fault,) = result["faults"]
    assert len(fault["victims"]) == 2
    assert fault["clients"] is None
    assert (fault["bridges"]["before"], fault["bridges"]["lowest"]) == (BOXES, BOXES - 2)
    assert fault["bridges"]["all_s"] is not None
    assert fault["drained_s"] is not None
    assert_all_arrived(result)
    assert result["verdict"]["status"] == "pass", result["verdict"]


@pytest.mark.slow("mosquitto allows no keep-alive below 5 s")
def test_a_bridge_that_stalls_is_lost_when_its_keep_alive_is_over(run: Play) -> None:
    faults = "{at: 2s, cut: up-1, how: stall, for: 10s}"
    _, result = run(load(faults, time="18s"))
    (fault,) = result["faults"]
    assert fault["victims"] == ["up-1"]
    assert (fault["bridges"]["before"], fault["bridges"]["lowest"]) == (BOXES, BOXES - 1)
    assert fault["bridges"]["all_s"] is not None
    assert_all_arrived(result)


@pytest.mark.slow("a phase before, in and after the fault")
def test_a_delay_of_bridges_is_seen_in_the_latency_and_gone_after_it(run: Play) -> None:
    faults = "{at: 3s, delay: up, by: 300ms, for: 4s}"
    _, result = run(load(faults, time="8s"))
    (fault,) = result["faults"]
    assert fault["bridges"] is None
    assert fault["repaired_at_s"] is not None
    before, delayed = result["phases"]
    assert (before["name"], delayed["name"]) == ("load", "delay up")
    assert delayed["latency_us"]["max"] >= 300_000
    assert_all_arrived(result)
