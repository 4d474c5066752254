"""How many bridges are up, heard from the bridges themselves: each keeps its state, 1 or 0, on a
topic of the main broker, and one observer there follows all of a name. A state is known at the
instant it comes. It knows no topology and starts nothing."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pubstorm.monitor import MonitorError, Reading
from pubstorm.monitor.login import Login, new_client, tls_context
from pubstorm.plan import Target
from pubstorm.polling import OK, step
from pubstorm.result import Observer

if TYPE_CHECKING:
    from paho.mqtt.client import Client, ConnectFlags, MQTTMessage
    from paho.mqtt.properties import Properties
    from paho.mqtt.reasoncodes import ReasonCode

CONNECTED = "connected"
"""Metric: bridges that are up."""
CONNECT_TIMEOUT_S = 3.0
RETRY_S = 0.05
"""Time between two attempts to connect: bridges take a second at least."""
KEEP_ALIVE_S = 60
WAIT_S = 0.25
"""How long the observer waits for something to come before it looks whether it is to end."""
CHANGES_MAX = 100_000
"""Changes that wait to be read."""
SAME_NS = 10**6
"""Changes within this time are one reading."""


@dataclass(frozen=True, slots=True)
class WatchedBridges:
    """Bridges whose state is followed."""

    name: str
    """What all of them are called."""
    count: int
    """How many there are, numbered from 0."""
    topic: str
    """Filter of the topics of their states; the last level is the number."""
    target: Target
    """Where an observer finds the main broker."""
    login: Login
    """Who the observer is."""
    is_remembered: bool
    """Whether the main broker keeps what is retained on a disk, and has it again after a kill."""
    is_own: bool
    """Whether the run started the main broker, so that nothing but its end ends a connection."""


class BridgeStates:
    """The states of all bridges of a name. A thread of its own listens; the rest may be called from
    any other."""

    def __init__(self, watched: WatchedBridges) -> None:
        self.watched = watched
        self._lock = threading.Lock()
        self._up: set[int] = set()
        self._changes: deque[tuple[int, int]] = deque(maxlen=CHANGES_MAX)
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._listen, name=f"bridges {watched.name}", daemon=True
        )
        self._subscribed = threading.Event()
        self._subscriptions = 0
        self._received_total = self._received_bytes = 0
        self._problem: str | None = None

    def start(self) -> None:
        """Begins to listen; raises MonitorError where it cannot log in under TLS."""
        tls = self.watched.login.tls
        if tls is not None:
            tls_context(tls, self.watched.login.number)
        self._thread.start()

    def stop(self) -> None:
        """Ends the listening."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(CONNECT_TIMEOUT_S + WAIT_S)

    def wait_until_listening(self, timeout_s: float) -> bool:
        """Whether the main broker has taken the subscription within that time."""
        return self._subscribed.wait(timeout_s)

    @property
    def up(self) -> int:
        """How many are up."""
        with self._lock:
            return len(self._up)

    def missing(self) -> Sequence[int]:
        """Numbers of those that are not up."""
        with self._lock:
            return [number for number in range(self.watched.count) if number not in self._up]

    def take_changes(self) -> list[tuple[int, int]]:
        """Instants (monotonic, nanoseconds) at which the number of those that are up changed since
        the last call, and what it was then."""
        with self._lock:
            changes, self._changes = list(self._changes), deque(maxlen=CHANGES_MAX)
        return changes

    @property
    def problem(self) -> str | None:
        """What keeps it from knowing, if anything does."""
        return self._problem

    def observer(self) -> Observer:
        """What the result says of it."""
        return Observer(
            name=self.watched.name,
            target=str(self.watched.target),
            topics=(self.watched.topic,),
            received_total=self._received_total,
            received_bytes=self._received_bytes,
            problem=self._problem,
        )

    def _listen(self) -> None:
        while not self._stopping.is_set():
            try:
                client = self._new_client()
                client.connect(*self._address())
                self._follow(client)
            except (OSError, ValueError, MonitorError) as error:
                self._problem = f"{self.watched.target} cannot be reached: {error}"
            self._lose_all()
            self._stopping.wait(RETRY_S)

    def _address(self) -> tuple[str, int, int]:
        """A frozen broker of the run answers no ping, and is still there when it goes on."""
        keep_alive_s = 0 if self.watched.is_own else KEEP_ALIVE_S
        return self.watched.target.host, self.watched.target.port, keep_alive_s

    def _follow(self, client: Client) -> None:
        """Takes what comes until the connection ends."""
        while not self._stopping.is_set() and step(client, WAIT_S) == OK:
            pass
        client.disconnect()

    def _lose_all(self) -> None:
        """Nobody knows of a bridge while the observer is away: its main broker is."""
        self._subscribed.clear()
        with self._lock:
            if self._up:
                self._up.clear()
                self._changes.append((time.monotonic_ns(), 0))

    def _new_client(self) -> Client:
        client = new_client(self.watched.login, CONNECT_TIMEOUT_S)
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message
        return client

    def _on_connect(
        self, client: Client, _: Any, __: ConnectFlags, code: ReasonCode, ___: Properties | None
    ) -> None:
        if code.is_failure:
            self._problem = f"{self.watched.target} refuses the observer ({str(code).lower()})"
            return
        client.subscribe(self.watched.topic, 1)

    def _on_subscribe(
        self, _: Client, __: Any, ___: int, codes: list[ReasonCode], ____: Properties | None
    ) -> None:
        if any(code.is_failure for code in codes):
            text = f"{self.watched.target} refuses a subscription to {self.watched.topic}"
            self._problem = f"{text}: allow the observer's user to read it"
            return
        self._problem = None
        self._subscriptions += 1
        self._subscribed.set()

    def _on_message(self, client: Client, _: Any, message: MQTTMessage) -> None:
        at_ns = time.monotonic_ns()
        number = message.topic.rpartition("/")[2]
        if not message.payload:
            return
        if self.watched.is_remembered:
            # A state that is taken away is not there after a restart, when it holds no more.
            client.publish(message.topic, b"", retain=True)
        with self._lock:
            self._received_total += 1
            self._received_bytes += len(message.payload)
            if not number.isdecimal() or int(number) >= self.watched.count:
                return
            before = len(self._up)
            if message.payload != b"1":
                self._up.discard(int(number))
            elif not message.retain or self._subscriptions > 1:
                # Before the first subscription no bridge was started: an earlier run left it.
                self._up.add(int(number))
            if len(self._up) != before:
                self._note(at_ns)

    def _note(self, at_ns: int) -> None:
        if self._changes and at_ns - self._changes[-1][0] < SAME_NS:
            self._changes.pop()
        self._changes.append((at_ns, len(self._up)))


class BridgeMonitor:
    """Watches the bridges of one name in one run."""

    def __init__(self, states: BridgeStates) -> None:
        self.source = states.watched.name
        self._states = states
        self._first: list[Reading] = []

    def start(self) -> None:
        """Changes before the run are left out; what holds when it begins is the first reading."""
        self._states.take_changes()
        self._first = [self._now()]

    def read(self) -> Iterator[Reading]:
        """Every change at its own instant, and what holds now."""
        yield from self._first
        self._first = []
        for at_ns, up in self._states.take_changes():
            yield Reading(at_ns, CONNECTED, up)
        yield self._now()
        if self._states.problem is not None:
            raise MonitorError(self._states.problem)

    def stop(self) -> None:
        """The states are followed until the brokers end."""

    def observer(self) -> Observer:
        """What the result says of its client."""
        return self._states.observer()

    def _now(self) -> Reading:
        return Reading(time.monotonic_ns(), CONNECTED, self._states.up)
