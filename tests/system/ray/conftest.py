"""A real Ray cluster of one node on loopback, for tests: started once, and ended by its process
group. Nothing here stops Ray by name: others may have one on the same machine."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit.ports import free_ports

START_S = 60.0
CPUS = 4
WORKERS_MAX = 300
"""Ports for workers: Ray's own choice from 10002 on belongs to other test processes. A worker that
is killed does not give its port back, and without a port no further worker starts."""
PARTS = (
    "node-manager",
    "object-manager",
    "runtime-env-agent",
    "dashboard-agent-listen",
    "dashboard-agent-grpc",
    "metrics-export",
)


@dataclass(frozen=True)
class Node:
    """A node that is a cluster."""

    address: str
    """Of its GCS."""
    temporary: Path
    """Folder for temporary files of the node and of its agents only."""


@contextmanager
def ray_node() -> Iterator[Node]:
    """Starts a node, and ends it."""
    folder = Path(tempfile.mkdtemp(prefix="ps-ray-", dir="/tmp"))  # Sockets need a short path.
    port, *others = free_ports(1 + len(PARTS))
    workers = ",".join(map(str, free_ports(WORKERS_MAX)))
    words = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
        *("--node-ip-address", "127.0.0.1", "--port", str(port), "--num-cpus", str(CPUS)),
        *("--object-store-memory", "80000000", "--temp-dir", str(folder)),
        *("--include-dashboard", "false", "--include-log-monitor", "false"),
        *("--disable-usage-stats", "--worker-port-list", workers),
        *(f"--{part}-port={own}" for part, own in zip(PARTS, others, strict=True)),
    ]
    log = folder.with_suffix(".log")
    temporary = folder / "tmp"
    temporary.mkdir()
    with log.open("wb") as output:
        node = subprocess.Popen(
            words,
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(temporary)},
        )
    try:
        await_port(port, node, log)
        yield Node(f"127.0.0.1:{port}", temporary)
    finally:
        end_session(node)
        shutil.rmtree(folder, ignore_errors=True)
        log.unlink(missing_ok=True)


def await_port(port: int, node: subprocess.Popen[bytes], log: Path) -> None:
    """Waits until the node says that it is up."""
    deadline = time.monotonic() + START_S
    while b"Ray runtime started" not in log.read_bytes():
        assert node.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
    with closing(socket.create_connection(("127.0.0.1", port), timeout=5)):
        pass


def end_session(leader: subprocess.Popen[bytes]) -> None:
    """Ends a process and all that it has started, and waits for it."""
    for pid in session_of(leader.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    leader.wait(10)


def session_of(leader: int) -> list[int]:
    """The processes of a session, its leader first."""
    found = [leader]
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and int(stat.parent.name) != leader:
            found.append(int(stat.parent.name))
    return found


@pytest.fixture(scope="session")
def lone_node() -> Iterator[Node]:
    """A cluster of one node."""
    with ray_node() as started:
        yield started


@pytest.fixture
def node(lone_node: Node) -> str:
    """Its address."""
    return lone_node.address


@pytest.fixture
def temporary(lone_node: Node) -> Path:
    """Its folder for temporary files."""
    return lone_node.temporary
