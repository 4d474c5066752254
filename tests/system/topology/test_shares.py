"""Processors and memory of brokers: what the kernel has of them, and what is left afterwards."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from pubstorm.host.shares import Hierarchy, MemoryCgroup, NoCgroupError, usable_processors
from pubstorm.scenario.topology import ScenarioTopology as TopologySpec
from pubstorm.topology import BrokerDied, BrokerEvent, Topology
from tests.system.topology.conftest import up

LIMIT = 100_000_000
EATER = """\
import os, socket, sys

assert os.environ["SHARE"] == os.path.dirname(__file__)
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
held = []
while True:
    connection, _ = listener.accept()
    while connection.recv(3) == b"eat":
        while True:
            held.append(b"x" * 1_000_000)
"""
"""A server that takes all memory when a client asks for it."""


@pytest.fixture
def limits() -> None:
    """Skips a test where this host limits no memory."""
    try:
        MemoryCgroup.make("trial", LIMIT, lambda _: None, Hierarchy.here()).remove()
    except NoCgroupError as reason:
        pytest.skip(f"this host limits no memory: {reason}")


def topology(folder: Path, news: asyncio.Queue[BrokerEvent], **broker: object) -> Topology:
    spec = TopologySpec.model_validate({"brokers": {"main": broker}})
    return Topology(spec, folder, news.put_nowait)


def status(pid: int, word: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{word}:"))


@pytest.mark.usefixtures("limits")
async def test_a_broker_has_its_processors_and_its_memory(tmp_path: Path) -> None:
    cpu = max(usable_processors())
    made = topology(tmp_path, asyncio.Queue(), kind="embedded", cpus=[cpu], memory="100MB")
    async with up(made) as brokers:
        (broker,) = brokers.results()
        assert status(broker.pid, "Cpus_allowed_list") == str(cpu) and broker.cpus == (cpu,)
        assert broker.memory_limit_bytes is not None
        assert LIMIT - 2**20 < broker.memory_limit_bytes <= LIMIT
        lines = Path(f"/proc/{broker.pid}/cgroup").read_text().splitlines()
        (group,) = (line for line in lines if line.endswith("-main-0"))
        own = Hierarchy.here().own
        folders = [*own.parent.rglob(Path(group).name)]
        assert folders
    assert not any(folder.exists() for folder in folders)
    assert list(made.unlimited()) == []


@pytest.mark.usefixtures("limits")
async def test_a_broker_that_reaches_its_memory_ends_with_the_reason(tmp_path: Path) -> None:
    news: asyncio.Queue[BrokerEvent] = asyncio.Queue()
    command = ["python3", "{folder}/etc/eater.py", "{host}", "{port}"]
    own = {
        "files": {"etc/eater.py": EATER},
        "environment": {"SHARE": "{folder}/etc"},
        "version": ["echo", "eater 1.2.3 of {brokers}"],
    }
    made = topology(tmp_path, news, kind="command", command=command, memory="100MB", **own)
    async with up(made) as brokers:
        (broker,) = brokers.results()
        assert broker.version == "1.2.3"
        with socket.create_connection((broker.host, broker.port)) as client:
            client.sendall(b"eat")
            died = await news.get()
    assert isinstance(died, BrokerDied)
    assert died.text.endswith("killed by signal 9, since it reached its memory of 100 MB")
