"""Brokers that a run breaks on purpose: real ones, killed and frozen under load. Everybody is back
before a stage is ended by command."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from pubstorm.host.children import find
from pubstorm.play.control_socket import ask
from tests.kit.runs import Mosquitto, MosquittoMaker, Run, RunMaker, assert_gone
from tests.kit.serving import until
from tests.kit.starved import passes
from tests.system.runs.underway import end_stage, readings, repair, wait_for

pytestmark = pytest.mark.skipif(find("mosquitto") is None, reason="mosquitto is not installed")

CLIENTS = 20
LIFE = "reconnect: {{after: 100ms, up_to: 200ms}}, session: persistent"
PAIR = """
  device-{qos}:
    {{clients: 20, publications: [{{topic: "{qos}/{{n}}", rate: 10/s, qos: {qos}}}], {life}}}
  backend-{qos}: {{clients: 1, subscriptions: [{{topic: "{qos}/#", qos: {qos}}}], {life}}}
"""
LOAD = """\
{where}
populations: {pairs}
stages:
  - connect
  - publish: {{name: load, for: 10min, faults: [{{at: 500ms, {fault}}}]}}
snapshot_interval: 100ms
drain: 2s
monitors: {{host: false, interval: 200ms}}
"""
OWN = "topology: {brokers: {cloud: {kind: mosquitto, settings: {persistence: true}}}}"


def carried(rate: float) -> bool:
    """True if a backend receives most of what is due in a second."""
    return rate > 10 * CLIENTS / 2


def load(fault: str, where: str = OWN, qos: tuple[int, ...] = (1,)) -> str:
    life = LIFE.replace("{{", "{").replace("}}", "}")
    pairs = "".join(PAIR.format(qos=each, life=life) for each in qos)
    return LOAD.format(where=where, pairs=pairs, fault=fault)


def back(run: Run, fault: tuple[str, str], *qos: int) -> None:
    """Waits until all clients are lost for half a second, repairs the fault, and waits until they
    have received again for a second. A fault is its name, and the words of its repair."""
    for each in qos:
        there_s = wait_for(run, f"device-{each}", "connected", lambda n: n == CLIENTS)
        lost_s = wait_for(run, f"device-{each}", "connected", lambda n: n == 0, there_s)
        lost_s = wait_for(run, f"device-{each}", "connected", lambda n: n == 0, lost_s + 0.5)
    repair(run, *fault)
    for each in qos:
        back_s = wait_for(run, f"device-{each}", "connected", lambda n: n == CLIENTS, lost_s)
        on_s = wait_for(run, f"backend-{each}", "received_per_s", carried, back_s)
        wait_for(run, f"backend-{each}", "received_per_s", carried, on_s + 1)


def limits(name: str, *more: str) -> tuple[str, str]:
    """Thresholds of a run whose killed broker loses what it held, and that ends by command."""
    lines = [
        f"clients_back.all@{name} < 1min",
        f"drained@{name} < 1min",
        "loss < 50%",
        "skipped < 50",
    ]
    return "--set", f"thresholds={json.dumps([*lines, *more])}"


def test_a_broker_that_is_killed_comes_back_and_a_frozen_one_goes_on(start: RunMaker) -> None:
    """The same load at QoS 1 and at QoS 2."""
    clients = 2 * (CLIENTS + 1)
    run = start(load("kill: cloud, for: 5min", qos=(1, 2)), *limits("kill cloud"))
    back(run, ("kill cloud", "1 broker is up again"), 1, 2)
    ask(run.directory, "fault freeze cloud for 5min")
    run.wait_for("! freeze cloud")
    began_s, _ = readings(run.directory, "backend-1", "received_per_s")[-1]
    frozen_s = wait_for(run, "backend-1", "received_per_s", lambda rate: rate == 0, began_s)
    frozen_s = wait_for(run, "backend-1", "received_per_s", lambda rate: rate == 0, frozen_s + 0.5)
    repair(run, "freeze cloud", "1 broker is continuing")
    on_s = wait_for(run, "backend-1", "received_per_s", carried, frozen_s)
    wait_for(run, "backend-1", "received_per_s", carried, on_s + 1)
    end_stage(run.directory)
    code, result = run.finish(), run.result()
    assert passes(code, result), run.stdout
    killed, frozen = result["faults"]
    assert killed["victims"] == frozen["victims"] == ["cloud-0"]
    assert killed["repaired_at_s"] >= killed["at_s"] + 0.5
    assert (killed["clients"]["before"], killed["clients"]["lowest"]) == (clients, 0)
    times = [killed["clients"][f"{name}_s"] for name in ("first", "most", "all")]
    assert times == sorted(times)
    assert frozen["clients"] is killed["bridges"] is None
    assert killed["backlog_peak"] > 0 and killed["drained_s"] is not None
    assert frozen["backlog_peak"] > 0 and frozen["drained_s"] is not None
    stage = next(stage for stage in result["stages"] if stage["name"] == "load")
    flows = [(flow["source"], flow["to"], flow["qos"]) for flow in stage["flows"]]
    assert flows == [("device-1", "backend-1", [1]), ("device-2", "backend-2", [2])]
    for flow in stage["flows"]:
        sent = result["populations"][flow["source"]]["sent_total"]
        assert flow["expected_total"] == sent > 0
    kinds = [event["kind"] for event in result["events"]]
    assert (kinds.count("fault"), kinds.count("broker")) == (4, 0)
    assert not result["brokers"][0]["died"]
    assert result["stale_state"] == []


def is_dead(folder: Path) -> bool:
    """True if all clients of a step have been away for two seconds."""
    devices = readings(folder, "device-1", "connected")
    there_s = next((at_s for at_s, n in devices if n == CLIENTS), math.inf)
    lost_s = [at_s for at_s, n in devices if at_s > there_s and n == 0]
    return lost_s != [] and lost_s[-1] >= lost_s[0] + 2


def test_a_broker_that_stays_dead_fails_its_step_and_is_there_in_the_next(
    start: RunMaker, gone: Callable[..., None]
) -> None:
    text = load("kill: cloud, for: ever")
    sweep = "sweep: {vary: {seed: [1, 2]}, broker: same, pause: 0s}\n"
    run = start(text + sweep, "--set", "drain=300ms")
    for name in ("steps/01-seed-1", "steps/02-seed-2"):
        until(lambda folder=run.directory / name: is_dead(folder))
        end_stage(run.directory / name)
    assert run.finish() == 1
    series = json.loads((run.directory / "series.json").read_text())
    assert [step["status"] for step in series["steps"]] == ["fail", "fail"]
    for step in series["steps"]:
        result = json.loads((run.directory / step["folder"] / "result.json").read_text())
        (fault,) = result["faults"]
        assert fault["repaired_at_s"] is None
        never = dict.fromkeys(("first_s", "most_s", "all_s"))
        assert fault["clients"] == {"before": CLIENTS + 1, "lowest": 0, **never}
        phase = next(phase for phase in result["phases"] if phase["name"] == "kill cloud")
        assert phase["status"] == "collapsed"
        assert not result["ended_early"]
        assert [stage["name"] for stage in result["stages"]] == ["connect", "load"]
        gone([broker["pid"] for broker in result["brokers"]])


@pytest.fixture
def broker(mosquitto: MosquittoMaker, tmp_path: Path) -> Iterator[Mosquitto]:
    """A mosquitto that a command may start again, with its process id in the file `again`."""
    yield mosquitto()
    with contextlib.suppress(FileNotFoundError):
        pid = int((tmp_path / "again").read_text())
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        assert_gone([pid])


def test_a_broker_of_ones_own_is_killed_and_started_again_by_command(
    start: RunMaker, broker: Mosquitto, tmp_path: Path
) -> None:
    assert broker.process is not None
    kill = f"echo killing; kill -9 {broker.process.pid}"
    again = f"{broker.binary} -c {broker.folder}/mosquitto.conf & echo $! > again"
    fault = (
        f"name: crash, command: '{kill}', for: 5min, repair: '{again}', "
        f"repaired_when: 'tcp 127.0.0.1:{broker.port}'"
    )
    lost = f"clients_lost@crash == {CLIENTS + 1}"
    run = start(load(fault, where=f"target: {broker.url}"), *limits("crash", lost))
    back(run, ("crash", "repaired"), 1)
    end_stage(run.directory)
    code, result = run.finish(), run.result()
    assert passes(code, result), run.stdout
    (found,) = result["faults"]
    assert (found["kind"], found["victims"], found["failed"]) == ("command", [], None)
    assert found["command"] == kill
    assert found["repaired_at_s"] >= found["at_s"] + 0.5
    assert (found["clients"]["before"], found["clients"]["lowest"]) == (CLIENTS + 1, 0)
    assert found["clients"]["first_s"] <= found["clients"]["all_s"]
    assert found["backlog_peak"] > 0
    device, backend = (result["populations"][name] for name in ("device-1", "backend-1"))
    assert (device["connected_max"], device["connected_total"]) == (CLIENTS, 2 * CLIENTS)
    assert device["disconnected_total"] == CLIENTS
    assert backend["received_total"] + backend["lost_total"] == backend["expected_total"]
    assert [event["kind"] for event in result["events"]].count("fault") == 2
    assert [phase["name"] for phase in result["phases"]] == ["load", "crash"]
    log = next(tmp_path.glob("run-*/logs/fault-crash.log")).read_text()
    assert log.startswith(f"$ {kill}\nkilling\n$ {again}\n")


SESSIONS = """
topology:
  brokers:
    keeps:
      kind: mosquitto
      settings: {persistence: true, autosave_interval: 1, autosave_on_changes: true}
    loses: {kind: mosquitto}
