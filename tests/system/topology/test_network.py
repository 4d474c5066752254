"""Networks of small brokers, with the kernel's real ones: what their links do, and that nothing of
them is left."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from pubstorm.errors import TopologyError
from pubstorm.host.preflight.host import NetworkHost
from pubstorm.scenario import parse_scenario
from pubstorm.scenario.topology import Bridge
from pubstorm.scenario.topology import ScenarioNetwork as NetworkSpec
from pubstorm.topology import Topology
from pubstorm.topology.bridges import network as network_module
from pubstorm.topology.bridges.network import NAMESPACES, Network, Networks
from tests.system.topology.conftest import up

HOST = NetworkHost.here(("netem", "tbf"))
HAS = HOST.disciplines or frozenset()
TIMEOUT_S = 30.0
"""Time limit for an expected change on a busy machine."""

pytestmark = [
    pytest.mark.xdist_group("networks"),
    pytest.mark.skipif(
        not HOST.makes_namespaces or "tbf" not in HAS,
        reason="this host or user makes no network namespaces with tbf",
    ),
]

FETCHER = """\
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as peer:
    peer.recv(1)
    peer.sendall(bytes(int(sys.argv[3])))
    peer.shutdown(socket.SHUT_WR)
    received = 0
    while chunk := peer.recv(65536):
        received += len(chunk)
print(received)
"""


def spec(**properties: str) -> NetworkSpec:
    return NetworkSpec.model_validate(properties)


@asynccontextmanager
async def started(**properties: str) -> AsyncIterator[Network]:
    network = Network("uplink", spec(**properties))
    await network.start()
    try:
        yield network
    finally:
        await network.stop()


def left_of(name: str) -> list[str]:
    """Interfaces and namespaces of a network that exist."""
    tag = name.split("-")[1]
    interfaces = [each for each in psutil.net_if_addrs() if tag in each]
    return interfaces + [path.name for path in NAMESPACES.glob(f"*{tag}*")]


def transfer(network: Network, size: int) -> tuple[float, float]:
    """Seconds that so many bytes take from inside to the main broker's end, once a byte has asked
    for them, and back."""
    with socket.create_server((network.main_host, 0)) as listener:
        where = (network.main_host, str(listener.getsockname()[1]), str(size))
        command = (*network.prefix, sys.executable, "-c", FETCHER, *where)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as inside:
            peer, _ = listener.accept()
            with peer:
                began = time.monotonic()
                peer.sendall(b"?")
                received = 0
                while chunk := peer.recv(65536):
                    received += len(chunk)
                there = time.monotonic()
                assert received == size
                peer.sendall(bytes(size))
                peer.shutdown(socket.SHUT_WR)
                output, _ = inside.communicate(timeout=TIMEOUT_S)
                assert output.split() == [str(size)]
                return there - began, time.monotonic() - there


async def test_a_link_carries_its_rate_and_no_more_in_both_directions() -> None:
    async with started(rate="1MB/s") as network:
        there, back = await asyncio.to_thread(transfer, network, 500_000)
        assert min(there, back) > 0.45


@pytest.mark.skipif("netem" not in HAS, reason="this kernel has no netem")
async def test_a_link_delays_both_directions() -> None:
    async with started(delay="50ms") as network:
        there, back = await asyncio.to_thread(transfer, network, 1)
        assert there > 0.1, "both the byte that asks and the answer are delayed"
        assert back > 0.05


@pytest.mark.skipif("netem" in HAS, reason="this kernel has netem")
async def test_a_kernel_without_netem_is_reported_with_the_fix() -> None:
    network = Network("uplink", spec(delay="50ms"))
    with pytest.raises(TopologyError, match="uplink: this kernel has no netem") as caught:
        await network.start()
    assert caught.value.exit_code == 2
    assert "modprobe sch_netem" in str(caught.value.hint)
    assert not left_of(network.name)


async def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(TopologyError, match="takes root") as caught:
        await Network("uplink", spec()).start()
    assert caught.value.exit_code == 2


async def test_a_stop_leaves_nothing_and_may_be_repeated() -> None:
    network = Network("uplink", spec(rate="1MB/s"))
    await network.stop()
    await network.start()
    assert len(left_of(network.name)) == 3
    await network.stop()
    await network.stop()
    assert not left_of(network.name)


@pytest.mark.parametrize(
    ("words", "said"), [("nonsense", "this kernel has no nonsense"), ("tbf rate much", "tc qdisc")]
)
async def test_half_a_start_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, words: str, said: str
) -> None:
    monkeypatch.setattr(network_module, "discipline", lambda _: words.split())
    network = Network("uplink", spec())
    with pytest.raises(TopologyError, match=f"network of bridge uplink: {said}"):
        await network.start()
    assert not left_of(network.name)


async def test_a_start_that_is_interrupted_leaves_nothing() -> None:
    network = Network("uplink", spec())
    start = asyncio.create_task(network.start())
    while not left_of(network.name):
        await asyncio.sleep(0)
    start.cancel()
    await asyncio.wait({start})
    assert start.cancelled()
    assert not left_of(network.name)


async def test_one_network_that_fails_leaves_none_of_the_others() -> None:
    def bridge(source: str) -> Bridge:
        topics = [{"topic": "#", "direction": "out"}]
        given = {"from": source, "to": "cloud", "topics": topics, "network": spec()}
        return Bridge.model_validate(given)

    networks = Networks({"one": bridge("boxes"), "two": bridge("hubs")})
    second = networks.around("hubs")
    assert second is not None
    names: list[str] = []

    def note(name: str) -> None:
        names.append(name)
        if name == second.name:
            # Somebody else has it already.
            (NAMESPACES / name).touch()

    with pytest.raises(TopologyError, match="bridge two"):
        await networks.start(note)
    assert [name.rpartition("-")[2] for name in names] == ["one", "two"]
    assert not [left for name in names for left in left_of(name)]


async def test_a_broker_that_is_started_again_is_in_its_network_as_before(tmp_path: Path) -> None:
    text = """
topology:
  brokers: {cloud: {kind: mosquitto}, boxes: {kind: mosquitto, count: 2, port: 1883}}
  bridges:
    uplink: {from: boxes, to: cloud, topics: [{topic: "#", direction: out}], network: {}}
populations: {device: {clients: 1, at: boxes, publications: [{topic: a, rate: 1/s}]}}
"""

    def namespace(pid: int) -> str:
        return str(Path(f"/proc/{pid}/ns/net").readlink())

    spec = parse_scenario(text, "s.yaml").topology
    async with up(Topology(spec, tmp_path, lambda _: None)) as topology:
        boxes = [topology.broker(name) for name in topology.names("boxes")]
        assert [box.port for box in boxes] == [1883, 1884]
        before = namespace(boxes[0].pid)
        assert before != namespace(os.getpid())
        topology.expect(boxes[0].name, True)
        boxes[0].send(signal.SIGKILL)
        await boxes[0].ending()
        await boxes[0].restart()
        topology.expect(boxes[0].name, False)
        assert namespace(boxes[0].pid) == namespace(boxes[1].pid) == before
