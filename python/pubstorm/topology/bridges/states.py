"""The bridges that are up, as they report it: each keeps its state, 1 or 0, on a topic of the main
broker, and one observer there follows all bridges of a name."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from pubstorm.contract.target import Target
from pubstorm.topology.observer import Follower, Login

KEEP_ALIVE_S = 60
CHANGES_MAX = 100_000
"""Changes that wait to be read."""
SAME_NS = 10**6
"""Changes within this time are one reading."""


@dataclass(frozen=True, slots=True)
class WatchedBridges:
    """Bridges whose state is followed."""

    name: str
    """Name of the bridges."""
    count: int
    """Number of bridges, which count from 0."""
    topic: str
    """Filter of the topics of their states; the last level is the number."""
    target: Target
    """Address of the main broker for an observer."""
    login: Login
    """Login of the observer."""
    is_remembered: bool
    """True if the main broker keeps retained messages on a disk, also after a kill."""
    is_own: bool
    """True if the run started the main broker; then only the broker's end ends a connection."""


class BridgeStates(Follower):
    """The states of all bridges of a name. Its thread listens; the rest may be called from any
    other."""

    def __init__(self, watched: WatchedBridges) -> None:
        super().__init__(watched.name, watched.target, {watched.topic: 1}, watched.login)
        # A frozen broker of the run answers no ping, and continues later.
        self.keep_alive_s = 0 if watched.is_own else KEEP_ALIVE_S
        self.watched = watched
        self._lock = threading.Lock()
        self._up: set[int] = set()
        self._changes: deque[tuple[int, int]] = deque(maxlen=CHANGES_MAX)
        self._subscribed = threading.Event()

    def wait_until_listening(self, timeout_s: float) -> bool:
        """Returns True if the main broker takes the subscription within that time."""
        return self._subscribed.wait(timeout_s)

    @property
    def up(self) -> int:
        """Number of bridges that are up."""
        with self._lock:
            return len(self._up)

    def missing(self) -> Sequence[int]:
        """Returns the numbers of the bridges that are not up."""
        with self._lock:
            return [number for number in range(self.watched.count) if number not in self._up]

    def take_changes(self) -> list[tuple[int, int]]:
        """Returns the instants (monotonic, nanoseconds) since the last call at which the number of
        bridges that are up changed, each with that number."""
        with self._lock:
            changes, self._changes = list(self._changes), deque(maxlen=CHANGES_MAX)
        return changes

    def on_granted(self, granted: Sequence[bool]) -> None:
        """Begins to know the states, unless the subscription is refused."""
        self.problem = None
        super().on_granted(granted)
        if self.problem is None:
            self._subscribed.set()

    def on_away(self) -> None:
        """No bridge is known to be up while its main broker is away."""
        self._subscribed.clear()
        with self._lock:
            if self._up:
                self._up.clear()
                self._changes.append((time.monotonic_ns(), 0))

    def on_message(self, topic: str, payload: bytes, is_retained: bool) -> None:
        """Takes the state of a bridge."""
        at_ns = time.monotonic_ns()
        number = topic.rpartition("/")[2]
        if not payload:
            return
        if self.watched.is_remembered:
            # A state that is taken away is not there after a restart, when it holds no more.
            self.client.publish(topic, b"", retain=True)
        with self._lock:
            self.received_total += 1
            self.received_bytes += len(payload)
            if not number.isdecimal() or int(number) >= self.watched.count:
                return
            before = len(self._up)
            if payload != b"1":
                self._up.discard(int(number))
            elif not is_retained or self.subscriptions > 1:
                # Before the first subscription no bridge was started: an earlier run left it.
                self._up.add(int(number))
            if len(self._up) != before:
                if self._changes and at_ns - self._changes[-1][0] < SAME_NS:
                    self._changes.pop()
                self._changes.append((at_ns, len(self._up)))
