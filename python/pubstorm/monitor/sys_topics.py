"""What a broker says of itself under `$SYS`, read by an observer: one more client, which counts
what it receives. Readings are the broker's reports; what is repeated between them is marked."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pubstorm.monitor import MonitorError, Reading
from pubstorm.monitor.login import ANONYMOUS, Login, new_client
from pubstorm.plan import Target
from pubstorm.polling import OK, step
from pubstorm.result import Observer

if TYPE_CHECKING:
    from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
    from paho.mqtt.properties import Properties
    from paho.mqtt.reasoncodes import ReasonCode

SECOND_NS = 10**9
CONNECT_TIMEOUT_S = 3.0
KEEP_ALIVE_S = 10
WAIT_S = 0.5
"""How long it waits for something to come before it looks whether it is to end."""
RETRY_S = (1, 10)
"""Shortest and longest time between two attempts to connect."""
SILENCE_S = 15.0
"""How long what a broker said last still counts, and how long it may say nothing at first."""
SETTLED_S = 0.1
"""Silence after which a report of the broker is complete."""
REPORT_S = 1.0
"""Longest wait for that silence, where other topics never pause."""
REPORT_METRIC = "$SYS/uptime"
"""What each report of mosquitto contains; other topics only where their values have changed."""
TOPICS_MAX = 1000
"""Topics that are kept."""
PAYLOAD_BYTES_MAX = 64
"""Longest payload that is looked at for a number."""

ALIASES = {
    "$SYS/heap/current size": "$SYS/heap/current",
    "$SYS/heap/maximum size": "$SYS/heap/maximum",
    "$SYS/clients/active": "$SYS/clients/connected",
    "$SYS/clients/inactive": "$SYS/clients/disconnected",
    "$SYS/publish/messages/dropped": "$SYS/messages/dropped",
    "$SYS/messages/dropped": "$SYS/publish/messages/dropped",
}
"""Names of the same figure in mosquitto's versions: what is there, and the name that is added."""


class Reports:
    """The latest value of each topic, and which of them are news. mosquitto reports each few
    seconds, and only what has changed: a report confirms the other values. Between reports, and
    after a subscription, values are known that tell nothing of growth until now."""

    def __init__(self) -> None:
        self.is_empty = True
        """True if no value ever came."""
        self._latest: dict[str, Reading] = {}
        self._left: list[Reading] = []
        self._fresh: set[str] = set()
        self._heard_ns = 0
        self._report_ns: int | None = None

    def hear(self, at_ns: int) -> None:
        """Notes that the broker says anything."""
        self._heard_ns = at_ns

    def take(self, reading: Reading) -> bool:
        """Takes a new value; False if there are too many topics."""
        if reading.metric not in self._latest and len(self._latest) >= TOPICS_MAX:
            return False
        self.is_empty = False
        self._latest[reading.metric] = reading
        self._fresh.add(reading.metric)
        if reading.metric == REPORT_METRIC and not reading.held:
            self._report_ns = reading.at_ns
        return True

    def lose(self) -> None:
        """The connection is lost: what was known holds no longer."""
        self._left += [self._latest[name] for name in self._fresh]
        self._latest.clear()
        self._fresh.clear()
        self._report_ns = None

    def read(self, now_ns: int) -> Iterator[Reading]:
        """New values; once a report is complete, the values that it confirms; otherwise repeated
        values, for as long as the broker says anything at all."""
        report_ns, fresh = self._report_ns, self._fresh
        self._fresh = set()
        is_open = report_ns is not None and (
            now_ns - self._heard_ns < SETTLED_S * SECOND_NS
            and now_ns - report_ns < REPORT_S * SECOND_NS
        )
        if not is_open:
            self._report_ns = None
        yield from self._left
        self._left = []
        for name, reading in self._latest.items():
            if name in fresh:
                yield reading
            elif is_open:
                continue
            elif report_ns is not None and name.startswith("$SYS/") and reading.at_ns < report_ns:
                yield Reading(report_ns, name, reading.value)
            elif now_ns - self._heard_ns <= SILENCE_S * SECOND_NS:
                yield Reading(now_ns, name, reading.value, held=True)


