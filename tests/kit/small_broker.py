"""A broker of MQTT 3.1.1 that does one thing wrong, or costs what is known. Start it with
`python -m tests.kit.small_broker PORT FAULTS`, with the faults as JSON. It keeps no sessions and
publishes no wills; topic filters end with `#`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from tests.kit.relay import serving

DISCONNECT = 14
LATE_MESSAGES = 10
ACKNOWLEDGED = 2
"""Bits of a PUBLISH with QoS 1."""


@dataclass(frozen=True)
class Faults:
    """Things that the broker does wrong. The defaults are right."""

    acknowledges: bool = True
    lose: int = 0
    """Of so many messages it forwards all but the last."""
    repeat: int = 0
    """Of so many messages it forwards the last one twice."""
    work_s: float = 0.0
    """Time for which it does nothing else at each message."""
    every_s: float = 0.0
    """Time between two messages that it takes, however long it works on them."""
    hold_s: float = 0.0
    """Time for which it holds each message."""
    client_bytes: int = 0
    """Memory that it takes for each client, and keeps until the client ends."""


class Broker:
    """Forwards the messages of all clients to all subscribers."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._filters: dict[asyncio.StreamWriter, list[bytes]] = {}
        self._published = 0
        self._free_s = time.monotonic()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves a client until it ends."""
        taken = b"x" * self._faults.client_bytes
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while (packet := await packet_of(reader))[0] >> 4 != DISCONNECT:
                self._answer(*packet, writer)
                await writer.drain()
        del taken
        self._filters.pop(writer, None)
        writer.close()

    def _answer(self, first: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        match first >> 4:
            case 1:  # CONNECT
                writer.write(b"\x20\x02\x00\x00")
            case 8:  # SUBSCRIBE
                filters = [*filters_in(body[2:])]
                self._filters.setdefault(writer, []).extend(filters)
                writer.write(bytes((0x90, 2 + len(filters))) + body[:2] + bytes(len(filters)))
            case 12:  # PINGREQ
                writer.write(b"\xd0\x00")
            case 3:  # PUBLISH
                self._take(first, body, writer)

    def _take(self, first: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        time.sleep(self._faults.work_s)
        # It makes up for what it is late by, up to a few messages.
        earliest_s = time.monotonic() - LATE_MESSAGES * self._faults.every_s
        self._free_s = max(self._free_s, earliest_s) + self._faults.every_s
        time.sleep(max(self._free_s - time.monotonic(), 0.0))
        end = 2 + int.from_bytes(body[:2])
        topic, rest = body[2:end], body[end:]
        if first & ACKNOWLEDGED:
            if self._faults.acknowledges:
                writer.write(b"\x40\x02" + rest[:2])
            rest = rest[2:]
        self._published += 1
        copies = 1
        if self._faults.lose and self._published % self._faults.lose == 0:
            copies = 0
        if self._faults.repeat and self._published % self._faults.repeat == 0:
            copies = 2
        for _ in range(copies):
            asyncio.get_running_loop().call_later(self._faults.hold_s, self._forward, topic, rest)

    def _forward(self, topic: bytes, payload: bytes) -> None:
        for writer, filters in self._filters.items():
            if any(topic.startswith(each.removesuffix(b"#")) for each in filters):
                body = len(topic).to_bytes(2) + topic + payload
                writer.write(b"\x30" + length_of(body) + body)


async def packet_of(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Returns the first byte and the body of a packet."""
    first, *_ = await reader.readexactly(1)
    length, shift, more = 0, 0, True
    while more:
        byte, *_ = await reader.readexactly(1)
        length, shift, more = length | (byte & 127) << shift, shift + 7, byte > 127
    return first, await reader.readexactly(length)


def length_of(body: bytes) -> bytes:
    """Returns the remaining length of a packet, encoded."""
    left, encoded = len(body), bytearray()
    while left > 127:
        encoded.append(left & 127 | 128)
        left >>= 7
    return bytes((*encoded, left))


def filters_in(body: bytes) -> Iterator[bytes]:
    """Yields the topic filters of a SUBSCRIBE."""
    while body:
        end = 2 + int.from_bytes(body[:2])
        yield body[2:end]
        body = body[end + 1 :]


async def main(port: int, faults: Faults) -> None:
    """Serves for ever."""
    server = await asyncio.start_server(Broker(faults).serve, "127.0.0.1", port, backlog=512)
    print("ready", flush=True)
    await server.serve_forever()


@contextlib.contextmanager
def small_broker(port: int, faults: Faults) -> Iterator[None]:
    """Starts a broker, which is gone afterwards."""
    with serving("tests.kit.small_broker", port, json.dumps(asdict(faults))):
        yield


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Faults(**json.loads(sys.argv[2]))))
