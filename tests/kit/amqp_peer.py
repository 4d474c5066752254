"""A fake server of AMQP 0-9-1, for breaches that no real server commits. It answers each request as
a broker does, carries each message to the consumer of the same connection and confirms it. At one
request it breaches the protocol instead. pika encodes and decodes its frames."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pika import spec
from pika.amqp_object import Method
from pika.frame import Body, Header, Heartbeat, ProtocolHeader, decode_frame
from pika.frame import Method as MethodFrame

from tests.kit.ports import free_port

HEADER = "header"
"""The first bytes of a client, as a request."""
CHUNK_BYTES = 65536
START = spec.Connection.Start(0, 9, {"product": "peer"}, "PLAIN AMQPLAIN", "en_US")
TUNE = spec.Connection.Tune(2047, 131_072, 60)
ANSWERS: dict[str, Method] = {
    "Connection.Open": spec.Connection.OpenOk(),
    "Channel.Open": spec.Channel.OpenOk(),
    "Confirm.Select": spec.Confirm.SelectOk(),
    "Exchange.Declare": spec.Exchange.DeclareOk(),
    "Queue.Declare": spec.Queue.DeclareOk("q", 0, 0),
    "Queue.Bind": spec.Queue.BindOk(),
    "Basic.Qos": spec.Basic.QosOk(),
    "Basic.Consume": spec.Basic.ConsumeOk("0"),
    "Channel.Close": spec.Channel.CloseOk(),
}
"""Answers to requests, by their names."""


class EndedError(Exception):
    """The peer ends a connection."""


@dataclass
class Connection:
    """The connection of a client."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    published: int = 0
    """Messages that the client has sent, with the present one."""
    routing: tuple[str, str] = ("", "")
    """Exchange and key of the last message."""
    body: bytes = b""
    """Payload of the last message."""
    is_mute: bool = False
    """True if the peer answers nothing more."""
    is_deaf: bool = False
    """True if the peer reads nothing more."""

    async def send(self, *parts: bytes | Method, channel: int = 1) -> None:
        """Sends bytes as they are, and methods on a channel."""
        self.writer.write(
            b"".join(part if isinstance(part, bytes) else framed(part, channel) for part in parts)
        )
        await self.writer.drain()

    async def carry(self) -> None:
        """Delivers the last message, and confirms it."""
        await self.send(self.delivery(), spec.Basic.Ack(self.published))

    def delivery(
        self,
        *,
        tag: str = "0",
        channel: int = 1,
        size: int | None = None,
        body: bytes | None = None,
    ) -> bytes:
        """Returns the frames of a delivery of the last message. `size` is that in its header."""
        deliver = framed(spec.Basic.Deliver(tag, self.published, False, *self.routing), channel)
        return deliver + content(self.body if body is None else body, channel, size)

    def close(self) -> None:
        """Ends the connection without a word."""
        raise EndedError


Act = Callable[[Connection], Awaitable[None]]


def framed(method: Method, channel: int = 1) -> bytes:
    """Returns the frame of a method."""
    number = 0 if method.NAME.startswith("Connection.") else channel
    return bytes(MethodFrame(number, method).marshal())


def raw(kind: int, channel: int, payload: bytes, end: int = 206, size: int | None = None) -> bytes:
    """Returns a frame whose parts may be wrong."""
    length = len(payload) if size is None else size
    return struct.pack(">BHI", kind, channel, length) + payload + bytes([end])


def content(body: bytes, channel: int = 1, size: int | None = None) -> bytes:
    """Returns the header and the body of a message."""
    length = len(body) if size is None else size
    header = struct.pack(">HHQH", 60, 0, length, 0)
    return raw(2, channel, header) + (raw(3, channel, body) if body else b"")


@dataclass(frozen=True)
class Breach:
    """The one thing that a peer does wrong."""

    name: str
    when: str
    """Name of the request that it answers so, as pika writes it; `HEADER` for the first bytes."""
    act: Act | bytes | Sequence[Method]
    """Answer instead of the right one: a function, bytes, or methods on channel 1."""
    after: int = 3
    """Message of a connection from which on it breaches, if the request is `Basic.Publish`."""


@dataclass
class AmqpPeer:
    """Serves clients, and breaches the protocol."""

    breach: Breach | None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves a client until one side ends the connection."""
        connection = Connection(reader, writer)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            with contextlib.suppress(EndedError):
                await self._serve(connection)
            # Closed with unread bytes, a socket resets its connection.
            writer.write_eof()
            while await reader.read(CHUNK_BYTES):
                pass
        writer.close()

    async def _serve(self, connection: Connection) -> None:
        received = b""
        missing: dict[int, int] = {}
        while data := await connection.reader.read(CHUNK_BYTES):
            received += data
            if received == b"AMQP\0\0\x09\x01":
                received = b""
                await self._answer(connection, HEADER, 0)
                continue
            while (decoded := decode_frame(received))[1] is not None:
                received = received[decoded[0] :]
                await self._take(connection, decoded[1], missing)
            while connection.is_deaf:
                await asyncio.sleep(0.1)

    async def _take(self, connection: Connection, frame: Any, missing: dict[int, int]) -> None:
        match frame:
            case MethodFrame():
                name = frame.method.NAME
                if name == "Connection.Close":
                    await connection.send(spec.Connection.CloseOk())
                    connection.close()
                if name == "Basic.Publish":
                    connection.routing = (frame.method.exchange, frame.method.routing_key)
                else:
                    await self._answer(connection, name, frame.channel_number)
            case Header():
                connection.body = b""
                missing[0] = frame.body_size
            case Body():
                connection.body += frame.fragment
                missing[0] -= len(frame.fragment)
            case Heartbeat() | ProtocolHeader():
                pass
        if isinstance(frame, Header | Body) and missing[0] == 0:
            connection.published += 1
            await self._answer(connection, "Basic.Publish", frame.channel_number)

    async def _answer(self, connection: Connection, name: str, channel: int) -> None:
        breach = self.breach
        if connection.is_mute:
            return
        is_message = name == "Basic.Publish"
        if (
            breach is None
            or name != breach.when
            or (is_message and connection.published < breach.after)
        ):
            await self._answer_rightly(connection, name, channel)
        elif callable(breach.act):
            await breach.act(connection)
        elif isinstance(breach.act, bytes):
            await connection.send(breach.act)
        else:
            await connection.send(*breach.act, channel=channel or 1)

    async def _answer_rightly(self, connection: Connection, name: str, channel: int) -> None:
        if name == HEADER:
            await connection.send(START)
        elif name == "Connection.StartOk":
            await connection.send(TUNE)
        elif name == "Basic.Publish":
            await connection.carry()
        elif name in ANSWERS:
            await connection.send(ANSWERS[name], channel=channel)


@contextlib.contextmanager
def amqp_peers(breaches: Sequence[Breach | None]) -> Iterator[list[int]]:
    """Starts a peer for each breach, all in one thread; yields their ports."""
    loop = asyncio.new_event_loop()
    ports = [free_port() for _ in breaches]
    servers: list[asyncio.Server] = []

    async def start() -> None:
        for breach, port in zip(breaches, ports, strict=True):
            server = await asyncio.start_server(AmqpPeer(breach).serve, "127.0.0.1", port)
            servers.append(server)

    async def stop() -> None:
        for server in servers:
            server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield ports
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
