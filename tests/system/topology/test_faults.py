"""Brokers broken and repaired, with real ones; links of bridges, with a note of what is asked."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from pubstorm.errors import TopologyError
from pubstorm.host.children import find
from pubstorm.plan.stages import PlannedFault
from pubstorm.scenario.faults import FaultKind
from pubstorm.scenario.topology import ScenarioTopology as TopologySpec
from pubstorm.topology import BrokerEvent, Topology
from pubstorm.topology.bridges.links import LinkState
from pubstorm.topology.broker import BrokerProcess
from pubstorm.topology.faults import Faults
from tests.system.topology.conftest import needs_mosquitto, up


def fault(kind: FaultKind, *numbers: int, delay_ns: int = 0) -> PlannedFault:
    return PlannedFault(0, kind, kind, 0, None, "main", numbers, delay_ns=delay_ns)


@asynccontextmanager
async def started(folder: Path, **broker: object) -> AsyncIterator[tuple[Topology, Faults]]:
    """Brokers of the group `main` that are up; any end that a test does not await is a failure."""
    events: list[BrokerEvent] = []
    spec = TopologySpec.model_validate({"brokers": {"main": broker}})
    async with up(Topology(spec, folder, events.append)) as topology:
        yield topology, Faults(topology, topology.bridges.links)
        died = [broker.name for broker in topology.results() if broker.died]
    assert [event.name for event in events] == died


def pids(topology: Topology) -> list[int]:
    return [broker.pid for broker in topology.results()]


@needs_mosquitto
async def test_a_stopped_broker_keeps_what_a_killed_one_loses_and_both_come_back(
    tmp_path: Path,
) -> None:
    """mosquitto writes its persistent state when it ends in order, and not when it is killed."""
    persistent = {"kind": "mosquitto", "count": 2, "settings": {"persistence": True}}
    saved: dict[str, bool] = {}
    kinds: tuple[FaultKind, ...] = ("stop", "kill")
    async with started(tmp_path, **persistent) as (topology, faults):
        before, ports = pids(topology), topology.addresses
        for number, kind in enumerate(kinds):
            assert await faults.begin(fault(kind, number)) == ()
            assert not psutil.pid_exists(before[number])
            broker = topology.broker(f"main-{number}")
            saved[kind] = (broker.folder / "mosquitto.db").exists()
            assert await faults.repair(fault(kind, number)) == ()
        assert topology.addresses == ports
        assert not set(pids(topology)) & set(before)
        assert all(psutil.pid_exists(pid) for pid in pids(topology))
        assert not any(broker.died for broker in topology.results())
        # One that was repaired may die again, and is reported.
        os.kill(pids(topology)[1], signal.SIGKILL)
        await topology.broker("main-1").ending()
        while not topology.results()[1].died:
            await asyncio.sleep(0)
    assert saved == {"stop": True, "kill": False}


async def test_a_broker_that_ignores_sigterm_is_killed_and_the_fault_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BrokerProcess, "stop_grace_s", 0.2)
    deaf = (
        "import signal, socket, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "server = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
        "while True: server.accept()"
    )
    command = (sys.executable, "-c", deaf, "{port}")
    async with started(tmp_path, kind="command", command=command) as (topology, faults):
        (problem,) = await faults.begin(fault("stop", 0))
        assert problem == "broker main-0 did not end within 0.2 s of SIGTERM and was killed"
        assert topology.broker("main-0").gone()


@needs_mosquitto
async def test_a_broker_that_a_script_starts_is_killed_with_it(tmp_path: Path) -> None:
    command = ("sh", "-c", f"{find('mosquitto')} -p {{port}}; true")
    async with started(tmp_path, kind="command", command=command) as (topology, faults):
        (child,) = psutil.Process(pids(topology)[0]).children()
        assert await faults.begin(fault("kill", 0)) == ()
        psutil.wait_procs([child])
        assert not child.is_running()
        assert await faults.repair(fault("kill", 0)) == ()
        assert not topology.broker("main-0").gone()


@pytest.mark.parametrize("repairs", [True, False])
async def test_whatever_is_broken_can_be_repaired_at_once_or_is_stopped_with_the_rest(
    tmp_path: Path, repairs: bool
) -> None:
    async with started(tmp_path, kind="embedded", count=2) as (topology, faults):
        found = pids(topology)
        process = psutil.Process(found[0])
        await faults.begin(fault("freeze", 0))
        await faults.begin(fault("kill", 1))
        while process.status() != psutil.STATUS_STOPPED:
            await asyncio.sleep(0)
        for _ in range(2 if repairs else 0):
            assert await faults.repair_all() == ()
        for host, port in topology.addresses if repairs else ():
            _, writer = await asyncio.open_connection(host, port)
            writer.close()
        while repairs and process.status() == psutil.STATUS_STOPPED:
            await asyncio.sleep(0)
    assert not any(psutil.pid_exists(pid) for pid in found)


@needs_mosquitto
async def test_a_broker_that_does_not_come_up_again_is_reported_in_words(tmp_path: Path) -> None:
    async with started(tmp_path, kind="mosquitto", count=2) as (topology, faults):
        await faults.begin(fault("kill", 0, 1))
        (tmp_path / "main-0" / "mosquitto.conf").unlink()
        (problem,) = await faults.repair(fault("kill", 0, 1))
        assert problem.startswith("broker main-0 ")
        assert not topology.broker("main-1").gone()


class Links:
    """Notes what is asked of links."""

    def __init__(self, problem: str = "") -> None:
        self.asked: list[tuple[str, tuple[int, ...], LinkState]] = []
        self._problem = problem

    async def set(self, name: str, numbers: Sequence[int], state: LinkState) -> None:
        if self._problem:
            raise TopologyError(self._problem)
        self.asked.append((name, tuple(numbers), state))


async def test_bridges_are_cut_and_delayed_by_their_links(tmp_path: Path) -> None:
    topology, links = Topology(TopologySpec(), tmp_path, lambda _: None), Links()
    faults = Faults(topology, links)
    for one in (fault("cut", 1, 3), fault("delay", 2, delay_ns=7)):
        assert await faults.begin(one) == ()
        assert await faults.repair(one) == ()
    assert links.asked == [
        ("main", (1, 3), LinkState("close")),
        ("main", (1, 3), LinkState()),
        ("main", (2,), LinkState("pass", 7)),
        ("main", (2,), LinkState()),
    ]
    without = Faults(topology, Links("the proxy has ended"))
    assert await without.begin(fault("cut", 1)) == ("bridges main: the proxy has ended",)
