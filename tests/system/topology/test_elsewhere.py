"""Servers on other hosts, which deputies start: with their files, logs, ends, faults and figures,
and nothing is left of them."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import psutil
import pytest

from pubstorm.contract import Source
from pubstorm.errors import TopologyError
from pubstorm.host.children import RAISED_NICE, find
from pubstorm.host.deputy.remote import NAME, RemoteMachine, pack
from pubstorm.measure.monitors.host import HostMonitor
from pubstorm.measure.monitors.process import ProcessMonitor
from pubstorm.plan import provisional_plan
from pubstorm.plan.stages import PlannedFault
from pubstorm.scenario import parse_scenario
from pubstorm.topology import BrokerDied, BrokerEvent, Topology, TopologyContext
from pubstorm.topology.faults import Faults
from tests.kit.serving import until
from tests.pure.topology.elsewhere import Deputies
from tests.system.topology.clients import client
from tests.system.topology.conftest import needs_mosquitto, up

needs_redis = pytest.mark.skipif(
    find("redis-server") is None, reason="redis-server is not installed"
)

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
    around = TopologyContext(hosts=hosts)
    topology = Topology(scenario.topology, folder / "topology", events.put_nowait, around)
    children = set(psutil.Process().children(recursive=True))
    plan = provisional_plan(scenario)
    topology.keys.make(plan)
    topology.services.prepare(plan)
    try:
        async with up(topology):
            yield Started(topology, hosts, events)
    finally:
        left = set(psutil.Process().children(recursive=True)) - children
        assert not [process for process in left if process.is_running()]
        assert folders_of(hosts) == []


def folders_of(hosts: Deputies) -> list[Path]:
    return [path for path in hosts.folder.iterdir() if path.is_dir()]


async def test_a_deputy_runs_before_its_servers_if_it_may(tmp_path: Path) -> None:
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    may_raise = os.geteuid() == 0 and usual == 0
    async with started("brokers: {main: {kind: embedded, hosts: a}}", tmp_path) as up_there:
        broker = psutil.Process(up_there.topology.broker("main-0").pid)
        deputy = broker.parent()
        assert deputy is not None
        assert deputy.nice() == (RAISED_NICE if may_raise else usual)
        assert broker.nice() == usual


@pytest.mark.parametrize("kind", [pytest.param("mosquitto", marks=needs_mosquitto), "embedded"])
async def test_a_broker_elsewhere_listens_there_is_broken_and_leaves_its_log_here(
    kind: str, tmp_path: Path
) -> None:
    async with started(f"brokers: {{main: {{kind: {kind}, hosts: far}}}}", tmp_path) as made:
        (result,) = made.topology.results()
        assert result.host == "127.0.0.2"
        assert result.version
        with client(result.port, host=result.host) as accepted:
            assert accepted.is_accepted
        with pytest.raises(OSError), socket.create_connection(("127.0.0.1", result.port), 5):
            pass
        (home,) = folders_of(made.hosts)
        assert str(home) in " ".join(psutil.Process(result.pid).cmdline())
        broker = made.topology.broker("main-0")
        faults = Faults(made.topology, made.topology.bridges.links)
        freeze, kill = fault("freeze"), fault("kill")
        assert await faults.begin(freeze) == ()
        while psutil.Process(broker.pid).status() != psutil.STATUS_STOPPED:
            await asyncio.sleep(0.01)
        assert await faults.repair(freeze) == ()
        pid, port = broker.pid, broker.port
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


def fault(kind: Any) -> PlannedFault:
    return PlannedFault(0, str(kind), kind, 0, None, "main", (0,))


async def test_figures_are_read_through_a_deputy_and_its_brokers_end_with_it(
    tmp_path: Path,
) -> None:
    async with started("brokers: {main: {kind: embedded, hosts: far}}", tmp_path) as made:
        broker, machine = made.topology.broker("main-0"), made.hosts.by_label["far"]
        process = ProcessMonitor(Source.single("broker", "main-0"), lambda: broker.pid, machine)
        host = HostMonitor(machine.address, machine.counters)
        found: dict[str, float] = {}
        for monitor in (process, host):
            await asyncio.to_thread(monitor.start)
            read = await asyncio.to_thread(list, monitor.read())
            found.update({reading.metric: reading.value for reading in read})
        assert found["rss_bytes"] > 1e6
        assert found["descriptors"] > 3
        assert found["cpu"] >= 0
        assert found["memory_available_bytes"] > 1e6
        assert found["net_sent_bytes_per_s"] >= 0
        made.hosts.slots[0].kill()
        event = await made.events.get()
        assert f"(pid {broker.pid})" in event.text and machine.address in event.text
        while psutil.pid_exists(broker.pid):
            await asyncio.sleep(0.01)
        with pytest.raises(TopologyError, match=r"the deputy on 127\.0\.0\.2 ended"):
            await asyncio.to_thread(list, host.read())
        (home,) = folders_of(made.hosts)
        shutil.rmtree(home)


STARTS_AND_WAITS = """
import subprocess, sys
deputy = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
deputy.stdout.readline()
print(deputy.pid, flush=True)
deputy.wait()
"""


def test_a_deputy_that_is_frozen_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    pack(tmp_path / NAME)
    words = (sys.executable, "-I", "-S", str(tmp_path / NAME), str(tmp_path), "600")
    controller = subprocess.Popen(
        [sys.executable, "-c", STARTS_AND_WAITS, *words], stdout=subprocess.PIPE
    )
    assert controller.stdout is not None
    deputy = psutil.Process(int(controller.stdout.readline()))
    deputy.suspend()
    until(lambda: deputy.status() == psutil.STATUS_STOPPED)
    controller.kill()
    controller.communicate()
    until(lambda: not deputy.is_running())
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


async def refused(broker: str, folder: Path) -> TopologyError:
    with pytest.raises(TopologyError) as caught:
        async with started(f"brokers: {{main: {{{broker}, hosts: far}}}}", folder):
            pass
    return caught.value


@needs_mosquitto
async def test_what_a_host_lacks_and_a_port_that_is_taken_there_are_named_with_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = await refused("kind: mosquitto, binary: /no/mosquitto", tmp_path / "1")
    assert "broker main-0: 127.0.0.2: cannot start /no/mosquitto: No such file" in missing.message
    monkeypatch.setattr(RemoteMachine, "find", AsyncMock(return_value=None))
    lacks = await refused("kind: mosquitto", tmp_path / "2")
    assert lacks.message == "broker main-0: mosquitto is not installed on 127.0.0.2"
    with socket.create_server(("127.0.0.2", 0)) as taken:
        port = taken.getsockname()[1]
        error = await refused(f"kind: embedded, port: {port}", tmp_path / "3")
    assert error.message == f"port {port} of broker main-0 is taken on 127.0.0.2"
    assert error.hint is not None


TOGETHER = """
services: {users: {kind: redis, hosts: far}},
brokers: {main: {kind: mosquitto, passwords: true, tls: mutual, hosts: far},
  box: {kind: mosquitto, count: 2, hosts: near},
  guarded: {kind: embedded, auth: users, hosts: near}},
bridges: {up: {from: box, to: main, topics: [{topic: "t/#", direction: out, qos: 1}]}}
"""


@needs_redis
@needs_mosquitto
async def test_bridges_lead_from_host_to_host_and_a_broker_finds_its_service(
    tmp_path: Path,
) -> None:
    """Bridges have keys of the run, and the service has its users."""
    async with started(TOGETHER, tmp_path) as made:
        assert list(made.topology.bridges.missing()) == []
        (service,) = made.topology.service_results()
        assert not service.died
        hosts = {broker.name: broker.host for broker in made.topology.results()}
        near, far = hosts["box-0"], hosts["main-0"]
        assert {near, far} == {"127.0.0.2", "127.0.0.3"}
        assert service.host == far
        assert hosts["box-1"] == hosts["guarded-0"] == near
