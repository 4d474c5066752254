"""One run with all features of MQTT at once, on a broker of the test that has a listener for TCP
and one for WebSocket. Another client, of paho, watches and sends requests. In a second run it
answers requests, and in a third run no client does. The drain of the second ends by its counts
alone, and so it waits for a test process that has no processor."""

from __future__ import annotations

import json
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import yaml
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from pubstorm.host.binaries import broker_path
from tests.kit.ports import free_port
from tests.kit.runs import Mosquitto, RunMaker, brokers_in
from tests.system.runs.dissector import Recording, not_recordable, recorded

DONE_TIMEOUT_S = 60
VERSIONS = {"3.1": "old", "3.1.1": "three", "5": "five"}
"""Populations of each version of MQTT, over TCP and WebSocket, which nothing disturbs."""
CALM = tuple(f"{way}-{name}" for way in ("tcp", "ws") for name in VERSIONS.values())
OWN_REQUESTS = 20
"""Requests of paho to the backend."""
DEVICES = (
    'serial,site,firmware\nTH-0001,hall 1,"1.4, beta"\nTH-0002,hall "2",2.0\nTH-0003,yard,2.0\n'
)
RAMP = "time,factor\n50,0\n51,2\n52,0\n"
RIGHTS = """\
user mobile-3
topic deny state/3
pattern readwrite #
"""
LIMITS: dict[str, object] = {
    "max_inflight_messages": 6,
    "max_packet_size": 30_000,
    "max_queued_messages": 0,
    "allow_duplicate_messages": "true",
}
"""Settings of mosquitto, of which clients of MQTT 5 receive the first two."""

