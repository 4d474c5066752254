"""Ways in which a run with many brokers dies, and that nothing is left of it: processes, keys and
passwords."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pubstorm.topology.started import STARTED_FILE, Started, read_record
from tests.kit.ports import free_port

RunMaker = Callable[..., Any]
Gone = Callable[[Sequence[int]], None]
SmallDisk = Callable[[int], Path]

WAIT_S = 60.0
BOXES = 20
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
stages: [connect, hold: {time}]
"""
MIXED = """
topology:
  brokers:
    ours: {kind: embedded, count: 5}
    boxes: {kind: mosquitto, count: 15}
populations:
  backend: {clients: 2, subscriptions: [a]}
stages: [connect, hold: 60s]
"""
SECRETS = ("remote_password", "bridge_psk")


@pytest.fixture(autouse=True)
def mosquitto_path() -> str:
    path = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
    if path is None:
        pytest.skip("mosquitto is not installed (apt-get install mosquitto)")
    return path


def bridged(boxes: str = "", time: str = "60s") -> str:
    return BRIDGED.format(boxes=boxes and f", {boxes}", time=time)


def record(run: Any) -> list[Started]:
    """The processes that a run has started, in the order of time."""
    entries = read_record(run.directory / "topology" / STARTED_FILE)
    return [entry for entry in entries if entry.kind == "process"]


def pids(run: Any) -> list[int]:
    return [entry.pid for entry in record(run)]


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s, "it did not come so far"
        time.sleep(0.01)


