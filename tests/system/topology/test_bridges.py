"""Bridges between real mosquittos: they come up and are counted, carry messages both ways, log in
with what the run made, and are down and up again when the main broker is."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pubstorm.contract.plan import Plan
from pubstorm.contract.target import Target
from pubstorm.errors import BinaryError
from pubstorm.host.binaries import proxy_path
from pubstorm.host.keys.listener import psk_settings
from pubstorm.host.keys.psk import new_keys, psk_text
from pubstorm.measure.monitors import MonitorError
from pubstorm.measure.monitors.bridges import BridgeMonitor
from pubstorm.plan import provisional_plan
from pubstorm.play.clean_start.bridges import remove_bridges
from pubstorm.play.clean_start.observer import Deadline, Observer
from pubstorm.scenario import Scenario, parse_scenario
from pubstorm.scenario.topology import Broker
from pubstorm.topology import Around, BrokerEvent, Topology
from pubstorm.topology.adapters import MosquittoBroker, mosquitto
from pubstorm.topology.bridges import Bridges
from pubstorm.topology.bridges.links import LinkState
from pubstorm.topology.broker import Place
from pubstorm.topology.observer import Login
from tests.system.topology.clients import ANONYMOUS, PATIENCE_S, client

pytestmark = pytest.mark.skipif(
    mosquitto.find_mosquitto() is None, reason="mosquitto is not installed"
)

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


def scenario_of(cloud: str = "", bridge: str = "", to: str = "cloud", target: str = "") -> Scenario:
    main = "" if target else f"cloud: {{kind: mosquitto, {cloud}}}"
    text = SCENARIO.format(cloud=main, bridge=bridge, to=to, target=target)
    return parse_scenario(text, "s.yaml")


@dataclass
class Started:
    """Brokers of a scenario, with their bridges."""

    topology: Topology
    plan: Plan

    @property
    def bridges(self) -> Bridges:
        return self.topology.bridges

    def port(self, name: str) -> int:
        return self.topology.broker(name).observer_port

    def login(self) -> Login:
        population = self.plan.populations[0]
        return Login(population.username, population.password)


Look = Callable[[Started], Awaitable[None]]


def with_bridges(
    scenario: Scenario, folder: Path, look: Look, cut: frozenset[str] = frozenset()
) -> Bridges:
    """Starts brokers and bridges, looks, and stops all."""

    async def run() -> Bridges:
        events: list[BrokerEvent] = []
        around = Around(targets=scenario.target, cut=cut)
        topology = Topology(scenario.topology, folder, events.append, around)
        try:
            topology.keys.make(provisional_plan(scenario))
            await topology.start()
            await look(Started(topology, topology.keys.equip(provisional_plan(scenario))))
        finally:
            await topology.stop()
        assert events == []
        return topology.bridges

    return asyncio.run(run())


def all_up(started: Started) -> bool:
    return [(result.up, result.bridges) for result in started.bridges.results()] == [(BOXES, BOXES)]


def crosses(started: Started, number: int, qos: int) -> None:
    """A message goes up from a box and down to it, each once."""
    cloud, box = started.port("cloud-0"), started.port(f"boxes-{number}")
    with client(cloud, started.login()) as main, client(box) as small:
        main.subscribe(f"box/{number}/up/#", 2)
        small.subscribe("down/#", 2)
        small.publish("up/x", b"hello", qos)
        assert main.next() == (f"box/{number}/up/x", b"hello", qos)
        main.publish(f"box/{number}/down/y", b"there", qos)
        assert small.next() == ("down/y", b"there", qos)
        assert main.messages.empty()


def test_all_bridges_come_up_are_counted_and_carry_every_qos(tmp_path: Path) -> None:
    said: list[str] = []

    async def look(started: Started) -> None:
        assert all_up(started)
        assert list(started.bridges.missing()) == []
        await started.bridges.up(1.0, said.append)
        for qos in (0, 1, 2):
            await asyncio.to_thread(crosses, started, 2, qos)

    with_bridges(scenario_of(), tmp_path, look)
    assert said == ["3 of 3 bridges up"]


@pytest.mark.parametrize("protocol", ["mqttv31", "mqttv50"])
def test_every_protocol_version_comes_up(tmp_path: Path, protocol: str) -> None:
    async def look(started: Started) -> None:
        assert all_up(started)
        await asyncio.to_thread(crosses, started, 0, 1)

    scenario = scenario_of(bridge=f"protocol: {protocol}\n      clean_session: true")
    with_bridges(scenario, tmp_path, look)


@pytest.mark.parametrize("mode", ["server", "mutual", "psk"])
def test_bridges_come_up_with_keys_that_the_run_made(tmp_path: Path, mode: str) -> None:
    """With passwords and rights a box has its own topics only."""

    async def look(started: Started) -> None:
        assert all_up(started)
        await asyncio.to_thread(crosses, started, 1, 1)
        login, cloud = started.topology.keys.bridge_login("uplink", 2), started.port("cloud-0")
        with client(cloud, started.login()) as main, client(cloud, Login(*login)) as box:
            main.subscribe("box/#")
            for topic in ("box/1/up/x", "box/2/up/x"):
                box.publish(topic, b"mine")
            assert main.next()[0] == "box/2/up/x"
        private = [path for path in (tmp_path / "keys").rglob("*") if path.suffix != ".crt"]
        assert {path.stat().st_mode & 0o777 for path in private if path.is_file()} == {0o600}

    rights = f'tls: {mode}, passwords: true, acl: ["pattern readwrite box/%u/#"]'
    with_bridges(scenario_of(cloud=rights, bridge='username: "{n}"'), tmp_path, look)
    assert not (tmp_path / "keys").exists()
    configuration = tmp_path / "boxes-1" / "mosquitto.conf"
    assert "remote_password" in configuration.read_text()
    assert not re.search(r"^(remote_password|bridge_psk) ", configuration.read_text(), re.M)
    assert configuration.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("persistence", ["true", "false"])
def test_a_main_broker_that_is_killed_and_restarted_is_seen_at_once(
    tmp_path: Path, persistence: str
) -> None:
    async def look(started: Started) -> None:
        [states] = started.bridges.states()
        monitor = BridgeMonitor(states)
        monitor.start()
        assert [value for _, value in read(monitor)] == [BOXES, BOXES]
        broker = started.topology.broker("cloud-0")
        # What is on a disk would come back with the broker, though no bridge is up.
        is_kept = bool(await asyncio.to_thread(kept, broker.observer_port))
        assert is_kept == (persistence == "false")
        started.topology.expect("cloud-0", ending=True)
        killed_ns = time.monotonic_ns()
        broker.send(signal.SIGKILL)
        await broker.ending()
        down_ns = await changed(monitor, 0)
        assert [value for _, value in read(monitor)] == [0]
        await broker.restart()
        back_ns = time.monotonic_ns()
        started.topology.expect("cloud-0", ending=False)
        assert killed_ns < down_ns < back_ns < await changed(monitor, BOXES)

    settings = f"settings: {{persistence: {persistence}, autosave_interval: 1}}"
    with_bridges(scenario_of(cloud=settings), tmp_path, look)


def test_bridges_that_are_cut_are_down_and_come_back(tmp_path: Path) -> None:
    async def look(started: Started) -> None:
        [states] = started.bridges.states()
        monitor = BridgeMonitor(states)
        monitor.start()
        links = started.bridges.links
        await links.set("uplink", [1, 2], LinkState("close"))
        await changed(monitor, BOXES - 2)
        await links.set("uplink", [1, 2], LinkState())
        await changed(monitor, BOXES)
        await asyncio.to_thread(crosses, started, 2, 1)

    try:
        proxy_path()
    except BinaryError:
        pytest.skip("pubstorm-proxy is not built")
    with_bridges(scenario_of(cloud="tls: server"), tmp_path, look, frozenset({"uplink"}))


def test_a_main_broker_may_be_of_another_kind(tmp_path: Path) -> None:
    async def look(started: Started) -> None:
        assert all_up(started)
        await asyncio.to_thread(crosses, started, 1, 1)

    scenario = scenario_of()
    brokers = {**scenario.topology.brokers, "cloud": Broker(kind="embedded")}
    topology = scenario.topology.model_copy(update={"brokers": brokers})
    with_bridges(scenario.model_copy(update={"topology": topology}), tmp_path, look)


def test_bridges_that_do_not_come_up_are_named_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pubstorm.topology.BRIDGES_TIMEOUT_S", 1.0)

    async def look(started: Started) -> None:
        [result] = started.bridges.results()
        assert (result.up, result.bridges) == (0, BOXES)
        [line] = started.bridges.missing()
        assert all(f"boxes-{n}" in line for n in range(BOXES))

    wrong = "settings: {remote_password: wrong}"
    with_bridges(scenario_of(cloud="passwords: true", bridge=wrong), tmp_path, look)


def test_two_bridges_of_a_box_lead_to_different_brokers(tmp_path: Path) -> None:
    text = """\
