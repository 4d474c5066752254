"""Real subscribers: one SUB socket of pyzmq for each client, all read by one thread. One is ready
when its handshake is over: that the publisher has read its subscriptions, no socket of libzmq is
told."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field
from math import ceil

import zmq
from zmq.utils.monitor import recv_monitor_message

from pubstorm.control import ApplyChange
from pubstorm.plan import (
    Action,
    ConnectAction,
    DisconnectAction,
    HoldAction,
    PublishAction,
    has_stamped_text,
    target_of,
    template_of,
)
from pubstorm.snapshot import Reason
from pubstorm.stamp import STAMP_BYTES, stamp_in_text
from pubstorm.zmq_agent.messages import STAMP, is_stamped
from pubstorm.zmq_agent.part import AgentError, Part
from pubstorm.zmq_agent.pipes import STDIN, Pipes
from pubstorm.zmq_agent.places import Places
from pubstorm.zmq_agent.schedule import NEVER_NS
from pubstorm.zmq_agent.sockets import filters, subscriber_socket
from pubstorm.zmq_agent.tally import FlowTally, Tally

READ_MAX = 200
"""Messages that are read from one socket before the others have their turn."""
TURN_NS = 10**6
SECOND_NS = 10**9
SOCKETS_EACH = 3
"""Sockets of a client: its own, and two that tell of its connection."""
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

    def __init__(self, part: Part, tally: Tally) -> None:
        population = part.population
        if population.read_rate_per_s is not None or population.lifetime is not None:
            raise AgentError(
                f"population {population.name}: real subscribers read as fast as they can and stay",
                "use simulated subscribers for read_rate and lifetime",
            )
        self._part, self._tally = part, tally
        self._context = zmq.Context(1 if population.zmq is None else population.zmq.io_threads)
        sockets = SOCKETS_EACH * len(part.clients) + SOCKETS_EACH
        self._context.set(zmq.MAX_SOCKETS, min(sockets, self._context.get(zmq.SOCKET_LIMIT)))
        self._filters = filters(part)
        self._poller = zmq.Poller()
        self._poller.register(STDIN, zmq.POLLIN)
        self._clients: dict[int, Client] = {}
        self._by_socket: dict[object, Client] = {}
        self._starts: deque[tuple[int, int]] = deque()
        self._ends: deque[tuple[int, int]] = deque()
        self._until_ns = 0
        """When a stage that others publish in is over."""
        self._run_tag = part.plan.run_tag
        self._publishers = [population for population, _ in part.publications()]
        self._stamps_text = any(has_stamped_text(each) for _, each in part.publications())
        self._unstamped = _unstamped_topics(part)

    def enter(self, action: Action, at_ns: int, *, takes_part: bool) -> None:
        """Clients come or go, at the rate of the stage; while others publish, they read."""
        if isinstance(action, PublishAction | HoldAction):
            self._until_ns = at_ns + action.duration_ns
        if not takes_part:
            return
        if isinstance(action, ConnectAction):
            count = self._wanted(action)
            wanted = [c for c in self._part.clients if c < count and c not in self._clients]
            self._starts = _paced(wanted, at_ns, action.rate_per_s)
            too_many = [c for c in self._clients if c >= count]
            self._ends = _paced(too_many, at_ns, action.rate_per_s)
        elif isinstance(action, DisconnectAction):
            self._starts.clear()
            self._ends = _paced(list(self._clients), at_ns, action.rate_per_s)

    def change(self, change: ApplyChange) -> None:
        """Real subscribers stay as they are."""

    def close(self) -> None:
        """What is under way is still read."""
        self._until_ns = 0

    def wait(self, pipes: Pipes, wait_s: float) -> None:
        """Until a command or a message has come."""
        if not pipes.has_commands:
            self._poller.poll(ceil(wait_s * 1000))

    def turn(self, now_ns: int) -> int:
        """Reads what has come, for a while."""
        while self._starts and self._starts[0][0] <= now_ns:
            self._start(self._starts.popleft()[1])
        while self._ends and self._ends[0][0] <= now_ns:
            self._stop(self._ends.popleft()[1])
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
        """Whether every client that is to be there is ready or has given up."""
        if self._starts or self._ends or time.monotonic_ns() < self._until_ns:
            return False
        return all(client.connected or client.gave_up for client in self._clients.values())

    def end(self) -> None:
        """Closes every socket."""
        for number in list(self._clients):
            self._stop(number)
        self._context.term()

    def _next_ns(self) -> int:
        """When the next client comes or goes, or the stage is over."""
        turns = [turns[0][0] for turns in (self._starts, self._ends) if turns]
        waits = self._until_ns > time.monotonic_ns()
        return min((*turns, self._until_ns if waits else NEVER_NS))

    def _wanted(self, action: ConnectAction) -> int:
        """How many clients of the population are to be there, over all its agents."""
        if action.clients is None:
            return self._part.population.clients
        own = self._part.place.population
        stages = (s for s in self._part.plan.stages if s.action == action)
        places = next(s.populations for s in stages)
        return action.clients[places.index(own)]

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
        """What libzmq tells of a client's connection."""
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
        """What is counted of a client's target."""
        return self._tally.now.targets.setdefault(client.target, Counter())

    def _read(self, client: Client) -> None:
        """Reads what a socket has."""
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
        """A message has come."""
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
            self._flow(publisher).counters["received_total"] += 1

    def _note_place(self, client: Client, source: int, key: int, sequence: int) -> None:
        places = client.streams.get(key)
        if places is None:
            places = client.streams[key] = Places(sequence)
            self._tally.ledger_pairs += 1
        delivery, passed_over = places.note(sequence)
        counters = self._flow(source).counters
        if delivery in ("first", "reordered"):
            counters["received_total"] += 1
        if delivery != "first":
            counters[f"{delivery}_total"] += 1
        if passed_over:
            counters["missing_total"] += passed_over

    def _flow(self, source: int) -> FlowTally:
        return self._tally.now.flows.setdefault(source, FlowTally())


def _paced(clients: list[int], at_ns: int, rate_per_s: float | None) -> deque[tuple[int, int]]:
    """When each client has its turn."""
    step_ns = SECOND_NS / rate_per_s if rate_per_s else 0.0
    return deque((at_ns + int(place * step_ns), client) for place, client in enumerate(clients))


def _unstamped_topics(part: Part) -> dict[tuple[int, bytes], int]:
    """The populations of publishers whose messages carry no stamp, by target and topic."""
    found: dict[tuple[int, bytes], int] = {}
    for index, population in enumerate(part.plan.populations):
        if population.version != "zmtp-3.1":
            continue
        for publication in population.publications:
            if is_stamped(publication):
                continue
            topic = template_of(population, publication.topic)
            for client in range(population.clients):
                target = target_of(part.plan, index, client)
                for variant in range(topic.variants):
                    text = topic.text(population.first + client, variant).encode()
                    found[target, text] = index
    return found