COMMON = """
clean_start: skip
snapshot_interval: 200ms
stall_after: 500ms
drain: 2s
defaults: "off"
fleet: {agents: 2}
monitors: {host: false}
stages:
  - connect: {name: receivers, populations: [watcher, early, plain, five, three, old]}
  - connect: {name: others, populations: []}
  - publish: {name: online, for: 2s}
  - connect: {name: join, populations: [late, thief, robber]}
  - disconnect: {name: leave, populations: [fifth, third, dying, silent, parting, delayed]}
  - publish: {name: offline, for: 1s}
  - hold: 2500ms
  # The embedded broker can stop for ever if clients unsubscribe while messages go to groups.
  - connect: {name: return, populations: [fifth, third, flapper, keeper]}
  - publish: {name: back, for: 2s, rate_profile: {csv: ramp.csv}}
  # A disconnect stage waits for the wills of its clients; those of `returning` come in an hour.
  - disconnect: {name: end}
thresholds:
  - never_ready == 0
  - wills_lost == 0
  - steady.lost == 0
  - steady.expected > 0
  - fifth.lost == 0
  - fifth.expired > 0
  - flapper.unsubscribe_failed == 0
  - flapper.unsubscribed@back > 0
  - flapper.unsubscribe_time.p99 < 1min
  - flapper.subscribe_time.p99@back < 1min
  - flapper.disconnected == 0
  - watcher.will_latency.p50 < 10min
populations:
  # Properties, of messages and of a will; and the stamp beside a payload of the user.
  device:
    clients: 4
    version: 5
    end: END
    will: &marked
      topic: gone/{n}
      payload: gone {n}
      qos: 1
      expiry: 100s
      content_type: text/{n}
      payload_format: text
      response_topic: reply/{n}
      correlation_data: "no. {n}"
      user_properties: {site: north, client: "{n}"}
    publications:
      - {<<: *marked, topic: "device/{n}", rate: 5/s, topic_alias: true,
         payload: "no. {seq}, a text longer than a stamp", correlation_data: "no. {seq}"}
  five: {clients: 2, version: 5, subscriptions: [{topic: "device/#", qos: 1}]}
  three: {clients: 2, version: 3.1.1, subscriptions: [{topic: "device/#", qos: 1}]}
  old: {clients: 2, version: "3.1", subscriptions: [{topic: "device/#", qos: 1}]}
  # Aliases, own messages, and retained ones.
  alias:
    clients: 4
    version: 5
    publications: [{topic: "a/long/topic/that/an/alias/replaces/{n}", rate: 10/s, qos: 1,
                    size: 200B, topic_alias: true}]
  named:
    clients: 4
    version: 5
    publications: [{topic: "a/long/topic/that/no/alias/replaces/{n}", rate: 10/s, qos: 1,
                    size: 200B}]
  crowd:
    clients: 4
    version: 5
    subscriptions: [{topic: crowd, qos: 1, no_local: true, identifier: 9}]
    publications: [{topic: crowd, rate: 10/s, qos: 1}]
  kept:
    clients: 4
    version: 5
    publications: [{topic: "kept/{n}", rate: 10/s, qos: 1, retain: true}]
  early: &as_published
    clients: 1
    version: 5
    subscriptions: [{topic: "kept/#", qos: 1, retain_as_published: true}]
  plain: {clients: 1, version: 5, subscriptions: [{topic: "kept/#", qos: 1}]}
  late: *as_published
  # Ways of a message to a client: a filter, groups, several identifiers.
  up: {clients: 3, publications: [{topic: "up/{n}", rate: 20/s, qos: 1}]}
  member:
    clients: 3
    subscriptions: [{topic: "up/+", qos: 1}, {topic: "$share/g/up/#", qos: 1}]
  pool: {clients: 3, subscriptions: [{topic: "$share/h/up/#", qos: 1}]}
  teams: {clients: 5, subscriptions: [{topic: "$share/t{n%2}/up/#", qos: 1}]}
  crew: {clients: 2, subscriptions: &crew [{topic: "$share/c/up/#", qos: 1}]}
  others: {clients: 4, subscriptions: *crew}
  identified:
    clients: 2
    version: 5
    subscriptions: [{topic: "up/#", qos: 1, identifier: 1}, {topic: "up/+", qos: 1, identifier: 2}]
  # Messages for receivers that are offline. Those of one second are for them alone: a broker may
  # discard them while its receiver has no processor.
  brief:
    clients: 2
    version: 5
    publications: [{topic: "expiring/brief/{n}", rate: 20/s, qos: 1, expiry: 1s}]
  expiring:
    clients: 2
    version: 5
    publications:
      - {topic: "expiring/long/{n}", rate: 20/s, qos: 1, expiry: 1h}
      - {topic: "expiring/never/{n}", rate: 20/s, qos: 1}
  fifth: &offline
    clients: 3
    version: 5
    session: persistent
    subscriptions: [{topic: "expiring/#", qos: 1}]
  third: {<<: *offline, version: 3.1.1}
  # Ends of connections, and wills.
  dying: {clients: 4, end: abort, will: {topic: "will/dying/{n}", payload: bye, qos: 1}}
  polite: {clients: 4, will: {topic: "will/polite/{n}", payload: bye, qos: 1}}
  # With a shorter keep-alive, a busy host ends them before, and the embedded broker may then wait
  # for ever for the session that the returning client takes over.
  silent:
    clients: 4
    version: 5
    keep_alive: 4s
    end: vanish
    will: {topic: "will/silent/{n}", payload: bye, qos: 1}
  parting:
    clients: 4
    version: 5
    end: PARTING
    will: {topic: "will/parting/{n}", payload: bye}
  delayed: &delayed
    clients: 4
    version: 5
    session: persistent
    session_expiry: 1h
    end: abort
    will: {topic: "will/delayed/{n}", payload: bye, qos: 1, delay: 1s}
  returning:
    <<: *delayed
    end: vanish
    keep_alive: 1h
    lifetime: {from: 200ms, offline: 100ms}
    will: {topic: "will/returning/{n}", payload: bye, delay: 1h}
  victim:
    clients: 4
    reconnect: never
    will: {topic: "will/victim/{n}", payload: bye, qos: 1}
  thief: {clients: 2, takes_over: victim, reconnect: never}
  robbed: &robbed {clients: 3, version: 5, reconnect: {after: 50ms, up_to: 50ms}}
  robber: {<<: *robbed, clients: 2, takes_over: robbed}
  watcher: {clients: 2, version: 5, subscriptions: [{topic: "will/#", qos: 1}]}
  # Clients that unsubscribe and subscribe again.
  source:
    clients: 2
    publications:
      - {topic: "news/{n}", rate: 20/s, qos: 1}
      - {topic: "last/{n}", rate: 5/s, retain: true}
  flapper: &flapper
    clients: 3
    subscriptions: [{topic: "news/#", qos: 1}, last/+]
    flapping: {from: 100ms, to: 300ms, unsubscribed: 100ms}
  keeper: {<<: *flapper, version: 5, session: persistent}
  steady: {clients: 2, subscriptions: [{topic: "news/#", qos: 1}]}
  # Requests that the backend answers.
  asker:
    clients: 2
    version: 5
    subscriptions: [{topic: "reply/asker/{n}", qos: 1}]
    publications:
      - {topic: "ask/{n}", rate: 5/s, qos: 1, request: true, response_topic: "reply/asker/{n}"}
  backend:
    clients: 3
    version: 5
    subscriptions: [{topic: "ask/#", qos: 1}]
    responds: {qos: 2, size: 40B}
  # Data of devices, with a row of a file for each client.
  data:
    clients: 3
    first: 100
    rows: devices.csv
    client_id: "{row.serial}"
    publications:
      - topic: "site/{row.serial}/{up|log}"
        rate: 10/s
        qos: 1
        payload:
          id: "{row.serial}"
          where: {site: "{row.site}", firmware: "{row.firmware}"}
          temperature: "{random 20.0..30.0}"
          state: "{ok|ok|ok|fault}"
          nonce: "{hex 16}"
          number: "{seq}"
          at: "{time}"
          stamp: "{stamp}"
  reader:
    clients: 2
    first: 100
    rows: devices.csv
    subscriptions: ["site/+/+", "site/{row.serial}/log"]
"""
OF_MOSQUITTO = """
bursts:
  clients: 4
  version: 5
  publications: [{topic: "burst/{n}", rate: 20/s, qos: 2, burst: 20}]
large:
  clients: 4
  version: 5
  publications: [{topic: "large/{n}", rate: 10/s, qos: 1, size: 40kB}]
"""
"""Populations that reach the limits of mosquitto."""
SHORT = """
clean_start: skip
snapshot_interval: 200ms
stall_after: 500ms
defaults: "off"
monitors: {host: false}
stages:
  - connect: {}
  - publish: {name: online, for: 2s}
"""
SECOND = """
  - publish: {name: last, for: 500ms}
drain: 1min
populations:
  stranger:
    clients: 2
    version: 5
    subscriptions: [{topic: "reply/{n}", qos: 1}]
    publications:
      - &ask {topic: "paho/done/{n}", rate: 10/s, qos: 1, request: true,
              response_topic: "reply/{n}"}
      - {<<: *ask, topic: "paho/echo/{n}"}
      - {<<: *ask, topic: "paho/text/{n}", payload: turn on the light}
      - {<<: *ask, topic: "paho/twice/{n}"}
  overhearing: {clients: 1, version: 5, subscriptions: [{topic: "paho/#", qos: 1}]}
"""
"""Requests that paho answers. With the answers of the last stage, all of the others have come."""
THIRD = """
populations:
  lonely:
    clients: 2
    version: 5
    subscriptions: [{topic: "reply/{n}", qos: 1}]
    publications:
      - {topic: "unheard/{n}", rate: 5/s, qos: 1, request: true, response_topic: "reply/{n}"}
  # mosquitto takes the right of one of them.
  mobile: {clients: 5, username: "mobile-{n}", subscriptions: ["state/{n}"]}
  state: {clients: 5, publications: [{topic: "state/{n}", rate: 20/s}]}
"""
"""Requests without an answer, and messages without a receiver."""
LATER = {"late", "thief", "robber", "flapper", "keeper"}


