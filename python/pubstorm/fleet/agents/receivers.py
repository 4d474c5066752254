"""Clients that receive, as agents in Python play them: each connects, joins and leaves with the
stages and changes of the plan, and the ledger counts each payload with a stamp at its instant. The
program of a protocol says how a client connects and reads."""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Generic, Literal, TypeVar

from pubstorm.contract.commands import ApplyChange, Resume
from pubstorm.contract.offered_load import has_stamped_text, holds_stamp, target_of, template_of
from pubstorm.contract.plan import (
    AddClients,
    ChangeRate,
    ConnectAction,
    DisconnectAction,
    HoldAction,
    MigrateClients,
    Plan,
    PlannedStage,
    PublishAction,
)
from pubstorm.contract.protocol import PlannedFlow
from pubstorm.contract.reasons import Reason
from pubstorm.contract.snapshot import Answer, Explanation
from pubstorm.contract.template import STAMP_BYTES, Template, Variable, VariableKind, stamp_in_text
from pubstorm.fleet.agents.frame import NEVER_NS, STAMP, AgentShard, AgentTally, FlowTally, Pipes
from pubstorm.quantities import SECOND_NS

TEXT_MAX = 200
"""Characters of a text that are kept."""
TURN_NS = 10**6
"""Longest time of reading between two checks for commands."""
INSTANT_BITS = 56
"""Bits of the last word of a stamp for the instant of the send; those above have the wait of the
publisher before it."""
WINDOW = 128
MASK = (1 << WINDOW) - 1
U32_END = 1 << 32
PLACES = 1 << 26
"""Places of one incarnation of a publisher: the bits above are its number."""
HALF = PLACES // 2

Delivery = Literal["first", "reordered", "duplicate", "stale"]


@dataclass
class PassedOver:
    """Room of an agent for places that its streams passed over and that have not come."""

    left: int = 1 << 18
    """Places of some 80 bytes each."""
    was_short: bool = False


class Places:
    """The places of one stream that one receiver has had: a window over the last 128, and those
    passed over before, by the rules of `crates/agent/src/ledger.rs`."""

    __slots__ = ("_first", "_next", "_passed", "_room", "_seen")

    def __init__(self, first: int, room: PassedOver) -> None:
        self._first = first
        self._next = first
        self._seen = 0
        self._passed = set[int]()
        self._room = room

    def note(self, place: int) -> tuple[Delivery, int]:
        """The kind of a delivery, and the growth of the number of missing places."""
        if place // PLACES != self._next // PLACES:
            if place < self._next:
                return "stale", 0
            self._begin_again(place)
        ahead = (place - self._next) % PLACES
        if ahead < HALF:
            if ahead:
                self._pass_over(ahead)
            self._seen = (self._seen << ahead + 1) & MASK | 1 if ahead < WINDOW else 1
            self._next = _beside(place, 1)
            return "first", ahead
        age = (self._next - place - 1) % PLACES
        is_covered = (place - self._first) % PLACES < HALF
        if age < WINDOW and self._seen >> age & 1:
            return "duplicate", 0
        if self._fill(place) or age < WINDOW:
            self._seen |= 1 << age if age < WINDOW else 0
            return "reordered", -1 if is_covered else 0
        return "duplicate" if is_covered and not self._room.was_short else "stale", 0

    def _begin_again(self, place: int) -> None:
        """Begins the stream anew, as a later incarnation of its publisher does."""
        self._first, self._next, self._seen = place, place, 0
        self._room.left += len(self._passed)
        self._passed.clear()

    def _pass_over(self, ahead: int) -> None:
        if ahead > self._room.left:
            self._room.was_short = True
            return
        self._room.left -= ahead
        self._passed.update(_beside(self._next, n) for n in range(ahead))

    def _fill(self, place: int) -> bool:
        if place not in self._passed:
            return False
        self._passed.remove(place)
        self._room.left += 1
        return True


def _beside(place: int, count: int) -> int:
    """Returns the place of the same incarnation that comes so many places later."""
    return place // PLACES * PLACES + (place + count) % PLACES


@dataclass(eq=False)
class Receiver:
    """One client."""

    target: int
    began_ns: int
    connected: bool = False
    gave_up: bool = False
    streams: dict[int, Places] = field(default_factory=dict)
    """Places of the streams that it receives. Members of a group have the same ones."""


Latencies = dict[int, tuple[list[int], list[int]]]
"""Latencies of some deliveries from the intended and from the actual send, by publisher."""
OneReceiver = TypeVar("OneReceiver", bound=Receiver)


