"""The observer of one broker before and after a run, with a deadline for everything: it looks for
retained messages under the plan's topics, sessions of its clients, and queued messages as the
broker reports them, and removes only its own state."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from pubstorm.contract.offered_load import clients_at, template_of
from pubstorm.contract.plan import Plan, PlannedPopulation, PlannedTls
from pubstorm.contract.target import Target
from pubstorm.fleet.incarnation import LATE_S
from pubstorm.play.clean_start.topics import looked_at
from pubstorm.quantities import count_text, counted
from pubstorm.result import StaleState
from pubstorm.topology.observer import OK, REFUSED, Login, MqttObserver, ObserverError

QUIET_S = 0.15
"""Time after the last retained message in which a further one is waited for, before the broker is
asked whether it has sent all."""
RETAINED_MAX = 10_000
"""Retained messages that are taken in one look at what others left."""
CLEARED_PER_S = 5000
"""Retained messages cleared a second."""
ANSWER_S = 2.0
"""Longest time for an answer of a broker."""
KEEP_ALIVE_S = 5
"""Also how long paho waits for a TLS handshake."""
STEP_S = 0.02
NO_FILTER = "pubstorm-asks"
"""A filter to which no observer subscribes."""


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

    def put_off(self, late_s: float) -> None:
        """Gives the step back a time in which its thread had no processor."""
        self._until_s += late_s

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
        self._unsubscribed: set[int] = set()
        self._look = Observation()
        self._own: Wanted | None = None
        self._last_s = 0.0
        self.session_present = False

    def __enter__(self) -> Self:
        self.connect(KEEP_ALIVE_S, max(STEP_S, min(ANSWER_S, self._deadline.left_s)))
        self._wait_for(lambda: self._is_answered, self._deadline.left_s)
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
        self._wait_for(lambda: self._granted is not None, self._deadline.left_s)
        if self._granted is None:
            raise ObserverError("the broker did not answer a subscription")
        pairs = zip(filters, self._granted, strict=False)
        self._look.denied = {text for text, is_granted in pairs if not is_granted}
        self._last_s = time.monotonic()
        is_all = False
        while not (is_all or self._is_full() or deadline.is_over):
            if self._is_quiet():
                last_s = self._last_s
                is_all = self._has_answered(deadline.left_s) and self._last_s == last_s
            else:
                self._step()
        self.client.unsubscribe(list(filters))
        self._look.truncated = not is_all
        return self._look

    def clear(self, topics: Sequence[str]) -> Sequence[str]:
        """Clears the retained messages of these topics, at a bounded rate. Returns those for which
        there was time; none if the broker then does not answer."""
        started_s, sent = time.monotonic(), 0
        for sent, topic in enumerate(topics, 1):
            self.client.publish(topic, b"", qos=0, retain=True)
            due_s = started_s + (sent - 1) / CLEARED_PER_S
            while not self._deadline.is_over and (
                self.client.want_write() or time.monotonic() < due_s
            ):
                self._step()
            if self._deadline.is_over:
                break
        return topics[:sent] if self._has_answered(ANSWER_S) else ()

    def _has_answered(self, longest_s: float) -> bool:
        """Ends a subscription that there is not, and returns True if the broker answers within this
        time: it has then taken what it was sent before [MQTT-3.10.4-5]."""
        _, number = self.client.unsubscribe(NO_FILTER)
        self._wait_for(lambda: number in self._unsubscribed, longest_s)
        return number in self._unsubscribed

    def _is_quiet(self) -> bool:
        return time.monotonic() - self._last_s >= QUIET_S

    def _is_full(self) -> bool:
        return self._own is None and len(self._look.retained) >= RETAINED_MAX

    def _wait_for(self, answer: Callable[[], bool], longest_s: float) -> None:
        deadline = Deadline(min(ANSWER_S, longest_s))
        while not answer() and not deadline.is_over:
            deadline.put_off(self._step())

    def _step(self) -> float:
        """Reads and writes what there is, for a moment. Returns the time in which this thread had
        no processor, by which it puts off the deadline: an answer may wait since then."""
        began_s = time.monotonic()
        code = self.step(STEP_S)
        late_s = time.monotonic() - began_s - STEP_S
        late_s = late_s if late_s > LATE_S else 0.0
        self._deadline.put_off(late_s)
        if code != OK and not self._is_answered:
            raise ObserverError("the broker closed the connection")
        if code not in {OK, REFUSED}:
            raise ObserverError(f"the connection was lost: {code.name}")
        return late_s

    def on_connected(self, refusal: str | None, session_present: bool) -> None:
        """Keeps the answer to CONNECT."""
        self._is_answered, self._refusal = True, refusal
        self.session_present = session_present

    def on_granted(self, granted: Sequence[bool]) -> None:
        """Keeps the answer to SUBSCRIBE."""
        self._granted = granted

    def on_unsubscribed(self, number: int) -> None:
        """Keeps the answer to UNSUBSCRIBE."""
        self._unsubscribed.add(number)

    def on_message(self, topic: str, payload: bytes, is_retained: bool) -> None:
        """Keeps a retained message."""
        if not is_retained or not payload:
            return
        self._last_s = time.monotonic()
        if self._own is None:
            self._look.retained[topic] = payload
        elif self._own(topic, payload):
            self._look.retained[topic] = b""


SESSIONS_SAMPLED = 20
"""Client identifiers of a population and a target whose session is looked for."""
FILTERS_MAX = 64
"""Filters that are looked at."""
STORED = "$SYS/broker/store/messages/count"
"""mosquitto's count of all messages that it stores."""
STORED_OLD = "$SYS/broker/messages/stored"
"""The same before mosquitto 1.6."""
RETAINED = "$SYS/broker/retained messages/count"
"""mosquitto's count of retained messages, which are part of the stored ones."""
COUNTS = (STORED, STORED_OLD, RETAINED)


