"""The cluster of all tests of this folder that ask for it: up once, repaired before each test.

Its runs use the command line on the head. Their broker is on the head too, apart from it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit.runs import ANY_SPEED, DATA_ONLY, EACH_SECOND, Run, end_all
from tests.world.ray.cluster import OUTSIDE, PREFIX, START_TIMEOUT_S, Cluster, until, why_not

BROKER_PORT = 1883
SETTINGS = f"listener {BROKER_PORT} 0.0.0.0\nallow_anonymous true\nuser root\n"

RunMaker = Callable[..., Run]


@pytest.fixture(scope="session")
def nodes() -> Iterator[Cluster]:
    """A cluster that the last test may have broken."""
    reason = why_not()
    if reason is not None:
        pytest.skip(f"no cluster on this machine: {reason}")
    made = Cluster(Path(tempfile.mkdtemp(prefix=f"{PREFIX}-")))
    try:
        made.up()
        yield made
    finally:
        made.down()


@pytest.fixture
def cluster(nodes: Cluster) -> Cluster:
    """A cluster that is whole."""
    nodes.restore()
    return nodes


@pytest.fixture(scope="session")
def broker(nodes: Cluster) -> Iterator[str]:
    """URL of a mosquitto on the head, which all hosts reach."""
    binary = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
    if binary is None:
        pytest.skip("mosquitto is not installed (apt-get install mosquitto)")
    settings = nodes.folder / OUTSIDE
    settings.write_text(SETTINGS)
    words = nodes.head.within(binary, "-c", str(settings))
    with (nodes.folder / "mosquitto.log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        until(lambda: nodes.head.listens(BROKER_PORT), START_TIMEOUT_S, "mosquitto")
        yield f"mqtt://{nodes.head.address}:{BROKER_PORT}"
    finally:
        process.kill()
        process.wait()


@contextmanager
def runs_on(cluster: Cluster, folder: Path) -> Iterator[RunMaker]:
    """Starts `pubstorm run` on the head, to play on the cluster; all runs are gone afterwards."""
    runs: list[Run] = []

    def make(
        scenario: str,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        report: bool = False,
    ) -> Run:
        number = len(runs)
        path, directory = folder / f"scenario-{number}.yaml", folder / f"run-{number}"
        path.write_text(scenario)
        words = [sys.executable, "-m", "pubstorm", "run", str(path), "--out", str(directory)]
        words += ["--on", cluster.url, *EACH_SECOND, *ANY_SPEED, *(() if report else DATA_ONLY)]
        process = subprocess.Popen(
            cluster.head.within(*words, *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=cluster.head.environment if environment is None else dict(environment),
        )
        runs.append(Run(process, directory))
        return runs[-1]

    try:
        yield make
    finally:
        end_all(runs)


@pytest.fixture
def start(cluster: Cluster, tmp_path: Path) -> Iterator[RunMaker]:
    """Starts runs for a test."""
    with runs_on(cluster, tmp_path) as make:
        yield make


@pytest.fixture(scope="module")
def shared_start(nodes: Cluster, shared_folder: Path) -> Iterator[RunMaker]:
    """Starts runs that several tests of a module look at."""
    nodes.restore()
    with runs_on(nodes, shared_folder) as make:
        yield make
