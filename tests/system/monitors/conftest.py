"""Things to watch, for the tests of this folder: brokers and processes of the tests' own, and how
to wait for a reading."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pubstorm.contract.target import Target
from pubstorm.host.children import find
from pubstorm.measure.monitors import Monitor, MonitorError
from pubstorm.topology.adapters.mosquitto import configuration
from tests.kit.ports import free_port
from tests.kit.serving import until

Readings = dict[str, float]
BrokerMaker = Callable[..., Target]
ChildMaker = Callable[[str], "subprocess.Popen[str]"]

BUSY = "print('ready', flush=True)\nwhile True: pass"
WAITING = "import sys; print('ready', flush=True); sys.stdin.read()"
"""Programs for `child`."""


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[BrokerMaker]:
    """Starts brokers with settings; they are gone after the test."""
    binary = find("mosquitto")
    if binary is None:
        pytest.skip("mosquitto is not installed (apt-get install mosquitto)")
    started: list[subprocess.Popen[bytes]] = []

    def start(**settings: object) -> Target:
        port = free_port()
        config = tmp_path / f"mosquitto-{port}.conf"
        config.write_text(configuration(settings, f"{port} 127.0.0.1", tmp_path))
        process = subprocess.Popen([binary, "-c", str(config)], stderr=subprocess.DEVNULL)
        started.append(process)
        until(lambda: process.poll() is not None or answers(port))
        assert process.poll() is None, config.read_text()
        return Target(host="127.0.0.1", port=port)

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def child() -> Iterator[ChildMaker]:
    """Starts Python programs, each given as text, which say a line when they are ready; they are
    gone after the test, with what they started."""
    started: list[subprocess.Popen[str]] = []

    def start(program: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline()
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def read(monitor: Monitor) -> Readings:
    """Values of one reading by metric."""
    return {reading.metric: reading.value for reading in monitor.read()}


def read_until(monitor: Monitor, *metrics: str) -> Readings:
    """Reads a monitor until it has yielded some metrics. Returns the latest value of each."""
    found: Readings = {}

    def complete() -> bool:
        found.update(read(monitor))
        return found.keys() >= {*metrics}

    until(complete)
    return found


def problem_of(monitor: Monitor) -> str:
    """Reads a monitor until it has a problem; its words."""

    def failed() -> str:
        try:
            read(monitor)
        except MonitorError as error:
            return str(error)
        return ""

    return str(until(failed))


def needs_perf() -> None:
    if shutil.which("perf") is None:
        pytest.skip("perf is not installed (apt-get install linux-perf)")


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