@dataclass(slots=True)
class TargetFindings:
    """Stale state of a target."""

    stale_state: list[StaleState] = field(default_factory=list)
    retained: dict[str, bytes] = field(default_factory=dict)
    """Retained messages by topic."""


def look_before(plan: Plan, target: int, deadline: Deadline) -> TargetFindings:
    """Returns the stale state of a target."""
    name = str(plan.targets[target])
    found = TargetFindings()

    def add(what: str, total: int, text: str) -> None:
        values = {"target": name, "when": "before", "what": what, "total": total, "text": text}
        found.stale_state.append(StaleState.model_validate(values))

    try:
        look, stored = retained_on(plan, target, deadline)
        found.retained = look.retained
        if look.retained:
            add("retained", len(look.retained), _retained_text(look))
        elif look.truncated:
            add("unknown", 0, "the broker did not say in time whether it has retained messages")
        for refused in sorted(look.denied):
            add("unknown", 0, f"the broker does not let its clients look at {refused}")
        if stored > 0:
            add("queued", stored, f"it stores {counted(stored, 'message')} for absent clients")
        for population, present, asked in sessions_on(plan, target, deadline):
            if present:
                text = f"{present} of {counted(asked, 'client')} asked of {population.name} have a"
                add("sessions", present, f"{text} session from before")
    except ObserverError as error:
        add("unknown", 0, str(error))
    return found


def retained_on(
    plan: Plan, target: int, deadline: Deadline, own: Wanted | None = None
) -> tuple[Observation, int]:
    """Returns retained messages that the plan's logins see, with `own` all that it wants, and the
    number of messages that the broker keeps for absent clients by its own report."""
    filters = looked_at(plan)[:FILTERS_MAX]
    found, stored = Observation(denied=set(filters)), 0
    problems = []
    populations = (each for each in plan.populations if each.can.keeps_state)
    logins = dict.fromkeys(map(Login.of, populations))
    for number, login in enumerate(logins):
        client_id = f"look-{plan.run_tag:08x}-{number}"
        try:
            with TargetObserver(
                plan.targets[target], login, client_id, deadline, clean=True
            ) as one:
                look = one.look((*filters, *COUNTS), own)
        except ObserverError as error:
            problems.append(error)
            continue
        said = {topic: look.retained.pop(topic, b"") for topic in COUNTS}
        stored = max(stored, _queued(said))
        found.retained.update(look.retained)
        found.denied &= look.denied
        found.truncated |= look.truncated
    if problems and len(problems) == len(logins):
        raise problems[0]
    return found, stored


def sessions_on(
    plan: Plan, target: int, deadline: Deadline
) -> Iterator[tuple[PlannedPopulation, int, int]]:
    """For each population with persistent sessions: how many of a sample of its clients have one,
    and how many were asked. A session that the question made is ended again. Identifiers that the
    broker chooses are unknown here, and so are their sessions."""
    for index, population in enumerate(plan.populations):
        clients = clients_at(plan, index, target)
        if not population.keeps_session or not population.client_id or not clients:
            continue
        step = max(1, len(clients) // SESSIONS_SAMPLED)
        present = asked = 0
        for client in clients[::step][:SESSIONS_SAMPLED]:
            if deadline.is_over:
                break
            asked += 1
            present += _has_session(plan, target, population, client, deadline)
        yield population, present, asked


def _has_session(
    plan: Plan, target: int, population: PlannedPopulation, client: int, deadline: Deadline
) -> bool:
    login = Login.of(population, client)
    client_id = template_of(population, population.client_id).text(population.first + client)
    address = plan.targets[target]
    with TargetObserver(address, login, client_id, deadline, clean=False) as observer:
        present = observer.session_present
    if not present:
        with TargetObserver(address, login, client_id, deadline, clean=True):
            pass
    return present


def _retained_text(look: Observation) -> str:
    example = min(look.retained)
    more = "or more " if look.truncated else ""
    roots = sorted({topic.partition("/")[0] for topic in look.retained})
    shown = ", ".join(f"{root}/#" for root in roots[:ROOTS_SHOWN])
    if len(roots) > ROOTS_SHOWN:
        shown += f" and {count_text(len(roots) - ROOTS_SHOWN)} more"
    noun = "retained message" if len(look.retained) == 1 else "retained messages"
    return f"{count_text(len(look.retained))} {more}{noun} under {shown}, such as {example}"


def _queued(said: dict[str, bytes]) -> int:
    try:
        return max(0, int(said[STORED] or said[STORED_OLD]) - int(said[RETAINED]))
    except ValueError:
        return 0


ROOTS_SHOWN = 3
