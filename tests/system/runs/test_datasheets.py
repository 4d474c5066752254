"""Whole data sheets of real brokers, in small: each kind of cell, a broker that runs already, one
that ends or freezes in their midst, and a generator without time for them."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pubstorm.host.children import find
from tests.kit import program
from tests.kit.nats_server import servers_in
from tests.kit.ports import free_port
from tests.kit.serving import until
from tests.kit.starved import is_busy
from tests.system.runs.underway import end_stage, readings

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
INTERVAL_S = 0.2
HOLDS = (1, 3, 5, 7)
"""Stages of the memory cell that hold."""
COVERED_SHARE = 0.95
"""Share of a hold stage that readings cover at its end: more than a figure needs."""
LONGEST_HOLD_S = 30
"""Time after which a hold ends on a host that is busy throughout."""
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


ONCE_BUSY = """\
mkfifo FOLDER/$$
mosquitto -v -p {port} > FOLDER/$$ 2>&1 &
clients=0
while read -r line; do
  case $line in
    *"New client connected"*) clients=$((clients + 1)) ;;
    *"Received PUBLISH"*) clients=CLIENTS ;;
  esac
  [ $clients -ne CLIENTS ] || kill -SIGNAL $!
done < FOLDER/$$
wait
"""


def once_busy(folder: Path, clients: int, signal: str) -> list[str]:
    """Returns the command of a mosquitto that gets a signal once its log has so many clients, or a
    message."""
    line = ONCE_BUSY.replace("FOLDER", str(folder)).replace("CLIENTS", str(clients))
    return ["sh", "-c", line.replace("SIGNAL", signal)]


def play(
    folder: Path, *words: str, **texts: str
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Plays a sheet. `texts` replace scenarios by their names."""
    scenarios = {"capacity": CAPACITY, "memory": MEMORY, "restart": RESTART} | texts
    for name, text in scenarios.items():
        (folder / f"{name}.yaml").write_text(text)
    (folder / "plan.yaml").write_text(PLAN.replace("FOLDER", str(folder)))
    command = ("datasheet", *words, "--plan", "plan.yaml", "--for", "2h", "--out", "sheet")
    done = program.run(command, capture_output=True, text=True, cwd=folder, timeout=240)
    stored = json.loads((folder / "sheet" / "datasheet.json").read_text())
    return done, stored


def end_holds(folder: Path) -> None:
    """Ends each hold stage of the memory cell once it has enough readings for a figure, or after a
    time in which a host that is not busy throughout has given them."""
    steps = until(lambda: [*folder.glob("sheet/cells/*-memory/steps/*/events.jsonl")])
    run = steps[0].parent
    for stage in HOLDS:
        until(lambda stage=stage: is_covered(run, stage))
        end_stage(run)


def is_covered(run: Path, stage: int) -> bool:
    """Returns True once readings cover enough of a stage that is under way, or it lasts long."""
    lines = (run / "events.jsonl").read_text().splitlines(keepends=True)
    events = [json.loads(line) for line in lines if line.endswith("\n")]
    began_s = next((each["at_s"] for each in events if each.get("stage") == stage), math.inf)
    read_s = [at_s for at_s, _ in readings(run, "broker-0", "private_bytes") if at_s >= began_s]
    if len(read_s) < 4:
        return False
    lasted_s = read_s[-1] - began_s
    return len(read_s) * INTERVAL_S >= COVERED_SHARE * lasted_s or lasted_s > LONGEST_HOLD_S


def is_measured(folder: Path, cell: dict[str, Any]) -> bool:
    """Returns True if a cell is measured. On a busy host, monitors may have read too little."""
    if cell["state"] == "measured":
        return True
    runs = (folder / "sheet" / cell["folder"]).glob("steps/*/result.json")
    return " not read for " in cell["why"] and all(is_busy(json.loads(r.read_text())) for r in runs)


def test_a_sheet_has_its_figures_and_the_reasons_of_those_that_it_lacks(tmp_path: Path) -> None:
    with ThreadPoolExecutor() as pool:
        holds = pool.submit(end_holds, tmp_path)
        done, stored = play(tmp_path, "mosquitto", memory=MEMORY.replace("for: 1s", "for: 2min"))
        holds.result()
    assert done.returncode == 0, done.stderr
    assert stored["complete"]
    assert stored["identity"]["version"]
    cells = {cell["name"]: cell for cell in stored["cells"]}
    assert [*cells] == ["capacity", "memory", "restart"]
    for cell in cells.values():
        assert is_measured(tmp_path, cell), cell
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
    broker = {"kind": "command", "command": once_busy(tmp_path, 100, "TERM")}
    recipe = {"name": "brief", "source": "here", "install": "nothing", "broker": broker}
    (tmp_path / "brief.yaml").write_text(json.dumps(recipe | {"warm_up": "1s"}))
    # The broker ends with the first message, long before the fault.
    later = RESTART.replace("for: 3s", "for: 4s").replace("at: 1s", "at: 3s")
    done, stored = play(tmp_path, "./brief.yaml", "--only", "memory,restart", restart=later)
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
    broker = {"kind": "command", "command": once_busy(tmp_path, 300, "STOP")}
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
    busy = busy.replace("repeat: 1", "repeat: 1\n  precision: 100%")
    done, stored = play(tmp_path, "mosquitto", "--only", "capacity", capacity=busy)
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
        server = start(f"jetstream: {{store_dir: {tmp_path}/store}}")
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
if [ -f pid ]; then
  kill $(cat pid)
  while grep -qs '^State:.[^Z]' /proc/$(cat pid)/status; do sleep 0.02; done
fi
setsid mosquitto -p PORT > mosquitto.log 2>&1 &
echo $! > pid
until grep -q ':HEX 00000000:0000 0A ' /proc/net/tcp; do sleep 0.02; done
"""
"""Ends the broker, and starts it again once it is gone. Returns once it listens."""


def test_a_broker_that_runs_is_restarted_by_a_command(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "start").write_text(START.replace("PORT", str(port)).replace("HEX", f"{port:04X}"))
    subprocess.run(["sh", "start"], cwd=tmp_path, check=True, timeout=60)
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
