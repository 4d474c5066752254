"""Records the messages that a subscriber receives from a broker. It sees no publishers: they are
modelled, one client for each topic, or for each value of a level of the topics."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from queue import Empty, Full, Queue
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from pubstorm.cli.record.population import Observed
from pubstorm.contract.target import Target
from pubstorm.errors import UsageError
from pubstorm.quantities import write_count

QUEUE_MAX = 100_000
"""Messages that wait to be recorded; further ones are counted."""
CONNECT_TIMEOUT_S = 10.0
POLL_S = 0.2
NEVER_RETAINED = SubscribeOptions.RETAIN_DO_NOT_SEND

Arrived = tuple[int, str, int | bytes, int, bool]
"""Instant, topic, payload or the size of that, QoS and RETAIN flag."""


@dataclass(frozen=True, slots=True)
class RecordedSubscription:
    """The messages to record."""

    filters: Sequence[str]
    """Topic filters."""
    seconds: float
    """Time of the recording."""
    level: int | None = None
    """Level of the topics that names a client, from 1 on; None: each topic is a client."""
    username: str | None = None
    password: str | None = None
    payloads: bool = False
    """True: the payloads are recorded too."""


def record_subscription(target: Target, wanted: RecordedSubscription) -> Observed:
    """Returns the messages that arrive in the time of the recording. Raises UsageError if the
    broker cannot be reached or refuses."""
    arrived: Queue[Arrived] = Queue(QUEUE_MAX)
    receiver = _Receiver(arrived, wanted)
    observed = Observed(f"a subscription at {target}", keeps_payloads=wanted.payloads)
    receiver.connect(target)
    try:
        end_s = time.monotonic() + wanted.seconds
        while (rest_s := end_s - time.monotonic()) > 0 and receiver.problem is None:
            try:
                message = arrived.get(timeout=min(rest_s, POLL_S))
            except Empty:
                continue
            add_received(observed, message, wanted.level)
    finally:
        receiver.close()
    while not arrived.empty():
        add_received(observed, arrived.get_nowait(), wanted.level)
    if receiver.problem is not None:
        observed.unknown.append(f"The recording ended early: {receiver.problem}.")
    if receiver.dropped:
        observed.unknown.append(
            f"{write_count(receiver.dropped)} messages arrived faster than they could be recorded."
        )
    modelled = "topic" if wanted.level is None else f"text of level {wanted.level} of the topics"
    observed.unknown += [
        f"Publishers are unknown: they are modelled as one client for each {modelled}.",
        "Instants are those of arrival at this host, after the broker.",
        "Subscribers, sessions, messages retained before, and messages that no filter matches "
        "are unknown.",
    ]
    return observed


def add_received(observed: Observed, message: Arrived, level: int | None) -> None:
    """Adds a message that arrived."""
    at_ns, topic, payload, qos, retain = message
    levels = topic.split("/")
    named = "" if level is None or len(levels) < level else levels[level - 1]
    # A topic that is a client by itself is no level of topics.
    observed.add(at_ns, (named or f"\0{topic}", topic), payload, (qos, retain))


class _Receiver:
    """The subscriber."""

    def __init__(self, arrived: Queue[Arrived], wanted: RecordedSubscription) -> None:
        self.problem: str | None = None
        self.dropped = 0
        self._arrived, self._wanted = arrived, wanted
        self._subscribed: Queue[str] = Queue()
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
        self._client.username_pw_set(wanted.username, wanted.password)
        self._client.on_connect = self._connected
        self._client.on_subscribe = self._granted
        self._client.on_message = self._message
        self._client.on_disconnect = self._ended

    def connect(self, target: Target) -> None:
        """Connects and subscribes. Raises UsageError."""
        if target.tls:
            self._client.tls_set()
        try:
            self._client.connect(target.host, target.port, clean_start=True)
        except OSError as error:
            reason = error.strerror or str(error)
            raise UsageError(f"found no broker at {target}: {reason}") from None
        self._client.loop_start()
        try:
            problem = self._subscribed.get(timeout=CONNECT_TIMEOUT_S)
        except Empty:
            problem = f"no answer after {CONNECT_TIMEOUT_S:.0f} s"
        if problem:
            self.close()
            raise UsageError(f"found no subscription at {target}: {problem}")

    def close(self) -> None:
        """Disconnects."""
        self._client.on_disconnect = None
        self._client.disconnect()
        self._client.loop_stop()

    def _connected(self, client: mqtt.Client, _: Any, __: Any, code: ReasonCode, ___: Any) -> None:
        if code.is_failure:
            self._subscribed.put(f"the broker refuses: {code}")
            return
        # As published: the RETAIN flag is that of the publisher.
        options = SubscribeOptions(2, retainAsPublished=True, retainHandling=NEVER_RETAINED)
        client.subscribe([(filter_, options) for filter_ in self._wanted.filters])

    def _granted(self, _: Any, __: Any, ___: Any, codes: list[ReasonCode], ____: Any) -> None:
        refused = [str(code) for code in codes if code.is_failure]
        self._subscribed.put(f"the broker refuses a filter: {refused[0]}" if refused else "")

    def _message(self, _: Any, __: Any, message: mqtt.MQTTMessage) -> None:
        content = bytes(message.payload)
        payload = content if self._wanted.payloads else len(content)
        received = (time.time_ns(), message.topic, payload, message.qos, message.retain)
        try:
            self._arrived.put_nowait(received)
        except Full:
            self.dropped += 1

    def _ended(self, _: Any, __: Any, ___: Any, code: ReasonCode, ____: Any) -> None:
        self.problem = f"the connection was lost ({code})"
