"""Whole runs with bridges: with logins, rights and keys that the run makes, over several steps with
the same brokers, and to a target of somebody else's, where nothing stays."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from pubstorm.host.children import find
from tests.kit.starved import passes

pytestmark = pytest.mark.skipif(find("mosquitto") is None, reason="mosquitto is not installed")

Play = Callable[..., tuple[int, dict[str, Any]]]
Maker = Callable[..., Any]
BOXES = 4
UP_S = time.clock_gettime(time.CLOCK_BOOTTIME)
SYS_S = max(1, min(3600, int(UP_S / 2)))
"""Seconds between two reports of mosquitto. It takes the start of the host for the last report, so
that it makes the first one only on a host that is up for longer."""
SCENARIO = f"""\
topology:
  brokers:
    # mosquitto counts stored messages once, at its start, and not in the load of a step before.
    cloud:
      kind: mosquitto
      settings: {{sys_interval: {SYS_S}}}
      tls: psk
      passwords: true
      acl: ["pattern readwrite box/%u/#", "pattern readwrite all/#"]
    boxes: {{kind: mosquitto, count: 4, settings: {{sys_interval: {SYS_S}}}}}
  bridges:
    uplink:
      from: boxes
      to: cloud
      username: "{{n}}"
      reconnect: {{after: 1s, up_to: 1s}}
      topics:
        - {{topic: up/#, direction: out, qos: 2, remote_prefix: "box/{{n}}/"}}
        - {{topic: down/#, direction: in, qos: 2, remote_prefix: "box/{{n}}/"}}
        - {{topic: all/#, direction: both, qos: 1}}
populations:
  app:
    clients: 2
    at: cloud
    bridge: true
    subscriptions: [{{topic: box/+/up/#, qos: 2}}, {{topic: all/#, qos: 1}}]
    publications:
      - {{topic: "box/{{0..3}}/down/x", rate: 20/s, qos: 2}}
      - {{topic: all/app, rate: 5/s, qos: 1}}
  device:
    clients: 8
    at: boxes
    subscriptions: [{{topic: down/#, qos: 2}}, {{topic: all/#, qos: 1}}]
    publications:
      - {{topic: "up/{{n}}", rate: 10/s, qos: 2}}
      - {{topic: "all/{{n}}", rate: 5/s, qos: 1}}
# A stage of 1 s has several readings, also where the host is busy.
monitors: {{interval: 200ms}}
stages: [connect, {{publish: 1s}}]
thresholds: [lost == 0, duplicate == 0, "uplink.connected.min == 4"]
"""


def expected(devices: int) -> dict[tuple[str, str], int]:
    """Of each population to each, in a second: publishers times messages times receivers."""
    return {
        ("device", "device"): devices * 5 * devices,  # all/# is for all boxes, and for the sender
        ("device", "app"): devices * (10 + 5) * 2,
        ("app", "device"): 2 * 20 * devices // BOXES + 2 * 5 * devices,
        ("app", "app"): 2 * 5 * 1,  # with the bridge bit, not for the sender
    }


def test_what_crosses_is_expected_and_comes_once_in_all_steps_of_a_series(start: Maker) -> None:
    """With logins, rights and keys of the run, which its steps share as they do the brokers."""
    sweep = "sweep: {broker: same, pause: 0s, vary: {populations.device.clients: [4, 8]}}\n"
    played = start(SCENARIO + sweep)
    played.finish()
    series = json.loads((played.directory / "series.json").read_text())
    for step, devices in zip(series["steps"], (4, 8), strict=True):
        result = json.loads((played.directory / step["folder"] / "result.json").read_text())
        code = {"pass": 0, "fail": 1}.get(step["status"], 3)
        assert passes(code, result), played.stderr
        [bridges] = result["bridges"]
        assert (bridges["name"], bridges["up"], bridges["bridges"]) == ("uplink", BOXES, BOXES)
        flows = {(f["source"], f["to"]): f["expected_total"] for f in result["flows"]}
        assert flows == expected(devices)
        assert {f["lost_total"] + f["duplicate_total"] for f in result["flows"]} == {0}
        observers = {observer["name"]: observer["problem"] for observer in result["observers"]}
        assert (observers["uplink"], observers["cloud-0"]) == (None, None)
        assert result["stale_state"] == []
    assert not (played.directory / "topology" / "keys").exists()


def test_a_target_takes_the_main_brokers_place_and_is_left_as_it_was(
    run: Play, mosquitto: Maker
) -> None:
    main = mosquitto(persistence="false")
    code, result = run(SCENARIO, "--target", main.url)
    assert passes(code, result), result["verdict"]
    assert result["targets"][0] == f"127.0.0.1:{main.port}"
    assert [broker["group"] for broker in result["brokers"]] == ["boxes"] * BOXES
    after = [(r["what"], r["total"]) for r in result["stale_state"] if r["when"] == "after"]
    assert after == [("sessions", BOXES)]
    assert retained(main.port) == []


def retained(port: int) -> list[str]:
    """Topics of the retained messages of a broker, beside its own."""
    reader = shutil.which("mosquitto_sub")
    if reader is None:
        pytest.skip("mosquitto_sub is not installed (apt-get install mosquitto-clients)")
    command = [reader, "-p", str(port), "-t", "#", "-F", "%t", "--retained-only", "-W", "1"]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=15, check=False
    ).stdout.split()
