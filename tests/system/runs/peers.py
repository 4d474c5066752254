"""Servers of the tests on loopback, for behaviour that no broker at hand has: one plays the
server's side of SCRAM-SHA-256 (RFC 5802, RFC 7677) with `hashlib` and `hmac`."""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import BinaryIO

from tests.system.runs.answering import read_packet

Peer = Callable[[socket.socket], None]

ITERATIONS = 4096
METHOD, DATA = 0x15, 0x16
CONNECT, CONNACK, AUTH = 1, 2, 15
CONTINUE, NOT_AUTHORIZED, BAD_METHOD = 0x18, 0x87, 0x8C
VERSION, NOT_WITH_3_1_1 = 5, b"\x20\x02\x00\x05"


@dataclass
class Server:
    """Accepts clients of MQTT 5 that authenticate, and discards what they publish."""

    passwords: dict[str, str]
    method: str = "SCRAM-SHA-256"
    token: str | None = None
    """Data that CONNECT must begin with, for another method."""
    own_nonce: bool = True
    """False if the server does not continue the nonce of the client."""
    proves: bool = True
    """False if the server signs with another key."""
    received: list[bytes] = field(default_factory=list)

    def __call__(self, connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        packet_type, body = self._read(stream)
        if packet_type != CONNECT or body[6] != VERSION:  # the observer of the controller
            return connection.sendall(NOT_WITH_3_1_1)
        properties = read_properties(body[10:])
        first, last = properties[DATA].decode(), None
        if properties[METHOD] != self.method.encode():
            code = BAD_METHOD
        elif self.token is not None:
            code = 0 if first.startswith(self.token) else NOT_AUTHORIZED
        else:
            last = self._exchange(connection, stream, first)
            code = NOT_AUTHORIZED if last is None else 0
        proof = {} if last is None else {METHOD: self.method, DATA: last}
        send(connection, CONNACK, bytes((0, code)), proof)
        while data := stream.read1(4096):
            self.received.append(data)
        return None

    def _exchange(self, connection: socket.socket, stream: BinaryIO, first: str) -> str | None:
        """Returns the server's final message; None if the client has another password."""
        bare = first.removeprefix("n,,")
        name, nonce = bare.removeprefix("n=").split(",r=")
        salt = hashlib.sha256(name.encode()).digest()[:16]
        nonce = f"{nonce if self.own_nonce else ''}server"
        challenge = f"r={nonce},s={base64.b64encode(salt).decode()},i={ITERATIONS}"
        send(connection, AUTH, bytes((CONTINUE,)), {METHOD: self.method, DATA: challenge})
        packet_type, body = self._read(stream)
        if packet_type != AUTH:
            return None
        answer = read_properties(body[1:])[DATA].decode()
        without_proof, _, proof = answer.rpartition(",p=")
        if without_proof != f"c=biws,r={nonce}":
            return None
        message = f"{bare},{challenge},{without_proof}".encode()
        password = self.passwords.get(name, "").encode()
        salted = hashlib.pbkdf2_hmac("sha256", password, salt, ITERATIONS)
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        signature = hmac.digest(hashlib.sha256(client_key).digest(), message, "sha256")
        expected = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        if base64.b64decode(proof) != expected:
            return None
        key = hmac.digest(salted, b"Server Key" if self.proves else b"Another", "sha256")
        return f"v={base64.b64encode(hmac.digest(key, message, 'sha256')).decode()}"

    def _read(self, stream: BinaryIO) -> tuple[int, bytes]:
        packet_type, body = read_packet(stream)
        self.received.append(body)
        return packet_type, body


def read_properties(data: bytes) -> dict[int, bytes]:
    """Returns the properties in front of the rest of a packet; each has a length of two bytes."""
    found, at, end = {}, 1, 1 + data[0]
    assert data[0] < 128
    while at < end:
        length = int.from_bytes(data[at + 1 : at + 3], "big")
        found[data[at]] = data[at + 3 : at + 3 + length]
        at += 3 + length
    assert at == end
    return found


def send(
    connection: socket.socket, packet_type: int, head: bytes, properties: dict[int, str]
) -> None:
    """Sends a packet with properties behind its first bytes."""
    written = b"".join(bytes((name,)) + text(data.encode()) for name, data in properties.items())
    body = head + length_of(written) + written
    connection.sendall(bytes((packet_type << 4,)) + length_of(body) + body)


def text(data: bytes) -> bytes:
    """Returns bytes behind their length."""
    return len(data).to_bytes(2, "big") + data


def length_of(data: bytes) -> bytes:
    """Returns the length of some bytes as MQTT writes it."""
    low, high = len(data) % 128, len(data) // 128
    return bytes((low | 128, high)) if high else bytes((low,))


def refusing(answer: bytes) -> Peer:
    """Answers a CONNECT with these bytes."""

    def refuse(connection: socket.socket) -> None:
        if connection.recv(4096):
            connection.sendall(answer)

    return refuse


def full() -> Peer:
    """Refuses each client with a reason string of its own and a reference to another server."""
    refused = itertools.count()

    def refuse(connection: socket.socket) -> None:
        if connection.recv(4096):
            reason = f"node {next(refused):02} is full\x1b[2J".encode()
            texts = b"\x1f" + text(reason) + b"\x1c" + text(b"b2.example:1884")
            body = bytes((0, 0x9C, len(texts))) + texts
            connection.sendall(bytes((0x20, len(body))) + body)

    return refuse


def unsubscribing(codes: bytes | None) -> Peer:
    """A broker that grants two filters, and answers UNSUBSCRIBE with these codes; None: never."""

    def serve(connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        while (packet := read_packet(stream))[0]:
            kind, body = packet
            if kind == CONNECT:
                connection.sendall(b"\x20\x03\0\0\0")
            elif kind == 8:
                connection.sendall(bytes((0x90, 5)) + body[:2] + b"\0\0\0")
            elif kind == 10 and codes is not None:
                answer = body[:2] + b"\0" + codes
                connection.sendall(bytes((0xB0, len(answer))) + answer)

    return serve


def web_server(answer: str) -> Peer:
    """Answers a request with these lines after the version of HTTP."""

    def serve(connection: socket.socket) -> None:
        request = b""
        while b"\r\n\r\n" not in request and (part := connection.recv(4096)):
            request += part
        if b"\r\n\r\n" in request:
            connection.sendall(answered(answer, request.decode()).encode())

    return serve


def answered(answer: str, request: str) -> str:
    lines = dict(line.split(": ", 1) for line in request.split("\r\n") if ": " in line)
    key = lines["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
    upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
    return f"HTTP/1.1 {answer.format(accept=accept).replace('Accept: ', upgrade)}\r\n"
