"""Bridges between real mosquittos: they come up and are counted, carry messages both ways, log in
with what the run made, and are down and up again when the main broker is."""

from __future__ import annotations

import asyncio
import queue
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

from pubstorm.monitor.bridges import BridgeMonitor
from pubstorm.monitor.sys_topics import Login
from pubstorm.plan import Plan, provisional_plan
from pubstorm.scenario import Scenario, parse_scenario
from pubstorm.topology.adapters import MosquittoBroker, mosquitto
from pubstorm.topology.bridges import Bridges
from pubstorm.topology.broker import Place
from pubstorm.topology.keys import RunKeys

pytestmark = pytest.mark.skipif(
    mosquitto.find_mosquitto() is None, reason="mosquitto is not installed"
)

BOXES = 5
NOBODY = Login()
SCENARIO = """\
{target}
topology:
  brokers:
    cloud: {{kind: mosquitto, {cloud}}}
    boxes: {{kind: mosquitto, count: 5}}
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
    text = SCENARIO.format(cloud=cloud, bridge=bridge, to=to, target=target)
    return parse_scenario(text, "s.yaml")


@dataclass
class Started:
    """Brokers of a scenario, with their bridges."""

    scenario: Scenario
    bridges: Bridges
    keys: RunKeys
    plan: Plan
    brokers: dict[str, MosquittoBroker] = field(default_factory=dict)

    def port(self, name: str) -> int:
        return self.brokers[name].observer_port

    def login(self) -> Login:
        population = self.plan.populations[0]
        return Login(population.username, population.password)


Look = Callable[[Started], Awaitable[None]]


def with_bridges(scenario: Scenario, folder: Path, look: Look) -> None:
    """Starts main brokers, then small ones with their bridges, looks, and stops all."""

    async def run() -> None:
        keys = RunKeys(scenario.topology, folder / "keys")
        keys.make(provisional_plan(scenario))
        bridges = Bridges(scenario.topology, folder, keys, targets=scenario.target)
        plan = keys.equip(provisional_plan(scenario))
        started = Started(scenario, bridges, keys, plan)
        try:
            await start(started, folder)
            await look(started)
        finally:
            for broker in reversed(started.brokers.values()):
                await broker.stop()
            await bridges.close()
            keys.discard()

    asyncio.run(run())


async def start(started: Started, folder: Path) -> None:
    specs, bridges = started.scenario.topology.brokers, started.bridges

    async def start_one(group: str, number: int) -> None:
        spec, name = specs[group], f"{group}-{number}"
        settings = {**started.keys.settings(spec.tls), **bridges.settings(group), **spec.settings}
        more = "" if bridges.is_main(group) else bridges.lines(group, number)
        under_tls = spec.tls != "none"
        place = Place(name, folder / name, settings, more=more, is_under_tls=under_tls)
        started.brokers[name] = MosquittoBroker(place)
        await started.brokers[name].start()

    mains = [group for group in specs if bridges.is_main(group)]
    for group in mains:
        await start_one(group, 0)
    cores = {group: started.brokers[f"{group}-0"] for group in mains}
    await bridges.open(
        {group: (broker.host, broker.port) for group, broker in cores.items()},
        {group: (broker.host, broker.observer_port) for group, broker in cores.items()},
    )
    for group in specs:
        if group not in mains:
            await asyncio.gather(*(start_one(group, n) for n in range(specs[group].count)))
    await bridges.up(10.0)


class Heard:
    """A client of a test, and what it got."""

    def __init__(self) -> None:
        self.client = Client(CallbackAPIVersion.VERSION2)
        self.messages: queue.Queue[MQTTMessage] = queue.Queue()
        self.ready: queue.Queue[int] = queue.Queue()
        self.client.on_message = lambda _c, _d, message: self.messages.put(message)
        self.client.on_connect = lambda *_: self.ready.put(0)
        self.client.on_subscribe = lambda *_: self.ready.put(0)

    def subscribe(self, topic: str, qos: int) -> None:
        self.client.subscribe(topic, qos)
        self.ready.get(timeout=5)

    def next(self) -> tuple[str, bytes, int]:
        message = self.messages.get(timeout=5)
        return message.topic, bytes(message.payload), message.qos


@contextmanager
def client(port: int, login: Login = NOBODY) -> Iterator[Heard]:
    heard = Heard()
    if login.username is not None:
        heard.client.username_pw_set(login.username, login.password)
    heard.client.connect("127.0.0.1", port)
    heard.client.loop_start()
    try:
        heard.ready.get(timeout=5)
        yield heard
    finally:
        heard.client.disconnect()
        heard.client.loop_stop()


def all_up(started: Started) -> bool:
    return [(result.up, result.bridges) for result in started.bridges.results()] == [(BOXES, BOXES)]


def crosses(started: Started, number: int, qos: int) -> None:
    """A message goes up from a box and down to it, each once."""
    cloud, box = started.port("cloud-0"), started.port(f"boxes-{number}")
    with client(cloud, started.login()) as main, client(box) as small:
        main.subscribe(f"box/{number}/up/#", 2)
        small.subscribe("down/#", 2)
        small.client.publish("up/x", b"hello", qos)
        assert main.next() == (f"box/{number}/up/x", b"hello", qos)
        main.client.publish(f"box/{number}/down/y", b"there", qos)
        assert small.next() == ("down/y", b"there", qos)
        assert main.messages.empty()


def test_all_bridges_come_up_are_counted_and_carry_every_qos(tmp_path: Path) -> None:
    said: list[str] = []

    async def look(started: Started) -> None:
        assert all_up(started)
        assert list(started.bridges.missing()) == []
        await started.bridges.up(1.0, said.append)
        for qos in (0, 1, 2):
            await asyncio.to_thread(crosses, started, 3, qos)

    with_bridges(scenario_of(), tmp_path, look)
    assert said == ["5 of 5 bridges up"]


@pytest.mark.parametrize("protocol", ["mqttv31", "mqttv311", "mqttv50"])
def test_every_protocol_version_comes_up(tmp_path: Path, protocol: str) -> None:
    async def look(started: Started) -> None:
        assert all_up(started)
        await asyncio.to_thread(crosses, started, 0, 1)

    scenario = scenario_of(bridge=f"protocol: {protocol}\n      clean_session: true")
    with_bridges(scenario, tmp_path, look)


@pytest.mark.parametrize("mode", ["server", "mutual", "psk"])
def test_bridges_come_up_with_keys_that_the_run_made(tmp_path: Path, mode: str) -> None:
    async def look(started: Started) -> None:
        assert all_up(started)
        await asyncio.to_thread(crosses, started, 1, 1)

    with_bridges(scenario_of(cloud=f"tls: {mode}"), tmp_path, look)
    assert not (tmp_path / "keys").exists()


def test_with_passwords_and_rights_a_box_has_its_own_topics_only(tmp_path: Path) -> None:
    rights = 'passwords: true, acl: ["pattern readwrite box/%u/#"]'
    prefix = 'username: "{n}"'

    async def look(started: Started) -> None:
        assert all_up(started)
        await asyncio.to_thread(crosses, started, 2, 1)
        login, cloud = started.keys.bridge_login("uplink", 2), started.port("cloud-0")
        with client(cloud, started.login()) as main, client(cloud, Login(*login)) as box:
            main.subscribe("box/#", 1)
            for topic in ("box/3/up/x", "box/2/up/x"):
                box.client.publish(topic, b"mine", 1)
            assert main.next()[0] == "box/2/up/x"
        for path in (tmp_path / "keys").iterdir():
            assert path.stat().st_mode & 0o777 == 0o600

    with_bridges(scenario_of(cloud=rights, bridge=prefix), tmp_path, look)


def test_a_main_broker_that_is_killed_and_restarted_is_seen_at_once(tmp_path: Path) -> None:
    async def look(started: Started) -> None:
        [monitor] = started.bridges.monitors()
        monitor.start()
        broker = started.brokers["cloud-0"]
        killed_ns = time.monotonic_ns()
        broker.send(signal.SIGKILL)
        await broker.ending()
        down_ns = await changed(monitor, 0)
        await broker.restart()
        back_ns = time.monotonic_ns()
        assert killed_ns < down_ns < back_ns < await changed(monitor, BOXES)

    with_bridges(scenario_of(cloud="settings: {persistence: true}"), tmp_path, look)


async def changed(monitor: BridgeMonitor, wanted: int) -> int:
    """The instant at which so many are up."""
    async with asyncio.timeout(20):
        while True:
            found = [reading.at_ns for reading in monitor.read() if reading.value == wanted]
            if found:
                return found[0]
            await asyncio.sleep(0.02)
