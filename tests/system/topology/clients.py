"""Clients of other people's at brokers of a test."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from pubstorm.host.sockets import LOOPBACK
from pubstorm.topology.observer import Login

PATIENCE_S = 60.0
ANONYMOUS = Login()
Message = tuple[str, bytes, int]
"""Topic, payload and QoS."""


class Receiver:
    """A client that is connected, and its messages."""

    def __init__(self, host: str, port: int, login: Login = ANONYMOUS) -> None:
        self.messages: queue.Queue[Message] = queue.Queue()
        answers: queue.Queue[bool] = queue.Queue()
        self._answers, self._client = answers, Client(CallbackAPIVersion.VERSION2)
        self._client.on_message = lambda _client, _data, message: self.messages.put(
            (message.topic, bytes(message.payload), message.qos)
        )
        self._client.on_connect = lambda *said: answers.put(not said[3].is_failure)
        self._client.on_subscribe = lambda *_: answers.put(True)
        if login.username is not None:
            self._client.username_pw_set(login.username, login.password)
        self._client.connect(host, port)
        self._client.loop_start()
        self.is_accepted = answers.get(timeout=PATIENCE_S)

    def subscribe(self, topic: str, qos: int = 1) -> None:
        self._client.subscribe(topic, qos)
        self._answers.get(timeout=PATIENCE_S)

    def publish(self, topic: str, payload: bytes, qos: int = 1, *, retain: bool = False) -> None:
        self._client.publish(topic, payload, qos, retain).wait_for_publish(PATIENCE_S)

    def next(self) -> Message:
        return self.messages.get(timeout=PATIENCE_S)

    def expect(self, *wanted: tuple[str, bytes]) -> set[tuple[str, bytes]]:
        """Takes messages until all of these have come; returns all that it took."""
        taken: set[tuple[str, bytes]] = set()
        while not taken.issuperset(wanted):
            taken.add(self.next()[:2])
        return taken

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@contextmanager
def client(port: int, login: Login = ANONYMOUS, host: str = LOOPBACK) -> Iterator[Receiver]:
    """A client at a broker, which leaves afterwards."""
    receiver = Receiver(host, port, login)
    try:
        yield receiver
    finally:
        receiver.close()