def scenario(kind: str, port: int, websocket_port: int) -> dict[str, Any]:
    """Returns the scenario for a broker of a kind at these ports."""
    is_mosquitto = kind == "mosquitto"
    # rmqtt discards the will after any DISCONNECT.
    ends = ("disconnect_with_will",) * 2 if is_mosquitto else ("abort", "disconnect")
    text = COMMON.replace("PARTING", ends[1]).replace("END", ends[0])
    made: dict[str, Any] = yaml.safe_load(text)
    populations: dict[str, Any] = made["populations"]
    populations.update(yaml.safe_load(OF_MOSQUITTO) if is_mosquitto else {})
    for way in ("tcp", "ws"):
        populations.update(
            {f"{way}-{name}": calm(f"{way}-{name}", version) for version, name in VERSIONS.items()}
        )
    for name, population in populations.items():
        first = int(name.startswith("ws-"))
        population["at"] = {"brokers": "target", "first": first, "count": 1}
    receivers, others = (made["stages"][index]["connect"] for index in (0, 1))
    others["populations"] = [*(populations.keys() - LATER - {*receivers["populations"]})]
    for index, silent in ((2, {"brief"}), (5, set()), (8, {"brief", "up"})):
        made["stages"][index]["publish"]["populations"] = [*(populations.keys() - silent)]
    made["stages"][-1]["disconnect"]["populations"] = [*(populations.keys() - {"returning"})]
    host = "127.0.0.1"
    return {"target": [f"mqtt://{host}:{port}", f"ws://{host}:{websocket_port}/mqtt"], **made}


