"""Captures of packets, written segment by segment: Ethernet, IPv4 and TCP in the format of pcap."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SERVER, PORT = b"\x0a\0\0\x01", 1883
MAGIC_NS = 0xA1B23C4D
"""Magic number of pcap with instants in nanoseconds."""


@dataclass(frozen=True)
class Segment:
    """Bytes of one direction of a connection."""

    at_ns: int
    client: int
    """Number of the connection."""
    offset: int
    """Place of the first byte in its direction."""
    data: bytes
    to_server: bool = True
    ends: bool = False
    """True for the segment that ends its direction (FIN)."""


def segments(
    at_ns: int, client: int, packets: Sequence[bytes], most: int, to_server: bool = True
) -> list[Segment]:
    """Returns the bytes of packets of MQTT in segments of at most so many bytes, 1 µs apart."""
    data = b"".join(packets)
    starts = range(0, len(data), most)
    return [
        Segment(at_ns + 1000 * n, client, start, data[start : start + most], to_server)
        for n, start in enumerate(starts)
    ]


def write_pcap(path: Path, found: Sequence[Segment]) -> Path:
    """Writes segments in this order, each connection after its handshake."""
    frames, opened = list[tuple[int, bytes]](), set[int]()
    for segment in found:
        if segment.client not in opened:
            opened.add(segment.client)
            for to_server, flags in ((True, 0x02), (False, 0x12), (True, 0x10)):
                frames.append((segment.at_ns, _frame(segment.client, to_server, -1, flags)))
        frames.append(
            (
                segment.at_ns,
                _frame(
                    segment.client,
                    segment.to_server,
                    segment.offset,
                    0x11 if segment.ends else 0x18,
                    segment.data,
                ),
            )
        )
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", MAGIC_NS, 2, 4, 0, 0, 262_144, 1))
        for at_ns, frame in frames:
            head = (at_ns // 10**9, at_ns % 10**9, len(frame), len(frame))
            file.write(struct.pack("<IIII", *head) + frame)
    return path


@dataclass(frozen=True)
class CapturedFrame:
    """A frame of a file in the format of pcap."""

    head: bytes
    """Instant: seconds and their fraction."""
    data: bytes
    """Bytes that the file has."""
    length: int
    """Bytes on the wire."""


def read_pcap(content: bytes) -> tuple[bytes, list[CapturedFrame]]:
    """Returns the header of a file, and its frames."""
    frames, at = list[CapturedFrame](), 24
    while at < len(content):
        kept, length = struct.unpack_from("<II", content, at + 8)
        frames.append(
            CapturedFrame(content[at : at + 8], content[at + 16 : at + 16 + kept], length)
        )
        at += 16 + kept
    return content[:24], frames


def pcap_bytes(header: bytes, frames: Sequence[CapturedFrame]) -> bytes:
    """Returns the content of a file with these frames."""
    parts = (
        each.head + struct.pack("<II", len(each.data), each.length) + each.data for each in frames
    )
    return header + b"".join(parts)


def _frame(client: int, to_server: bool, offset: int, flags: int, data: bytes = b"") -> bytes:
    address, port = b"\x0a\0\1" + bytes([client % 256]), 20_000 + client
    ends = (address, SERVER) if to_server else (SERVER, address)
    ports = (port, PORT) if to_server else (PORT, port)
    sequence = 1000 + (0 if flags & 2 else 1 + max(offset, 0))
    acknowledged = 0 if flags == 0x02 else 1001
    tcp = struct.pack("!HHIIBBHHH", *ports, sequence, acknowledged, 0x50, flags, 65_535, 0, 0)
    total = 20 + len(tcp) + len(data)
    ip = struct.pack("!BBHHHBBH", 0x45, 0, total, 0, 0, 64, 6, 0) + ends[0] + ends[1]
    return bytes(12) + b"\x08\x00" + ip + tcp + data


def connect(identity: str, version: int = 4) -> bytes:
    """Returns a CONNECT."""
    properties = b"\0" if version == 5 else b""
    body = b"\0\4MQTT" + bytes([version, 2, 0, 30]) + properties + _text(identity)
    return _packet(0x10, body)


def publish(topic: str, payload: bytes, qos: int = 0, flags: int = 0, v5: bool = False) -> bytes:
    """Returns a PUBLISH; `flags` are further bits of its first byte."""
    identifier = b"\0\7" if qos else b""
    body = _text(topic) + identifier + (b"\0" if v5 else b"") + payload
    return _packet(0x30 | qos << 1 | flags, body)


def subscribe(filters: Sequence[tuple[str, int]]) -> bytes:
    """Returns a SUBSCRIBE."""
    return _packet(0x82, b"\0\1" + b"".join(_text(f) + bytes([qos]) for f, qos in filters))


DISCONNECT = b"\xe0\0"


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("!H", len(encoded)) + encoded


def _packet(first: int, body: bytes) -> bytes:
    length, rest = b"", len(body)
    while True:
        rest, digit = rest >> 7, rest & 127
        length += bytes([digit | (128 if rest else 0)])
        if not rest:
            return bytes([first]) + length + body
