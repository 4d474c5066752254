"""A small broker of MQTT 5 on loopback, which can lack features. It has QoS 0 and 1, and each
feature that `mqtt5-features` plays. Paho, which shares no code with Pubstorm, reads and writes the
properties."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from paho.mqtt import properties as paho
from paho.mqtt.client import topic_matches_sub
from paho.mqtt.packettypes import PacketTypes

BAD_METHOD, WITH_WILL = 0x8C, 0x04
ITERATIONS = 4096
PASSWORD = b"pubstorm"
"""Password of all users."""
EXPIRY = "MessageExpiryInterval"
OF_CONTENT = ("ContentType", "PayloadFormatIndicator", "ResponseTopic", "CorrelationData")


class Lack(StrEnum):
    """A feature that the broker does not have, or a way in which it does not."""

    NOTHING = "nothing"
    USER_PROPERTIES = "user properties are dropped"
    CONTENT = "content type, format, response topic and correlation data are dropped"
    ALIASES_OF_CLIENTS = "Topic Alias Maximum is 0"
    OWN_ALIASES = "the broker sends no alias"
    RECEIVE_MAXIMUM = "Receive Maximum is ignored"
    PACKET_SIZE = "Maximum Packet Size is ignored"
    IDENTIFIERS = "identifiers are never sent"
    IDENTIFIERS_OF_COPIES = "copies have no identifiers"
    IDENTIFIERS_AT_ALL = "CONNACK says that there are no identifiers"
    NO_LOCAL = "No Local is ignored"
    RETAINED = "no message is retained"
    RETAIN_HANDLING = "Retain Handling is ignored"
    AS_PUBLISHED = "Retain As Published is ignored"
    SHARED = "each member of a group receives each message"
    SESSION = "no session is kept"
    ASSIGNED_IDENTIFIER = "no client identifier is assigned"
    SESSION_EXPIRY = "sessions have no end"
    MESSAGE_EXPIRY = "expired messages are delivered"
    EXPIRY_REDUCED = "the expiry of a message stays"
    WILL = "no will is published"
    WILL_DELAY = "wills are published at once"
    KEEP_ALIVE = "the client chooses its keep-alive"
    AUTHENTICATION = "there is no authentication method"


@dataclass
class Message:
    """A message for clients."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Any
    sender: str
    since_s: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class Subscription:
    """A filter of a client with its options."""

    filter: str
    options: int
    identifier: int | None

    @property
    def group(self) -> str | None:
        return self.filter.split("/")[1] if self.filter.startswith("$share/") else None

    def matches(self, topic: str) -> bool:
        bare = self.filter.split("/", 2)[2] if self.group is not None else self.filter
        return bool(topic_matches_sub(bare, topic))

    @property
    def is_local_too(self) -> bool:
        return not self.options & 0b100

    @property
    def is_as_published(self) -> bool:
        return bool(self.options & 0b1000)

    @property
    def retain_handling(self) -> int:
        return self.options >> 4 & 0b11


class Found:
    """The subscriptions for which a client receives a message."""

    def __init__(self, *subscriptions: Subscription, is_kept: bool = False) -> None:
        self.subscriptions = subscriptions
        self.is_kept = is_kept


@dataclass
class Session:
    """State of a client that can outlive its connection."""

    name: str
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    waiting: list[tuple[Message, Found]] = field(default_factory=list)
    in_flight: set[int] = field(default_factory=set)
    last_id: int = 0
    link: Link | None = None
    expiry_s: float = 0
    ends_s: float = float("inf")
    will: asyncio.TimerHandle | None = None
    """The will that has a delay."""


@dataclass(frozen=True)
class Acceptance:
    """Fields of a CONNECT that waits for its authentication."""

    name: str
    is_clean: bool


