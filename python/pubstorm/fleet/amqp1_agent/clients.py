"""Receivers of AMQP 1.0, all in one thread: their connections, attempts and timers, and the
instants at which messages come."""

from __future__ import annotations

import contextlib
import heapq
import re
import select
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from pubstorm.contract.amqp import Amqp1Protocol, Amqp1Source
from pubstorm.contract.offered_load import target_of, template_of
from pubstorm.contract.reasons import Reason
from pubstorm.contract.snapshot import Answer
from pubstorm.contract.target import Target
from pubstorm.contract.template import Random
from pubstorm.fleet.agents.frame import NEVER_NS, STDIN, AgentError, AgentShard, AgentTally, Pipes
from pubstorm.fleet.agents.receivers import Latencies, Places, Receiver, Receivers
from pubstorm.fleet.amqp1_agent.channel import (
    Address,
    Amqp1Channel,
    ChannelError,
    ChannelTls,
    tls_context,
)
from pubstorm.fleet.amqp1_agent.session import (
    LIBRARY,
    Amqp1Attached,
    Amqp1Ended,
    Amqp1Refused,
    Amqp1Session,
    Amqp1Setup,
    ClientSource,
)
from pubstorm.output import name_of
from pubstorm.quantities import SECOND_NS

READS_MAX = 8
"""Reads of one connection before the others have their turn."""
CLOSE_NS = 2 * SECOND_NS
"""Longest wait for the broker's answer to the end of a connection."""
POLL_S = 0.05
QUEUE = "::"
"""Text between an address and a queue of it."""
SHARED = "$share/"
WILDCARDS = {"*": r"[^.]+", "#": r"(?:.+)?"}
"""Patterns of the words that a wildcard matches."""


@dataclass(kw_only=True, eq=False)
class Amqp1Client(Receiver):
    """A client with its connection."""

    number: int
    channel: Amqp1Channel | None = None
    session: Amqp1Session | None = None
    attempts: int = 0
    failures: int = 0
    """Attempts that failed since the client was connected."""
    due_ns: int = NEVER_NS
    """Instant at which the client has something to do by itself."""
    woken_ns: int = NEVER_NS
    """Instant at which the agent looks at the client next; not after `due_ns`."""
    is_leaving: bool = False
    watched: int = 0
    """Events of the socket that wake the agent."""
    frames: tuple[int, int] = (0, 0)
    """Frames received and sent that are counted."""


@dataclass(frozen=True, order=True)
class Wake:
    """An instant at which the agent looks at a client."""

    at_ns: int
    turn: int
    """Number of the wake-up, so that clients are not compared."""
    client: Amqp1Client = field(compare=False)


