"""Whole runs of the real program against real brokers. Everything that is started here is stopped
by its own process id, on ports that were free."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.kit import program
from tests.kit.ports import free_port

RUN_TIMEOUT_S = 180.0
READY_TIMEOUT_S = 60.0
GONE_TIMEOUT_S = 30.0
POLL_S = 0.01
ANY_SPEED = ("--set", "validity.lateness_p99=1min", "--set", "validity.busy=100%")
"""Validity rules that a busy machine passes too: these tests look at counts."""
EACH_SECOND = ("--progress", "1s")
"""Lines of the display that tests wait for."""
DATA_ONLY = ("--no-report",)
"""Rendering takes a third of the CPU of a short run; tests of reports ask for it."""


@dataclass
class Mosquitto:
    """A mosquitto of the test's own, outside the run."""

    binary: str
    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    def start(self) -> None:
        with (self.folder / "mosquitto.log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.binary, "-c", str(self.folder / "mosquitto.conf")], stdout=log, stderr=log
            )
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while self.process.poll() is None and time.monotonic() < deadline_s:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            time.sleep(POLL_S)
        pytest.fail(f"mosquitto does not start: {(self.folder / 'mosquitto.log').read_text()}")

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def sys_topic(self, topic: str) -> int:
        """The number that the broker publishes under `$SYS/broker/`."""
        reader = shutil.which("mosquitto_sub")
        if reader is None:
            pytest.skip("mosquitto_sub is not installed (apt-get install mosquitto-clients)")
        command = [reader, "-p", str(self.port), "-t", f"$SYS/broker/{topic}", "-C", "1", "-W", "9"]
        found = subprocess.run(command, capture_output=True, text=True, timeout=15, check=True)
        return int(found.stdout)


MosquittoMaker = Callable[..., Mosquitto]
SmallDisk = Callable[[int], Path]


@contextlib.contextmanager
def brokers_in(parent: Path) -> Iterator[MosquittoMaker]:
    """Starts brokers with settings in a folder; they are gone afterwards."""
    binary = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
    if binary is None:
        pytest.skip("mosquitto is not installed (apt-get install mosquitto)")
    started: list[Mosquitto] = []

    def start(**settings: object) -> Mosquitto:
        folder = parent / f"mosquitto-{len(started)}"
        folder.mkdir()
        port = free_port()
        defaults: dict[str, object] = {
            "listener": f"{port} 127.0.0.1",
            "allow_anonymous": "true",
            "user": "root" if os.geteuid() == 0 else "mosquitto",
            "set_tcp_nodelay": "true",
            "sys_interval": 1,
        }
        lines = [f"{key} {value}\n" for key, value in {**defaults, **settings}.items()]
        (folder / "mosquitto.conf").write_text("".join(lines))
        broker = Mosquitto(str(binary), folder, port)
        started.append(broker)
        broker.start()
        return broker

    try:
        yield start
    finally:
        for broker in started:
            with contextlib.suppress(ProcessLookupError):
                broker.signal(signal.SIGCONT)
            broker.kill()


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[MosquittoMaker]:
    """Starts brokers for a test."""
    with brokers_in(tmp_path) as start:
        yield start


@pytest.fixture(scope="module")
def shared_mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MosquittoMaker]:
    """Starts brokers for the tests of a module."""
    with brokers_in(tmp_path_factory.mktemp("brokers")) as start:
        yield start


