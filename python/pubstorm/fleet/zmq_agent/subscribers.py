"""Subscribers at a publisher with CURVE: one SUB socket of pyzmq for each client, all read by one
thread. `pubstorm-zmq` plays all other real subscribers; its libzmq is built without libsodium. A
client is ready after its handshake: libzmq does not report when the publisher has read the
subscriptions."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field
from math import ceil
from typing import Literal

import zmq
from zmq.utils.monitor import recv_monitor_message

from pubstorm.contract.commands import ApplyChange, Resume
from pubstorm.contract.offered_load import has_stamped_text, holds_stamp, target_of, template_of
from pubstorm.contract.plan import (
    AddClients,
    ChangeRate,
    ConnectAction,
    DisconnectAction,
    HoldAction,
    PlannedStage,
    PublishAction,
)
from pubstorm.contract.reasons import Reason
from pubstorm.contract.template import STAMP_BYTES, stamp_in_text
from pubstorm.fleet.zmq_agent.agent import (
    STDIN,
    AgentShard,
    AgentTally,
    FlowTally,
    Pipes,
    filters,
    subscriber_socket,
)
from pubstorm.fleet.zmq_agent.publisher import NEVER_NS, STAMP
from pubstorm.quantities import SECOND_NS

READ_MAX = 200
"""Messages that are read from one socket before the others have their turn."""
TURN_NS = 10**6
SOCKETS_EACH = 3
"""Sockets of a client: its own, and two that report the state of its connection."""
WATCHED = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_CONNECT_RETRIED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_DISCONNECTED
)
FAILURES = {
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: Reason.BAD_CREDENTIALS,
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: Reason.PROTOCOL_ERROR,
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: Reason.CONNECT_CLOSED,
    zmq.EVENT_CLOSED: Reason.CONNECT_REFUSED,
}
"""Ways in which an attempt ends before the client is connected."""
WINDOW = 128
MASK = (1 << WINDOW) - 1
U32_END = 1 << 32
HALF = U32_END // 2

Delivery = Literal["first", "reordered", "duplicate", "stale"]


class Places:
    """The places of one stream that one receiver has had: a window over the last 128, by the rules
    of `crates/agent/src/ledger.rs`."""

    __slots__ = ("_first", "_next", "_seen")

    def __init__(self, first: int) -> None:
        self._first = first
        self._next = first
        self._seen = 0

    def note(self, place: int) -> tuple[Delivery, int]:
        """The kind of a delivery, and the growth of the number of missing places."""
        ahead = (place - self._next) % U32_END
        if ahead < HALF:
            self._seen = (self._seen << ahead + 1) & MASK | 1 if ahead < WINDOW else 1
            self._next = (place + 1) % U32_END
            return "first", ahead
        age = (self._next - place - 1) % U32_END
        if age >= WINDOW:
            return "stale", 0
        if self._seen >> age & 1:
            return "duplicate", 0
        self._seen |= 1 << age
        return "reordered", -1 if (place - self._first) % U32_END < HALF else 0


@dataclass
class Client:
    """One SUB socket."""

    target: int
    socket: zmq.Socket[bytes]
    monitor: zmq.Socket[bytes]
    began_ns: int
    connected: bool = False
    gave_up: bool = False
    streams: dict[int, Places] = field(default_factory=dict)


class Subscribers:
    """The clients of an agent."""

    def __init__(self, part: AgentShard, tally: AgentTally) -> None:
        self._part, self._tally = part, tally
        self._context = zmq.Context(part.options.io_threads)
        sockets = SOCKETS_EACH * len(part.clients) + SOCKETS_EACH
        self._context.set(zmq.MAX_SOCKETS, min(sockets, self._context.get(zmq.SOCKET_LIMIT)))
        self._filters = filters(part)
        self._poller = zmq.Poller()
        self._poller.register(STDIN, zmq.POLLIN)
        self._clients: dict[int, Client] = {}
        self._by_socket: dict[object, Client] = {}
        self._starts: deque[tuple[int, int]] = deque()
        """Clients that will connect, each with its instant."""
        self._changes = list[ApplyChange]()
        """Changes of the stage that have not begun, in the order of time."""
        self._turns: dict[int, tuple[int, bool]] = {}
        """Instant at which a client joins or leaves by a change, and True if it joins."""
        self._active = 0
        """Active clients over all agents: the first ones of the population."""
        self._is_excluded = False
        """True if the population is excluded from loss in this stage: expected = received."""
        self._until_ns = 0
        """End of a stage in which others publish."""
        self._run_tag = part.plan.run_tag
        self._publishers = [population for population, _ in part.publications()]
        self._stamps_text = any(has_stamped_text(each) for _, each in part.publications())
        self._unstamped = _unstamped_topics(part)

    def enter(self, stage: PlannedStage, at_ns: int) -> None:
        """Connects clients at the rate of the stage, or disconnects all of them at once."""
        action, own = stage.action, self._part.place.population
        self._changes, self._turns, self._is_excluded = [], {}, False
        if isinstance(action, PublishAction | HoldAction):
            self._until_ns = at_ns + action.duration_ns
            for each in action.changes:
                if each.population == own:
                    change_ns = at_ns + each.after_ns
                    self.change(ApplyChange(at_ns=change_ns, population=own, action=each.action))
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
        if isinstance(change.action, ChangeRate):
            return
        self._changes = sorted([*self._changes, change], key=lambda each: each.at_ns)
        if not self._is_excluded:
            self._is_excluded = True
            self._tally.exclude_from_loss()

    def close(self) -> None:
        """Ends the stage; the clients read on."""
        self._until_ns = 0

    def wait(self, pipes: Pipes, wait_s: float) -> None:
        """Waits for a command or a message."""
        if not pipes.has_commands:
            self._poller.poll(ceil(wait_s * 1000))

    def turn(self, now_ns: int) -> int:
        """Starts clients and reads messages, for about a millisecond."""
        while self._starts and self._starts[0][0] <= now_ns:
            self._start(self._starts.popleft()[1])
        self._move(now_ns)
        turn_ends_ns = now_ns + TURN_NS
        while time.monotonic_ns() < turn_ends_ns:
            readable = [each for each, _ in self._poller.poll(0) if each != STDIN]
            if not readable:
                return self._next_ns()
            for socket in readable:
                client = self._by_socket[socket]
                if socket is client.monitor:
                    self._take_event(client)
                else:
                    self._read(client)
        return now_ns

    def settled(self) -> bool:
        """True if every started client is ready or has given up."""
        if self._starts or time.monotonic_ns() < self._until_ns:
            return False
        return all(client.connected or client.gave_up for client in self._clients.values())

    def end(self) -> None:
        """Closes every socket."""
        self._disconnect()
        self._context.term()

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
        if isinstance(action, ChangeRate):
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

    def _start(self, number: int) -> None:
        socket = subscriber_socket(self._context, self._part, number)
        monitor = socket.get_monitor_socket(WATCHED)
        target = target_of(self._part.plan, self._part.place.population, number)
        client = Client(target, socket, monitor, time.monotonic_ns())
        self._clients[number] = client
        for each in (socket, monitor):
            self._by_socket[each] = client
            self._poller.register(each, zmq.POLLIN)
        self._tally.now.counters["connect_attempts_total"] += 1
        where = self._part.plan.targets[target]
        socket.connect(f"tcp://{where.host}:{where.port}")

    def _stop(self, number: int) -> None:
        client = self._clients.pop(number)
        self._set_connected(client, there=False)
        for each in (client.socket, client.monitor):
            self._poller.unregister(each)
            del self._by_socket[each]
        client.socket.disable_monitor()
        client.monitor.close(0)
        client.socket.close(0)

    def _take_event(self, client: Client) -> None:
        """Takes an event of a client's connection from libzmq."""
        event = zmq.Event(recv_monitor_message(client.monitor)["event"])
        now, counters = self._tally.now, self._tally.now.counters
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            counters["connected_total"] += 1
            counters["subscribed_total"] += self._filters
            now.connect_time.record(time.monotonic_ns() - client.began_ns)
            self._set_connected(client, there=True)
            self._at(client)["connected_total"] += 1
        elif event == zmq.EVENT_CONNECT_RETRIED:
            counters["connect_attempts_total"] += 1
            client.began_ns = time.monotonic_ns()
        elif event == zmq.EVENT_DISCONNECTED and client.connected:
            counters["disconnected_total"] += 1
            now.outcomes[Reason.CLOSED_BY_BROKER] += 1
            self._set_connected(client, there=False)
        elif event in FAILURES and not client.connected:
            counters["connect_failed_total"] += 1
            now.outcomes[FAILURES[event]] += 1
            client.gave_up = self._part.population.reconnect is None
            self._at(client)["connect_failed_total"] += 1

    def _set_connected(self, client: Client, *, there: bool) -> None:
        step = int(there) - int(client.connected)
        client.connected = there
        self._tally.gauges["connected"] += step
        self._tally.gauges["ready"] += step
        self._tally.connected_at[client.target] += step
        self._at(client)

    def _at(self, client: Client) -> Counter[str]:
        return self._tally.now.targets.setdefault(client.target, Counter())

    def _read(self, client: Client) -> None:
        receive, bytes_read, read = client.socket.recv_multipart, 0, 0
        latencies: dict[int, tuple[list[int], list[int]]] = {}
        try:
            for _ in range(READ_MAX):
                parts = receive(zmq.NOBLOCK)
                read += 1
                bytes_read += sum(map(len, parts))
                self._note(client, parts, latencies)
        except zmq.Again:
            pass
        counters = self._tally.now.counters
        counters["packets_received_total"] += read
        counters["bytes_received_total"] += bytes_read
        for source, (intended, actual) in latencies.items():
            flow = self._flow(source)
            flow.latency_intended.record_all(intended)
            flow.latency_actual.record_all(actual)

    def _note(
        self, client: Client, parts: list[bytes], latencies: dict[int, tuple[list[int], list[int]]]
    ) -> None:
        payload = parts[-1]
        stamp: bytes | None = payload if len(payload) >= STAMP_BYTES else None
        if self._stamps_text:
            stamp = stamp_in_text(payload) or stamp
        if stamp is not None:
            run_tag, sequence, key, intended_ns, actual_ns = STAMP.unpack_from(stamp)
            if run_tag == self._run_tag and key >> 48 < len(self._publishers):
                source = self._publishers[key >> 48]
                self._note_place(client, source, key, sequence)
                now_ns = time.monotonic_ns()
                intended, actual = latencies.setdefault(source, ([], []))
                intended.append(now_ns - intended_ns)
                actual.append(now_ns - actual_ns)
                return
        topic = parts[0] if len(parts) > 1 else b""
        publisher = self._unstamped.get((client.target, topic))
        if publisher is None:
            self._tally.now.counters["foreign_total"] += 1
        else:
            self._count_received(self._flow(publisher).counters)

    def _note_place(self, client: Client, source: int, key: int, sequence: int) -> None:
        places = client.streams.get(key)
        if places is None:
            places = client.streams[key] = Places(sequence)
            self._tally.ledger_pairs += 1
        delivery, passed_over = places.note(sequence)
        counters = self._flow(source).counters
        if delivery in ("first", "reordered"):
            self._count_received(counters)
        if delivery != "first":
            counters[f"{delivery}_total"] += 1
        if passed_over and not self._is_excluded:
            counters["missing_total"] += passed_over

    def _count_received(self, counters: Counter[str]) -> None:
        """Counts a delivery. Engines report expected deliveries, except those that are expected as
        received."""
        counters["received_total"] += 1
        counters["expected_total"] += self._is_excluded

    def _flow(self, source: int) -> FlowTally:
        return self._tally.now.flows.setdefault(source, FlowTally())


def _unstamped_topics(part: AgentShard) -> dict[tuple[int, bytes], int]:
    """The populations of publishers whose messages carry no stamp, by target and topic."""
    found: dict[tuple[int, bytes], int] = {}
    for index, population in enumerate(part.plan.populations):
        if population.zmtp is None:
            continue
        for publication in population.publications:
            if holds_stamp(publication):
                continue
            topic = template_of(population, publication.topic)
            for client in range(population.clients):
                target = target_of(part.plan, index, client)
                for variant in range(topic.variants):
                    text = topic.text(population.first + client, variant).encode()
                    found[target, text] = index
    return found
