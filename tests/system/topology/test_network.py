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
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import psutil
import pytest

from pubstorm.errors import TopologyError
from pubstorm.host.preflight.network import NetworkHost
from pubstorm.scenario import parse_scenario
from pubstorm.scenario.topology import Bridge
from pubstorm.scenario.topology import Network as NetworkSpec
from pubstorm.topology import Topology
from pubstorm.topology.adapters import MosquittoBroker
from pubstorm.topology.bridges import network as network_module
from pubstorm.topology.bridges.network import NAMESPACES, Network, Networks, remove_namespace
from pubstorm.topology.broker import Place
from tests.system.topology.clients import client

HOST = NetworkHost.here(("netem", "tbf"))
HAS = HOST.disciplines or frozenset()
SMALL_BROKERS = 2
KEEP_ALIVE_S = 5
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
    peer.sendall(bytes(int(sys.argv[3])))
    peer.shutdown(socket.SHUT_WR)
    received = 0
    while chunk := peer.recv(65536):
        received += len(chunk)
print(received)
"""

PARENT = """\
import asyncio, sys
from pathlib import Path
from pubstorm.scenario.topology import Network as NetworkSpec
from pubstorm.topology.adapters import MosquittoBroker
from pubstorm.topology.broker import Place
from pubstorm.topology.bridges.network import Network

async def main():
    network = Network("uplink", NetworkSpec())
    await network.start()
    place = Place("box", Path(sys.argv[1]), host=network.host, prefix=network.prefix)
    broker = MosquittoBroker(place)
    await broker.start()
    print(network.name, broker.pid, flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


def spec(**properties: str) -> NetworkSpec:
    return NetworkSpec.model_validate(properties)


@asynccontextmanager
async def started(network: Network) -> AsyncIterator[Network]:
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


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


def transfer(network: Network, size: int) -> tuple[float, float]:
    """Seconds that so many bytes take from inside to the main broker's end, and back."""
    with socket.create_server((network.main_host, 0)) as listener:
        where = (network.main_host, str(listener.getsockname()[1]), str(size))
        command = (*network.prefix, sys.executable, "-c", FETCHER, *where)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as inside:
            peer, _ = listener.accept()
            with peer:
                began = time.monotonic()
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


def test_a_link_carries_its_rate_and_no_more_in_both_directions() -> None:
    async def run() -> None:
        async with started(Network("uplink", spec(rate="1MB/s"))) as network:
            there, back = await asyncio.to_thread(transfer, network, 500_000)
            assert min(there, back) > 0.45

    asyncio.run(run())


@pytest.mark.skipif("netem" not in HAS, reason="this kernel has no netem")
def test_a_link_delays_both_directions() -> None:
    async def run() -> None:
        async with started(Network("uplink", spec(delay="50ms"))) as network:
            there, back = await asyncio.to_thread(transfer, network, 1)
            assert there + back > 0.1

    asyncio.run(run())


@pytest.mark.skipif("netem" in HAS, reason="this kernel has netem")
def test_a_kernel_without_netem_is_reported_with_the_fix() -> None:
    network = Network("uplink", spec(delay="50ms"))
    with pytest.raises(TopologyError, match="uplink: this kernel has no netem") as caught:
        asyncio.run(network.start())
    assert caught.value.exit_code == 2
    assert "modprobe sch_netem" in str(caught.value.hint)
    assert not left_of(network.name)


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(TopologyError, match="takes root") as caught:
        asyncio.run(Network("uplink", spec()).start())
    assert caught.value.exit_code == 2


def test_a_stop_leaves_nothing_and_may_be_repeated() -> None:
    async def run() -> None:
        network = Network("uplink", spec(rate="1MB/s"))
        await network.stop()
        await network.start()
        assert len(left_of(network.name)) == 3
        await network.stop()
        await network.stop()
        assert not left_of(network.name)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("words", "said"), [("nonsense", "this kernel has no nonsense"), ("tbf rate much", "tc qdisc")]
)
def test_half_a_start_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, words: str, said: str
) -> None:
    monkeypatch.setattr(network_module, "discipline", lambda _: words.split())
    network = Network("uplink", spec())
    with pytest.raises(TopologyError, match=f"network of bridge uplink: {said}"):
        asyncio.run(network.start())
    assert not left_of(network.name)


def test_a_start_that_is_interrupted_leaves_nothing() -> None:
    async def run() -> None:
        network = Network("uplink", spec())
        start = asyncio.create_task(network.start())
        while not left_of(network.name):
            await asyncio.sleep(0)
        start.cancel()
        await asyncio.wait({start})
        assert start.cancelled()
        assert not left_of(network.name)

    asyncio.run(run())


