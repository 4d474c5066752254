"""A broker that the run did not start is broken and repaired by command."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.runs import Mosquitto, MosquittoMaker, RunMaker, assert_gone

CLIENTS = 10
LOAD = """\
target: {target}
populations:
  device:
    clients: 10
    reconnect: {{after: 200ms, up_to: 400ms}}
    publications: [{{topic: "up/{{n}}", rate: 10/s, qos: 1}}]
  backend:
    clients: 1
    reconnect: {{after: 200ms, up_to: 400ms}}
    subscriptions: [{{topic: "up/#", qos: 1}}]
stages:
  - connect
  - publish: {{for: {time}, name: load, faults: [{fault}]}}
thresholds: {thresholds}
snapshot_interval: 250ms
drain: 2s
monitors: {{host: false}}
"""


@pytest.fixture
def broker(mosquitto: MosquittoMaker, tmp_path: Path) -> Iterator[Mosquitto]:
    """A mosquitto that a command may start again, with its process id in the file `again`."""
    yield mosquitto()
    with contextlib.suppress(FileNotFoundError):
        pid = int((tmp_path / "again").read_text())
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        assert_gone([pid])


def load(broker: Mosquitto, fault: str, time: str, *thresholds: str) -> str:
    return LOAD.format(target=broker.url, fault=fault, time=time, thresholds=[*thresholds])


@pytest.mark.slow("a broker is killed, started again, and everybody has to be back")
def test_a_broker_of_ones_own_is_killed_and_started_again(
    run: Callable[..., Any], broker: Mosquitto, tmp_path: Path
) -> None:
    assert broker.process is not None
    kill = f"echo killing; kill -9 {broker.process.pid}"
    again = f"{broker.binary} -c {broker.folder}/mosquitto.conf & echo $! > again"
    fault = (
        f"{{at: 2s, name: crash, command: '{kill}', for: 1s, repair: '{again}', "
        f"repaired_when: 'tcp 127.0.0.1:{broker.port}'}}"
    )
    back = "clients_back.all@crash < 1min"
    code, result = run(load(broker, fault, "8s", back, "clients_lost@crash == 11", "loss <= 100%"))
    assert (code, result["verdict"]["status"]) == (0, "pass"), result["verdict"]
    (found,) = result["faults"]
    assert (found["kind"], found["victims"], found["failed"]) == ("command", [], None)
    assert found["command"] == kill
    assert found["repaired_at_s"] >= found["at_s"] + 1
    assert (found["clients"]["before"], found["clients"]["lowest"]) == (CLIENTS + 1, 0)
    assert found["clients"]["first_s"] <= found["clients"]["all_s"]
    assert found["backlog_peak"] > 0
    texts = [event["text"] for event in result["events"] if event["kind"] == "fault"]
    assert texts == [f"crash: {kill}", "crash: repaired"]
    assert [phase["name"] for phase in result["phases"]] == ["load", "crash"]
    log = next(tmp_path.glob("run-*/logs/fault-crash.log")).read_text()
    assert log.startswith(f"$ {kill}\nkilling\n$ {again}\n")


def test_a_command_that_fails_makes_the_run_invalid(
    run: Callable[..., Any], broker: Mosquitto
) -> None:
    fault = "{at: 500ms, name: crash, command: 'echo no unit >&2; exit 5', for: ever}"
    code, result = run(load(broker, fault, "2s", "clients_lost@crash == 0"))
    assert (code, result["verdict"]["status"]) == (3, "invalid")
    why = "echo no unit >&2; exit 5 ended with exit code 5: no unit; see logs/fault-crash.log"
    assert result["faults"][0]["failed"] == why
    assert any(fact.endswith(f"s failed: {why}") for fact in result["verdict"]["evidence"])
    (outcome,) = (o for o in result["verdict"]["thresholds"] if not o["default"])
    assert not outcome["passed"]
    assert outcome["text"] == f"crash failed: {why}"


def test_an_interrupted_run_repairs_what_it_broke(
    start: RunMaker, broker: Mosquitto, tmp_path: Path
) -> None:
    fault = "{at: 200ms, name: crash, command: touch broken, for: 50s, repair: touch repaired}"
    played = start(load(broker, fault, "60s"))
    played.wait_for("! crash: touch broken")
    played.process.send_signal(signal.SIGINT)
    assert played.finish() == 130
    (found,) = played.result()["faults"]
    assert found["repaired_at_s"] is None
    # Commands run in the folder of the scenario file.
    assert (tmp_path / "broken").exists()
    assert (tmp_path / "repaired").exists()
