"""A client of MQTT that sends what it is asked to send, also beyond the limits of a broker. paho
refuses such requests itself, so this client encodes its packets itself. Every wait has a limit."""

from __future__ import annotations

import asyncio
import os
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

ANSWER_S = 5.0
"""Longest wait for an answer of the broker."""
REQUEST_S = 2 * ANSWER_S
"""Longest wait for an answer if the broker sends other packets."""
TEXT_BYTES_MAX = 0xFFFF
"""Longest text of MQTT: a topic, a filter, a client identifier or a part of a login."""
READ_BYTES_MAX = 32 << 20
"""Largest packet that the client reads."""
MQTT_3_1, MQTT_3_1_1, MQTT_5 = 3, 4, 5
"""Protocol levels in CONNECT."""
NO_VERSION = frozenset({0x01, 0x84})
"""Codes in CONNACK of a broker that does not support the version."""
REFUSES = 0x80
"""Codes of SUBACK and of acknowledgements from here on are failures."""
CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE, SUBACK = range(1, 10)
PINGREQ, PINGRESP, DISCONNECT, AUTH = 12, 13, 14, 15
SESSION_EXPIRY = 0x11
"""Identifier of a property."""
PROPERTY_BYTES: Mapping[int, int] = {
    **dict.fromkeys((0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A), 1),
    **dict.fromkeys((0x13, 0x21, 0x22, 0x23), 2),
    **dict.fromkeys((0x02, 0x11, 0x18, 0x27), 4),
}
"""Lengths of the properties that are numbers [MQTT5 2.2.2.2]."""
VARIABLE, PAIR = 0x0B, 0x26
"""Properties that are a number of variable length, and a pair of texts. The others are texts."""
OLD_CODES = {
    1: "unacceptable protocol version",
    2: "identifier rejected",
    3: "server unavailable",
    4: "bad user name or password",
    5: "not authorized",
}
"""Codes of CONNACK before MQTT 5."""
CODES = {
    0x80: "unspecified error",
    0x81: "malformed packet",
    0x82: "protocol error",
    0x83: "implementation specific error",
    0x84: "unsupported protocol version",
    0x85: "client identifier not valid",
    0x86: "bad user name or password",
    0x87: "not authorized",
    0x88: "server unavailable",
    0x89: "server busy",
    0x8A: "banned",
    0x8B: "server shutting down",
    0x8F: "topic filter invalid",
    0x90: "topic name invalid",
    0x93: "receive maximum exceeded",
    0x95: "packet too large",
    0x97: "quota exceeded",
    0x99: "payload format invalid",
    0x9A: "retain not supported",
    0x9B: "QoS not supported",
}
"""Reason codes of MQTT 5."""

FailureKind = Literal["refused", "closed", "silent", "invalid"]


class RequestError(Exception):
    """A request without the answer that was asked for: the text is a sentence about the broker."""

    def __init__(self, kind: FailureKind, text: str, code: int = 0) -> None:
        super().__init__(f"the broker {text}")
        self.kind, self.code = kind, code


class UnreachableError(Exception):
    """The broker accepts no connection: the text is a sentence about the broker."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A broker, and the login of its clients."""

    host: str
    port: int
    username: str | None = None
    password: str | None = None

    @property
    def login(self) -> list[bytes]:
        """User name and password, if there are any, as clients send them."""
        texts = (self.username, self.password)
        return [each.encode(errors="surrogateescape") for each in texts if each is not None]


@dataclass(frozen=True, slots=True)
class RawConnect:
    """Content of CONNECT beside the login. Each session begins anew."""

    client_id: bytes
    version: int
    keep_alive_s: int = 60
    session_expiry_s: int | None = None


@dataclass(frozen=True, slots=True)
class RawMessage:
    """A message that a client sends or receives."""

    topic: bytes
    payload: bytes
    qos: int = 0
    retain: bool = False


