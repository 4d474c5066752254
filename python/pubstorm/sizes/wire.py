"""Bytes on the wire for packets of MQTT that go alone: each in a segment of its own, as the clients
of a plan send them. TCP over IPv4 and Ethernet, as the counters of an interface count. It knows no
plan."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

SEGMENT = 66
"""Headers of Ethernet (14), IPv4 (20) and TCP with time stamps (32): also what an acknowledgement
takes."""
HANDSHAKE_SEGMENT = 74
"""A SYN and its answer, with more options."""
PAYLOAD_MAX = 1448
"""What a segment carries where a packet of the network has 1500 bytes."""
ACK, PING = 4, 2
"""PUBACK, PUBREC, PUBREL, PUBCOMP and CONNACK; PINGREQ and PINGRESP."""
TLS_RECORD = 22
"""What TLS 1.3 adds to a packet."""
TLS_HANDSHAKE = (1_000, 4_000)
"""What a client sends and gets; a rule on the high side, for certificates."""


@dataclass(frozen=True, slots=True)
class Bytes:
    """What goes out from a client, and what comes in."""

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


def publish_bytes(topic: int, payload: float) -> float:
    """A PUBLISH at QoS 0 with a topic and payload of so many bytes; others have two more."""
    rest = 2 + topic + payload
    length = next((n for n in (1, 2, 3) if rest < 128**n), 4)
    return 1 + length + rest


def message(publish: float, qos: int, *, tls: bool) -> Bytes:
    """A message and all that answers it, from the end that sends it."""
    secure = TLS_RECORD if tls else 0
    size = publish + (2 if qos else 0) + secure
    segments = ceil(size / PAYLOAD_MAX)
    alone = Bytes(size + SEGMENT * segments, SEGMENT * ceil(segments / 2))
    answer = SEGMENT + ACK + secure
    match qos:
        case 0:
            return alone
        case 1:
            # The PUBACK carries TCP's acknowledgement, and has one of its own.
            return Bytes(alone.out + SEGMENT, answer)
        case _:
            return Bytes(alone.out + answer + SEGMENT, 2 * answer)


def ping(*, tls: bool) -> Bytes:
    """A keep-alive: PINGREQ, PINGRESP and TCP's acknowledgement of that."""
    size = PING + SEGMENT + (TLS_RECORD if tls else 0)
    return Bytes(size + SEGMENT, size)


def connection(connect: float, subscribe: float, filters: int, *, tls: bool) -> Bytes:
    """A connection from SYN to SUBACK, with a CONNECT and SUBSCRIBE of so many bytes; 0 filters: it
    subscribes to nothing."""
    secure = TLS_RECORD if tls else 0
    out = HANDSHAKE_SEGMENT + SEGMENT + SEGMENT + connect + secure + SEGMENT
    # A new connection is acknowledged at once, before the CONNACK.
    into = HANDSHAKE_SEGMENT + SEGMENT + SEGMENT + ACK + secure
    if filters:
        out += SEGMENT + subscribe + secure + SEGMENT
        into += SEGMENT + 4 + filters + secure
    if tls:
        out, into = out + TLS_HANDSHAKE[0], into + TLS_HANDSHAKE[1]
    return Bytes(out, into)
