"""The observer that looks at one broker for stale state and removes retained messages, with a
deadline for everything."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from pubstorm.contract.plan import PlannedTls
from pubstorm.contract.target import Target
from pubstorm.topology.observer import OK, REFUSED, Login, MqttObserver, ObserverError

QUIET_S = 0.15
"""Time after the last retained message in which a further one is waited for."""
RETAINED_MAX = 10_000
"""Retained messages that are taken in one look at what others left."""
CLEARED_PER_S = 5000
"""Retained messages cleared a second."""
ANSWER_S = 2.0
"""Longest time for an answer of a broker."""
KEEP_ALIVE_S = 5
"""Also how long paho waits for a TLS handshake."""
STEP_S = 0.02


Wanted = Callable[[str, bytes], bool]
"""Returns True for the topic and the payload of a message that is looked for."""


class Deadline:
    """Instant at which a step must be over; another thread may bring it forward to now."""

    def __init__(self, budget_s: float) -> None:
        self._until_s = time.monotonic() + budget_s

    @property
    def left_s(self) -> float:
        """Seconds that are left, 0 at least."""
        return max(0.0, self._until_s - time.monotonic())

    @property
    def is_over(self) -> bool:
        """True if the step has to end."""
        return self.left_s == 0

    def give_up(self) -> None:
        """Ends the step now."""
        self._until_s = 0.0


@dataclass(slots=True)
class Observation:
    """Findings of a look at some filters."""

    retained: dict[str, bytes] = field(default_factory=dict)
    """Retained messages by topic."""
    denied: set[str] = field(default_factory=set)
    """Filters that the broker refused."""
    truncated: bool = False
    """False if there may be more."""


class TargetObserver(MqttObserver):
    """One connection to one target. Use it in a `with` block; raises ObserverError."""

    def __init__(
        self, target: Target, login: Login, client_id: str, deadline: Deadline, *, clean: bool
    ) -> None:
        tls = (login.tls or PlannedTls()) if target.tls else None
        super().__init__(target, replace(login, tls=tls), client_id=client_id, clean=clean)
        self._deadline = deadline
        self._is_answered = False
        self._refusal: str | None = None
        self._granted: Sequence[bool] | None = None
        self._look = Observation()
        self._own: Wanted | None = None
        self._last_s = 0.0
        self.session_present = False

    def __enter__(self) -> Self:
        self.connect(KEEP_ALIVE_S, max(STEP_S, min(ANSWER_S, self._deadline.left_s)))
        self._wait_for(lambda: self._is_answered)
        if not self._is_answered:
            raise ObserverError("the broker did not answer")
        if self._refusal is not None:
            raise ObserverError(f"the broker refused the connection: {self._refusal}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.client.disconnect()
        self.step(STEP_S)

    def look(self, filters: Sequence[str], own: Wanted | None = None) -> Observation:
        """Retained messages under the filters. With `own`, all that it wants, without payloads; the
        look takes half of the time that is left."""
        self._look, self._granted, self._own = Observation(), None, own
        deadline = self._deadline if own is None else Deadline(self._deadline.left_s / 2)
        self.client.subscribe([(text, 0) for text in filters])
        self._wait_for(lambda: self._granted is not None)
        if self._granted is None:
            raise ObserverError("the broker did not answer a subscription")
        pairs = zip(filters, self._granted, strict=False)
        self._look.denied = {text for text, is_granted in pairs if not is_granted}
        self._last_s = time.monotonic()
        while not (self._is_quiet() or self._is_full() or deadline.is_over):
            self._step()
        self.client.unsubscribe(list(filters))
        self._look.truncated = not self._is_quiet()
        return self._look

    def clear(self, topics: Sequence[str]) -> Sequence[str]:
        """Clears the retained messages of these topics, at a bounded rate. Returns those for which
        there was time."""
        started_s = time.monotonic()
        for count, topic in enumerate(topics):
            self.client.publish(topic, b"", qos=0, retain=True)
            due_s = started_s + count / CLEARED_PER_S
            while self.client.want_write() or time.monotonic() < due_s:
                self._step()
                if self._deadline.is_over:
                    return topics[: count + 1]
        return topics

    def _is_quiet(self) -> bool:
        return time.monotonic() - self._last_s >= QUIET_S

    def _is_full(self) -> bool:
        return self._own is None and len(self._look.retained) >= RETAINED_MAX

    def _wait_for(self, answer: Callable[[], bool]) -> None:
        until_s = time.monotonic() + min(ANSWER_S, self._deadline.left_s)
        while not answer() and time.monotonic() < until_s:
            self._step()

    def _step(self) -> None:
        code = self.step(STEP_S)
        if code != OK and not self._is_answered:
            raise ObserverError("the broker closed the connection")
        if code not in {OK, REFUSED}:
            raise ObserverError(f"the connection was lost: {code.name}")

    def on_connected(self, refusal: str | None, session_present: bool) -> None:
        """Keeps the answer to CONNECT."""
        self._is_answered, self._refusal = True, refusal
        self.session_present = session_present

    def on_granted(self, granted: Sequence[bool]) -> None:
        """Keeps the answer to SUBSCRIBE."""
        self._granted = granted

    def on_message(self, topic: str, payload: bytes, is_retained: bool) -> None:
        """Keeps a retained message."""
        if not is_retained or not payload:
            return
        self._last_s = time.monotonic()
        if self._own is None:
            self._look.retained[topic] = payload
        elif self._own(topic, payload):
            self._look.retained[topic] = b""