def calm(name: str, version: str) -> dict[str, Any]:
    """Returns clients that receive their own messages of each QoS: large ones, and several at
    once."""
    topic, rate = f"{name}/{{n}}", "5/s"
    return {
        "clients": 2,
        "version": version,
        "subscriptions": [{"topic": topic, "qos": 2}],
        "publications": [
            {"topic": topic, "rate": rate, "qos": 0},
            {"topic": topic, "rate": rate, "qos": 1, "burst": 5},
            {"topic": topic, "rate": "2/s", "qos": 2, "size": "20kB", "window": 4},
        ],
    }


@dataclass
class Observer:
    """The client of paho."""

    client: paho.Client
    messages: list[paho.MQTTMessage] = field(default_factory=list)
    subscribed: threading.Event = field(default_factory=threading.Event)
    news: threading.Condition = field(default_factory=threading.Condition)

    def at(self, first_level: str) -> list[paho.MQTTMessage]:
        """Returns the messages on topics that begin with this level."""
        return [m for m in self.messages if m.topic.startswith(f"{first_level}/")]

    def wait(self, totals: dict[str, int]) -> None:
        """Waits until as many messages have come, by the first level of their topics."""

        def left() -> Counter[str]:
            return Counter(totals) - Counter(each.topic.split("/")[0] for each in self.messages)

        with self.news:
            assert self.news.wait_for(lambda: not left(), DONE_TIMEOUT_S), left()

    def on_message(self, message: paho.MQTTMessage) -> None:
        if message.topic.startswith("device/") and not self.at("device"):
            # Messages are under way, so the backend has subscribed.
            for number in range(OWN_REQUESTS):
                self.publish("ask/paho", b"?", f"mine/{number}", f"no. {number}".encode())
        if message.topic.startswith("paho/"):
            self.answer(message)
        with self.news:
            self.messages.append(message)
            self.news.notify_all()

    def answer(self, request: paho.MQTTMessage) -> None:
        """Answers as section 4.10 of the standard says; or with the payload, with all properties
        too, or twice."""
        asked: Any = request.properties
        manner = request.topic.split("/")[1]
        payload = request.payload if manner in ("echo", "text") else b"done"
        back = asked.ResponseTopic if manner == "echo" else None
        for _ in range(2 if manner == "twice" else 1):
            self.publish(asked.ResponseTopic, payload, back, asked.CorrelationData)

    def publish(
        self, topic: str, payload: bytes | bytearray, response_topic: str | None, data: bytes
    ) -> None:
        properties: Any = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        if response_topic is not None:
            properties.ResponseTopic = response_topic
        properties.CorrelationData = data
        self.client.publish(topic, payload, 1, properties=properties)