class Receivers(ABC, Generic[OneReceiver]):
    """The clients of an agent."""

    library: str

    def __init__(self, part: AgentShard, tally: AgentTally) -> None:
        self._part, self._tally = part, tally
        self._own = part.place.population
        self._clients: dict[int, OneReceiver] = {}
        self._room = PassedOver()
        self._starts: deque[tuple[int, int]] = deque()
        """Clients that will connect, each with its instant."""
        self._changes = list[ApplyChange]()
        """Changes of the stage that have not begun, in the order of time."""
        self._turns: dict[int, tuple[int, bool]] = {}
        """Instant at which a client joins or leaves by a change, and True if it joins."""
        self._active = 0
        """Active clients over all agents: the first ones of the population."""
        self._excluded = set[int]()
        """Populations that are excluded from loss in this stage: expected = received."""
        self._until_ns = 0
        """End of a stage in which others publish."""
        self._run_tag = part.plan.run_tag
        self._publishers = [population for population, _ in part.publications()]
        self._stamps_text = any(has_stamped_text(each) for _, each in part.publications())
        self._unstamped = _unstamped_topics(part)
        self._carried = [*_carried(part.plan, part.place.population)]
        """Flows that end where the clients are, each with the name to which it leads."""
        patterns = ("".join(map(_pattern, each.parts)) for _, each in self._carried)
        self._carried_names = [*map(re.compile, patterns)]
        self._names = cache(self._names_of)
        """Names that flows give the messages of a stream, by target and key of the stream."""

    @abstractmethod
    def wait(self, pipes: Pipes, wait_s: float) -> None:
        """Waits for a command or a message."""

    @abstractmethod
    def end(self) -> None:
        """Ends every client."""

    @abstractmethod
    def _start(self, number: int) -> None:
        """Lets a client connect."""

    @abstractmethod
    def _stop(self, number: int) -> None:
        """Lets a client disconnect."""

    @abstractmethod
    def _read_some(self) -> bool:
        """Takes some of what has come. Returns False if there was nothing."""

    def enter(self, stage: PlannedStage, at_ns: int) -> None:
        """Connects clients at the rate of the stage, or disconnects all of them at once."""
        action, own = stage.action, self._own
        self._changes, self._turns, self._excluded = [], {}, set()
        if isinstance(action, PublishAction | HoldAction):
            self._until_ns = at_ns + action.duration_ns
            for each in action.changes:
                at, whom = at_ns + each.after_ns, each.population
                self.change(ApplyChange(at_ns=at, population=whom, action=each.action))
        elif own not in stage.populations:
            return
        elif isinstance(action, ConnectAction):
            count = self._part.population.clients
            if action.clients is not None:
                count = action.clients[stage.populations.index(own)]
            self._active = max(count, self._active)
            wanted = (c for c in self._part.clients if c < count and c not in self._clients)
            step_ns = SECOND_NS / action.rate_per_s if action.rate_per_s else 0.0
            self._starts = deque((at_ns + int(n * step_ns), c) for n, c in enumerate(wanted))
        elif isinstance(action, DisconnectAction):
            self._disconnect()

    def resume(self, resume: Resume) -> None:
        """Does nothing: only publishers continue streams."""

    def change(self, change: ApplyChange) -> None:
        """Takes clients that will join or leave."""
        if isinstance(change.action, ChangeRate | MigrateClients):
            return
        is_own, is_new = change.population == self._own, change.population not in self._excluded
        self._excluded.add(change.population)
        if is_own:
            self._changes = sorted([*self._changes, change], key=lambda each: each.at_ns)
        if is_new and is_own:
            self._tally.exclude_from_loss()
        elif is_new:
            self._tally.exclude_other(change.population)

    def close(self) -> None:
        """Ends the stage; the clients read on."""
        self._until_ns = 0

    def turn(self, now_ns: int) -> int:
        """Starts clients and reads messages, for about a millisecond."""
        while self._starts and self._starts[0][0] <= now_ns:
            self._start(self._starts.popleft()[1])
        self._move(now_ns)
        turn_ends_ns = now_ns + TURN_NS
        while time.monotonic_ns() < turn_ends_ns:
            if not self._read_some():
                return self._next_ns()
        return now_ns

    def settled(self) -> bool:
        """True if every started client is ready or has given up."""
        if self._starts or time.monotonic_ns() < self._until_ns:
            return False
        return all(client.connected or client.gave_up for client in self._clients.values())

    def _move(self, now_ns: int) -> None:
        """Begins changes whose instant has come, and lets the clients join or leave whose turn has
        come."""
        while self._changes and self._changes[0].at_ns <= now_ns:
            change = self._changes.pop(0)
            # Turns before the change are taken first: the change may give a client another one.
            self._take_turns(change.at_ns)
            self._give_turns(change)
        self._take_turns(now_ns)

    def _take_turns(self, until_ns: int) -> None:
        come = sorted((at_ns, c) for c, (at_ns, _) in self._turns.items() if at_ns <= until_ns)
        for _, number in come:
            _, joins = self._turns.pop(number)
            if joins and number not in self._clients:
                self._start(number)
            elif not joins and number in self._clients:
                self._stop(number)

    def _give_turns(self, change: ApplyChange) -> None:
        """Gives each client of a change its turn, in place of one that it still had."""
        action, active = change.action, self._active
        if isinstance(action, ChangeRate | MigrateClients):
            return
        joins = isinstance(action, AddClients)
        room = self._part.population.clients - active if joins else active
        count = min(action.clients, room)
        for position in range(count):
            number = active + position if joins else active - 1 - position
            if number in self._part.clients:
                at_ns = change.at_ns + action.over_ns * position // count
                self._turns[number] = at_ns, joins
        self._active += count if joins else -count

    def _disconnect(self) -> None:
        self._starts.clear()
        self._active = 0
        for number in list(self._clients):
            self._stop(number)

    def _next_ns(self) -> int:
        """The instant of the next start, change or turn, or of the end of the stage."""
        start_ns = self._starts[0][0] if self._starts else NEVER_NS
        turns = (at_ns for at_ns, _ in self._turns.values())
        start_ns = min(start_ns, *(each.at_ns for each in self._changes[:1]), *turns, NEVER_NS)
        return min(start_ns, self._until_ns) if self._until_ns > time.monotonic_ns() else start_ns

    def _set_connected(self, client: OneReceiver, *, there: bool) -> None:
        step = int(there) - int(client.connected)
        client.connected = there
        self._tally.gauges["connected"] += step
        self._tally.gauges["ready"] += step
        self._tally.connected_at[client.target] += step
        self._at(client)

    def _note_connected(self, client: OneReceiver) -> None:
        """Counts a client that the broker or publisher has accepted."""
        now = self._tally.now
        now.counters["connected_total"] += 1
        now.connect_time.record(time.monotonic_ns() - client.began_ns)
        self._set_connected(client, there=True)
        self._at(client)["connected_total"] += 1

    def _note_failed(self, client: OneReceiver, reason: Reason | Answer, words: str = "") -> None:
        """Counts an attempt to connect that failed, with words without control characters."""
        self._tally.now.counters["connect_failed_total"] += 1
        self._at(client)["connect_failed_total"] += 1
        self._note_outcome(reason, words)

    def _note_lost(self, client: OneReceiver, reason: Reason | Answer, words: str = "") -> None:
        """Counts a connection that the client did not end; its next attempt begins now."""
        self._tally.now.counters["disconnected_total"] += 1
        self._set_connected(client, there=False)
        client.began_ns = time.monotonic_ns()
        self._note_outcome(reason, words)

    def _note_outcome(self, reason: Reason | Answer, words: str) -> None:
        now = self._tally.now
        now.outcomes[reason] += 1
        if words:
            text = words[:TEXT_MAX]
            detail = Explanation(outcome=reason, property="detail", text=text, count=1)
            now.explanations.add([detail])

    def _at(self, client: OneReceiver) -> Counter[str]:
        return self._tally.now.targets.setdefault(client.target, Counter())

    def _note_latencies(self, latencies: Latencies) -> None:
        for source, (intended, actual) in latencies.items():
            flow = self._flow(source)
            flow.latency_intended.record_all(intended)
            flow.latency_actual.record_all(actual)

    def _note(
        self,
        client: OneReceiver,
        message: tuple[str, bytes],
        now_ns: int,
        latencies: Latencies,
    ) -> None:
        """Counts a payload that came under a name at an instant. An empty name is an unknown one of
        a flow. Under the name of another message, a stamp says nothing."""
        name, payload = message
        stamp: bytes | None = payload if len(payload) >= STAMP_BYTES else None
        if self._stamps_text:
            stamp = stamp_in_text(payload) or stamp
        if stamp is not None:
            run_tag, sequence, key, intended_ns, sent = STAMP.unpack_from(stamp)
            is_own = run_tag == self._run_tag and key >> 48 < len(self._publishers)
            is_carried = is_own and name and self._carried
            is_misnamed = is_carried and name not in self._names(client.target, key)
            if is_own and not is_misnamed:
                source = self._publishers[key >> 48]
                expecting = self._expecting(client, name)
                self._note_place(client, (source, expecting), key, sequence)
                intended, actual = latencies.setdefault(source, ([], []))
                intended.append(now_ns - intended_ns)
                actual.append(now_ns - intended_ns - lateness_of(sent, intended_ns))
                return
        publisher = self._unstamped.get((client.target, name))
        if publisher is not None:
            self._count_received(publisher, self._own)
            return
        names = self._carried_names
        is_carried = any(each.fullmatch(name) for each in names) if name else bool(names)
        self._tally.now.counters["unstamped_total" if is_carried else "foreign_total"] += 1

    def _names_of(self, target: int, key: int) -> frozenset[str]:
        plan, number = self._part.plan, key >> 48
        population = self._publishers[number]
        publication = number - self._publishers.index(population)
        n, variant = plan.populations[population].first + (key & U32_END - 1), key >> 32 & 0xFFFF
        return frozenset(
            to.text(n, variant)
            for flow, to in self._carried
            if (flow.population, flow.publication) == (population, publication)
            and plan.populations[flow.at].at.first == target
            and (to.variants == 1 or variant < to.variants)
        )

    def _expecting(self, _client: OneReceiver, _name: str) -> int:
        """Returns the population that expects a message of this name that a client receives."""
        return self._own

    def _follows(self, _client: OneReceiver) -> bool:
        """Returns True if a client, or its group here, receives every message of a stream."""
        return True

    def _note_place(
        self, client: OneReceiver, flow: tuple[int, int], key: int, sequence: int
    ) -> None:
        places = client.streams.get(key)
        if places is None:
            places = client.streams[key] = Places(sequence, self._room)
            self._tally.ledger_pairs += 1
        delivery, passed_over = places.note(sequence)
        source, expecting = flow
        counters = self._flow(source).counters
        if delivery in ("first", "reordered"):
            self._count_received(source, expecting)
        if delivery != "first":
            counters[f"{delivery}_total"] += 1
        if passed_over and self._own not in self._excluded and self._follows(client):
            counters["missing_total"] += passed_over

    def _count_received(self, source: int, expecting: int) -> None:
        """Counts a delivery. Engines report expected deliveries, except those of a population that
        is excluded from loss. A message that a group received here is not expected of its other
        population."""
        counters = self._flow(source).counters
        counters["received_total"] += 1
        counters["expected_total"] += expecting != self._own or self._own in self._excluded
        if expecting != self._own and expecting not in self._excluded:
            self._tally.now.elsewhere[source, expecting] += 1

    def _flow(self, source: int) -> FlowTally:
        return self._tally.now.flows.setdefault(source, FlowTally())