populations:
  writer-keeps: {at: keeps, clients: 5, publications: &sent [{topic: "t/{n}", rate: 20/s, qos: 1}]}
  writer-loses: {at: loses, clients: 5, publications: *sent}
  reader-keeps:
    {at: keeps, clients: 3, session: persistent, subscriptions: &all [{topic: t/#, qos: 1}]}
  reader-loses:
    {at: loses, clients: 3, session: persistent, subscriptions: *all, version: 5}
stages:
  - connect
  - disconnect: {name: leave, populations: &readers [reader-keeps, reader-loses]}
  - publish: {name: away, for: 1s}
  - hold: {name: crash, for: 10min}
  - connect: {name: return, populations: *readers}
  - publish: {name: back, for: 500ms}
snapshot_interval: 200ms
clean_start: skip
fleet: {agents: 2}
monitors: {host: false, interval: 200ms}
defaults: "off"
thresholds:
  - reader-keeps.sessions_lost == 0
  - reader-keeps.queued_lost == 0
  - reader-keeps.lost == 0
  - reader-loses.sessions_lost == 0
  - reader-loses.queued_lost == 0
  - reader-loses.lost@back == 0
"""


def store(run: Run, broker: str) -> None:
    """Makes a mosquitto write its state to disk. Its clients have the answers to all they sent, so
    the file that it writes next has the effects of all."""
    folder = run.directory / "topology" / broker

    def stored() -> tuple[int, int]:
        found = (folder / "mosquitto.db").stat()
        return found.st_ino, found.st_mtime_ns

    words = {pid: " ".join(psutil.Process(pid).cmdline()) for pid in run.children()}
    (pid,) = (pid for pid, command in words.items() if f"{folder}/" in command)
    before = stored()
    os.kill(pid, signal.SIGUSR1)
    until(lambda: stored() != before)


@pytest.mark.slow("two drains wait in vain for readers that are away or lost their messages")
def test_sessions_and_queued_messages_outlast_a_kill_only_where_the_broker_writes_them_to_disk(
    start: RunMaker,
) -> None:
    run = start(SESSIONS)
    run.wait_for("  crash ")
    store(run, "keeps-0")
    for name in ("keeps", "loses"):
        there_s = wait_for(run, f"writer-{name}", "connected", lambda n: n == 5)
        ask(run.directory, f"fault kill {name}")
        lost_s = wait_for(run, f"writer-{name}", "connected", lambda n: n == 0, there_s)
        repair(run, f"kill {name}", "1 broker is up again")
        wait_for(run, f"writer-{name}", "connected", lambda n: n == 5, lost_s)
    end_stage(run.directory)
    code, result = run.finish(), run.result()
    failed = [t["expression"] for t in result["verdict"]["thresholds"] if not t["passed"]]
    assert failed == ["reader-loses.sessions_lost == 0", "reader-loses.queued_lost == 0"]
    assert code == 1
    (away,) = (stage for stage in result["stages"] if stage["name"] == "away")
    figures = {}
    for name in ("keeps", "loses"):
        reader, sent = result["populations"][f"reader-{name}"], away["populations"]
        queued = 3 * sent[f"writer-{name}"]["sent_total"]
        assert reader["queued_total"] == queued > 0
        figures[name] = (
            reader["sessions_resumed_total"],
            reader["sessions_lost_total"],
            queued - reader["queued_received_total"],
            reader["queued_lost_total"],
        )
        assert result["populations"][f"writer-{name}"]["sessions_lost_total"] == 0
    assert figures == {"keeps": (3, 0, 0, 0), "loses": (0, 3, queued, queued)}
