"""One connection of a receiver of AMQP 1.0, without a socket: bytes and instants in, bytes,
messages and events out. The engine of Qpid Proton speaks the protocol."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import proton

from pubstorm.contract.reasons import Reason
from pubstorm.contract.snapshot import Answer

LIBRARY = f"python-qpid-proton {proton.VERSION_MAJOR}.{proton.VERSION_MINOR}"
CONDITIONS = frozenset(
    {
        *("internal-error", "not-found", "unauthorized-access", "decode-error"),
        *("resource-limit-exceeded", "not-allowed", "invalid-field", "not-implemented"),
        *("resource-locked", "precondition-failed", "resource-deleted", "illegal-state"),
        *("frame-size-too-small", "connection:forced", "connection:framing-error"),
        *("connection:redirect", "session:window-violation", "session:errant-link"),
        *("session:handle-in-use", "session:unattached-handle", "link:detach-forced"),
        *("link:transfer-limit-exceeded", "link:message-size-exceeded", "link:redirect"),
        "link:stolen",
    }
)
"""Error conditions of the standard (2.8.15 to 2.8.18), without `amqp:` in front. Others are
`other`, so that a broker cannot invent outcomes without end."""
UNAUTHORIZED = "amqp:unauthorized-access"


@dataclass(frozen=True)
class ClientSource:
    """The source of a link of one client."""

    address: str
    """Address that the client asks for."""
    name: str
    """Address with which its messages arrive; with wildcards, that of messages without one. Empty:
    an unknown one of a flow."""
    pattern: re.Pattern[str] | None
    """Addresses that messages may say, if the address has wildcards; None without wildcards."""
    capability: str | None
    """Capability of the source: `queue` or `topic`; None: no capability."""
    settled: bool
    """True if the broker settles deliveries as it sends them."""
    credit: int
    """Messages that the broker may send before the client has taken them."""


@dataclass(frozen=True)
class Amqp1Setup:
    """Settings of a connection."""

    container_id: str
    hostname: str
    mechanism: Literal["anonymous", "plain", "external"]
    username: str
    password: str
    idle_timeout_s: int
    """Silence after which the client gives up the broker, in seconds; 0: none."""
    message_bytes_max: int
    """Largest message that the client takes, in bytes."""
    sources: Sequence[ClientSource]


@dataclass(frozen=True)
class Amqp1Attached:
    """The broker has accepted a link."""


@dataclass(frozen=True)
class Amqp1Refused:
    """The broker has refused a link; the connection continues."""

    outcome: Answer
    words: str


@dataclass(frozen=True)
class Amqp1Ended:
    """The connection is over, or of no use."""

    outcome: Reason | Answer
    words: str


Amqp1Event = Amqp1Attached | Amqp1Refused | Amqp1Ended


class Amqp1Session:
    """The protocol of one connection."""

    def __init__(self, setup: Amqp1Setup) -> None:
        self.messages = deque[tuple[str, bytes]]()
        """Messages that have arrived, each with its address."""
        self.events = deque[Amqp1Event]()
        self.is_over = False
        """True after the end of the connection: further bytes are ignored."""
        self._setup = setup
        self._is_open = self._is_leaving = False
        self._is_at_end = False
        """True while the end of the broker's bytes is read."""
        self._answered = set[str]()
        self._attached = set[str]()
        self._message = proton.Message()
        self._collector = proton.Collector()
        self._connection = proton.Connection()
        self._transport = proton.Transport()
        self._links: dict[str, tuple[proton.Receiver, ClientSource]] = {}
        self._open()

    @property
    def is_ready(self) -> bool:
        """True if the broker has accepted the connection and answered each link."""
        return self._is_open and len(self._answered) == len(self._links)

    @property
    def step(self) -> str:
        """The step that waits for an answer of the broker, in words."""
        if not self._is_open:
            return "login and Open"
        sources = ((name, own.address) for name, (_, own) in self._links.items())
        waiting = (address for name, address in sources if name not in self._answered)
        return f"Attach of {next(waiting, 'no link')}"

    @property
    def frames(self) -> tuple[int, int]:
        """Frames received and sent."""
        return self._transport.frames_input, self._transport.frames_output

    def handle(self, data: bytes) -> None:
        """Takes bytes of the broker."""
        while data and not self.is_over:
            capacity = self._transport.capacity()
            if capacity <= 0:
                self._end(Reason.PROTOCOL_ERROR, "bytes after the end of the connection")
                return
            try:
                self._transport.push(data[:capacity])
            except proton.ProtonException as error:
                self._end(Reason.PROTOCOL_ERROR, str(error))
            data = data[capacity:]
            self._take_events()

    def handle_end(self) -> None:
        """Takes the end of the broker's bytes."""
        self._is_at_end = True
        self._transport.close_tail()
        self._take_events()
        self._end(self._closed, "")

    def tick(self, now_s: float) -> float:
        """Takes an instant of the monotonic clock, in seconds. Returns the latest instant for the
        next call; infinity: no call is needed."""
        deadline_s: float = self._transport.tick(now_s)
        self._take_events()
        return deadline_s or float("inf")

    def output(self) -> bytes:
        """Returns bytes for the broker."""
        pending = self._transport.pending()
        # Proton reports the refusal of a login when it is asked for bytes.
        self._take_events()
        if pending <= 0:
            return b""
        return bytes(self._transport.peek(pending) or b"")

    def sent(self, count: int) -> None:
        """Takes away bytes that the socket has taken."""
        self._transport.pop(count)

    def close(self) -> None:
        """Closes the connection in order: what arrives from now on is not accepted."""
        self._is_leaving = True
        self._connection.close()

    def _open(self) -> None:
        setup, connection, transport = self._setup, self._connection, self._transport
        connection.collect(self._collector)
        connection.container, connection.hostname = setup.container_id, setup.hostname
        if setup.mechanism == "plain":
            connection.user, connection.password = setup.username, setup.password
        sasl = transport.sasl()
        sasl.allowed_mechs(setup.mechanism.upper())
        # TLS is below the engine, which does not see it.
        sasl.allow_insecure_mechs = True
        transport.idle_timeout = setup.idle_timeout_s
        transport.bind(connection)
        connection.open()
        session = connection.session()
        session.open()
        for number, source in enumerate(setup.sources):
            name = f"{setup.container_id}-{number}"
            link = session.receiver(name)
            link.source.address = source.address
            if source.capability is not None:
                link.source.capabilities.put_object(proton.symbol(source.capability))
            modes = proton.Link.SND_SETTLED, proton.Link.SND_UNSETTLED
            link.snd_settle_mode = modes[0] if source.settled else modes[1]
            link.max_message_size = setup.message_bytes_max
            link.open()
            link.flow(source.credit)
            self._links[name] = link, source

    def _take_events(self) -> None:
        while not self.is_over and (event := self._collector.peek()) is not None:
            self._take(event)
            self._collector.pop()

    def _take(self, event: proton.Event) -> None:
        kind, at = event.type, cast(Any, event.context)
        if kind == proton.Event.DELIVERY:
            self._receive(*self._links[at.link.name])
        elif kind == proton.Event.CONNECTION_REMOTE_OPEN:
            self._is_open = True
        elif kind == proton.Event.LINK_REMOTE_OPEN:
            self._note_attached(at)
        elif kind in (proton.Event.LINK_REMOTE_CLOSE, proton.Event.LINK_REMOTE_DETACH):
            self._note_detached(at.name, at.remote_condition)
            at.close()
        elif kind == proton.Event.SESSION_REMOTE_CLOSE:
            for name in self._links:
                self._note_detached(name, at.remote_condition)
        elif kind == proton.Event.CONNECTION_REMOTE_CLOSE:
            self._note_closed(at.remote_condition)
        elif kind == proton.Event.TRANSPORT_ERROR:
            self._note_failed(at.condition)

    def _note_attached(self, link: proton.Link) -> None:
        # An attach without a source is the first half of a refusal (2.6.3).
        if link.name in self._links and link.remote_source.type == proton.Terminus.SOURCE:
            self._answered.add(link.name)
            self._attached.add(link.name)
            self.events.append(Amqp1Attached())

    def _note_detached(self, name: str, condition: proton.Condition | None) -> None:
        """Notes that a link is refused; a link that was attached ends the connection."""
        if self._is_leaving or name not in self._links:
            return
        if name in self._attached:
            lost = Reason.CONSUMER_CANCELLED if self.is_ready else Reason.CONNECT_CLOSED
            self._end(outcome_of(self._action, condition) or lost, words_of(condition))
        elif name not in self._answered:
            self._answered.add(name)
            address = self._links[name][1].address
            outcome = outcome_of("subscribe", condition) or Reason.SUBSCRIBE_REFUSED
            self.events.append(Amqp1Refused(outcome, f"{address}: {words_of(condition)}"))

    def _note_closed(self, condition: proton.Condition | None) -> None:
        outcome: Reason | Answer = outcome_of(self._action, condition) or self._closed
        if outcome == "connect_unauthorized_access":
            outcome = Reason.NOT_AUTHORIZED
        self._end(outcome, words_of(condition))

    def _note_failed(self, condition: proton.Condition | None) -> None:
        """Notes an error that Proton has found, or the failure of a login."""
        name = None if condition is None else condition.name
        if self._is_at_end:
            self._end(self._closed, words_of(condition))
        elif name == UNAUTHORIZED:
            self._end(Reason.BAD_CREDENTIALS, words_of(condition))
        elif name == "amqp:resource-limit-exceeded":
            silent = Reason.KEEP_ALIVE_TIMEOUT if self.is_ready else Reason.CONNECT_TIMEOUT
            self._end(silent, words_of(condition))
        else:
            self._end(Reason.PROTOCOL_ERROR, words_of(condition))

    @property
    def _action(self) -> Literal["connect", "disconnect"]:
        """The action of the client that an end is about."""
        return "disconnect" if self.is_ready else "connect"

    @property
    def _closed(self) -> Reason:
        return Reason.CLOSED_BY_BROKER if self.is_ready else Reason.CONNECT_CLOSED

    def _end(self, outcome: Reason | Answer, words: str) -> None:
        if not self.is_over:
            self.is_over = True
            self.events.append(Amqp1Ended(outcome, words))

    def _receive(self, link: proton.Receiver, source: ClientSource) -> None:
        """Takes the whole messages of a link, and gives the broker new credit for each delivery,
        also for one that it has aborted."""
        while (delivery := link.current) is not None:
            if not (delivery.aborted or self._takes(delivery, source)):
                return
            delivery.settle()
            missing = source.credit - link.credit
            if 2 * missing > source.credit and not self._is_leaving:
                link.flow(missing)

    def _takes(self, delivery: proton.Delivery, source: ClientSource) -> bool:
        """Takes and accepts a message. Returns False for one that is not whole, or too large."""
        if delivery.pending > self._setup.message_bytes_max:
            self._end(Reason.PACKET_TOO_LARGE, f"a message of {source.address}")
            return False
        if delivery.partial or not delivery.readable:
            return False
        link = delivery.link
        data = link.recv(delivery.pending)
        link.advance()
        if self._is_leaving:
            delivery.update(proton.Delivery.RELEASED)
            return True
        self.messages.append(self._read(data or b"", source))
        if not delivery.settled:
            delivery.update(proton.Delivery.ACCEPTED)
        return True

    def _read(self, data: bytes, source: ClientSource) -> tuple[str, bytes]:
        """Returns address and body of a message. The body is empty if it is no text and no
        bytes."""
        try:
            self._message.decode(data)
        except proton.ProtonException:
            return source.name, b""
        body = self._message.body
        name, said = source.name, self._message.address or ""
        if source.pattern is not None and source.pattern.fullmatch(said):
            name = said
        if isinstance(body, str):
            return name, body.encode()
        return name, bytes(body) if isinstance(body, (bytes, bytearray, memoryview)) else b""


def outcome_of(
    action: Literal["connect", "subscribe", "disconnect"], condition: proton.Condition | None
) -> Answer | None:
    """Returns the outcome with the name of an error condition, such as `subscribe_not_found`; None
    without a condition."""
    if condition is None or not condition.name:
        return None
    name = condition.name.removeprefix("amqp:")
    known = name if name in CONDITIONS else "other"
    return f"{action}_{known.rpartition(':')[2].replace('-', '_')}"


def words_of(condition: proton.Condition | None) -> str:
    """Returns name and description of an error condition."""
    if condition is None:
        return ""
    return ": ".join(filter(None, (condition.name, condition.description)))
