"""A broker with known limits, inside this process: it takes bytes as they are written, and answers
into a reader. It can end a connection, freeze, send garbage or die at the n-th packet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal

from tests.kit.small_broker import filters_in, length_of

Refusal = Literal["closes", "says why"]
Fault = Literal["closes", "freezes", "freezes all", "dies", "garbage", "half a packet", "chatters"]
FAULTS: tuple[Fault, ...] = (
    "closes",
    "freezes",
    "freezes all",
    "dies",
    "garbage",
    "half a packet",
    "chatters",
)
CONNECT, PUBLISH, PUBREC, PUBREL, SUBSCRIBE, PINGREQ, DISCONNECT = 1, 3, 5, 6, 8, 12, 14
WITH_FOUR_BYTES = b"\x05\x11"
"""A Session Expiry Interval, with the length of the properties."""


@dataclass(frozen=True)
class Rules:
    """Limits and faults of the broker. The defaults are all that the prober asks for."""

    versions: tuple[int, ...] = (3, 4, 5)
    properties: bytes = b""
    """Of CONNACK."""
    password: bytes | None = None
    packet_max: int = 1 << 28
    drops_larger: bool = False
    """Larger packets are dropped, and the connection continues."""
    client_id_max: int = 65_535
    topic_max: int = 65_535
    levels_max: int = 65_535
    subscriptions_max: int = 65_535
    windows_max: int = 65_535
    """Subscriptions of a connection with QoS 1 or 2."""
    qos_max: int = 2
    retains: bool = True
    serves_sys: bool = True
    names_clients: bool = True
    refusal: Refusal = "closes"
    fault: Fault | None = None
    fault_at: int = 0
    """Number of the packet at which the fault begins."""


@dataclass
class LimitedBroker:
    """The broker, and what its clients have left on it."""

    rules: Rules
    packets: int = 0
    retained: dict[bytes, bytes] = field(default_factory=dict)
    sessions: dict[bytes, int] = field(default_factory=dict)
    """Session Expiry Interval of each session that outlives its connection."""
    is_dead: bool = False
    is_frozen: bool = False
    connections: list[Connection] = field(default_factory=list)

    async def open(self, *_: object, **__: object) -> tuple[asyncio.StreamReader, Any]:
        """Opens a connection, in place of `asyncio.open_connection`."""
        if self.is_dead:
            raise ConnectionRefusedError(111, "refused")
        connection = Connection(self, asyncio.StreamReader(limit=1 << 26))
        self.connections.append(connection)
        return connection.reader, connection

    def has_fault(self) -> bool:
        """Counts a packet; returns True if the fault begins."""
        self.packets += 1
        return self.packets == self.rules.fault_at


@dataclass
class Connection:
    """The broker's end of a connection, and the writer of the client."""

    broker: LimitedBroker
    reader: asyncio.StreamReader
    is_open: bool = True
    is_frozen: bool = False
    version: int = 4
    client_id: bytes = b""
    session_expiry_s: int = 0
    subscriptions: dict[bytes, int] = field(default_factory=dict)
    _unread: bytearray = field(default_factory=bytearray)

    @property
    def transport(self) -> SimpleNamespace:
        """The client's transport, which has sent all that was written."""
        return SimpleNamespace(get_write_buffer_size=lambda: 0, abort=self.close)

    async def drain(self) -> None:
        if not self.is_open:
            raise ConnectionResetError

    def write(self, data: bytes) -> None:
        self._unread += data
        while self.is_open and (found := self._next_packet()) is not None:
            self._take(*found)

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self.reader.feed_eof()
            if self.session_expiry_s:
                self.broker.sessions[self.client_id] = self.session_expiry_s

    def _next_packet(self) -> tuple[int, bytes, int] | None:
        """Returns first byte, body and size of a packet; None if it is not there yet."""
        length = shift = 0
        for place, byte in enumerate(self._unread[1:5]):
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                size = 2 + place + length
                if len(self._unread) < size:
                    return None
                first, body = self._unread[0], bytes(self._unread[2 + place : size])
                del self._unread[:size]
                return first, body, size
        return None

    def _take(self, first: int, body: bytes, size: int) -> None:
        rules, broker = self.broker.rules, self.broker
        if broker.has_fault():
            self._break(rules.fault)
        if self.is_frozen or broker.is_frozen or not self.is_open:
            return
        if size > rules.packet_max:
            if not rules.drops_larger:
                self._refuse(0x95)
            elif first >> 4 == PUBLISH and first & 2:
                self._acknowledge(body)
            return
        takers: dict[int, Callable[[int, bytes], None]] = {
            CONNECT: self._connect,
            PUBLISH: self._publish,
            PUBREC: lambda _, body: self._send(0x62, body[:2]),
            PUBREL: lambda _, body: self._send(0x70, body[:2]),
            SUBSCRIBE: self._subscribe,
            PINGREQ: lambda _, __: self._send(0xD0, b""),
            DISCONNECT: self._disconnect,
        }
        if taker := takers.get(first >> 4):
            taker(first, body)

    def _break(self, fault: Fault | None) -> None:
        match fault:
            case "closes":
                self.close()
            case "freezes":
                self.is_frozen = True
            case "freezes all":
                self.broker.is_frozen = True
            case "garbage":
                self.reader.feed_data(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            case "half a packet":
                self.reader.feed_data(b"\x30\xff\xff\x03half")
                self.is_frozen = True
            case "chatters":
                self.is_frozen = True
                self._chatter()
            case "dies":
                self.broker.is_dead = True
                for connection in self.broker.connections:
                    connection.close()
            case None:
                pass

    def _chatter(self) -> None:
        """Sends answers to PINGREQ for ever."""
        if self.is_open:
            self._send(0xD0, b"")
            asyncio.get_running_loop().call_later(1, self._chatter)

    def _connect(self, _: int, body: bytes) -> None:
        rules, end = self.broker.rules, 2 + int.from_bytes(body[:2])
        self.version, flags, rest = body[end], body[end + 1], body[end + 4 :]
        if self.version not in rules.versions:
            self._send(0x20, b"\0\x01")
            self.close()
            return
        if self.version == 5:
            if rest.startswith(WITH_FOUR_BYTES):
                self.session_expiry_s = int.from_bytes(rest[2:6])
            rest = rest[1 + rest[0] :]
        self.client_id, *login = texts_in(rest)
        assert flags & 2, "each session begins anew"
        self.broker.sessions.pop(self.client_id, None)
        code = 0
        if rules.password is not None and login[1:] != [rules.password]:
            code = 0x87 if self.version == 5 else 5
        elif (
            len(self.client_id) > rules.client_id_max
            or len(self.client_id) < 1 - rules.names_clients
        ):
            code = 0x85 if self.version == 5 else 2
        properties = rules.properties if not code else b""
        if self.version == 5 and not self.client_id:
            properties += b"\x12\0\4made"
        self._send(0x20, bytes((0, code)) + self._of_5(bytes((len(properties),)) + properties))
        if code:
            self.session_expiry_s = 0
            self.close()

    def _subscribe(self, _: int, body: bytes) -> None:
        rules = self.broker.rules
        rest = body[2 + len(self._of_5(b"\0")) :]
        (topic,) = filters_in(rest)
        qos, code = rest[-1], 0
        if not self._is_allowed(topic):
            code = 0x8F if self.version == 5 else 0x80
        elif len(self.subscriptions) >= rules.subscriptions_max:
            code = 0x97 if self.version == 5 else 0x80
        elif qos and sum(map(bool, self.subscriptions.values())) >= rules.windows_max:
            code = 0x80
        if code and rules.refusal == "closes":
            self.close()
            return
        granted = code or min(qos, rules.qos_max)
        if granted < 0x80:
            self.subscriptions[topic] = granted
        self._send(0x90, body[:2] + self._of_5(b"\0") + bytes((granted,)))
        if topic in self.broker.retained:
            self._deliver(topic, self.broker.retained[topic], 0, 1)
        if topic == b"$SYS/#" and rules.serves_sys:
            self._deliver(b"$SYS/uptime", b"1", 0, 1)

    def _publish(self, first: int, body: bytes) -> None:
        rules, qos = self.broker.rules, first >> 1 & 3
        end = 2 + int.from_bytes(body[:2])
        topic = body[2:end]
        if not self._is_allowed(topic) or qos > rules.qos_max:
            self._refuse(0x9B if qos > rules.qos_max else 0x90)
            return
        self._acknowledge(body, qos)
        payload = body[end + (2 if qos else 0) + len(self._of_5(b"\0")) :]
        if first & 1 and rules.retains:
            self.broker.retained[topic] = payload
            if not payload:
                del self.broker.retained[topic]
        for connection in self.broker.connections:
            if connection.is_open and topic in connection.subscriptions:
                connection._deliver(topic, payload, min(qos, connection.subscriptions[topic]), 0)

    def _acknowledge(self, body: bytes, qos: int = 1) -> None:
        end = 2 + int.from_bytes(body[:2])
        if qos:
            self._send(0x40 if qos == 1 else 0x50, body[end : end + 2])

    def _deliver(self, topic: bytes, payload: bytes, qos: int, retain: int) -> None:
        number = b"\0\7" if qos else b""
        head = len(topic).to_bytes(2) + topic + number + self._of_5(b"\0")
        self._send(0x30 | qos << 1 | retain, head + payload)

    def _disconnect(self, _: int, body: bytes) -> None:
        if body[1:].startswith(WITH_FOUR_BYTES):
            self.session_expiry_s = int.from_bytes(body[3:7])
        self.close()

    def _is_allowed(self, topic: bytes) -> bool:
        rules = self.broker.rules
        return len(topic) <= rules.topic_max and topic.count(b"/") < rules.levels_max

    def _refuse(self, code: int) -> None:
        if self.version == 5 and self.broker.rules.refusal == "says why":
            self._send(0xE0, bytes((code,)))
        self.close()

    def _of_5(self, data: bytes) -> bytes:
        return data if self.version == 5 else b""

    def _send(self, first: int, body: bytes) -> None:
        if self.is_open:
            self.reader.feed_data(bytes((first,)) + length_of(body) + body)


def texts_in(body: bytes) -> Iterator[bytes]:
    """Yields texts, each with its length before it."""
    while body:
        end = 2 + int.from_bytes(body[:2])
        yield body[2:end]
        body = body[end:]