@dataclass(frozen=True, slots=True)
class RawPacket:
    """A packet that a client received."""

    kind: int
    packet_id: int = 0
    codes: bytes = b""
    message: RawMessage | None = None


@dataclass
class RawClient:
    """A client that is connected."""

    reader: StreamReader
    writer: StreamWriter
    version: int
    properties: Mapping[int, int | bytes] = field(default_factory=dict)
    """Properties of the CONNACK by identifier."""
    filters: set[bytes] = field(default_factory=set)
    """Filters that the broker has granted."""
    _last_id: int = 0

    async def handshake(self, opening: RawConnect, peer: Peer) -> None:
        """Sends CONNECT and reads CONNACK; raises RequestError if the broker refuses."""
        await self.send(connect_packet(opening, peer))
        first, body = await self._read()
        if first != CONNACK << 4 or len(body) < 2:
            raise RequestError("invalid", "answered CONNECT with no CONNACK")
        if body[1]:
            raise _refusal("CONNACK", body[1])
        if (self.version == MQTT_5) != (len(body) > 2):
            raise RequestError("refused", "answered in another version of MQTT", 0x84)
        if self.version == MQTT_5:
            try:
                self.properties = _Body(body[2:]).properties()
            except ValueError:
                raise _invalid() from None

    async def subscribe(self, filters: Sequence[bytes], qos: int = 0) -> list[int]:
        """Sends a SUBSCRIBE for each filter at once; returns the codes of the answers."""
        ids = [self._next_id() for _ in filters]
        nothing = b"\0" if self.version == MQTT_5 else b""
        await self.send(
            b"".join(
                packet(SUBSCRIBE << 4 | 2, _u16(number) + nothing + _text(each) + bytes((qos,)))
                for number, each in zip(ids, filters, strict=True)
            )
        )
        codes: dict[int, int] = {}

        def is_last(received: RawPacket) -> bool:
            if received.kind == SUBACK and received.codes:
                codes[received.packet_id] = received.codes[0]
            return len(codes) == len(ids)

        await self.until(is_last)
        if not set(ids) <= set(codes):
            raise RequestError("invalid", "answered a SUBSCRIBE that was not sent")
        granted = [codes[number] for number in ids]
        self.filters.update(
            each for each, code in zip(filters, granted, strict=True) if code < REFUSES
        )
        return granted

    async def publish(self, *messages: RawMessage) -> None:
        """Sends messages, and awaits no answer."""
        await self.send(
            b"".join(
                publish_packet(each, self.version, self._next_id() if each.qos else 0)
                for each in messages
            )
        )

    async def ping(self) -> None:
        """Returns when the broker has taken all packets before."""
        await self.send(packet(PINGREQ << 4, b""))
        await self.until(lambda received: received.kind == PINGRESP)

    async def until(self, is_last: Callable[[RawPacket], bool]) -> RawPacket:
        """Returns the first packet that is the last; raises RequestError like `receive`, and if the
        broker sends others only."""
        try:
            async with asyncio.timeout(REQUEST_S):
                while not is_last(received := await self.receive()):
                    pass
                return received
        except TimeoutError:
            raise RequestError("silent", f"did not answer in {REQUEST_S:g} s") from None

    async def send(self, data: bytes) -> None:
        """Writes packets; raises RequestError if the broker does not take them."""
        self.writer.write(data)
        try:
            async with asyncio.timeout(ANSWER_S):
                await self.writer.drain()
        except TimeoutError:
            raise _silent() from None
        except OSError:
            # A broker may say why before it closes the connection: the next read shows it.
            return

    async def receive(self) -> RawPacket:
        """Returns the next packet, with acknowledgements sent. Raises RequestError if the broker
        ends the connection, or refuses a message."""
        first, body = await self._read()
        try:
            received = self._parsed(first, _Body(body))
        except ValueError:
            raise _invalid() from None
        match received.kind:
            case 3 if received.message is not None and received.message.qos:
                answer = PUBACK if received.message.qos == 1 else PUBREC
                await self.send(packet(answer << 4, _u16(received.packet_id)))
            case 4 | 5 if received.codes and received.codes[0] >= REFUSES:
                raise _refusal("PUBACK" if received.kind == PUBACK else "PUBREC", received.codes[0])
            case 5:
                await self.send(packet(PUBREL << 4 | 2, _u16(received.packet_id)))
            case 6:
                await self.send(packet(PUBCOMP << 4, _u16(received.packet_id)))
            case 14:
                code = received.codes[0] if received.codes else 0
                raise RequestError("closed", f"sent DISCONNECT {named_code(code)}", code)
        return received

    def leave(self, session_expiry_s: int | None = None) -> None:
        """Sends DISCONNECT, and closes the connection without a wait."""
        body = b""
        if session_expiry_s is not None:
            body = b"\0" + _session_expiry(session_expiry_s)
        self.writer.write(packet(DISCONNECT << 4, body))
        if self.writer.transport.get_write_buffer_size():
            self.writer.transport.abort()
        self.writer.close()

    async def _read(self) -> tuple[int, bytes]:
        """Returns the first byte and the body of a packet."""
        try:
            async with asyncio.timeout(ANSWER_S):
                first, *_ = await self.reader.readexactly(1)
                length = shift = 0
                more = True
                while more and shift < 28:
                    byte, *_ = await self.reader.readexactly(1)
                    length, shift, more = length | (byte & 127) << shift, shift + 7, byte > 127
                if more or length > READ_BYTES_MAX or not first >> 4:
                    raise _invalid()
                return first, await self.reader.readexactly(length)
        except TimeoutError:
            raise _silent() from None
        except (OSError, asyncio.IncompleteReadError):
            raise _closed() from None

    def _parsed(self, first: int, body: _Body) -> RawPacket:
        """Returns a packet; raises ValueError if its body is too short."""
        kind, is_5 = first >> 4, self.version == MQTT_5
        if kind == PUBLISH:
            topic, qos = body.text(), first >> 1 & 3
            number = body.number(2) if qos else 0
            if is_5:
                body.properties()
            return RawPacket(
                kind, number, b"", RawMessage(topic, body.rest(), qos, bool(first & 1))
            )
        if kind in (PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK):
            number = body.number(2)
            if is_5 and kind == SUBACK:
                body.properties()
            return RawPacket(kind, number, body.rest())
        if kind in (PINGRESP, DISCONNECT, AUTH):
            return RawPacket(kind, 0, body.rest())
        raise ValueError

    def _next_id(self) -> int:
        self._last_id = self._last_id % 0xFFFF + 1
        return self._last_id