topology:
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

    async def look(started: Started) -> None:
        results = started.bridges.results()
        assert [(r.name, r.up, r.bridges) for r in results] == [
            ("up", 2, 2),
            ("side", 2, 2),
            ("other", 1, 1),
        ]
        await asyncio.to_thread(receive, started)

    with_bridges(parse_scenario(text, "s.yaml"), tmp_path, look)


def test_an_external_target_is_bridged_to_and_left_as_it_was(tmp_path: Path) -> None:
    async def run() -> None:
        main = MosquittoBroker(Place("main", tmp_path / "main"))
        await main.start()
        target = f"target: mqtt://127.0.0.1:{main.port}"
        try:
            for left in ("pubstorm/bridge/uplink/1", "else/where"):
                await asyncio.to_thread(keep, main.port, left)
            bridges = await asyncio.to_thread(
                with_bridges, scenario_of(to="target", target=target), tmp_path / "run", look
            )
            stale_state = await remove_bridges(bridges.outside())
            assert [(each.what, each.total) for each in stale_state] == [("sessions", BOXES)]
            assert await asyncio.to_thread(kept, main.port) == ["else/where"]
            assert await asyncio.to_thread(session_of, main.port, "uplink-2") is False
        finally:
            await main.stop()

    async def look(started: Started) -> None:
        assert all_up(started)

    asyncio.run(run())


