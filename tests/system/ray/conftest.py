"""A real Ray cluster of one node on loopback, for tests: started once, made free before each test,
and ended by its process group. Nothing here stops Ray by name: others may have one on the same
machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.ports import free_ports

START_S = 180.0
FREE_S = 30.0
"""Longest time for the processors of an ended test to be free."""
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


class Node:
    """A node that is a cluster. A test that fails may leave it unusable."""

    def __init__(self) -> None:
        self._folder = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""
        """Of its GCS."""

    @property
    def temporary(self) -> Path:
        """Folder for temporary files of the node and of its agents only."""
        return self._folder / "tmp"

    def start(self) -> None:
        """Starts it, and waits until it is up."""
        folder = self._folder = Path(tempfile.mkdtemp(prefix="ps-ray-", dir="/tmp"))
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
        self.temporary.mkdir()
        self.address = f"127.0.0.1:{port}"
        log = folder / "start.log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                words,
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "TMPDIR": str(self.temporary)},
            )
        deadline_s = time.monotonic() + START_S
        while b"Ray runtime started" not in log.read_bytes():
            running = self._process.poll() is None and time.monotonic() < deadline_s
            assert running, log.read_text()
            time.sleep(0.1)

    def stop(self) -> None:
        """Ends it with all that it has started."""
        if self._process is not None:
            end_session(self._process)
            shutil.rmtree(self._folder, ignore_errors=True)

    def restore(self) -> None:
        """Frees all that a failed test has kept. Starts another node if that does not help."""
        import ray

        from pubstorm.fleet.ray import cluster

        if cluster._members:
            ray.shutdown()
            cluster._members = 0
        deadline_s = time.monotonic() + FREE_S
        while (free := self.free()) != CPUS:
            if free is None or time.monotonic() > deadline_s:
                self.stop()
                self.start()
                return
            time.sleep(0.05)

    def free(self) -> float | None:
        """Returns the number of its free processors; None if it is gone."""
        from ray._private.state import GlobalState
        from ray._raylet import GcsClientOptions  # type: ignore[attr-defined]

        if self._process is None or self._process.poll() is not None:
            return None
        state = GlobalState()
        state._initialize_global_state(
            GcsClientOptions.create(
                self.address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=True
            )
        )
        try:
            (free,) = state.available_resources_per_node().values()
        finally:
            state.disconnect()
        return float(free.get("CPU", 0))


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
    """A cluster of one node, which the last test may have left unusable."""
    node = Node()
    try:
        node.start()
        yield node
    finally:
        node.stop()


@pytest.fixture
def node(lone_node: Node) -> Node:
    """A cluster of one node, all of it free."""
    lone_node.restore()
    return lone_node
