"""Subscribers at a publisher with CURVE: one SUB socket of pyzmq for each client, all read by one
thread. `pubstorm-zmq` plays all other real subscribers; its libzmq is built without libsodium. A
client is ready after its handshake: libzmq does not report when the publisher has read the
subscriptions."""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import ceil

import zmq
from zmq.utils.monitor import recv_monitor_message

from pubstorm.contract.offered_load import target_of
from pubstorm.contract.reasons import Reason
from pubstorm.fleet.agents.frame import STDIN, AgentShard, AgentTally, Pipes
from pubstorm.fleet.agents.receivers import Latencies, Receiver, Receivers
from pubstorm.fleet.zmq_agent.sockets import LIBRARY, filters, options_of, subscriber_socket

READ_MAX = 200
"""Messages that are read from one socket before the others have their turn."""
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


@dataclass(kw_only=True)
class Subscriber(Receiver):
    """One SUB socket."""

    socket: zmq.Socket[bytes]
    monitor: zmq.Socket[bytes]


class Subscribers(Receivers[Subscriber]):
    """The clients of an agent."""

    library = LIBRARY

    def __init__(self, part: AgentShard, tally: AgentTally) -> None:
        super().__init__(part, tally)
        self._context = zmq.Context(options_of(part).io_threads)
        sockets = SOCKETS_EACH * len(part.clients) + SOCKETS_EACH
        self._context.set(zmq.MAX_SOCKETS, min(sockets, self._context.get(zmq.SOCKET_LIMIT)))
        self._filters = filters(part)
        self._poller = zmq.Poller()
        self._poller.register(STDIN, zmq.POLLIN)
        self._by_socket: dict[object, Subscriber] = {}

    def wait(self, pipes: Pipes, wait_s: float) -> None:
        """Waits for a command or a message."""
        if not pipes.has_commands:
            self._poller.poll(ceil(wait_s * 1000))

    def _read_some(self) -> bool:
        readable = [each for each, _ in self._poller.poll(0) if each != STDIN]
        for socket in readable:
            client = self._by_socket[socket]
            if socket is client.monitor:
                self._take_event(client)
            else:
                self._read(client)
        return bool(readable)

    def end(self) -> None:
        """Closes every socket."""
        self._disconnect()
        self._context.term()

    def _start(self, number: int) -> None:
        socket = subscriber_socket(self._context, self._part, number)
        monitor = socket.get_monitor_socket(WATCHED)
        target = target_of(self._part.plan, self._part.place.population, number)
        began_ns = time.monotonic_ns()
        client = Subscriber(target, began_ns, socket=socket, monitor=monitor)
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

    def _take_event(self, client: Subscriber) -> None:
        """Takes an event of a client's connection from libzmq."""
        event = zmq.Event(recv_monitor_message(client.monitor)["event"])
        counters = self._tally.now.counters
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            counters["subscribed_total"] += self._filters
            self._note_connected(client)
        elif event == zmq.EVENT_CONNECT_RETRIED:
            counters["connect_attempts_total"] += 1
            client.began_ns = time.monotonic_ns()
        elif event == zmq.EVENT_DISCONNECTED and client.connected:
            self._note_lost(client, Reason.CLOSED_BY_BROKER)
        elif event in FAILURES and not client.connected:
            self._note_failed(client, FAILURES[event])
            client.gave_up = self._part.population.reconnect is None

    def _read(self, client: Subscriber) -> None:
        receive, bytes_read, read = client.socket.recv_multipart, 0, 0
        latencies: Latencies = {}
        try:
            for _ in range(READ_MAX):
                parts = receive(zmq.NOBLOCK)
                read += 1
                bytes_read += sum(map(len, parts))
                topic = parts[0].decode(errors="replace") if len(parts) > 1 else ""
                self._note(client, (topic, parts[-1]), time.monotonic_ns(), latencies)
        except zmq.Again:
            pass
        counters = self._tally.now.counters
        counters["packets_received_total"] += read
        counters["bytes_received_total"] += bytes_read
        self._note_latencies(latencies)
