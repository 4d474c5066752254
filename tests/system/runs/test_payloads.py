"""Payloads of real device data: what a stock client sees, and what the ledger makes of them."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DEVICES = (
    'serial,site,firmware\nTH-0001,hall 1,"1.4, beta"\nTH-0002,hall "2",2.0\nTH-0003,yard,2.0\n'
)
SCENARIO = """
target: {url}
populations:
  device:
    clients: 3
    first: 100
    rows: devices.csv
    client_id: "{{row.serial}}"
    publications:
      - topic: "site/{{row.serial}}/{{up|log}}"
        rate: 20/s
        qos: 1
        payload:
          id: "{{row.serial}}"
          where: {{site: "{{row.site}}", firmware: "{{row.firmware}}"}}
          temperature: "{{random 20.0..30.0}}"
          state: "{{ok|ok|ok|fault}}"
          nonce: "{{hex 16}}"
          number: "{{seq}}"
          at: "{{time}}"
          stamp: "{{stamp}}"
  backend:
    clients: 2
    first: 100
    rows: devices.csv
    subscriptions: ["site/+/+", "site/{{row.serial}}/log"]
stages: [connect, publish: 2s, disconnect]
"""


def test_json_of_device_data_is_seen_by_others_and_followed_by_the_ledger(
    run: Callable[..., tuple[int, dict[str, Any]]], mosquitto: Callable[..., Any], tmp_path: Path
) -> None:
    reader = shutil.which("mosquitto_sub")
    if reader is None:
        pytest.skip("mosquitto_sub is not installed (apt-get install mosquitto-clients)")
    broker = mosquitto()
    (tmp_path / "devices.csv").write_text(DEVICES)
    command = [
        reader,
        "-p",
        str(broker.port),
        "-t",
        "site/#",
        "-F",
        "%t %p",
        "-C",
        "120",
        "-W",
        "60",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as subscriber:
        try:
            code, result = run(SCENARIO.format(url=broker.url))
            seen, _ = subscriber.communicate(timeout=60)
        finally:
            subscriber.kill()
    device, backend = result["populations"]["device"], result["populations"]["backend"]
    assert code == 0, result["verdict"]
    assert device["sent_total"] == device["acked_total"] == 3 * 20 * 2
    assert backend["expected_total"] == backend["received_total"] == 2 * device["sent_total"]
    assert backend["lost_total"] == backend["foreign_total"] == backend["reordered_total"] == 0
    assert backend["latency_us"]["intended"]["count"] == backend["received_total"]
    sites = {"TH-0001": "hall 1", "TH-0002": 'hall "2"', "TH-0003": "yard"}
    numbers: dict[str, list[int]] = {serial: [] for serial in sites}
    for line in seen.splitlines():
        topic, _, payload = line.partition(" ")
        said = json.loads(payload)
        assert topic in {f"site/{said['id']}/up", f"site/{said['id']}/log"}
        assert said["where"]["site"] == sites[said["id"]]
        assert 20 <= said["temperature"] <= 30
        assert said["state"] in {"ok", "fault"}
        assert len(said["nonce"]) == 16
        numbers[said["id"]].append(said["number"])
    assert all(sorted(found) == list(range(40)) for found in numbers.values())
