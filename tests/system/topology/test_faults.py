"""Brokers broken and repaired, with real ones; links of bridges, with a note of what is asked."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import psutil
import pytest

from pubstorm.errors import TopologyError
from pubstorm.plan.faults import PlannedFault
from pubstorm.scenario.faults import FaultKind
from pubstorm.scenario.topology import Command
from pubstorm.scenario.topology import Topology as TopologySpec
from pubstorm.topology import BrokerEvent, Topology
from pubstorm.topology.bridges.links import LinkState
from pubstorm.topology.broker import BrokerProcess
from pubstorm.topology.faults import Faults

needs_mosquitto = pytest.mark.skipif(
    not (shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")),
    reason="mosquitto is not installed (apt-get install mosquitto)",
)


def fault(kind: FaultKind, *numbers: int, delay_ns: int = 0) -> PlannedFault:
    return PlannedFault(
        stage=0,
        name=kind,
        kind=kind,
        after_ns=0,
        lasts_ns=None,
        group="main",
        numbers=numbers,
        delay_ns=delay_ns,
    )


def with_brokers(
    folder: Path,
    kind: str,
    play: Callable[[Topology, Faults], Awaitable[None]],
    settings: Mapping[str, object] = MappingProxyType({}),
) -> list[BrokerEvent]:
    """Plays something on two brokers. Returns the events of brokers that ended."""
    events: list[BrokerEvent] = []

    async def run() -> None:
        broker = {"kind": kind, "count": 2, "settings": dict(settings)}
        spec = TopologySpec.model_validate({"brokers": {"main": broker}})
        topology = Topology(spec, folder, events.append)
        try:
            await topology.start()
            await play(topology, Faults(topology, topology.bridges.links))
        finally:
            await topology.stop()

    asyncio.run(run())
    return events


def pids(topology: Topology) -> list[int]:
    return [broker.pid for broker in topology.results()]


@needs_mosquitto
def test_a_stopped_broker_keeps_what_a_killed_one_loses_and_both_come_back(tmp_path: Path) -> None:
    """mosquitto writes its persistent state when it ends in order, and not when it is killed."""
    saved: dict[str, bool] = {}

    async def play(topology: Topology, faults: Faults) -> None:
        before, ports = pids(topology), topology.addresses
        kinds: tuple[FaultKind, ...] = ("stop", "kill")
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

    (event,) = with_brokers(tmp_path, "mosquitto", play, {"persistence": True})
    assert event.name == "main-1"
    assert saved == {"stop": True, "kill": False}


def test_a_broker_that_ignores_sigterm_is_killed_and_the_fault_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BrokerProcess, "stop_grace_s", 0.2)
    deaf = (
        "import signal, socket, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "server = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
        "while True: server.accept()"
    )
    spec = Command(kind="command", command=(sys.executable, "-c", deaf, "{port}"))

    async def run() -> None:
        topology = Topology(TopologySpec(brokers={"main": spec}), tmp_path, lambda _event: None)
        try:
            await topology.start()
            faults = Faults(topology, topology.bridges.links)
            (problem,) = await faults.begin(fault("stop", 0))
            assert problem == "broker main-0 did not end within 0.2 s of SIGTERM and was killed"
            assert topology.broker("main-0").gone()
        finally:
            await topology.stop()

    asyncio.run(run())


@needs_mosquitto
def test_a_broker_that_a_script_starts_is_killed_with_it(tmp_path: Path) -> None:
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
    spec = Command(kind="command", command=("sh", "-c", f"{program} -p {{port}}; true"))

    async def run() -> None:
        events: list[BrokerEvent] = []
        topology = Topology(TopologySpec(brokers={"main": spec}), tmp_path, events.append)
        try:
            await topology.start()
            faults = Faults(topology, topology.bridges.links)
            (child,) = psutil.Process(pids(topology)[0]).children()
            assert await faults.begin(fault("kill", 0)) == ()
            psutil.wait_procs([child])
            assert not child.is_running()
            assert await faults.repair(fault("kill", 0)) == ()
            assert not topology.broker("main-0").gone()
        finally:
            await topology.stop()
        assert events == []

    asyncio.run(run())


@pytest.mark.parametrize("repairs", [True, False])
def test_whatever_is_broken_can_be_repaired_at_once_or_is_stopped_with_the_rest(
    tmp_path: Path, repairs: bool
) -> None:
    found: list[int] = []

    async def play(topology: Topology, faults: Faults) -> None:
        found.extend(pids(topology))
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

    assert with_brokers(tmp_path, "embedded", play) == []
    assert not any(psutil.pid_exists(pid) for pid in found)


@needs_mosquitto
def test_a_broker_that_does_not_come_up_again_is_reported_in_words(tmp_path: Path) -> None:
    async def play(topology: Topology, faults: Faults) -> None:
        await faults.begin(fault("kill", 0, 1))
        (tmp_path / "main-0" / "mosquitto.conf").unlink()
        (problem,) = await faults.repair(fault("kill", 0, 1))
        assert problem.startswith("broker main-0 ")
        assert not topology.broker("main-1").gone()

    assert with_brokers(tmp_path, "mosquitto", play) == []


class Links:
    """Notes what is asked of links."""

    def __init__(self, problem: str = "") -> None:
        self.asked: list[tuple[str, tuple[int, ...], LinkState]] = []
        self._problem = problem

    async def set(self, name: str, numbers: Sequence[int], state: LinkState) -> None:
        if self._problem:
            raise TopologyError(self._problem)
        self.asked.append((name, tuple(numbers), state))


def test_bridges_are_cut_and_delayed_by_their_links(tmp_path: Path) -> None:
    links = Links()
    faults = Faults(Topology(TopologySpec(), tmp_path, lambda _: None), links)

    async def play() -> None:
        for one in (fault("cut", 1, 3), fault("delay", 2, delay_ns=7)):
            assert await faults.begin(one) == ()
            assert await faults.repair(one) == ()

    asyncio.run(play())
    assert links.asked == [
        ("main", (1, 3), LinkState("close")),
        ("main", (1, 3), LinkState()),
        ("main", (2,), LinkState("pass", 7)),
        ("main", (2,), LinkState()),
    ]


def test_bridges_that_cannot_be_cut_are_reported_in_words(tmp_path: Path) -> None:
    links = Links("the proxy has ended")
    faults = Faults(Topology(TopologySpec(), tmp_path, lambda _: None), links)
    (problem,) = asyncio.run(faults.begin(fault("cut", 1)))
    assert problem == "bridges main: the proxy has ended"