def down(path: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pubstorm", "down", str(path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def secrets(run: Any) -> list[str]:
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


@pytest.mark.parametrize("scenario", [MIXED, bridged(), bridged("restart: {at_most: 9}")])
def test_nothing_is_left_of_a_run_that_is_killed(
    scenario: str, start: RunMaker, gone: Gone
) -> None:
    run = start(scenario)
    run.wait_for("hold ")
    if "restart" in scenario:
        # Some are just being started again.
        for pid in pids(run)[1:]:
            os.kill(pid, signal.SIGKILL)
    os.kill(run.process.pid, signal.SIGKILL)
    run.process.wait()
    gone(pids(run))
    assert down(run.directory)[0] == 0
    assert secrets(run) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_a_run_that_ends_while_brokers_start(
    number: signal.Signals, start: RunMaker, gone: Gone, slow: Callable[[str], str]
) -> None:
    run = start(bridged(slow("exec sleep 60")))
    until(lambda: len(record(run)) > 15)
    run.process.send_signal(number)
    run.process.wait(WAIT_S)
    gone(pids(run))
    if number == signal.SIGKILL:
        down(run.directory)
    else:
        # What it has said is whole only then.
        assert run.finish() == 130
        assert "interrupted before the first stage" in run.stderr
    assert secrets(run) == []


def test_a_broker_that_fails_in_the_middle_ends_the_others(
    start: RunMaker, gone: Gone, slow: Callable[[str], str]
) -> None:
    run = start(bridged(slow("echo no luck today; exit 7")))
    assert run.finish() == 3
    assert "exited with code 7" in run.stderr
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
    code, text = down(run.directory)
    assert code == 2
    assert f"is active: pubstorm has pid {run.process.pid}" in text
    os.kill(run.process.pid, signal.SIGKILL)
    run.process.wait()
    assert secrets(run)
    code, text = down(run.directory)
    assert code == 0
    assert "ended 21 processes: cloud-0 (pid " in text
    assert "deleted keys and passwords" in text
    assert text.endswith("nothing is left of this run\n")
    gone(pids(run))
    assert secrets(run) == []
    assert down(run.directory) == (0, "nothing is left of this run\n")


def test_down_ends_a_run_that_goes_on_when_it_is_forced(start: RunMaker, gone: Gone) -> None:
    run = start(bridged())
    run.wait_for("hold ")
    code, text = down(run.directory, "--force")
    assert code == 0
    assert f"ended the run itself (pid {run.process.pid})" in text
    assert run.finish() == 130
    gone(pids(run))
    assert run.result()["interrupted"]


def test_a_box_that_is_killed_fails_the_run(start: RunMaker) -> None:
    run = start(bridged(time="4s"))
    run.wait_for("hold ")
    victim = record(run)[7]
    os.kill(victim.pid, signal.SIGKILL)
    assert run.finish() == 1
    result = run.result()
    died = [broker["name"] for broker in result["brokers"] if broker["died"]]
    assert died == [victim.name]
    assert not any(broker["restarts"] for broker in result["brokers"])


def test_a_box_that_is_killed_is_started_again_where_it_may(start: RunMaker) -> None:
    run = start(bridged("restart: {at_most: 2}"))
    run.wait_for("hold ")
    name = record(run)[7].name

    def starts() -> list[int]:
        return [entry.pid for entry in record(run) if entry.name == name]

    for count in (1, 2):
        os.kill(starts()[-1], signal.SIGKILL)
        until(lambda count=count: len(starts()) > count)  # type: ignore[misc]
        run.wait_for(f"was started again (pid {starts()[-1]})")
    os.kill(starts()[-1], signal.SIGKILL)
    run.wait_for("it flaps")
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 130
    result = run.result()
    [broker] = [broker for broker in result["brokers"] if broker["name"] == name]
    assert (broker["restarts"], broker["died"], broker["pid"]) == (2, True, starts()[-1])
    ports = {line for line in config(run, name).splitlines() if line.startswith("listener ")}
    assert ports == {f"listener {broker['port']} 127.0.0.1"}
    kinds = [event["kind"] for event in result["events"]]
    assert (kinds.count("restart"), kinds.count("broker")) == (2, 1)


def config(run: Any, name: str) -> str:
    text: str = (run.directory / "topology" / name / "mosquitto.conf").read_text()
    return text


@pytest.mark.slow("every small broker is killed and started again")
def test_a_thousand_restarts_are_reported_in_some_lines(start: RunMaker) -> None:
    run = start(bridged("restart: {at_most: 9}", time="60s"))
    run.wait_for("hold ")
    first = [entry for entry in record(run) if entry.name != "cloud-0"]
    for entry in first:
        os.kill(entry.pid, signal.SIGKILL)
    run.wait_for("10 more brokers were started again")
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 130
    result = run.result()
    assert sum(broker["restarts"] for broker in result["brokers"]) == BOXES
    assert [event["kind"] for event in result["events"]].count("restart") == 11


def test_a_disk_that_fills_up_during_the_start_is_an_error(
    start: RunMaker, gone: Gone, small_disk: SmallDisk
) -> None:
    run = start(bridged(), out=small_disk(1180) / "run")
    assert run.finish() == 3
    assert "No space left on device" in run.stderr
    assert record(run)
    gone(pids(run))
    assert secrets(run) == []


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
    ("prefix", "limit", "words"),
    [
        ((), "--nofile=40", "met the limit of open files of this process"),
        (AS_UNPRIVILEGED, "--nproc=12", "met its limit of processes and threads"),
    ],
)
def test_a_limit_that_is_too_small_is_named(
    prefix: Sequence[str], limit: str, words: str, start: RunMaker, gone: Gone
) -> None:
    limited = (*prefix, "prlimit", limit, "--")
    probe = subprocess.run([*limited, "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("limits of another user need root, setpriv and prlimit")
    run = start(MIXED.replace("count: 15", "count: 40"), prefix=limited)
    assert run.finish() == 3
    assert words in run.stderr
    assert "hint: ulimit" in run.stderr
    gone(pids(run))
    assert down(run.directory) == (0, "nothing is left of this run\n")


def test_a_port_that_is_taken_is_named_before_anything_starts(start: RunMaker) -> None:
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        port = taken.getsockname()[1]
        run = start(bridged(f"port: {port - 7}"))
        assert run.finish() == 3
    assert f"port {port} of broker boxes-7 is taken by " in run.stderr
    assert f"(pid {os.getpid()})" in run.stderr
    assert record(run) == []