def test_one_network_that_fails_leaves_none_of_the_others() -> None:
    def bridge(source: str, network: NetworkSpec) -> Bridge:
        topics = [{"topic": "#", "direction": "out"}]
        given = {"from": source, "to": "cloud", "topics": topics, "network": network}
        return Bridge.model_validate(given)

    networks = Networks({"one": bridge("boxes", spec()), "two": bridge("hubs", spec())})
    second = networks.around("hubs")
    assert second is not None
    names: list[str] = []

    def note(name: str) -> None:
        names.append(name)
        if name == second.name:
            # Somebody else has it already.
            (NAMESPACES / name).touch()

    with pytest.raises(TopologyError, match="bridge two"):
        asyncio.run(networks.start(note))
    assert [name.rpartition("-")[2] for name in names] == ["one", "two"]
    assert not [left for name in names for left in left_of(name)]


def test_brokers_inside_die_with_pubstorm_and_the_network_can_be_removed(tmp_path: Path) -> None:
    command = (sys.executable, "-c", PARENT, str(tmp_path))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        name, pid = parent.stdout.readline().split()
        assert psutil.Process(int(pid)).name() == "mosquitto"
        parent.send_signal(signal.SIGKILL)
    until(lambda: not psutil.pid_exists(int(pid)))
    assert remove_namespace(name)
    assert not remove_namespace(name)
    assert not left_of(name)


def test_a_broker_that_is_started_again_is_in_its_network_as_before(tmp_path: Path) -> None:
    text = """
topology:
  brokers: {cloud: {kind: mosquitto}, boxes: {kind: mosquitto, count: 2, port: 1883}}
  bridges:
    uplink: {from: boxes, to: cloud, topics: [{topic: "#", direction: out}], network: {}}
populations: {device: {clients: 1, at: boxes, publications: [{topic: a, rate: 1/s}]}}
"""

    def namespace(pid: int) -> str:
        return str(Path(f"/proc/{pid}/ns/net").readlink())

    async def run() -> None:
        topology = Topology(parse_scenario(text, "s.yaml").topology, tmp_path, lambda _: None)
        try:
            await topology.start()
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
        finally:
            await topology.stop()

    asyncio.run(run())


def bridged(number: int, network: Network, port: int) -> str:
    """The configuration of one bridge."""
    return f"""\
connection box-{number}
address {network.main_host}:{port}
remote_clientid box-{number}
cleansession false
keepalive_interval {KEEP_ALIVE_S}
restart_timeout 1 2
notification_topic state/{number}
topic up/# out 1
topic down/# in 1
"""


Bridged = tuple[Network, list[MosquittoBroker]]


@asynccontextmanager
async def bridges(folder: Path, **properties: str) -> AsyncIterator[Bridged]:
    """A main broker, and small ones in a network with a link of these properties."""
    network = Network("uplink", spec(**properties))
    brokers: list[MosquittoBroker] = []
    async with started(network):
        try:
            brokers.append(
                MosquittoBroker(Place("main", folder / "main", also_on=[network.main_host]))
            )
            await brokers[0].start()
            for number in range(SMALL_BROKERS):
                place = Place(
                    f"box-{number}",
                    folder / f"box-{number}",
                    host=network.host,
                    prefix=network.prefix,
                    more=bridged(number, network, brokers[0].port),
                )
                brokers.append(MosquittoBroker(place))
                await brokers[-1].start()
            yield network, brokers
        finally:
            for broker in brokers:
                await broker.stop()


@pytest.mark.slow("a link is unplugged until a keep-alive ends")
def test_bridges_cross_the_link_and_an_unplugged_one_is_silent(tmp_path: Path) -> None:
    def all_of(kind: str, payload: bytes) -> set[tuple[str, bytes]]:
        return {(f"{kind}/{n}", payload) for n in range(SMALL_BROKERS)}

    async def run() -> None:
        async with bridges(tmp_path, rate="10Mbit/s") as (network, brokers):
            with ExitStack() as stack:
                main, *boxes = (
                    stack.enter_context(client(broker.port, host=broker.host)) for broker in brokers
                )
                main.subscribe("up/#")
                main.subscribe("state/#")
                await asyncio.to_thread(main.expect, *all_of("state", b"1"))
                for n, box in enumerate(boxes):
                    box.publish(f"up/{n}", b"before")
                await asyncio.to_thread(main.expect, *all_of("up", b"before"))
                await network.unplug()
                # Clients are served as before, and the small brokers keep what they have.
                for n, box in enumerate(boxes):
                    box.publish(f"up/{n}", b"meanwhile")
                # The main broker receives nothing, until its time-out ends.
                received = await asyncio.to_thread(main.expect, *all_of("state", b"0"))
                assert received == all_of("state", b"0")
                await network.plug()
                back = all_of("state", b"1") | all_of("up", b"meanwhile")
                await asyncio.to_thread(main.expect, *back)

    asyncio.run(run())
