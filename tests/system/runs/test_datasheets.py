"""Whole data sheets of real brokers, in small: each kind of cell, and a broker that ends in their
midst."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.kit import program

pytestmark = pytest.mark.slow("a sheet plays a search, a series and a run with a restart")

ANY_SPEED = 'validity: {lateness_p99: 1min, busy: "100%"}'
TOPOLOGY = "topology: {brokers: {broker: {kind: mosquitto}}}"
CAPACITY = f"""\
{TOPOLOGY}
{ANY_SPEED}
populations:
  subscriber: {{clients: 5, subscriptions: ["sheet/{{n}}"]}}
  publisher:
    clients: 5
    publications: [{{topic: "sheet/{{n}}", rate: 20/s, size: 256B, qos: 1}}]
stages: [connect, {{publish: 500ms}}]
search:
  vary: populations.publisher.publications.0.rate
  from: 20/s
  to: 80/s
  repeat: 1
  broker: same
"""
MEMORY = f"""\
{TOPOLOGY}
{ANY_SPEED}
populations: {{client: {{clients: 2000}}}}
stages:
  - connect: {{name: first, clients: 500, timeout: 5s}}
  - hold: {{name: "500", for: 1s}}
  - connect: {{name: second, clients: 1000, timeout: 5s}}
  - hold: {{name: "1000", for: 1s}}
  - connect: {{name: third, clients: 1500, timeout: 5s}}
  - hold: {{name: "1500", for: 1s}}
  - connect: {{name: fourth, clients: 2000, timeout: 5s}}
  - hold: {{name: "2000", for: 1s}}
sweep: {{steps: [{{step: sessions}}], broker: same, pause: 0s}}
"""
RESTART = f"""\
{TOPOLOGY}
{ANY_SPEED}
populations:
  client:
    clients: 10
    session: persistent
    reconnect: {{after: 100ms, up_to: 1s}}
    subscriptions: [{{topic: "sheet/{{n}}", qos: 1}}]
    publications: [{{topic: "sheet/{{n}}", rate: 10/s, qos: 1}}]
stages:
  - connect: {{timeout: 5s}}
  - publish: {{name: restart, for: 3s, faults: [{{name: kill, at: 1s, kill: broker, for: 500ms}}]}}
sweep: {{steps: [{{step: restart}}], repeat: 2, pause: 0s}}
defaults: "off"
thresholds: ["clients_back.all@kill < 30s"]
"""
PLAN = """\
anchor: capacity
cells:
  - {cell: capacity, section: throughput, title: capacity, scenario: FOLDER/capacity.yaml,
     figures: [{name: capacity, of: search.best, better: more}]}
  - cell: memory
    section: memory
    title: memory
    scenario: FOLDER/memory.yaml
    warm_up: false
    slope:
      name: memory
      of: broker.private_bytes.last
      at: {"500": 500, "1000": 1000, "1500": 1500, "2000": 2000}
  - {cell: restart, section: trouble, title: restart, scenario: FOLDER/restart.yaml,
     needs: [started], figures: [{name: back, of: "clients_back.all@kill", better: less},
     {name: sessions that the broker lost, of: client.sessions_lost, better: less}]}
"""


def play(folder: Path, *words: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    for name, text in {"capacity": CAPACITY, "memory": MEMORY, "restart": RESTART}.items():
        (folder / f"{name}.yaml").write_text(text)
    (folder / "plan.yaml").write_text(PLAN.replace("FOLDER", str(folder)))
    command = ("datasheet", *words, "--plan", "plan.yaml", "--for", "10min", "--out", "sheet")
    done = program.run(command, capture_output=True, text=True, cwd=folder, timeout=240)
    stored = json.loads((folder / "sheet" / "datasheet.json").read_text())
    return done, stored


def test_a_sheet_has_its_figures_and_the_reasons_of_those_that_it_lacks(tmp_path: Path) -> None:
    done, stored = play(tmp_path, "mosquitto")
    assert done.returncode == 0, done.stderr
    assert stored["complete"]
    assert stored["identity"]["version"]
    cells = {cell["name"]: cell for cell in stored["cells"]}
    assert [*cells] == ["capacity", "memory", "restart"]
    for cell in cells.values():
        assert cell["state"] == "measured" or cell["why"], cell
        assert (tmp_path / "sheet" / cell["folder"]).is_dir()
        for figure in cell["figures"]:
            found = figure["estimate"]
            assert figure["remarks"] if found is None else found["low"] <= found["high"]
    lost = cells["restart"]["figures"][1]["estimate"]
    assert lost["value"] == 10, "mosquitto without persistence keeps no session"
    assert {"datasheet.json", "report.html", "report.md"} <= {
        path.name for path in (tmp_path / "sheet").iterdir()
    }


def test_a_broker_that_ends_by_itself_has_a_sheet_that_says_so(tmp_path: Path) -> None:
    broker = {"kind": "command", "command": ["timeout", "0.9", "mosquitto", "-p", "{port}"]}
    recipe = {"name": "brief", "source": "here", "install": "nothing", "broker": broker}
    (tmp_path / "brief.yaml").write_text(json.dumps(recipe | {"warm_up": "1s"}))
    done, stored = play(tmp_path, "./brief.yaml", "--only", "memory,restart")
    assert "Traceback" not in done.stderr
    assert done.returncode == 0, done.stderr
    memory, restart = stored["cells"]
    assert memory["state"] == "without figures"
    assert "broker-0 (pid" in memory["why"]
    back, lost = restart["figures"]
    assert back["estimate"] is None, "the fault hit no broker"
    assert "broker-0 (pid" in back["remarks"][0]
    assert lost["estimate"] is not None
