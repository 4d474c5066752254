"""Bridges between real mosquittos: they come up and are counted, carry messages both ways, log in
with what the run made, and are down and up again when the main broker is."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pubstorm.contract.plan import Plan
from pubstorm.contract.target import Target
from pubstorm.host.keys.files import new_keys, psk_text
from pubstorm.measure.monitors import MonitorError
from pubstorm.measure.monitors.host import BridgeMonitor
from pubstorm.plan import provisional_plan
from pubstorm.play.clean_start.observer import Deadline, TargetObserver
from pubstorm.play.clean_start.remove import remove_bridges
from pubstorm.scenario import Scenario, parse_scenario
from pubstorm.topology import BrokerEvent, Topology, TopologyContext
from pubstorm.topology.adapters.mosquitto import MosquittoBroker, psk_settings
from pubstorm.topology.bridges import Bridges
from pubstorm.topology.bridges.links import LinkState
from pubstorm.topology.broker import Place
from pubstorm.topology.observer import Login
from tests.system.topology.clients import ANONYMOUS, PATIENCE_S, client
from tests.system.topology.conftest import needs_mosquitto, up

pytestmark = needs_mosquitto

BOXES = 3
SCENARIO = """\
{target}
topology:
  brokers:
    {cloud}
    boxes: {{kind: mosquitto, count: 3}}
  bridges:
    uplink:
      from: boxes
      to: {to}
      topics:
        - {{topic: up/#, direction: out, qos: 2, remote_prefix: "box/{{n}}/"}}
        - {{topic: down/#, direction: in, qos: 2, remote_prefix: "box/{{n}}/"}}
      reconnect: {{after: 1s, up_to: 1s}}
      {bridge}
populations:
  client: {{clients: 2, at: {to}, subscriptions: ["box/#"]}}
stages: [connect]
"""


def scenario_of(cloud: str = "mosquitto", bridge: str = "", target: str = "") -> Scenario:
    """Boxes bridged to a main broker of a kind with settings, or to an external target."""
    main = "" if target else f"cloud: {{kind: {cloud}}}"
    to = "target" if target else "cloud"
    text = SCENARIO.format(cloud=main, bridge=bridge, to=to, target=target and f"target: {target}")
    return parse_scenario(text, "s.yaml")


@dataclass
class Started:
    """Brokers of a scenario, with their bridges."""

    topology: Topology
    plan: Plan

    @property
    def bridges(self) -> Bridges:
        return self.topology.bridges

    @property
    def are_all_up(self) -> bool:
        return [(found.up, found.bridges) for found in self.bridges.results()] == [(BOXES, BOXES)]

    def monitor(self) -> BridgeMonitor:
        """A monitor that is started."""
        [states] = self.bridges.states()
        monitor = BridgeMonitor(states)
        monitor.start()
        return monitor

    def port(self, name: str) -> int:
        return self.topology.broker(name).observer_port

    def login(self) -> Login:
        population = self.plan.populations[0]
        return Login(population.username, population.password)


@asynccontextmanager
async def bridged(
    scenario: Scenario, folder: Path, cut: frozenset[str] = frozenset()
) -> AsyncIterator[Started]:
    """Brokers and bridges that are up, with keys; none ends by itself."""
    events: list[BrokerEvent] = []
    around = TopologyContext(targets=scenario.target, cut=cut)
    topology = Topology(scenario.topology, folder, events.append, around)
    topology.keys.make(provisional_plan(scenario))
    async with up(topology):
        yield Started(topology, topology.keys.equip(provisional_plan(scenario)))
    assert events == []


async def crosses(started: Started, number: int, *levels: int) -> None:
    """Messages of each QoS go up from a box and down to it, each once."""

    def play() -> None:
        cloud, box = started.port("cloud-0"), started.port(f"boxes-{number}")
        with client(cloud, started.login()) as main, client(box) as small:
            main.subscribe(f"box/{number}/up/#", 2)
            small.subscribe("down/#", 2)
            for qos in levels:
                small.publish("up/x", b"hello", qos)
                assert main.next() == (f"box/{number}/up/x", b"hello", qos)
                main.publish(f"box/{number}/down/y", b"there", qos)
                assert small.next() == ("down/y", b"there", qos)
            assert main.messages.empty()

    await asyncio.to_thread(play)


@pytest.mark.parametrize(
    ("cloud", "bridge"),
    [
        ("mosquitto", ""),
        ("embedded", ""),
        ("mosquitto", "protocol: mqttv31\n      clean_session: true"),
        ("mosquitto", "protocol: mqttv50\n      clean_session: true"),
    ],
)
async def test_all_bridges_come_up_are_counted_and_carry_every_qos(
    cloud: str, bridge: str, tmp_path: Path
) -> None:
    """The main broker may be of another kind; the bridges, of any protocol version."""
    said: list[str] = []
    async with bridged(scenario_of(cloud, bridge), tmp_path) as started:
        assert started.are_all_up
        assert list(started.bridges.missing()) == []
        await started.bridges.up(1.0, said.append)
        await crosses(started, 2, 0, 1, 2)
    assert said == ["3 of 3 bridges up"]


@pytest.mark.parametrize("mode", ["server", "mutual", "psk"])
async def test_bridges_come_up_with_keys_that_the_run_made(tmp_path: Path, mode: str) -> None:
    """With passwords and rights a box has its own topics only."""
    rights = f'mosquitto, tls: {mode}, passwords: true, acl: ["pattern readwrite box/%u/#"]'
    async with bridged(scenario_of(rights, 'username: "{n}"'), tmp_path) as started:
        assert started.are_all_up
        await crosses(started, 1, 1)
        login, cloud = started.topology.keys.bridge_login("uplink", 2), started.port("cloud-0")
        with client(cloud, started.login()) as main, client(cloud, Login(*login)) as box:
            main.subscribe("box/#")
            for topic in ("box/1/up/x", "box/2/up/x"):
                box.publish(topic, b"mine")
            assert main.next()[0] == "box/2/up/x"
        private = [path for path in (tmp_path / "keys").rglob("*") if path.suffix != ".crt"]
        assert {path.stat().st_mode & 0o777 for path in private if path.is_file()} == {0o600}
    assert not (tmp_path / "keys").exists()
    configuration = tmp_path / "boxes-1" / "mosquitto.conf"
    assert "remote_password" in configuration.read_text()
    assert not re.search(r"^(remote_password|bridge_psk) ", configuration.read_text(), re.M)
    assert configuration.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("persistence", ["true", "false"])
async def test_a_main_broker_that_is_killed_and_restarted_is_seen_at_once(
    tmp_path: Path, persistence: str
) -> None:
    settings = f"mosquitto, settings: {{persistence: {persistence}, autosave_interval: 1}}"
    async with bridged(scenario_of(settings), tmp_path) as started:
        monitor = started.monitor()
        assert [value for _, value in read(monitor)] == [BOXES, BOXES]
        broker = started.topology.broker("cloud-0")
        # Messages on a disk would come back with the broker, though no bridge is up.
        is_kept = bool(await asyncio.to_thread(kept, broker.observer_port))
        assert is_kept == (persistence == "false")
        started.topology.expect("cloud-0", ending=True)
        killed_ns = time.monotonic_ns()
        broker.send(signal.SIGKILL)
        await broker.ending()
        down_ns = await changed(monitor, 0)
        assert [value for _, value in read(monitor)] == [0]
        # A bridge may be up as soon as its broker listens, before the restart has returned.
        back_ns = time.monotonic_ns()
        await broker.restart()
        started.topology.expect("cloud-0", ending=False)
        assert killed_ns < down_ns < back_ns < await changed(monitor, BOXES)


async def test_bridges_that_are_cut_are_down_and_come_back(tmp_path: Path) -> None:
    async with bridged(
        scenario_of("mosquitto, tls: server"), tmp_path, frozenset({"uplink"})
    ) as started:
        monitor, links = started.monitor(), started.bridges.links
        await links.set("uplink", [1, 2], LinkState("close"))
        await changed(monitor, BOXES - 2)
        await links.set("uplink", [1, 2], LinkState())
        await changed(monitor, BOXES)
        await crosses(started, 2, 1)


async def test_bridges_that_do_not_come_up_are_named_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pubstorm.topology.BRIDGES_TIMEOUT_S", 1.0)
    wrong = scenario_of("mosquitto, passwords: true", "settings: {remote_password: wrong}")
    async with bridged(wrong, tmp_path) as started:
        [result] = started.bridges.results()
        assert (result.up, result.bridges) == (0, BOXES)
        [line] = started.bridges.missing()
        assert all(f"boxes-{n}" in line for n in range(BOXES))


BRIDGES_OF_TWO = """topology:
  brokers:
    cloud: mosquitto
    lake: {kind: mosquitto, passwords: true}
    boxes: {kind: mosquitto, count: 2}
    others: {kind: mosquitto, count: 1}
  bridges:
    up: {from: boxes, to: cloud, topics: [{topic: a, direction: out, remote_prefix: "{n}/"}]}
    side: {from: boxes, to: lake, topics: [{topic: a, direction: out, remote_prefix: "{n}/"}]}
    other: {from: others, to: cloud, topics: [{topic: a, direction: out, remote_prefix: "o/"}]}
populations: {client: {clients: 1, at: lake, subscriptions: ["#"]}}
stages: [connect]
"""


async def test_two_bridges_of_a_box_lead_to_different_brokers(tmp_path: Path) -> None:
    def receive(started: Started) -> None:
        cloud, lake = (started.port(f"{name}-0") for name in ("cloud", "lake"))
        with client(cloud) as main, client(lake, started.login()) as side:
            for receiver in (main, side):
                receiver.subscribe("+/a", 0)
            for box, topic in (("boxes-1", "1/a"), ("others-0", "o/a")):
                with client(started.port(box)) as small:
                    small.publish("a", b"x", 0)
                    assert main.next() == (topic, b"x", 0)
            assert side.next() == ("1/a", b"x", 0)
            assert side.messages.empty()

    async with bridged(parse_scenario(BRIDGES_OF_TWO, "s.yaml"), tmp_path) as started:
        found = [(each.name, each.up, each.bridges) for each in started.bridges.results()]
        assert found == [("up", 2, 2), ("side", 2, 2), ("other", 1, 1)]
        await asyncio.to_thread(receive, started)


@asynccontextmanager
async def external(folder: Path, **parts: Any) -> AsyncIterator[MosquittoBroker]:
    """A main broker that is none of the run's."""
    main = MosquittoBroker(Place("main", folder / "main", **parts))
    await main.start()
    try:
        yield main
    finally:
        await main.stop()


async def test_an_external_target_is_bridged_to_and_left_as_it_was(tmp_path: Path) -> None:
    async with external(tmp_path) as main:
        for left in ("pubstorm/bridge/uplink/1", "else/where"):
            await asyncio.to_thread(keep, main.port, left)
        scenario = scenario_of(target=f"mqtt://127.0.0.1:{main.port}")
        async with bridged(scenario, tmp_path / "run") as started:
            assert started.are_all_up
        stale_state = await remove_bridges(started.bridges.outside())
        assert [(each.what, each.total) for each in stale_state] == [("sessions", BOXES)]
        assert await asyncio.to_thread(kept, main.port) == ["else/where"]
        assert await asyncio.to_thread(session_of, main.port, "uplink-2") is False


async def test_pre_shared_keys_of_an_external_target_are_looked_up(tmp_path: Path) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_bytes(psk_text(new_keys(f"box-{n}" for n in range(BOXES)).items()))
    settings = psk_settings(keys, as_username=False)

    def receive(cloud_port: int, box_port: int) -> None:
        with client(cloud_port) as cloud, client(box_port) as small:
            cloud.subscribe("pubstorm/bridge/uplink/2")
            assert cloud.next()[1] == b"1"
            cloud.subscribe("box/2/up/x")
            small.publish("up/x", b"hello", 0)
            assert cloud.next()[1] == b"hello"

    async with external(tmp_path, settings=settings, is_under_tls=True) as main:
        bridge = f'tls: {{psk: {{file: "{keys}", identity: "box-{{n}}"}}}}'
        scenario = scenario_of(bridge=bridge, target=f"mqtts://127.0.0.1:{main.port}")
        async with bridged(scenario, tmp_path / "run") as started:
            assert list(started.bridges.missing())
            await asyncio.to_thread(receive, main.observer_port, started.port("boxes-2"))
        [stale_state] = await remove_bridges(started.bridges.outside())
    assert (stale_state.what, stale_state.total) == ("unknown", BOXES)


def keep(port: int, topic: str) -> None:
    with client(port) as receiver:
        receiver.publish(topic, b"1", retain=True)


def kept(port: int) -> list[str]:
    """Topics of all retained messages."""
    with client(port) as receiver:
        receiver.subscribe("#", 0)
        receiver.publish("last", b"", 0)
        return list(iter(lambda: receiver.next()[0], "last"))


def session_of(port: int, client_id: str) -> bool:
    """True if the broker has a session of this client."""
    deadline = Deadline(5)
    target = Target(host="127.0.0.1", port=port)
    with TargetObserver(target, ANONYMOUS, client_id, deadline, clean=False) as one:
        return one.session_present


def read(monitor: BridgeMonitor) -> list[tuple[int, float]]:
    """Instants and values since the last look; an observer that is away is no matter."""
    found: list[tuple[int, float]] = []
    with contextlib.suppress(MonitorError):
        found.extend((reading.at_ns, reading.value) for reading in monitor.read())
    return found


async def changed(monitor: BridgeMonitor, wanted: int) -> int:
    """The instant at which so many are up."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if found := [at_ns for at_ns, value in read(monitor) if value == wanted]:
                return found[0]
            await asyncio.sleep(0.02)
