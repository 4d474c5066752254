"""Data sheets of a broker whose figures are known: its capacity, its delay and its memory for each
client are what the test asks for."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kit import program

pytestmark = [
    pytest.mark.concerns("python/pubstorm/experiment/", "sheets/", "tests/kit/small_broker.py"),
    pytest.mark.slow("searches and plateaus take their time"),
]

ROOT = Path(__file__).parents[3]
LOAD = """\
topology: {brokers: {broker: {kind: embedded}}}
populations:
  subscriber: {clients: 1, subscriptions: ["sheet/#"]}
  publisher:
    clients: 1
    publications: [{topic: sheet/a, rate: 20/s, size: 256B, qos: 1}]
clean_start: skip
"""
CAPACITY = f"""{LOAD}
stages: [connect, {{publish: 2s}}]
thresholds: [publisher.ack_latency.p99 < 50ms]
drain: 1s
search:
  vary: populations.publisher.publications.0.rate
  from: 20/s
  to: 2k/s
  precision: 5%
  repeat: 1
  broker: same
"""
LATENCY = f"""{LOAD}
stages: [connect, {{publish: 3s}}]
sweep: {{steps: [{{step: load}}], repeat: 3, broker: same, pause: 0s}}
"""
MEMORY = """\
topology: {brokers: {broker: {kind: embedded}}}
populations: {client: {clients: 400}}
clean_start: skip
stages:
  - connect: {name: first, clients: 100}
  - hold: {name: "100", for: 2s}
  - connect: {name: second, clients: 200}
  - hold: {name: "200", for: 2s}
  - connect: {name: third, clients: 300}
  - hold: {name: "300", for: 2s}
  - connect: {name: fourth, clients: 400}
  - hold: {name: "400", for: 2s}
sweep: {steps: [{step: sessions}], broker: same, pause: 0s}
"""
PLAN = """\
anchor: capacity
cells:
  - {cell: capacity, section: throughput, title: capacity, scenario: FOLDER/capacity.yaml,
     figures: [{name: capacity, of: search.best}]}
  - {cell: latency, section: latency, title: latency, scenario: FOLDER/latency.yaml,
     figures: [{name: p50, of: subscriber.latency.p50}]}
  - cell: memory
    section: memory
    title: memory
    scenario: FOLDER/memory.yaml
    warm_up: false
    slope:
      name: memory
      of: broker.private_bytes.last
      at: {"100": 100, "200": 200, "300": 300, "400": 400}
"""


def sheet(folder: Path, cell: str, **faults: float) -> dict[str, Any]:
    """Plays one cell at a broker with these faults; the first figure."""
    folder.mkdir()
    for name, text in {"capacity": CAPACITY, "latency": LATENCY, "memory": MEMORY}.items():
        (folder / f"{name}.yaml").write_text(text)
    plan, recipe = folder / "plan.yaml", folder / "own.yaml"
    plan.write_text(PLAN.replace("FOLDER", str(folder)))
    words = json.dumps(faults).replace("{", "{{").replace("}", "}}")
    command = [sys.executable, "-m", "tests.kit.small_broker", "{port}", words]
    broker = {"kind": "command", "command": command, "environment": {"PYTHONPATH": str(ROOT)}}
    entry = {"name": "own", "source": "here", "install": "nothing", "broker": broker}
    recipe.write_text(json.dumps(entry | {"warm_up": "1s"}))
    out = folder / "out"
    words_of = ("datasheet", recipe, "--plan", plan, "--only", cell, "--for", "10min", "--out", out)
    done = program.run([*map(str, words_of)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    stored = json.loads((out / "datasheet.json").read_text())
    found: dict[str, Any] = stored["cells"][0]["figures"][0]
    assert found["estimate"] is not None, found
    return found


def ends(found: dict[str, Any]) -> tuple[float, float]:
    return found["estimate"]["low"], found["estimate"]["high"]


def test_a_broker_that_is_twice_as_slow_has_half_the_capacity(tmp_path: Path) -> None:
    fast = ends(sheet(tmp_path / "fast", "capacity", every_s=0.005))
    slow = ends(sheet(tmp_path / "slow", "capacity", every_s=0.01))
    assert fast[0] / slow[1] <= 2 <= fast[1] / slow[0], (fast, slow)


def test_a_delay_is_the_difference_of_latencies(tmp_path: Path) -> None:
    none = ends(sheet(tmp_path / "none", "latency"))
    held = ends(sheet(tmp_path / "held", "latency", hold_s=0.05))
    assert held[0] - none[1] <= 50_000 <= held[1] - none[0] + 2_000, (none, held)


@pytest.mark.parametrize("kilobytes", [64, 256])
def test_the_memory_of_a_client_is_what_the_broker_takes_for_it(
    tmp_path: Path, kilobytes: int
) -> None:
    """The broker itself takes some for a client too, which a broker without the extra shows."""
    own = ends(sheet(tmp_path / "own", "memory"))
    found = ends(sheet(tmp_path / "more", "memory", client_bytes=1024 * kilobytes))
    extra = found[0] - own[1], found[1] - own[0]
    page = 4096
    assert extra[0] - page <= 1024 * kilobytes <= extra[1] + page, (own, found)
