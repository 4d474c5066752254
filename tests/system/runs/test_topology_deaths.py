"""Ways in which a run with many brokers dies, and that nothing is left of it: processes, keys and
passwords."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from pubstorm.host.binaries import broker_path
from pubstorm.host.children import find
from pubstorm.topology.started import STARTED_FILE, Started, read_record
from tests.kit import program
from tests.kit.ports import free_port
from tests.kit.runs import Run, RunMaker

Gone = Callable[[Sequence[int]], None]

WAIT_S = 60.0
BRIDGED = """
topology:
  brokers:
    cloud: {{kind: mosquitto, tls: psk, passwords: true}}
    boxes: {{kind: mosquitto, count: 20{boxes}}}
  bridges:
    uplink:
      from: boxes
      to: cloud
      topics: [{{topic: up/#, direction: out, qos: 1, remote_prefix: "box/{{n}}/"}}]
populations:
  backend: {{clients: 2, at: cloud, subscriptions: ["box/#"]}}
stages: [connect, hold: 60s]
"""
EVERYTHING = """
topology:
  brokers:
    ours: {kind: embedded}
    boxes: {kind: mosquitto, count: 2}
    script: {kind: command, command: [sh, -c, "BROKER --port {port} & wait"]}
  bridges:
    uplink: {from: boxes, to: ours, topics: [{topic: up/#, direction: out, qos: 1}]}
populations:
  backend: {clients: 2, at: ours, subscriptions: ["box/#"]}
  other: {clients: 2, at: script, subscriptions: ["box/#"]}
stages: [connect, hold: {for: 60s, faults: [{at: 50s, cut: uplink, for: 1s}]}]
"""
MIXED = """
topology:
  brokers:
    ours: {kind: embedded, count: 5}
    boxes: {kind: mosquitto, count: 40}
populations:
  backend: {clients: 2, subscriptions: [a]}
stages: [connect, hold: 60s]
"""
SECRETS = ("remote_password", "bridge_psk")


@pytest.fixture(autouse=True)
def mosquitto_path() -> str:
    path = find("mosquitto")
    if path is None:
        pytest.skip("mosquitto is not installed (apt-get install mosquitto)")
    return str(path)


def bridged(boxes: str = "") -> str:
    return BRIDGED.format(boxes=boxes and f", {boxes}")


def record(run: Run) -> list[Started]:
    """The processes that a run has started, in the order of time."""
    entries = read_record(run.directory / "topology" / STARTED_FILE)
    return [entry for entry in entries if entry.kind == "process"]


def pids(run: Run) -> list[int]:
    return [entry.pid for entry in record(run)]


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s, "it did not come so far"
        time.sleep(0.01)


def down(run: Run, *arguments: str) -> tuple[int, str]:
    words = ("down", str(run.directory), *arguments)
    done = program.run(words, capture_output=True, text=True, timeout=WAIT_S)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def secrets(run: Run) -> list[str]:
    """Keys and passwords that are left in the run directory."""
    folder = run.directory / "topology"
    lines = (line for conf in folder.glob("*/*.conf") for line in conf.read_text().splitlines())
    found = [line for line in lines if line.startswith(SECRETS)]
    return [*found, *map(str, folder.glob("keys/*"))]


@pytest.fixture
def slow(tmp_path: Path, mosquitto_path: str) -> Callable[[str], str]:
    """Makes a mosquitto of which those from the twelfth box on do something else."""

    def make(instead: str) -> str:
        path = tmp_path / "mosquitto"
        text = f'case "$2" in */boxes-1[2-9]/*) {instead};; esac\nexec {mosquitto_path} "$@"\n'
        path.write_text(f"#!/bin/sh\n{text}")
        path.chmod(0o755)
        return f"binary: {path}"

    return make


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_run_that_ends_while_brokers_start(
    number: signal.Signals, start: RunMaker, gone: Gone, slow: Callable[[str], str]
) -> None:
    run = start(bridged(slow("exec sleep 60")), prefix=program.NEW_PROCESS)
    until(lambda: len(record(run)) > 15)
    run.process.send_signal(number)
    run.process.wait(WAIT_S)
    gone(pids(run))
    if number == signal.SIGKILL:
        assert down(run)[0] == 0
    else:
        assert run.finish() == 130
    assert secrets(run) == []


def test_nothing_that_is_frozen_outlives_a_run_that_is_killed(start: RunMaker, gone: Gone) -> None:
    """Brokers, a script with its child, the links of a bridge, engines and the live page."""
    scenario = EVERYTHING.replace("BROKER", str(broker_path()))
    more = ("--set", "fleet.agents=2", f"--web=127.0.0.1:{free_port()}")
    run = start(scenario, *more, prefix=program.NEW_PROCESS)
    run.wait_for("hold ")
    children = run.children()
    names = Counter(psutil.Process(pid).name() for pid in children)
    own = ("pubstorm-broker", "pubstorm-engine", "pubstorm-proxy", "mosquitto")
    assert [names[name] for name in own] == [2, 2, 1, 2]
    for pid in children:
        os.kill(pid, signal.SIGSTOP)
    until(lambda: all(psutil.Process(pid).status() == psutil.STATUS_STOPPED for pid in children))
    os.kill(run.process.pid, signal.SIGKILL)
    run.process.wait()
    gone(children)


def test_a_broker_that_fails_in_the_middle_ends_the_others(
    start: RunMaker, gone: Gone, slow: Callable[[str], str]
) -> None:
    run = start(bridged(slow("echo no luck today; exit 7")))
    assert run.finish() == 3
    assert "code 7" in run.stderr
    assert "no luck today" in run.stderr
    assert len(record(run)) > 10
    gone(pids(run))
    assert secrets(run) == []


@pytest.fixture
def no_setpriv(tmp_path: Path) -> Mapping[str, str]:
    """A PATH without it; mosquitto is found where Debian keeps it."""
    folder = tmp_path / "path"
    folder.mkdir()
    for name in ("sh", "mosquitto"):
        if path := shutil.which(name) or shutil.which(name, path="/usr/sbin"):
            (folder / name).symlink_to(path)
    return {"PATH": str(folder)}


def test_what_a_killed_run_leaves_without_setpriv_is_taken_down(
    start: RunMaker, gone: Gone, no_setpriv: Mapping[str, str]
) -> None:
    run = start(bridged(), environment=no_setpriv)
    run.wait_for("hold ")
    code, text = down(run)
    assert code == 2
    assert f"pid {run.process.pid}" in text
    os.kill(run.process.pid, signal.SIGKILL)
    run.process.wait()
    assert secrets(run)
    left = record(run)
    code, text = down(run)
    assert (code, len(left)) == (0, 21)
    assert all(f"{entry.name} (pid {entry.pid})" in text for entry in left[:1])
    gone([entry.pid for entry in left])
    assert secrets(run) == []
    assert down(run)[0] == 0


def test_a_box_is_started_again_where_it_may_until_the_run_is_taken_down_by_force(
    start: RunMaker, gone: Gone
) -> None:
    run = start(bridged("restart: {at_most: 1}"))
    run.wait_for("hold ")
    name = record(run)[7].name

    def starts() -> list[int]:
        return [entry.pid for entry in record(run) if entry.name == name]

    os.kill(starts()[-1], signal.SIGKILL)
    until(lambda: len(starts()) > 1)
    run.wait_for(f"(pid {starts()[-1]})")
    os.kill(starts()[-1], signal.SIGKILL)
    until(lambda: sum(f"(pid {starts()[-1]})" in line for line in [*run.said]) > 1)
    assert down(run, "--force")[0] == 0
    assert run.finish() == 130
    gone(pids(run))
    result = run.result()
    assert result["interrupted"]
    [broker] = [broker for broker in result["brokers"] if broker["name"] == name]
    assert (broker["restarts"], broker["died"], broker["pid"]) == (1, True, starts()[-1])
    config = (run.directory / "topology" / name / "mosquitto.conf").read_text()
    ports = {line for line in config.splitlines() if line.startswith("listener ")}
    assert ports == {f"listener {broker['port']} 127.0.0.1"}
    kinds = [event["kind"] for event in result["events"]]
    assert (kinds.count("restart"), kinds.count("broker")) == (1, 1)


UNPRIVILEGED = ("setpriv", "--reuid", "54321", "--clear-groups")
AS_UNPRIVILEGED = (
    *UNPRIVILEGED,
    "--inh-caps",
    "+dac_override",
    "--ambient-caps",
    "+dac_override",
    "--",
)
"""Root is not held to its limit of processes; the capability is for a Python in root's home."""


@pytest.mark.parametrize(
    ("prefix", "limit"), [((), "--nofile=40"), (AS_UNPRIVILEGED, "--nproc=12")]
)
def test_a_limit_that_is_too_small_is_named(
    prefix: Sequence[str], limit: str, start: RunMaker, gone: Gone
) -> None:
    limited = (*prefix, "prlimit", limit, "--")
    probe = subprocess.run([*limited, "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("limits of another user need root, setpriv and prlimit")
    run = start(MIXED, prefix=limited)
    assert run.finish() == 3
    assert ("ulimit -n" if "nofile" in limit else "ulimit -u") in run.stderr
    gone(pids(run))
    assert down(run)[0] == 0