def lateness_of(sent: int, intended_ns: int) -> int:
    """Returns the time from the scheduled to the actual send, in nanoseconds, by the last word of a
    stamp and the rule of `crates/plan/src/record/sent_at.rs`."""
    half = 1 << INSTANT_BITS - 1
    return (sent - intended_ns + half) % (2 * half) - half


def _unstamped_topics(part: AgentShard) -> dict[tuple[int, str], int]:
    """The populations of publishers whose messages carry no stamp, by target and topic."""
    found: dict[tuple[int, str], int] = {}
    for index, population in enumerate(part.plan.populations):
        if not population.is_publisher:
            continue
        for publication in population.publications:
            if holds_stamp(publication):
                continue
            topic = template_of(population, publication.topic)
            for client in range(population.clients):
                target = target_of(part.plan, index, client)
                for variant in range(topic.variants):
                    text = topic.text(population.first + client, variant)
                    found[target, text] = index
    return found


def _carried(plan: Plan, population: int) -> Iterator[tuple[PlannedFlow, Template]]:
    """Yields the flows that end where the clients are, each with the name to which it leads."""
    own = plan.populations[population]
    for flow in plan.flows:
        at = plan.populations[flow.at]
        if at.protocol.name == own.protocol.name and at.at.first in own.at.targets:
            yield flow, Template.parse(flow.to)


def _pattern(part: str | Variable) -> str:
    if isinstance(part, str):
        return re.escape(part)
    if part.kind is VariableKind.CHOICE:
        return f"(?:{'|'.join(map(re.escape, part.words))})"
    return "[0-9]+"