@asynccontextmanager
async def connected(peer: Peer, opening: RawConnect) -> AsyncIterator[RawClient]:
    """Connects a client, which leaves at the end. Raises UnreachableError if there is no
    connection, and RequestError if the broker refuses the client."""
    client = await connect(peer, opening)
    try:
        yield client
    finally:
        client.leave()


async def connect(peer: Peer, opening: RawConnect) -> RawClient:
    """Returns a client that is connected; raises like `connected`."""
    if any(len(each) > TEXT_BYTES_MAX for each in peer.login):
        raise UnreachableError(f"takes no user name or password over {TEXT_BYTES_MAX:,} bytes")
    try:
        async with asyncio.timeout(ANSWER_S):
            reader, writer = await asyncio.open_connection(peer.host, peer.port, limit=1 << 20)
    except TimeoutError:
        raise UnreachableError(f"accepted no connection in {ANSWER_S:g} s") from None
    except (OSError, ValueError, OverflowError) as error:
        raise UnreachableError(f"cannot be reached: {_reason(error)}") from None
    client = RawClient(reader, writer, opening.version)
    try:
        await client.handshake(opening, peer)
    except BaseException:
        writer.transport.abort()
        raise
    return client


class _Body:
    """The bytes of a packet that are not parsed yet."""

    def __init__(self, body: bytes) -> None:
        self._body, self._at = body, 0

    def take(self, count: int) -> bytes:
        """Returns bytes; raises ValueError if there are fewer."""
        self._at += count
        if self._at > len(self._body):
            raise ValueError
        return self._body[self._at - count : self._at]

    def number(self, count: int) -> int:
        """Returns a number of `count` bytes."""
        return int.from_bytes(self.take(count))

    def text(self) -> bytes:
        """Returns bytes after their length."""
        return self.take(self.number(2))

    def variable(self) -> int:
        """Returns a number of variable length."""
        value = shift = 0
        while (byte := self.number(1)) > 127 and shift < 21:
            value, shift = value | (byte & 127) << shift, shift + 7
        return value | byte << shift

    def rest(self) -> bytes:
        """Returns all bytes that are left."""
        return self.take(len(self._body) - self._at)

    def properties(self) -> dict[int, int | bytes]:
        """Returns properties by identifier."""
        part, found = _Body(self.take(self.variable())), dict[int, int | bytes]()
        while part._at < len(part._body):
            name = part.variable()
            if length := PROPERTY_BYTES.get(name):
                found[name] = part.number(length)
            elif name == VARIABLE:
                found[name] = part.variable()
            else:
                found[name] = part.text()
                if name == PAIR:
                    part.text()
        return found


