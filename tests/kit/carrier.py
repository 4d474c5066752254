"""A bridge of a user's: carries messages of an MQTT broker to NATS, Kafka, AMQP or AMQP 1.0, and
does to known ones what a bridge should not. It shares nothing with Pubstorm. Start it with
`carrier.py MQTT_HOST:PORT nats|kafka|amqp|amqp1://HOST:PORT FAULTS`, with the faults as JSON. At
its end it prints the number of messages of each kind as JSON."""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

Send = Callable[[str, bytes], None]
UNSTAMPED = b"." * 100


def bridged(text: str, faults: Mapping[str, float]) -> str:
    """Returns a scenario whose words PYTHON, CARRIER and FAULTS are this program with faults."""
    written = json.dumps(faults).replace("{", "{{").replace("}", "}}")
    for name, value in (("PYTHON", sys.executable), ("CARRIER", __file__), ("FAULTS", written)):
        text = text.replace(name, value)
    return text


@contextlib.contextmanager
def running(mqtt: str, to: str) -> Iterator[None]:
    """Runs this program, without faults, between two brokers."""
    command = [sys.executable, __file__, mqtt.removeprefix("mqtt://"), to, "{}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "carries\n"
            yield
        finally:
            process.terminate()


@dataclass(frozen=True)
class CarrierFaults:
    """Messages that the bridge treats badly: each n-th of all. The defaults are right."""

    drop: int = 0
    """It carries none of these."""
    double: int = 0
    """It carries these twice."""
    swap: int = 0
    """It holds these until the next message of the same name has gone."""
    strip: int = 0
    """It replaces the payload of these."""
    rename: int = 0
    """It carries these under the name of another of ten devices."""
    delay_s: float = 0.0
    """Time for which it holds each message."""


def to_nats(address: str) -> Send:
    """Publishes with the subject that has dots where the topic has slashes."""
    host, port = address.rsplit(":", 1)
    server = socket.create_connection((host, int(port)))
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server.sendall(b'CONNECT {"verbose": false}\r\nPING\r\n')
    answer = b""
    while b"PONG\r\n" not in answer:
        answer += server.recv(1 << 16)

    def send(topic: str, payload: bytes) -> None:
        subject = topic.replace("/", ".").encode()
        server.sendall(b"PUB %s %d\r\n%s\r\n" % (subject, len(payload), payload))

    return send


def to_kafka(address: str) -> Send:
    """Produces to the topic of the last level, with the whole name as the key."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "linger.ms": 0, "acks": "all"})

    def send(topic: str, payload: bytes) -> None:
        producer.produce(topic.rsplit("/", 1)[-1], payload, key=topic)
        producer.poll(0)

    return send


def to_amqp(address: str) -> Send:
    """Publishes to `amq.topic`, with the key that has dots where the topic has slashes."""
    import pika

    host, port = address.rsplit(":", 1)
    parameters = pika.ConnectionParameters(host, int(port), heartbeat=0)
    channel = pika.BlockingConnection(parameters).channel()

    def send(topic: str, payload: bytes) -> None:
        channel.basic_publish("amq.topic", topic.replace("/", "."), payload)

    return send


def to_amqp1(address: str) -> Send:
    """Sends to the address that has dots where the topic has slashes; waits for each outcome."""
    from proton import Message
    from proton.utils import BlockingConnection, BlockingSender

    connection = BlockingConnection(f"amqp://{address}", allowed_mechs="ANONYMOUS")
    senders: dict[str, BlockingSender] = {}

    def send(topic: str, payload: bytes) -> None:
        name = topic.replace("/", ".")
        if name not in senders:
            senders[name] = connection.create_sender(name)
        senders[name].send(Message(payload, inferred=True))

    return send


SENDERS = {"nats": to_nats, "kafka": to_kafka, "amqp": to_amqp, "amqp1": to_amqp1}


@dataclass
class Carrier:
    """The messages between two brokers."""

    send: Send
    faults: CarrierFaults
    counts: Counter[str] = field(default_factory=Counter)
    held: dict[str, bytes] = field(default_factory=dict)
    late: queue.SimpleQueue[tuple[float, str, bytes]] = field(default_factory=queue.SimpleQueue)

    def take(self, topic: str, payload: bytes) -> None:
        """Carries a message, or does what the faults say."""
        self.counts["taken"] += 1
        number, faults = self.counts["taken"], self.faults
        if self._is(number, faults.drop, "dropped"):
            return
        if self._is(number, faults.strip, "stripped"):
            payload = UNSTAMPED
        if self._is(number, faults.rename, "renamed"):
            device, own, rest = topic.split("/", 2)
            topic = f"{device}/{(int(own) + 1) % 10}/{rest}"
        if topic not in self.held and self._is(number, faults.swap, "held"):
            self.held[topic] = payload
            return
        self.carry(topic, payload)
        if self._is(number, faults.double, "doubled"):
            self.carry(topic, payload)
        if (before := self.held.pop(topic, None)) is not None:
            self.counts["swapped"] += 1
            self.carry(topic, before)

    def carry(self, topic: str, payload: bytes) -> None:
        """Sends a message, late if the faults say so."""
        self.counts["sent"] += 1
        if self.faults.delay_s:
            self.late.put((time.monotonic() + self.faults.delay_s, topic, payload))
        else:
            self.send(topic, payload)

    def send_late(self) -> None:
        """Sends what waits, each message at its time."""
        while True:
            at_s, topic, payload = self.late.get()
            time.sleep(max(at_s - time.monotonic(), 0))
            self.send(topic, payload)

    def _is(self, number: int, each: int, kind: str) -> bool:
        found = bool(each) and number % each == 0
        self.counts[kind] += found
        return found


def main() -> None:
    """Carries until SIGTERM."""
    mqtt, to, faults = sys.argv[1:]
    scheme, address = to.split("://")
    carrier = Carrier(SENDERS[scheme](address), CarrierFaults(**json.loads(faults)))
    threading.Thread(target=carrier.send_late, daemon=True).start()
    client = paho.Client(CallbackAPIVersion.VERSION2, "carrier")

    def subscribe(*_: object) -> None:
        client.subscribe("#", 1)

    client.on_connect = subscribe
    client.on_subscribe = lambda *_: print("carries", flush=True)
    client.on_message = lambda _c, _u, message: carrier.take(message.topic, bytes(message.payload))

    def end(_number: int, _frame: object) -> None:
        print(json.dumps(carrier.counts), flush=True)
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    host, port = mqtt.rsplit(":", 1)
    client.connect(host, int(port))
    client.loop_forever()


if __name__ == "__main__":
    main()