@dataclass
class Run:
    """A run of `pubstorm` that is under way or over."""

    process: subprocess.Popen[str]
    directory: Path
    said: list[str] = field(default_factory=list)
    stdout: str = ""

    def __post_init__(self) -> None:
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                self.said.append(line)
                self._news.notify_all()
        with self._news:
            self._news.notify_all()

    def wait_for(self, words: str, after: str = "") -> None:
        """Waits until a line of the display has these words, behind one with those of `after`."""

        def is_said() -> bool:
            behind = next((n for n, line in enumerate(self.said) if after in line), len(self.said))
            return any(words in line for line in self.said[behind:])

        with self._news:
            is_in_time = self._news.wait_for(
                lambda: is_said() or not self._reader.is_alive(), RUN_TIMEOUT_S
            )
            assert is_in_time and is_said(), "".join(self.said)

    def wait_for_stage(self, name: str, percent: int = 1) -> None:
        """Waits until a stage is played to this share or beyond; a slow display skips numbers."""

        def is_there() -> bool:
            found = (re.search(rf"  {name} (\d+) %", line) for line in self.said)
            return any(match is not None and int(match[1]) >= percent for match in found)

        with self._news:
            is_in_time = self._news.wait_for(
                lambda: is_there() or not self._reader.is_alive(), RUN_TIMEOUT_S
            )
            assert is_in_time and is_there(), "".join(self.said)

    def finish(self) -> int:
        """Waits for the end; the exit code."""
        assert self.process.stdout is not None
        self.stdout += self.process.stdout.read()
        code = self.process.wait(RUN_TIMEOUT_S)
        self._reader.join(RUN_TIMEOUT_S)
        assert "Traceback" not in self.stderr, self.stderr
        assert not [*self.directory.rglob(".reserve"), *self.directory.rglob("control.sock")]
        return code

    @property
    def stderr(self) -> str:
        return "".join(self.said)

    def result(self) -> dict[str, Any]:
        """The stored result, after a check that no process of the run is left."""
        result: dict[str, Any] = json.loads((self.directory / "result.json").read_text())
        pids = [agent["pid"] for agent in result["fleet"]["agents"]]
        assert_gone([*pids, *(broker["pid"] for broker in result["brokers"])])
        return result

    def children(self) -> list[int]:
        """Process ids of everything that the run has started."""
        return [child.pid for child in psutil.Process(self.process.pid).children(recursive=True)]


def end_all(runs: Sequence[Run]) -> None:
    """Kills the runs that have not ended."""
    for run in runs:
        if run.process.poll() is None:
            run.process.kill()
        run.process.communicate()


RunMaker = Callable[..., Run]


@contextlib.contextmanager
def runs_in(folder: Path) -> Iterator[RunMaker]:
    """Starts `pubstorm run` on scenarios given as text; all runs are gone afterwards."""
    runs: list[Run] = []

    def make(
        scenario: str | Path,
        *arguments: str,
        out: Path | None = None,
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        report: bool = False,
    ) -> Run:
        path = scenario
        if isinstance(scenario, str):
            path = folder / "scenario.yaml"
            path.write_text(scenario)
        directory = out or folder / f"run-{len(runs)}"
        words = ["run", str(path), "--out", str(directory), *EACH_SECOND, *ANY_SPEED]
        process = program.popen(
            [*words, *(() if report else DATA_ONLY), *arguments],
            prefix=prefix,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        runs.append(Run(process, directory))
        return runs[-1]

    try:
        yield make
    finally:
        end_all(runs)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[RunMaker]:
    """Starts runs for a test."""
    with runs_in(tmp_path) as make:
        yield make


Play = Callable[..., tuple[int, dict[str, Any]]]


def to_the_end(start: RunMaker) -> Play:
    """Plays scenarios to their ends; exit code and stored result."""

    def play(*arguments: Any, **options: Any) -> tuple[int, dict[str, Any]]:
        played = start(*arguments, **options)
        code = played.finish()
        assert (played.directory / "result.json").exists(), played.stderr
        return code, played.result()

    return play


@pytest.fixture
def run(start: RunMaker) -> Play:
    """Plays a scenario of a test."""
    return to_the_end(start)


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the scenarios and runs that the tests of a module share."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def shared_start(shared_folder: Path) -> Iterator[RunMaker]:
    """Starts runs that several tests of a module look at."""
    with runs_in(shared_folder) as make:
        yield make


@pytest.fixture(scope="module")
def shared_run(shared_start: RunMaker) -> Play:
    """Plays a scenario whose result several tests of a module look at."""
    return to_the_end(shared_start)


@pytest.fixture
def unused_port() -> int:
    """A port of the loopback address that nothing listens on."""
    return free_port()


def assert_gone(pids: Sequence[int]) -> None:
    """Waits a moment for processes to end; a zombie counts as ended."""
    deadline_s = time.monotonic() + GONE_TIMEOUT_S
    while left := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < deadline_s, left
        time.sleep(POLL_S)


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def gone() -> Callable[[Sequence[int]], None]:
    """Asserts that processes have ended."""
    return assert_gone


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """Makes a folder on a file system of so many KiB, of which a run reserves 1 MiB; it is gone
    after the test."""
    folder = tmp_path / "small"

    def mount(size_kib: int) -> Path:
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size_kib}k", "tmpfs", str(folder)]
        try:
            mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
        except OSError:
            mounted = False
        if not mounted:
            pytest.skip("mounting a small tmpfs needs root")
        return folder

    yield mount
    if folder.is_mount():
        subprocess.run(["umount", str(folder)], check=True)