def connect_packet(opening: RawConnect, peer: Peer) -> bytes:
    """Returns a CONNECT of a client whose session begins anew."""
    name = b"MQIsdp" if opening.version == MQTT_3_1 else b"MQTT"
    flags = 2 | (peer.username is not None) << 7 | (peer.password is not None) << 6
    body = _text(name) + bytes((opening.version, flags)) + _u16(opening.keep_alive_s)
    if opening.version == MQTT_5:
        body += _session_expiry(opening.session_expiry_s)
    body += _text(opening.client_id) + b"".join(map(_text, peer.login))
    return packet(CONNECT << 4, body)


def publish_packet(message: RawMessage, version: int, packet_id: int) -> bytes:
    """Returns a PUBLISH."""
    head = _text(message.topic) + (_u16(packet_id) if message.qos else b"")
    if version == MQTT_5:
        head += b"\0"
    return packet(PUBLISH << 4 | message.qos << 1 | message.retain, head + message.payload)


def packet(first: int, body: bytes) -> bytes:
    """Returns a packet."""
    return bytes((first,)) + variable_length(len(body)) + body


def variable_length(number: int) -> bytes:
    """Returns a number in one to four bytes."""
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes((*encoded, number))


def _session_expiry(interval_s: int | None) -> bytes:
    """Returns the properties with this Session Expiry Interval; None: without it."""
    return b"\0" if interval_s is None else bytes((5, SESSION_EXPIRY)) + interval_s.to_bytes(4)


def _text(text: bytes) -> bytes:
    return _u16(len(text)) + text


def _u16(number: int) -> bytes:
    return number.to_bytes(2)


def _reason(error: OSError | ValueError | OverflowError) -> str:
    """Returns the reason of a failed connection, without addresses."""
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return str(error.strerror if isinstance(error, OSError) else error).lower()


def named_code(code: int) -> str:
    """Returns a code with its name."""
    name = CODES.get(code) or OLD_CODES.get(code)
    return f"0x{code:02X} ({name})" if name else f"0x{code:02X}"


def _refusal(kind: str, code: int) -> RequestError:
    return RequestError("refused", f"answered {kind} {named_code(code)}", code)


def _silent() -> RequestError:
    return RequestError("silent", f"did not answer in {ANSWER_S:g} s")


def _closed() -> RequestError:
    return RequestError("closed", "closed the connection")


def _invalid() -> RequestError:
    return RequestError("invalid", "sent bytes that are no packet of MQTT")
