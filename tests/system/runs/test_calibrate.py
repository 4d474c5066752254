"""Calibration as a whole: real engine against the real sink, stored, and used by a run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit import program

pytestmark = pytest.mark.xdist_group("load")

Play = Callable[..., tuple[int, dict[str, Any]]]

OWN = """
topology: {brokers: {b: {kind: embedded}}}
populations:
  device:
    clients: 20
    publications: [{topic: "up/{n}", rate: 20/s, qos: 1}]
  backend:
    clients: 1
    subscriptions: ["up/#"]
stages: [connect, publish: 2s]
"""


@pytest.mark.slow("a calibration searches the ceiling of the host")
def test_a_run_reports_its_headroom_once_the_host_is_calibrated(run: Play, tmp_path: Path) -> None:
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    made = program.run(
        ("calibrate", "--quick", "--clients", "50"),
        env={**os.environ, **state},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert made.returncode == 0, made.stderr
    rows = [line.split("  ")[0] for line in made.stdout.splitlines()]
    for row in ("sent at QoS 0", "sent at QoS 1", "received", "connected", "idle client"):
        assert row in rows
    assert {"received, QoS 1", "kept alive"} <= {*rows}
    path = tmp_path / "state" / "pubstorm" / "calibration.json"
    assert str(path) in made.stderr
    (entry,) = json.loads(path.read_text())["entries"]
    assert entry["clients"] == 50
    for name in ("sent_qos0", "sent_qos1", "received", "received_qos1", "pinged", "connected"):
        assert 0 < entry[name]["low"] <= entry[name]["median"] <= entry[name]["high"]

    code, result = run(OWN, environment=state)
    assert code == 0
    assert result["headroom"]["rate"] > 0
    assert result["headroom"]["clients"] == 21 / 50
    assert result["headroom"]["calibrated"] == entry["calibrated"]


def test_an_engine_that_is_no_sink_is_an_error(tmp_path: Path) -> None:
    engine = tmp_path / "pubstorm-engine"
    engine.write_text("#!/bin/sh\necho '{}'\nexit 1\n")
    engine.chmod(0o755)
    made = program.run(
        ("calibrate", "--quick"),
        env={**os.environ, "PUBSTORM_ENGINE": str(engine), "XDG_STATE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert made.returncode == 3
    assert made.stderr.splitlines()[1].startswith("error: broker sink")
    assert "Traceback" not in made.stderr