def test_pre_shared_keys_of_an_external_target_are_looked_up(tmp_path: Path) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_bytes(psk_text(new_keys(f"box-{n}" for n in range(BOXES)).items()))

    async def run() -> None:
        settings = psk_settings(keys, as_username=False)
        main = MosquittoBroker(Place("main", tmp_path / "main", settings, is_under_tls=True))
        await main.start()

        def receive(started: Started) -> None:
            assert list(started.bridges.missing())
            with client(main.observer_port) as cloud, client(started.port("boxes-2")) as small:
                cloud.subscribe("pubstorm/bridge/uplink/2")
                assert cloud.next()[1] == b"1"
                cloud.subscribe("box/2/up/x")
                small.publish("up/x", b"hello", 0)
                assert cloud.next()[1] == b"hello"

        async def look(started: Started) -> None:
            await asyncio.to_thread(receive, started)

        bridge = f'tls: {{psk: {{file: "{keys}", identity: "box-{{n}}"}}}}'
        target = f"target: mqtts://127.0.0.1:{main.port}"
        scenario = scenario_of(to="target", target=target, bridge=bridge)
        try:
            bridges = await asyncio.to_thread(with_bridges, scenario, tmp_path / "run", look)
            [stale_state] = await remove_bridges(bridges.outside())
        finally:
            await main.stop()
        assert (stale_state.what, stale_state.total) == ("unknown", BOXES)

    asyncio.run(run())


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
    with Observer(target, ANONYMOUS, client_id, deadline, clean=False) as one:
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
