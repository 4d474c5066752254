"""Whole runs with bridges: with logins, rights and keys that the run makes, over several steps with
the same brokers, and to a target of somebody else's, where nothing stays."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from pubstorm.errors import BinaryError
from pubstorm.host.binaries import proxy_path
from pubstorm.topology.adapters.mosquitto import find_mosquitto

pytestmark = pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed")

Play = Callable[..., tuple[int, dict[str, Any]]]
Maker = Callable[..., Any]
BOXES = 4
SCENARIO = """\
topology:
  brokers:
    cloud: {kind: mosquitto, tls: psk, passwords: true, acl: ["pattern readwrite box/%u/#"]}
    boxes: {kind: mosquitto, count: 4}
  bridges:
    uplink:
      from: boxes
      to: cloud
      username: "{n}"
      reconnect: {after: 1s, up_to: 1s}
      topics:
        - {topic: up/#, direction: out, qos: 2, remote_prefix: "box/{n}/"}
        - {topic: down/#, direction: in, qos: 2, remote_prefix: "box/{n}/"}
populations:
  app:
    clients: 2
    at: cloud
    subscriptions: [{topic: box/+/up/#, qos: 2}]
    publications: [{topic: "box/{0..3}/down/x", rate: 40/s, qos: 2}]
  device:
    clients: 8
    at: boxes
    subscriptions: [{topic: down/#, qos: 2}]
    publications: [{topic: "up/{n}", rate: 10/s, qos: 2}]
# A stage of 1 s has several readings, also where the host is busy.
monitors: {interval: 200ms}
stages: [connect, {publish: 1s}]
thresholds: [lost == 0, duplicate == 0, "uplink.connected.min == 4"]
"""


def test_everything_that_crosses_with_logins_rights_and_keys_is_counted(run: Play) -> None:
    code, result = run(SCENARIO)
    assert (code, result["verdict"]["status"]) == (0, "pass"), result["verdict"]
    [bridges] = result["bridges"]
    assert (bridges["name"], bridges["up"], bridges["bridges"]) == ("uplink", BOXES, BOXES)
    flows = {
        (f["source"], f["to"]): (f["expected_total"], f["lost_total"]) for f in result["flows"]
    }
    assert flows == {("device", "app"): (8 * 10 * 2, 0), ("app", "device"): (2 * 40 * 2, 0)}
    observers = {observer["name"]: observer["problem"] for observer in result["observers"]}
    assert (observers["uplink"], observers["cloud-0"]) == (None, None)


def test_brokers_and_bridges_serve_all_steps_of_a_series(start: Maker) -> None:
    sweep = "sweep: {broker: same, pause: 0s, vary: {populations.device.clients: [4, 8]}}\n"
    played = start(SCENARIO + sweep)
    assert played.finish() == 0, played.stderr
    series = json.loads((played.directory / "series.json").read_text())
    assert [step["status"] for step in series["steps"]] == ["pass", "pass"]
    assert not (played.directory / "topology" / "keys").exists()


def test_a_target_takes_the_main_brokers_place_and_is_left_as_it_was(
    run: Play, mosquitto: Maker
) -> None:
    main = mosquitto(persistence="false")
    code, result = run(SCENARIO, "--target", main.url)
    assert (code, result["verdict"]["status"]) == (0, "pass"), result["verdict"]
    assert result["targets"][0] == f"127.0.0.1:{main.port}"
    assert [broker["group"] for broker in result["brokers"]] == ["boxes"] * BOXES
    after = [(r["what"], r["total"]) for r in result["stale_state"] if r["when"] == "after"]
    assert after == [("sessions", BOXES)]
    assert retained(main.port) == []


@pytest.mark.slow("a fault is left to itself until the bridges give up")
def test_a_run_whose_links_have_ended_is_invalid(start: Maker) -> None:
    try:
        proxy_path()
    except BinaryError:
        pytest.skip("pubstorm-proxy is not built")
    fault = "stages: [connect, {publish: {for: 3s, faults: [{cut: uplink, at: 2s, for: 500ms}]}}]"
    played = start(SCENARIO.replace("stages: [connect, {publish: 1s}]", fault))
    played.wait_for("publish")
    proxies = [pid for pid in played.children() if "proxy" in psutil.Process(pid).name()]
    assert len(proxies) == 1
    psutil.Process(proxies[0]).kill()
    assert played.finish() != 0
    result = played.result()
    assert result["verdict"]["status"] == "invalid"
    assert "links" in {event["kind"] for event in result["events"]}


def retained(port: int) -> list[str]:
    """Topics of the retained messages of a broker, beside its own."""
    reader = shutil.which("mosquitto_sub")
    if reader is None:
        pytest.skip("mosquitto_sub is not installed (apt-get install mosquitto-clients)")
    command = [reader, "-p", str(port), "-t", "#", "-F", "%t", "--retained-only", "-W", "1"]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=15, check=False
    ).stdout.split()
