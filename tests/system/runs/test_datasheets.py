"""Whole data sheets of real brokers, in small: each kind of cell, a broker that runs already, one
that ends or freezes in their midst, and a generator without time for them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pubstorm.host.children import find
from tests.kit import program
from tests.kit.nats_server import servers_in
from tests.kit.ports import free_port

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
thresholds: [lost == 0]
"""
MEMORY = f"""\
{TOPOLOGY}
{ANY_SPEED}
populations: {{client: {{clients: 2000}}}}
# On a busy host, a reading may be late: each hold has some.
monitors: {{interval: 200ms}}
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
     needs: [started], by_command: {stages.1.publish.faults.0: {name: kill, at: 1s}},
     figures: [{name: back, of: "clients_back.all@kill", better: less},
     {name: sessions that the broker lost, of: client.sessions_lost, better: less}]}
"""


def once_it_has(files: int, then: str) -> list[str]:
    """Returns the command of a mosquitto to which something happens once it has so many files
    open: some for itself, and one for each client."""
    has = f"$(ls /proc/$!/fd | wc -l) -ge {files}"
    line = f"mosquitto -p {{port}} & while ! [ {has} ]; do sleep 0.02; done; {then}; wait"
    return ["sh", "-c", line]


def play(
    folder: Path, *words: str, capacity: str = "capacity"
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    for name, text in {"capacity": CAPACITY, "memory": MEMORY, "restart": RESTART}.items():
        (folder / f"{name}.yaml").write_text(text)
    plan = PLAN.replace("FOLDER/capacity", f"FOLDER/{capacity}").replace("FOLDER", str(folder))
    (folder / "plan.yaml").write_text(plan)
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
        assert cell["state"] == "measured", cell
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
    broker = {"kind": "command", "command": once_it_has(12, "kill $!")}
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


def test_a_broker_that_freezes_has_a_sheet_that_says_so(tmp_path: Path) -> None:
    # 100 clients connect at a time, so the first ones are connected.
    broker = {"kind": "command", "command": once_it_has(300, "kill -STOP $!")}
    recipe = {"name": "frozen", "source": "here", "install": "nothing", "broker": broker}
    (tmp_path / "frozen.yaml").write_text(json.dumps(recipe | {"warm_up": "1s"}))
    done, stored = play(tmp_path, "./frozen.yaml", "--only", "memory")
    assert "Traceback" not in done.stderr
    (memory,) = stored["cells"]
    assert memory["state"] == "without figures"
    assert "connect timeout" in memory["why"], "objects that are not there have no line"


def test_a_sheet_says_what_a_busy_generator_hides(tmp_path: Path) -> None:
    """The agent may use a thousandth of its time, so trials with more load are no evidence: the
    answer is at most a lower bound, and names the generator."""
    busy = CAPACITY.replace('busy: "100%"', 'busy: "0.1%"')
    (tmp_path / "busy.yaml").write_text(busy.replace("repeat: 1", "repeat: 1\n  precision: 100%"))
    done, stored = play(tmp_path, "mosquitto", "--only", "capacity", capacity="busy")
    assert "Traceback" not in done.stderr
    (capacity,) = stored["cells"]
    (figure,) = capacity["figures"]
    assert figure["estimate"] is None or figure["estimate"]["bound"] == "at_least", figure
    assert "load generator was the limit" in json.dumps(capacity), capacity


OWN_PROTOCOLS = pytest.mark.parametrize(
    ("kind", "protocol", "program_of_it"),
    [("rabbitmq", "amqp", "rabbitmq-server"), ("nats", "nats", "nats-server")],
)


@OWN_PROTOCOLS
def test_a_sheet_is_played_in_the_own_protocol_of_a_broker(
    tmp_path: Path, kind: str, protocol: str, program_of_it: str
) -> None:
    if find(program_of_it) is None:
        pytest.skip(f"{program_of_it} is not installed")
    recipe = {"name": kind, "source": "here", "install": "nothing", "broker": kind}
    (tmp_path / "own.yaml").write_text(json.dumps(recipe | {"warm_up": "1s"}))
    words = ("./own.yaml", "--protocol", protocol, "--only", "capacity,restart")
    done, stored = play(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    assert stored["identity"]["protocol"] == protocol.upper()
    for cell in stored["cells"]:
        assert cell["state"] == "measured", cell
        assert cell["figures"][0]["estimate"] is not None, cell
        assert spoken_in(tmp_path / "sheet" / cell["folder"]) == {protocol}
    plans = (tmp_path / "sheet").glob("cells/*-capacity/trials/*/plan.json")
    levels = {each["qos"] for each in flows_in(next(plans))}
    assert levels == {1}, "publications of QoS 1 are confirmed by the broker"


def test_an_address_says_in_which_protocol_a_sheet_is_played(tmp_path: Path) -> None:
    with servers_in(tmp_path) as start:
        server = start("jetstream: {store_dir: store}")
        done, stored = play(tmp_path, server.url, "--yes", "--only", "capacity")
    assert done.returncode == 0, done.stderr
    (capacity,) = stored["cells"]
    assert stored["identity"]["protocol"] == "NATS" and capacity["state"] == "measured", capacity
    assert spoken_in(tmp_path / "sheet" / capacity["folder"]) == {"nats"}


def spoken_in(cell: Path) -> set[str]:
    """Returns the protocols of all clients in the runs of a cell."""
    plans = [json.loads(path.read_text()) for path in cell.rglob("plan.json")]
    return {each["protocol"]["kind"] for plan in plans for each in plan["populations"]}


def flows_in(plan: Path) -> list[dict[str, Any]]:
    """Returns the publications of all populations of a plan."""
    populations = json.loads(plan.read_text())["populations"]
    return [flow for each in populations for flow in each["publications"]]


START = """\
[ ! -f pid ] || { kill $(cat pid); sleep 0.3; }
setsid mosquitto -p PORT > mosquitto.log 2>&1 &
echo $! > pid
sleep 0.3
"""


def test_a_broker_that_runs_is_restarted_by_a_command(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "start").write_text(START.replace("PORT", str(port)))
    subprocess.run(["sh", "start"], cwd=tmp_path, check=True)
    address = f"mqtt://127.0.0.1:{port}"
    try:
        words = (address, "--yes", "--only", "restart")
        done, stored = play(tmp_path, *words)
        assert "--restart-command" in stored["cells"][0]["why"]
        shutil.rmtree(tmp_path / "sheet")
        done, stored = play(tmp_path, *words, "--restart-command", "sh start")
        assert done.returncode == 0, done.stderr
        back, lost = stored["cells"][0]["figures"]
        assert back["estimate"] is not None, back
        assert lost["estimate"]["value"] == 10, "mosquitto without persistence keeps no session"
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGTERM)