@contextmanager
def observing(port: int) -> Iterator[Observer]:
    """Subscribes a client of paho, and lets it watch while the context is open."""
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.max_inflight_messages_set(1000)
    observer = Observer(client)
    topics = [(f"{level}/#", 1) for level in ("device", "gone", "paho", "mine", "site")]

    def on_connect(*_: object) -> None:
        client.subscribe(topics)

    client.on_connect = on_connect
    client.on_subscribe = lambda *_: observer.subscribed.set()
    client.on_message = lambda _client, _data, message: observer.on_message(message)
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        assert observer.subscribed.wait(DONE_TIMEOUT_S)
        yield observer
    finally:
        client.disconnect()
        client.loop_stop()


@contextmanager
def serving(kind: str, folder: Path) -> Iterator[tuple[int, int]]:
    """Starts a broker; yields its ports of TCP and of WebSocket."""
    if kind == "mosquitto":
        (folder / "rights").write_text(RIGHTS)
        port = free_port()
        listener = {"listener ": f"{port} 127.0.0.1", "protocol": "websockets"}
        with brokers_in(folder) as start:
            broker: Mosquitto = start(acl_file=folder / "rights", **LIMITS, **listener)
            yield broker.port, port
        return
    command = [str(broker_path()), "--port", "0", "--websocket-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            yield ready["port"], ready["websocket_port"]
        finally:
            process.kill()


@dataclass
class Played:
    """A run that is over."""

    kind: str
    code: int
    result: dict[str, Any]
    second: dict[str, Any]
    third: dict[str, Any]
    """Results of the other two runs."""
    directory: Path
    messages: Observer
    recordings: list[Recording]

    def of(self, population: str) -> dict[str, Any]:
        """Returns the figures of a population."""
        found: dict[str, Any] = self.result["populations"][population]
        return found

    @cached_property
    def missing(self) -> Counter[str]:
        """Messages that streams to each population miss, from the flows of all snapshots."""
        names, missing = [*self.result["populations"]], Counter[str]()
        for line in (self.directory / "snapshots.jsonl").read_text().splitlines():
            for flow in json.loads(line)["flows"]:
                missing[names[flow["to"]]] += flow["counters"]["missing_total"]
        return missing


def played(start: RunMaker, kind: str, folder: Path) -> Played:
    """Plays the scenario; the packets at mosquitto are recorded."""
    (folder / "devices.csv").write_text(DEVICES)
    (folder / "ramp.csv").write_text(RAMP)
    path = folder / "scenario.yaml"
    with ExitStack() as stack:
        port, websocket_port = stack.enter_context(serving(kind, folder))
        path.write_text(json.dumps(scenario(kind, port, websocket_port)))
        recordings = []
        if kind == "mosquitto" and not not_recordable():
            for each, protocol in ((port, "mqtt"), (websocket_port, "http")):
                recordings.append(stack.enter_context(recorded(each, folder, protocol)))
        observer = stack.enter_context(observing(port))
        run = start(path)
        code, result = run.finish(), run.result()
        second, third = (
            played_alone(start, port, folder / "short.yaml", each) for each in (SECOND, THIRD)
        )
        found = Played(kind, code, result, second, third, run.directory, observer, recordings)
        devices, data = found.of("device"), found.of("data")
        totals = {"device": devices["sent_total"], "gone": 4, "site": data["sent_total"]}
        observer.wait({**totals, "mine": 3 * OWN_REQUESTS})
    return found


def played_alone(start: RunMaker, port: int, path: Path, populations: str) -> dict[str, Any]:
    """Plays a short run at a broker, and returns its result."""
    scenario = {"target": f"mqtt://127.0.0.1:{port}", **yaml.safe_load(SHORT + populations)}
    path.write_text(json.dumps(scenario))
    run = start(path)
    run.finish()
    return run.result()
