"""Many small brokers of a run: watched together, bridged, and followed when they come back."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Play = Callable[..., tuple[int, dict[str, Any]]]

pytestmark = [
    pytest.mark.xdist_group("heavy"),
    pytest.mark.skipif(
        not (shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")),
        reason="mosquitto is not installed (apt-get install mosquitto)",
    ),
]

BOXES = 9
SCENARIO = """\
topology:
  brokers:
    cloud: mosquitto
    boxes: {kind: mosquitto, count: 9}
  bridges:
    uplink:
      from: boxes
      to: cloud
      reconnect: {after: 1s, up_to: 2s}
      topics: [{topic: "up/#", direction: out, qos: 1}]
populations:
  device:
    clients: 9
    at: boxes
    reconnect: {after: 100ms, up_to: 200ms}
    publications: [{topic: "up/{n}", rate: 10/s, qos: 1}]
  backend: {clients: 1, at: cloud, subscriptions: [{topic: up/#, qos: 1}]}
stages:
  - connect
  - hold:
      name: idle
      for: 14s
      faults:
        - {at: 3s, kill: boxes, count: 3, for: 2s}
        - {at: 8s, kill: cloud, for: 1500ms}
  - publish: {name: load, for: 5s}
monitors: {host: false, interval: 500ms}
thresholds:
  - uplink.connected.last == 9
  - cloud.$SYS/messages/received.rate@load > 50/s
  - backend.received_per_s.last > 50/s
"""


def readings(result: dict[str, Any], source: str, metric: str) -> list[tuple[float, float]]:
    path = Path(result["run_directory"]) / "samples.csv"
    with path.open(newline="") as stream:
        rows = [row for row in csv.reader(stream) if row[1:3] == [source, metric]]
    return [(float(at_s), float(value)) for at_s, _, _, value, *_ in rows]


@pytest.mark.slow("many brokers start, and some again")
def test_brokers_that_come_back_are_followed_and_many_are_one_source(run: Play) -> None:
    code, result = run(SCENARIO)
    assert code == 0, result["verdict"]
    sources = {each["source"] for each in result["monitors"]}
    assert {"boxes", "cloud-0", "uplink"} <= sources
    assert not any(source.startswith("boxes-") for source in sources)
    processes = [value for _, value in readings(result, "boxes", "processes")]
    assert (min(processes), processes[-1]) == (BOXES - 3, BOXES)
    bridges = [value for _, value in readings(result, "uplink", "connected")]
    assert (bridges[0], min(bridges), bridges[-1]) == (BOXES, 0, BOXES)
    (kill,) = (fault for fault in result["faults"] if fault["name"] == "kill cloud")
    cpu = readings(result, "cloud-0", "cpu")
    assert all(share >= 0 for _, share in cpu)
    assert any(at_s < kill["at_s"] for at_s, _ in cpu)
    assert any(at_s > kill["repaired_at_s"] + 1 for at_s, _ in cpu)
    assert not any("has ended" in each["text"] for each in result["monitor_problems"])
