"""Bytes on the wire for packets of MQTT, each in a segment of its own, as the clients of a plan
send them. TCP over IPv4 and Ethernet, as the counters of an interface count."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from pubstorm.contract.offered_load import Opening

SEGMENT = 66
"""Headers of Ethernet (14), IPv4 (20) and TCP with time stamps (32): also what an acknowledgement
takes."""
HANDSHAKE_SEGMENT = 74
"""A SYN and its answer, with more options."""
PAYLOAD_MAX = 1448
"""Payload of a segment if a packet of the network has 1500 bytes."""
ACK, PING = 4, 2
"""PUBACK, PUBREC, PUBREL, PUBCOMP and CONNACK; PINGREQ and PINGRESP."""
TLS_RECORD = 22
"""Bytes that TLS 1.3 adds to a packet."""
FRAME = 8
"""Bytes that WebSocket adds to a packet at most, up to 64 KiB."""
UPGRADE = (240, 160)
"""Bytes of the request that opens a WebSocket, and of the answer."""


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes that a client sends and receives."""

    out: float
    into: float

    def times(self, number: float) -> Bytes:
        """So many of them."""
        return Bytes(self.out * number, self.into * number)

    def plus(self, other: Bytes) -> Bytes:
        """Both."""
        return Bytes(self.out + other.out, self.into + other.into)

    def turned(self) -> Bytes:
        """The same from the other end."""
        return Bytes(self.into, self.out)


@dataclass(frozen=True, slots=True)
class Layers:
    """Protocols between TCP and MQTT."""

    tls: bool = False
    websocket: bool = False

    @property
    def packet(self) -> int:
        """Bytes that they add to a packet."""
        return self.tls * TLS_RECORD + self.websocket * FRAME

    @property
    def opening(self) -> Bytes:
        """Bytes of their handshakes."""
        tls = Bytes(*TLS_HANDSHAKE).times(self.tls)
        segments = Bytes(UPGRADE[0] + SEGMENT, UPGRADE[1] + SEGMENT)
        return tls.plus(segments.times(self.websocket))


PLAIN = Layers()
"""MQTT directly over TCP."""
TLS_HANDSHAKE = (1_000, 4_000)
"""Bytes that a client sends and receives; a high estimate, for certificates."""


def message(publish: float, qos: int, layers: Layers = PLAIN) -> Bytes:
    """Bytes of a message and all answers to it, at the sending end; `publish`: its PUBLISH."""
    size = publish + layers.packet
    segments = ceil(size / PAYLOAD_MAX)
    alone = Bytes(size + SEGMENT * segments, SEGMENT * ceil(segments / 2))
    answer = SEGMENT + ACK + layers.packet
    match qos:
        case 0:
            return alone
        case 1:
            # The PUBACK carries TCP's acknowledgement, and has one of its own.
            return Bytes(alone.out + SEGMENT, answer)
        case _:
            return Bytes(alone.out + answer + SEGMENT, 2 * answer)


def ping(layers: Layers = PLAIN) -> Bytes:
    """A keep-alive: PINGREQ, PINGRESP and TCP's acknowledgement of that."""
    size = PING + SEGMENT + layers.packet
    return Bytes(size + SEGMENT, size)


def requests(number: float, sent: Bytes, layers: Layers = PLAIN) -> Bytes:
    """Bytes of `number` requests with an answer each, `sent` bytes of MQTT in all. The answer
    carries TCP's acknowledgement, and has one of its own."""
    each = Bytes(2 * SEGMENT + layers.packet, SEGMENT + layers.packet)
    return each.times(number).plus(sent)


def connection(opening: Opening, layers: Layers = PLAIN) -> Bytes:
    """Bytes of a connection from SYN to SUBACK, or to CONNACK without filters."""
    added = layers.packet
    out = HANDSHAKE_SEGMENT + SEGMENT + SEGMENT + opening.connect_bytes + added + SEGMENT
    # A new connection is acknowledged at once, before the CONNACK.
    into = HANDSHAKE_SEGMENT + SEGMENT + SEGMENT + ACK + added
    if opening.subscribe_bytes:
        out += SEGMENT + opening.subscribe_bytes + added + SEGMENT
        into += SEGMENT + opening.suback_bytes + added
    return Bytes(out, into).plus(layers.opening)
