"""Servers on other hosts, which deputies start: with their files, logs, ends, faults and figures,
and nothing is left of them."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from pubstorm.errors import TopologyError
from pubstorm.host.deputy.remote import RemoteMachine
from pubstorm.measure.monitors.host import HostMonitor
from pubstorm.measure.monitors.process import ProcessMonitor
from pubstorm.plan import provisional_plan
from pubstorm.plan.faults import PlannedFault
from pubstorm.scenario import parse_scenario
from pubstorm.topology import Around, BrokerDied, BrokerEvent, Topology
from pubstorm.topology.adapters.mosquitto import find_mosquitto
from pubstorm.topology.faults import Faults
from pubstorm.topology.services.redis import find_redis
from tests.pure.topology.elsewhere import Deputies

needs_redis = pytest.mark.skipif(find_redis() is None, reason="redis-server is not installed")
needs_mosquitto = pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed")

SCENARIO = """
topology: {{{topology}}}
populations: {{c: {{clients: 1, at: main, username: u, password: p, subscriptions: [a]}}}}
stages: [connect]
"""


@dataclass
class Started:
    topology: Topology
    hosts: Deputies
    events: asyncio.Queue[BrokerEvent] = field(default_factory=asyncio.Queue)


@asynccontextmanager
async def started(text: str, folder: Path) -> AsyncIterator[Started]:
    """A topology that is up, and gone afterwards with all its processes and files."""
    scenario = parse_scenario(SCENARIO.format(topology=text), "s.yaml")
    hosts, events = Deputies(folder / "hosts"), asyncio.Queue[BrokerEvent]()
    around = Around(hosts=hosts)
    topology = Topology(scenario.topology, folder / "topology", events.put_nowait, around)
    children = set(psutil.Process().children(recursive=True))
    try:
        plan = provisional_plan(scenario)
        topology.keys.make(plan)
        topology.services.prepare(plan)
        await topology.start()
        yield Started(topology, hosts, events)
    finally:
        await topology.stop()
        left = set(psutil.Process().children(recursive=True)) - children
        assert not [process for process in left if process.is_running()]
        assert [path for path in hosts.folder.iterdir() if path.is_dir()] == []


KINDS = {
    "embedded": "{kind: embedded, hosts: far}",
    "mosquitto": "{kind: mosquitto, hosts: far}",
}


@pytest.mark.parametrize("kind", [pytest.param("mosquitto", marks=needs_mosquitto), "embedded"])
def test_a_broker_elsewhere_listens_there_is_broken_and_leaves_its_log_here(
    kind: str, tmp_path: Path
) -> None:
    async def run() -> None:
        async with started(f"brokers: {{main: {KINDS[kind]}}}", tmp_path) as made:
            (result,) = made.topology.results()
            assert result.host == "127.0.0.2"
            assert result.version
            with socket.create_connection((result.host, result.port), timeout=5):
                pass
            with pytest.raises(OSError), socket.create_connection(("127.0.0.1", result.port), 5):
                pass
            home = next(path for path in made.hosts.folder.iterdir() if path.is_dir())
            assert str(home) in " ".join(psutil.Process(result.pid).cmdline())
            broker = made.topology.broker("main-0")
            faults = Faults(made.topology, made.topology.bridges.links)
            freeze = fault("freeze")
            assert await faults.begin(freeze) == ()
            await until_status(broker.pid, psutil.STATUS_STOPPED)
            assert await faults.repair(freeze) == ()
            kill, pid, port = fault("kill"), broker.pid, broker.port
            assert await faults.begin(kill) == ()
            assert not psutil.pid_exists(pid)
            assert await faults.repair(kill) == ()
            assert (broker.pid != pid, broker.port) == (True, port)
            assert made.events.empty()
            os.kill(broker.pid, signal.SIGKILL)
            event = await made.events.get()
            assert isinstance(event, BrokerDied)
            assert f"(pid {broker.pid})" in event.text and "signal 9" in event.text
        log = tmp_path / "topology" / "main-0" / "broker.log"
        assert kind == "embedded" or "New connection" in log.read_text()

    asyncio.run(run())


def fault(kind: Any) -> PlannedFault:
    return PlannedFault(0, str(kind), kind, 0, None, "main", (0,))


async def until_status(pid: int, status: str) -> None:
    while psutil.Process(pid).status() != status:
        await asyncio.sleep(0.01)


def is_gone(pid: int) -> bool:
    """Waits until no process has the id any more."""
    deadline_s = time.monotonic() + 60
    while psutil.pid_exists(pid) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    return not psutil.pid_exists(pid)


def test_figures_are_read_through_a_deputy_and_its_brokers_end_with_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with started("brokers: {main: {kind: embedded, hosts: far}}", tmp_path) as made:
            broker, machine = made.topology.broker("main-0"), made.hosts.by_label["far"]
            process = ProcessMonitor("main-0", lambda: broker.pid, machine)
            host = HostMonitor(f"host-{machine.address}", machine.counters)
            for monitor in (process, host):
                await asyncio.to_thread(monitor.start)
            found = await asyncio.to_thread(lambda: {r.metric: r.value for r in process.read()})
            assert found["rss_bytes"] > 1e6
            assert found["descriptors"] > 3
            assert found["cpu"] >= 0
            found = await asyncio.to_thread(lambda: {r.metric: r.value for r in host.read()})
            assert found["memory_available_bytes"] > 1e6
            assert found["net_sent_bytes_per_s"] >= 0
            made.hosts.slots[0].kill()
            event = await made.events.get()
            assert f"(pid {broker.pid})" in event.text and machine.address in event.text
            assert await asyncio.to_thread(is_gone, broker.pid)
            with pytest.raises(TopologyError, match=r"the deputy on 127\.0\.0\.2 ended"):
                await asyncio.to_thread(list, host.read())
            shutil.rmtree(next(path for path in made.hosts.folder.iterdir() if path.is_dir()))

    asyncio.run(run())


async def refused(text: str, folder: Path) -> TopologyError:
    with pytest.raises(TopologyError) as caught:
        async with started(text, folder):
            pass
    return caught.value


@needs_mosquitto
def test_what_a_host_lacks_is_named_with_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = asyncio.run(refused(f"brokers: {{main: {ABSENT}}}", tmp_path / "1"))
    assert "broker main-0: 127.0.0.2: cannot start /no/mosquitto: No such file" in missing.message
    monkeypatch.setattr(RemoteMachine, "find", lambda *_: None)
    lacks = asyncio.run(refused(f"brokers: {{main: {KINDS['mosquitto']}}}", tmp_path / "2"))
    assert lacks.message == "broker main-0: mosquitto is not installed on 127.0.0.2"


ABSENT = "{kind: mosquitto, hosts: far, binary: /no/mosquitto}"


def test_a_port_that_is_taken_there_is_named_with_the_host(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.2", 0)) as taken:
        port = taken.getsockname()[1]
        text = f"brokers: {{main: {{kind: embedded, hosts: far, port: {port}}}}}"
        error = asyncio.run(refused(text, tmp_path))
    assert error.message == f"port {port} of broker main-0 is taken on 127.0.0.2"
    assert error.hint is not None


BRIDGED = """
brokers: {main: {kind: mosquitto, passwords: true, tls: mutual, hosts: far},
  box: {kind: mosquitto, count: 2, hosts: near}},
bridges: {up: {from: box, to: main, topics: [{topic: "t/#", direction: out, qos: 1}]}}
"""


@needs_mosquitto
def test_bridges_lead_from_host_to_host_with_keys_of_the_run(tmp_path: Path) -> None:
    async def run() -> None:
        async with started(BRIDGED, tmp_path) as made:
            assert list(made.topology.bridges.missing()) == []
            hosts = {broker.name: broker.host for broker in made.topology.results()}
            assert hosts == {"main-0": "127.0.0.2", "box-0": "127.0.0.3", "box-1": "127.0.0.3"}

    asyncio.run(run())


@needs_redis
def test_a_service_elsewhere_is_seeded_and_a_broker_finds_it(tmp_path: Path) -> None:
    text = (
        "services: {users: {kind: redis, hosts: far}}, "
        "brokers: {main: {kind: embedded, auth: users, hosts: near}}"
    )

    async def run() -> None:
        async with started(text, tmp_path) as made:
            (service,) = made.topology.service_results()
            assert (service.host, service.died) == ("127.0.0.3", False)
            (broker,) = made.topology.results()
            assert broker.host == "127.0.0.2"

    asyncio.run(run())