class Amqp1Clients(Receivers[Amqp1Client]):
    """The clients of an agent."""

    library = LIBRARY

    def __init__(self, part: AgentShard, tally: AgentTally) -> None:
        super().__init__(part, tally)
        protocol = part.population.protocol
        assert isinstance(protocol, Amqp1Protocol), "the program plays receivers of AMQP 1.0"
        self._protocol = protocol
        self._poll = select.epoll()
        self._poll.register(STDIN, select.EPOLLIN)
        self._by_file: dict[int, Amqp1Client] = {}
        self._with_more = set[Amqp1Client]()
        """Clients with bytes that no socket reports."""
        self._leaving = set[Amqp1Client]()
        self._wakes: list[Wake] = []
        self._wake_count = 0
        self._latencies: Latencies = {}
        self._places: dict[int, Places] = {}
        """Places of the streams that a shared queue receives."""
        filters = (each.filter for each in part.population.subscriptions)
        self._is_shared = any(each.startswith(SHARED) for each in filters)
        self._contexts: dict[tuple[str, ...], ssl.SSLContext] = {}
        self._addresses = {n: _addresses(part.plan.targets[n]) for n in part.population.at.targets}

    def wait(self, pipes: Pipes, wait_s: float) -> None:
        """Waits for a command, for bytes, or for a timer of a client."""
        if not pipes.has_commands and not self._with_more:
            self._poll.poll(wait_s)

    def turn(self, now_ns: int) -> int:
        """Starts clients, reads messages and serves timers, for about a millisecond."""
        if self._wakes and self._wakes[0].at_ns <= now_ns:
            # An answer that came in time may wait, since the agent had no processor.
            self._read_some()
        while self._wakes and self._wakes[0].at_ns <= now_ns:
            client = heapq.heappop(self._wakes).client
            client.woken_ns = NEVER_NS
            if client.due_ns <= now_ns:
                self._serve_timer(client)
            self._wake(client)
        next_ns = super().turn(now_ns)
        return min(next_ns, self._wakes[0].at_ns) if self._wakes else next_ns

    def end(self) -> None:
        """Ends every client: their connections are closed in order."""
        self._disconnect()
        deadline_ns = time.monotonic_ns() + CLOSE_NS
        while self._leaving and time.monotonic_ns() < deadline_ns:
            self._poll.poll(POLL_S)
            self._read_some()
        for client in list(self._leaving):
            self._drop(client)

    def _read_some(self) -> bool:
        found = {self._by_file[number] for number, _ in self._poll.poll(0) if number != STDIN}
        found |= self._with_more
        self._with_more.clear()
        for client in found:
            self._serve(client)
        self._note_latencies(self._latencies)
        self._latencies = {}
        return bool(found)

    def _start(self, number: int) -> None:
        target = target_of(self._part.plan, self._part.place.population, number)
        client = Amqp1Client(target, time.monotonic_ns(), number=number)
        if self._is_shared:
            client.streams = self._places
        self._clients[number] = client
        self._connect(client)

    def _stop(self, number: int) -> None:
        client = self._clients.pop(number)
        self._set_connected(client, there=False)
        client.is_leaving, client.due_ns = True, NEVER_NS
        if client.session is None or client.session.is_over:
            self._drop(client)
            return
        self._leaving.add(client)
        client.session.close()
        client.due_ns = time.monotonic_ns() + CLOSE_NS
        self._serve(client)
        self._wake(client)

    def _connect(self, client: Amqp1Client) -> None:
        """Begins an attempt."""
        population = self._part.population
        client.began_ns = time.monotonic_ns()
        client.due_ns = client.began_ns + population.connect_timeout_ns
        addresses = self._addresses[client.target]
        client.channel = Amqp1Channel(
            addresses[client.attempts % len(addresses)], self._tls(client.number, client.target)
        )
        client.attempts += 1
        self._tally.now.counters["connect_attempts_total"] += 1
        self._by_file[client.channel.fileno()] = client
        client.watched = select.EPOLLIN | select.EPOLLOUT
        self._poll.register(client.channel.fileno(), client.watched)
        self._wake(client)

    def _serve_timer(self, client: Amqp1Client) -> None:
        client.due_ns = NEVER_NS
        if client.is_leaving:
            self._drop(client)
        elif client.channel is None:
            self._connect(client)
        elif client.connected:
            self._serve(client)
        else:
            step = client.channel.step if client.session is None else client.session.step
            self._lose(client, Reason.CONNECT_TIMEOUT, f"no answer to {step}")

    def _serve(self, client: Amqp1Client) -> None:
        """Reads what a connection has, answers, and counts."""
        channel = client.channel
        if channel is None:
            return
        try:
            if not channel.is_open:
                channel.advance()
            if channel.is_open:
                self._exchange(client, channel)
        except ChannelError as error:
            reason = error.connection if client.connected else error.attempt
            self._lose(client, reason, error.words)
        if client.channel is channel:
            events = select.EPOLLIN | (select.EPOLLOUT if channel.waits_to_write else 0)
            if events != client.watched:
                client.watched = events
                self._poll.modify(channel.fileno(), events)

    def _exchange(self, client: Amqp1Client, channel: Amqp1Channel) -> None:
        """Exchanges bytes of an open connection with its session."""
        if client.session is None:
            client.session = Amqp1Session(self._setup(client.number, client.target))
            client.frames = (0, 0)
        session, counters = client.session, self._tally.now.counters
        for _ in range(READS_MAX):
            data = channel.read()
            if data is None or client.channel is None:
                break
            now_ns = time.monotonic_ns()
            counters["bytes_received_total"] += len(data)
            if data:
                session.handle(data)
            else:
                session.handle_end()
            self._take(client, session, now_ns)
            if session.is_over:
                return
        if channel.has_more:
            self._with_more.add(client)
        deadline_s = session.tick(time.monotonic_ns() / SECOND_NS)
        self._write(channel, session)
        self._count_frames(client, session)
        self._take(client, session, time.monotonic_ns())
        if client.connected and client.channel is not None:
            is_never = deadline_s == float("inf")
            client.due_ns = NEVER_NS if is_never else int(deadline_s * SECOND_NS)
            self._wake(client)

    def _write(self, channel: Amqp1Channel, session: Amqp1Session) -> None:
        while data := session.output():
            count = channel.write(data)
            session.sent(count)
            self._tally.now.counters["bytes_sent_total"] += count
            if count < len(data):
                return

    def _take(self, client: Amqp1Client, session: Amqp1Session, now_ns: int) -> None:
        """Takes messages and events of a session."""
        messages, session.messages = session.messages, type(session.messages)()
        if not client.is_leaving:
            for message in messages:
                self._note(client, message, now_ns, self._latencies)
        if session.is_ready and not (client.connected or client.is_leaving):
            client.failures = 0
            self._note_connected(client)
        counters = self._tally.now.counters
        while session.events:
            match session.events.popleft():
                case Amqp1Attached():
                    counters["subscribed_total"] += 1
                case Amqp1Refused(outcome=outcome, words=words):
                    counters["subscribe_failed_total"] += 1
                    self._note_outcome(outcome, name_of(words))
                case Amqp1Ended(outcome=outcome, words=words):
                    self._count_frames(client, session)
                    self._lose(client, outcome, words)

    def _count_frames(self, client: Amqp1Client, session: Amqp1Session) -> None:
        counters, before, client.frames = self._tally.now.counters, client.frames, session.frames
        counters["packets_received_total"] += client.frames[0] - before[0]
        counters["packets_sent_total"] += client.frames[1] - before[1]

    def _lose(self, client: Amqp1Client, outcome: Reason | Answer, words: str) -> None:
        """Counts the end of a connection or an attempt, and lets the client try again later."""
        self._drop(client)
        if client.is_leaving:
            return
        note = self._note_lost if client.connected else self._note_failed
        note(client, outcome, name_of(words))
        reconnect = self._part.population.reconnect
        if reconnect is None:
            client.gave_up = True
            return
        wait_ns = min(reconnect.min_ns << min(client.failures, 32), reconnect.max_ns)
        client.failures += 1
        now_ns = time.monotonic_ns()
        drawn = Random.new(self._part.plan.seed, client.number).of(now_ns).bits / 2**64
        client.due_ns = now_ns + wait_ns // 2 + int(drawn * (wait_ns // 2))
        self._wake(client)

    def _drop(self, client: Amqp1Client) -> None:
        """Closes the connection of a client."""
        self._leaving.discard(client)
        self._with_more.discard(client)
        client.due_ns = NEVER_NS
        channel, client.channel, client.session = client.channel, None, None
        if channel is not None:
            del self._by_file[channel.fileno()]
            with contextlib.suppress(OSError):
                self._poll.unregister(channel.fileno())
            channel.close()

    def _wake(self, client: Amqp1Client) -> None:
        """Remembers to look at a client at its instant."""
        if client.due_ns < client.woken_ns:
            client.woken_ns = client.due_ns
            self._wake_count += 1
            heapq.heappush(self._wakes, Wake(client.due_ns, self._wake_count, client))

    def _text(self, number: int, template: str | None) -> str:
        population = self._part.population
        if template is None:
            return ""
        return template_of(population, template).text(population.first + number)

    def _setup(self, number: int, target: int) -> Amqp1Setup:
        population, protocol = self._part.population, self._protocol
        host = self._part.plan.targets[target].host
        return Amqp1Setup(
            container_id=self._text(number, protocol.container_id),
            hostname=host if protocol.hostname is None else self._text(number, protocol.hostname),
            mechanism=protocol.mechanism,
            username=self._text(number, population.username),
            password=self._text(number, population.password),
            idle_timeout_s=population.keep_alive_s,
            message_bytes_max=self._part.plan.max_packet_bytes,
            sources=[each for own in protocol.sources for each in self._sources(number, own)],
        )

    def _sources(self, number: int, source: Amqp1Source) -> Iterator[ClientSource]:
        """Yields the sources of a client: one for each value of the address."""
        population = self._part.population
        template = template_of(population, source.address)
        for variant in range(template.variants):
            address = template.text(population.first + number, variant)
            name, pattern = address.partition(QUEUE)[0], None
            if {*WILDCARDS} & {*name.split(".")}:
                pattern = pattern_of(name)
                # Without an address of its own, a message may be one of a flow.
                if any(pattern.fullmatch(each.text(0, 0)) for _, each in self._carried):
                    name = ""
            yield ClientSource(
                address=address,
                name=name,
                pattern=pattern,
                capability=source.capability,
                settled=source.settled,
                credit=source.credit,
            )

    def _tls(self, number: int, target: int) -> ChannelTls | None:
        tls, where = self._part.population.tls, self._part.plan.targets[target]
        if tls is None or not where.tls:
            return None
        texts = tuple(self._text(number, each) for each in (tls.certificate, tls.key))
        context = self._contexts.get(texts)
        if context is None:
            context = tls_context(tls, lambda template: self._text(number, template))
            self._contexts[texts] = context
        return ChannelTls(context, self._text(number, tls.server_name) or where.host)


def pattern_of(address: str) -> re.Pattern[str]:
    """Returns the pattern of the names that an address with wildcards matches."""
    words = (WILDCARDS.get(word, re.escape(word)) for word in address.split("."))
    return re.compile(r"\.".join(words).replace(r"\.(?:.+)?", r"(?:\..+)?"))


def _addresses(target: Target) -> list[Address]:
    """Returns the addresses of a target. Raises AgentError if its name has none."""
    port = target.ports.get("amqp1", target.port)
    found = list[Address]()
    for host in target.addresses or (target.host,):
        try:
            known = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            hint = "look at the name under target, and at the name servers of this host"
            raise AgentError(f"cannot find {host}: {error.strerror}", hint) from error
        found += [(family, where) for family, _, _, _, where in known]  # type: ignore[misc]
    return found
