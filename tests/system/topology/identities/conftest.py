"""A Redis of the test's own, and a scenario with users."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from pubstorm.host.children import find
from pubstorm.topology.services import configuration
from tests.kit.ports import free_port

DEADLINE_S = 30.0
USERS = """\
target: mqtt://localhost
populations:
  device:
    clients: {clients}
    first: 5
    username: "device-{{n}}"
    password: "secret-{{n}}"
    subscriptions: ["down/{{n}}/#", "both/{{n}}"]
    publications: [{{topic: "up/{{n}}/{{1..2}}", rate: 1/s}}, {{topic: "both/{{n}}", rate: 1/s}}]
  backend: {{clients: 1, subscriptions: ["up/#"]}}
stages: [connect, {{publish: 1s}}]
"""
"""A device has five rows: its user, and four topic filters."""


@dataclass
class OwnRedis:
    """A Redis as a child process, without a copy on the disk."""

    binary: str
    folder: Path
    port: int
    settings: Mapping[str, object] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        ours = {"bind": "127.0.0.1", "port": self.port, "dir": self.folder}
        config = self.folder / f"redis-{self.port}.conf"
        config.write_text(configuration(self.settings, ours))
        with (self.folder / f"redis-{self.port}.log").open("ab") as log:
            self.process = subprocess.Popen([self.binary, str(config)], stdout=log, stderr=log)
        wait_for(self.port)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def client(self) -> Any:
        """A client of other people's, to look at what there is."""
        return Redis(port=self.port, decode_responses=True)


def wait_for(port: int) -> None:
    """Returns when somebody listens on the port."""
    deadline_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline_s:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        time.sleep(0.01)
    pytest.fail(f"nothing listens on port {port}")


@contextlib.contextmanager
def redis_in(folder: Path) -> Iterator[OwnRedis]:
    """A Redis that is up; it is gone afterwards."""
    binary = find("redis-server")
    if binary is None:
        pytest.skip("redis-server is not installed (scripts/install-test-tools)")
    redis = OwnRedis(binary, folder, free_port())
    redis.start()
    try:
        yield redis
    finally:
        redis.kill()


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[OwnRedis]:
    with redis_in(tmp_path) as redis:
        yield redis


@pytest.fixture
def users(tmp_path: Path) -> str:
    """Path of a scenario with 300 devices, which have 1500 rows, and one client without a name."""
    path = tmp_path / "users.yaml"
    path.write_text(USERS.format(clients=300))
    return str(path)