class Link(asyncio.Protocol):
    """A connection of a client."""

    def __init__(self, broker: LackingBroker) -> None:
        self.broker = broker
        self.data = bytearray()
        self.session: Session | None = None
        self.will: tuple[Message, int] | None = None
        self.topics: dict[int, str] = {}
        self.aliases: dict[str, int] = {}
        self.own = empty(PacketTypes.CONNECT)
        self.scram: tuple[Acceptance, Callable[[bytes], bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        while (packet := packet_of(self.data)) is not None:
            self.broker.handle(self, *packet)

    def connection_lost(self, _: Exception | None) -> None:
        self.broker.ended(self)

    def send(self, first: int, body: bytes) -> None:
        self.transport.write(bytes([first]) + variable(len(body)) + body)


class LackingBroker:
    """The broker. It forgets everything when its last client has gone."""

    def __init__(self, lack: Lack) -> None:
        self.lack = lack
        self.sessions: dict[str, Session] = {}
        self.retained: dict[str, Message] = {}
        self.links: set[Link] = set()
        self.turns = 0

    def handle(self, link: Link, kind: int, flags: int, body: bytes) -> None:
        if kind == PacketTypes.CONNECT:
            self.connect(link, body)
        elif kind == PacketTypes.AUTH:
            self.authenticate(link, properties_of(PacketTypes.AUTH, body[1:])[0])
        elif kind == PacketTypes.PUBLISH:
            self.publish(link, flags, body)
        elif kind == PacketTypes.SUBSCRIBE:
            self.subscribe(link, body)
        elif kind == PacketTypes.PUBACK and link.session is not None:
            link.session.in_flight.discard(int.from_bytes(body[:2]))
            self.deliver(link.session)
        elif kind == PacketTypes.PINGREQ:
            link.send(PacketTypes.PINGRESP << 4, b"")
        elif kind == PacketTypes.DISCONNECT:
            if body[:1] != bytes([WITH_WILL]):
                link.will = None
            link.transport.close()

    # Connections and sessions.

    def connect(self, link: Link, body: bytes) -> None:
        flags = body[7]
        link.own, rest = properties_of(PacketTypes.CONNECT, body[10:])
        name, rest = field_of(rest)
        if flags & 0b100:
            properties, rest = properties_of(PacketTypes.WILLMESSAGE, rest)
            topic, rest = field_of(rest)
            payload, rest = field_of(rest)
            delay_s = getattr(properties, "WillDelayInterval", 0)
            qos, retain = flags >> 3 & 0b11, bool(flags & 0b10_0000)
            none = empty(PacketTypes.PUBLISH)
            will = Message(topic.decode(), payload, qos, retain, none, name.decode())
            link.will = will, min(delay_s, getattr(link.own, "SessionExpiryInterval", 0))
        self.links.add(link)
        accept = Acceptance(name.decode(), is_clean=bool(flags & 0b10))
        if not hasattr(link.own, "AuthenticationMethod"):
            self.accept(link, accept)
        elif self.lack is Lack.AUTHENTICATION:
            link.send(PacketTypes.CONNACK << 4, bytes([0, BAD_METHOD, 0]))
            link.transport.close()
        else:
            self.challenge(link, accept)

    def challenge(self, link: Link, accept: Acceptance) -> None:
        """Begins SCRAM-SHA-256 (RFC 7677)."""
        bare = link.own.AuthenticationData.removeprefix(b"n,,")
        nonce = bare.split(b",r=")[1] + b"x"
        first = b"r=%s,s=%s,i=%d" % (nonce, base64.b64encode(b"salt"), ITERATIONS)
        salted = hashlib.pbkdf2_hmac("sha256", PASSWORD, b"salt", ITERATIONS)

        def proof(last: bytes) -> bytes:
            without, given = last.split(b",p=")
            exchange = b",".join((bare, first, without))
            key = hmac.digest(salted, b"Client Key", "sha256")
            signed = hmac.digest(hashlib.sha256(key).digest(), exchange, "sha256")
            expected = bytes(a ^ b for a, b in zip(key, signed, strict=True))
            assert base64.b64decode(given) == expected, "the proof of the client is wrong"
            key = hmac.digest(salted, b"Server Key", "sha256")
            return b"v=" + base64.b64encode(hmac.digest(key, exchange, "sha256"))

        link.scram = accept, proof
        step = step_of(PacketTypes.AUTH, first)
        link.send(PacketTypes.AUTH << 4, bytes([0x18]) + step.pack())

    def authenticate(self, link: Link, given: Any) -> None:
        assert link.scram is not None
        accept, proof = link.scram
        last = proof(given.AuthenticationData)
        self.accept(link, accept, step_of(PacketTypes.CONNACK, last))

    def accept(self, link: Link, acceptance: Acceptance, properties: Any = None) -> None:
        properties = properties or empty(PacketTypes.CONNACK)
        name = acceptance.name
        if not name:
            self.turns += 1
            name = f"assigned-{self.turns}"
            if self.lack is not Lack.ASSIGNED_IDENTIFIER:
                properties.AssignedClientIdentifier = name
        if self.lack is not Lack.ALIASES_OF_CLIENTS:
            properties.TopicAliasMaximum = 20
        if self.lack is not Lack.KEEP_ALIVE:
            properties.ServerKeepAlive = 60
        if self.lack is Lack.IDENTIFIERS_AT_ALL:
            properties.SubscriptionIdentifierAvailable = 0
        kept = self.sessions.pop(name, None)
        if kept is not None and kept.will is not None:
            kept.will.cancel()
        is_over = kept is None or kept.ends_s < time.monotonic()
        is_new = acceptance.is_clean or is_over or kept is None
        session = Session(name) if is_new or kept is None else kept
        session.in_flight.clear()
        session.link, link.session = link, session
        session.expiry_s = getattr(link.own, "SessionExpiryInterval", 0)
        session.ends_s = float("inf")
        self.sessions[name] = session
        link.send(PacketTypes.CONNACK << 4, bytes([not is_new, 0]) + properties.pack())
        self.deliver(session)

    def ended(self, link: Link) -> None:
        self.links.discard(link)
        session = link.session
        if session is None or session.link is not link:
            return
        session.link = None
        if self.lack is not Lack.SESSION_EXPIRY:
            session.ends_s = time.monotonic() + session.expiry_s
        if session.expiry_s == 0 or self.lack is Lack.SESSION:
            self.sessions.pop(session.name, None)
        if link.will is not None and self.lack is not Lack.WILL:
            will, delay_s = link.will
            delay_s = 0 if self.lack is Lack.WILL_DELAY else delay_s
            loop = asyncio.get_running_loop()
            session.will = loop.call_later(delay_s, self.forward, will)
        if not self.links:
            self.sessions.clear()
            self.retained.clear()

    # Messages.

    def publish(self, link: Link, flags: int, body: bytes) -> None:
        qos, retain = flags >> 1 & 0b11, bool(flags & 1)
        assert qos < 2, "the broker has QoS 0 and 1"
        assert link.session is not None
        name, rest = field_of(body)
        packet_id, rest = (rest[:2], rest[2:]) if qos else (b"", rest)
        properties, payload = properties_of(PacketTypes.PUBLISH, rest)
        alias = getattr(properties, "TopicAlias", None)
        if alias is not None:
            if name:
                link.topics[alias] = name.decode()
            topic = link.topics[alias]
        else:
            topic = name.decode()
        dropped = {
            Lack.USER_PROPERTIES: ("UserProperty",),
            Lack.CONTENT: OF_CONTENT,
        }.get(self.lack, ())
        for each in ("TopicAlias", *dropped):
            if hasattr(properties, each):
                delattr(properties, each)
        if packet_id:
            link.send(PacketTypes.PUBACK << 4, packet_id)
        self.forward(Message(topic, payload, qos, retain, properties, link.session.name))

    def forward(self, message: Message) -> None:
        if message.retain and self.lack is not Lack.RETAINED:
            self.retained[message.topic] = message
        groups: dict[str, list[tuple[Session, Subscription]]] = {}
        for session in [*self.sessions.values()]:
            found = [each for each in session.subscriptions.values() if each.matches(message.topic)]
            own = [
                each
                for each in found
                if each.group is None
                and (
                    each.is_local_too
                    or session.name != message.sender
                    or self.lack is Lack.NO_LOCAL
                )
            ]
            if own and self.lack is Lack.IDENTIFIERS_OF_COPIES:
                session.waiting += [(message, Found(each)) for each in own]
            elif own:
                session.waiting.append((message, Found(*own)))
            for each in found:
                if each.group is not None:
                    groups.setdefault(each.filter, []).append((session, each))
            self.deliver(session)
        for members in groups.values():
            self.turns += 1
            chosen = [members[self.turns % len(members)]]
            for session, each in members if self.lack is Lack.SHARED else chosen:
                session.waiting.append((message, Found(each)))
                self.deliver(session)

    def deliver(self, session: Session) -> None:
        """Sends messages that wait, as far as the client receives them."""
        link = session.link
        while link is not None and session.waiting:
            most = getattr(link.own, "ReceiveMaximum", 0xFFFF)
            is_full = len(session.in_flight) >= most and self.lack is not Lack.RECEIVE_MAXIMUM
            if is_full and session.waiting[0][0].qos:
                return
            self.send(link, session, *session.waiting.pop(0))

    def send(self, link: Link, session: Session, message: Message, found: Found) -> None:
        """Sends a message for subscriptions, unless it has expired or is too large."""
        properties = self.properties_of_copy(message, found)
        if properties is None:
            return
        topic, is_known = message.topic, message.topic in link.aliases
        most = getattr(link.own, "TopicAliasMaximum", 0)
        if self.lack is not Lack.OWN_ALIASES and (is_known or len(link.aliases) < most):
            properties.TopicAlias = link.aliases.setdefault(topic, len(link.aliases) + 1)
            topic = "" if is_known else topic
        qos = min(message.qos, *(each.options & 0b11 for each in found.subscriptions), 1)
        packet_id = b""
        if qos:
            session.last_id = session.last_id % 0xFFFF + 1
            packet_id = session.last_id.to_bytes(2)
        body = field_to(topic) + packet_id + properties.pack() + message.payload
        size = 1 + len(variable(len(body))) + len(body)
        if (
            size > getattr(link.own, "MaximumPacketSize", size)
            and self.lack is not Lack.PACKET_SIZE
        ):
            return
        if qos:
            session.in_flight.add(session.last_id)
        is_forwarded = message.retain and self.lack is not Lack.AS_PUBLISHED
        is_forwarded &= any(each.is_as_published for each in found.subscriptions)
        link.send(PacketTypes.PUBLISH << 4 | qos << 1 | (found.is_kept or is_forwarded), body)

    def properties_of_copy(self, message: Message, found: Found) -> Any:
        """Returns the properties for a receiver; None if the message has expired."""
        properties = empty(PacketTypes.PUBLISH)
        for name, value in vars(message.properties).items():
            if name[0].isupper():
                setattr(properties, name, value)
        waited_s = int(time.monotonic() - message.since_s)
        expiry_s = getattr(properties, EXPIRY, None)
        if expiry_s is not None:
            if expiry_s <= waited_s and self.lack is not Lack.MESSAGE_EXPIRY:
                return None
            if self.lack is not Lack.EXPIRY_REDUCED:
                properties.MessageExpiryInterval = max(expiry_s - waited_s, 0)
        lacking = (Lack.IDENTIFIERS, Lack.IDENTIFIERS_OF_COPIES, Lack.IDENTIFIERS_AT_ALL)
        for each in found.subscriptions:
            if each.identifier is not None and self.lack not in lacking:
                properties.SubscriptionIdentifier = each.identifier
        return properties

    def subscribe(self, link: Link, body: bytes) -> None:
        session = link.session
        assert session is not None
        packet_id, codes, added = body[:2], b"", []
        properties, rest = properties_of(PacketTypes.SUBSCRIBE, body[2:])
        identifier = next(iter(getattr(properties, "SubscriptionIdentifier", ())), None)
        while rest:
            found, rest = field_of(rest)
            subscription = Subscription(found.decode(), rest[0], identifier)
            rest = rest[1:]
            codes += bytes([subscription.options & 0b11])
            is_new = subscription.filter not in session.subscriptions
            session.subscriptions[subscription.filter] = subscription
            wants = subscription.retain_handling == 0 or (
                subscription.retain_handling == 1 and is_new
            )
            if (wants or self.lack is Lack.RETAIN_HANDLING) and subscription.group is None:
                added.append(subscription)
        link.send(PacketTypes.SUBACK << 4, packet_id + b"\0" + codes)
        for subscription in added:
            for message in self.retained.values():
                if subscription.matches(message.topic):
                    self.send(link, session, message, Found(subscription, is_kept=True))


@contextmanager
def lacking(lack: Lack) -> Iterator[str]:
    """Runs a broker that lacks a feature; yields its target."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def call(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    broker = LackingBroker(lack)
    failures: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: failures.append(context))
    try:
        server = call(loop.create_server(lambda: Link(broker), "127.0.0.1", 0))
        yield f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert not failures, failures

        async def end() -> None:
            server.close()
            for link in [*broker.links]:
                link.transport.abort()

        call(end())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def packet_of(data: bytearray) -> tuple[int, int, bytes] | None:
    """Takes the first packet: its type, its flags, and the bytes after its length."""
    size = 0
    for place, byte in enumerate(data[1:5]):
        size |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            start, end = place + 2, place + 2 + size
            if len(data) < end:
                return None
            first, body = data[0], bytes(data[start:end])
            del data[:end]
            return first >> 4, first & 0xF, body
    return None


def variable(number: int) -> bytes:
    """Returns a variable byte integer."""
    found = bytearray()
    while True:
        number, byte = divmod(number, 0x80)
        found.append(byte | (0x80 if number else 0))
        if not number:
            return bytes(found)


def field_of(data: bytes) -> tuple[bytes, bytes]:
    """Returns a field with its length in front, and the rest."""
    end = 2 + int.from_bytes(data[:2])
    return data[2:end], data[end:]


def field_to(text: str) -> bytes:
    """Returns a text with its length in front."""
    return len(text.encode()).to_bytes(2) + text.encode()


def empty(packet: int) -> Any:
    """Returns the properties of a packet without any."""
    return paho.Properties(packet)  # type: ignore[no-untyped-call]


def properties_of(packet: int, data: bytes) -> tuple[Any, bytes]:
    """Returns the properties at the front, and the rest."""
    properties, size = empty(packet).unpack(data)
    return properties, data[size:]


def step_of(packet: int, data: bytes) -> Any:
    """Returns the properties of a step of SCRAM."""
    properties = empty(packet)
    properties.AuthenticationMethod = "SCRAM-SHA-256"
    properties.AuthenticationData = data
    return properties