class SysTopicsMonitor:
    """Watches one broker's topics."""

    def __init__(
        self, source: str, target: Target, topics: Sequence[str], login: Login = ANONYMOUS
    ) -> None:
        self.source = source
        self._target = target
        self._topics = tuple(topics)
        self._login = login
        self._lock = threading.Lock()
        self._reports = Reports()
        self._subscribed_s: float | None = None
        self._problems: list[str] = []
        self._first_problem: str | None = None
        self._received_total = self._received_bytes = 0
        self._client: Client | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._listen, name=f"$SYS {source}", daemon=True)

    def start(self) -> None:
        """Begins to connect, and goes on trying."""
        try:
            self._client = self._new_client()
        except MonitorError as error:
            self._first_problem = str(error)
            raise
        self._thread.start()

    def read(self) -> Iterator[Reading]:
        """What came since the last reading, with the instant at which it came, and what still
        holds."""
        with self._lock:
            readings = list(self._reports.read(time.monotonic_ns()))
            problems, self._problems = self._problems, []
        yield from with_aliases(readings)
        since_s = self._subscribed_s
        is_silent = since_s is not None and time.monotonic() - since_s > SILENCE_S
        if self._reports.is_empty and is_silent:
            problems.append(self._silence())
        if problems:
            raise MonitorError("; ".join(dict.fromkeys(problems)))

    def stop(self) -> None:
        """Disconnects; raises MonitorError where no number ever came and nothing said why."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(2 * WAIT_S)
        if self._reports.is_empty and self._first_problem is None:
            raise MonitorError(self._silence())

    def observer(self) -> Observer:
        """What the result says of it."""
        silent = self._silence() if self._reports.is_empty else None
        return Observer(
            name=self.source,
            target=str(self._target),
            topics=self._topics,
            received_total=self._received_total,
            received_bytes=self._received_bytes,
            problem=self._first_problem or silent,
        )

    def _silence(self) -> str:
        topics = ", ".join(self._topics)
        if self._subscribed_s is None:
            return f"{self._target} answered no login of the observer for {topics}"
        text = f"{self._target} published no number under {topics}"
        return f"{text}: allow the observer to read it, or the broker has no such topics"

    def _listen(self) -> None:
        """Connects and takes what comes, until it is stopped; waits longer each time that it does
        not come to a subscription."""
        assert self._client is not None, "it is made before this begins"
        wait_s = RETRY_S[0]
        while not self._stopping.is_set():
            subscribed_s = self._subscribed_s
            try:
                self._client.connect(self._target.host, self._target.port, KEEP_ALIVE_S)
            except (OSError, ValueError):
                self._note(
                    f"{self._target} cannot be reached by the observer: check address and TLS"
                )
            while not self._stopping.is_set() and step(self._client, WAIT_S) == OK:
                pass
            self._client.disconnect()
            has_come = self._subscribed_s != subscribed_s
            wait_s = RETRY_S[0] if has_come else min(2 * wait_s, RETRY_S[1])
            self._stopping.wait(wait_s)

    def _new_client(self) -> Client:
        client = new_client(self._login, CONNECT_TIMEOUT_S)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message
        return client

    def _on_connect(
        self, client: Client, _: Any, __: ConnectFlags, code: ReasonCode, ___: Properties | None
    ) -> None:
        if code.is_failure:
            text = f"{self._target} refuses the observer's login ({str(code).lower()})"
            self._note(f"{text}: give username and password of the source")
            return
        client.subscribe([(topic, 0) for topic in self._topics])

    def _on_disconnect(
        self, _: Client, __: Any, ___: DisconnectFlags, code: ReasonCode, ____: Properties | None
    ) -> None:
        with self._lock:
            self._reports.lose()
        if code.is_failure and self._subscribed_s is not None:
            self._note(f"{self._target} ended the observer's connection; it is tried again")

    def _on_subscribe(
        self, _: Client, __: Any, ___: int, codes: list[ReasonCode], ____: Properties | None
    ) -> None:
        self._subscribed_s = time.monotonic()
        refused = [t for t, code in zip(self._topics, codes, strict=False) if code.is_failure]
        if refused:
            text = f"{self._target} refuses the observer's subscription to {', '.join(refused)}"
            self._note(f"{text}: allow its user to read it")

    def _on_message(self, _: Client, __: Any, message: MQTTMessage) -> None:
        name, value = metric_name(message.topic), number(message.payload)
        with self._lock:
            at_ns = time.monotonic_ns()
            self._received_total += 1
            self._received_bytes += len(message.payload)
            self._reports.hear(at_ns)
            if value is None or self._reports.take(Reading(at_ns, name, value, message.retain)):
                return
        self._note(f"more than {TOPICS_MAX} topics: the others are left out, narrow topics")

    def _note(self, text: str) -> None:
        with self._lock:
            if text not in self._problems:
                self._problems.append(text)
            self._first_problem = self._first_problem or text


def metric_name(topic: str) -> str:
    """What a topic's figure is called: `$SYS/broker/` is shortened to `$SYS/`."""
    prefix = "$SYS/broker/"
    return f"$SYS/{topic.removeprefix(prefix)}" if topic.startswith(prefix) else topic


def number(payload: bytes | bytearray) -> float | None:
    """The number that a payload is, alone or before a word such as `seconds`."""
    if len(payload) > PAYLOAD_BYTES_MAX:
        return None
    found = _NUMBER.fullmatch(bytes(payload).strip())
    value = float(found[1]) if found else math.nan
    return value if math.isfinite(value) else None


def with_aliases(readings: Sequence[Reading]) -> Iterator[Reading]:
    """The readings, and those of other versions' names again under the name that is missing."""
    names = {reading.metric for reading in readings}
    for reading in readings:
        yield reading
        alias = ALIASES.get(reading.metric)
        if alias is not None and alias not in names:
            yield Reading(reading.at_ns, alias, reading.value, reading.held)


_NUMBER = re.compile(rb"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?:\s+[A-Za-z]+)?")
