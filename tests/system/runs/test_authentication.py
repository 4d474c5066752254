"""Enhanced authentication of MQTT 5 against a server of the tests, which plays the server's side of
SCRAM-SHA-256 (RFC 5802, RFC 7677) with `hashlib` and `hmac`."""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

Play = Callable[..., tuple[int, dict[str, Any]]]

CLIENTS = 20
ITERATIONS = 4096
METHOD, DATA = 0x15, 0x16
CONNECT, CONNACK, DISCONNECT, AUTH = 1, 2, 14, 15
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

    def serve(self, connection: socket.socket) -> None:
        packet_type, body = self._read(connection)
        assert packet_type == CONNECT
        if body[6] != VERSION:  # the observer of the controller
            connection.sendall(NOT_WITH_3_1_1)
            return
        properties = read_properties(body[10:])
        first, last = properties[DATA].decode(), None
        if properties[METHOD] != self.method.encode():
            code = BAD_METHOD
        elif self.token is not None:
            code = 0 if first.startswith(self.token) else NOT_AUTHORIZED
        else:
            last = self._exchange(connection, first)
            code = NOT_AUTHORIZED if last is None else 0
        proof = {} if last is None else {METHOD: self.method, DATA: last}
        send(connection, CONNACK, bytes((0, code)), proof)

    def _exchange(self, connection: socket.socket, first: str) -> str | None:
        """Returns the server's final message; None if the client has another password."""
        assert first.startswith("n,,n=")
        bare = first.removeprefix("n,,")
        name, nonce = bare.removeprefix("n=").split(",r=")
        salt = hashlib.sha256(name.encode()).digest()[:16]
        nonce = f"{nonce if self.own_nonce else ''}server"
        challenge = f"r={nonce},s={base64.b64encode(salt).decode()},i={ITERATIONS}"
        send(connection, AUTH, bytes((CONTINUE,)), {METHOD: self.method, DATA: challenge})
        packet_type, body = self._read(connection)
        if packet_type != AUTH:
            return None
        assert body[0] == CONTINUE
        answer = read_properties(body[1:])[DATA].decode()
        without_proof, _, proof = answer.rpartition(",p=")
        assert without_proof == f"c=biws,r={nonce}"
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

    def discard(self, connection: socket.socket) -> None:
        """Reads to the end of the connection."""
        while data := connection.recv(4096):
            self.received.append(data)

    def _read(self, connection: socket.socket) -> tuple[int, bytes]:
        """Returns type and body of a packet; type 0 at the end of the connection."""
        head = connection.recv(1)
        if not head:
            return 0, b""
        length = shift = 0
        while True:
            byte = connection.recv(1)[0]
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        body = b""
        while len(body) < length:
            body += connection.recv(length - len(body))
        self.received.append(body)
        return head[0] >> 4, body


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
    connection: socket.socket,
    packet_type: int,
    head: bytes,
    properties: dict[int, str] | None = None,
) -> None:
    """Sends a packet with properties behind its first bytes."""
    texts = [(name, text.encode()) for name, text in (properties or {}).items()]
    written = b"".join(bytes((name,)) + len(t).to_bytes(2, "big") + t for name, t in texts)
    body = head + length_of(written) + written
    connection.sendall(bytes((packet_type << 4,)) + length_of(body) + body)


def length_of(data: bytes) -> bytes:
    """Returns the length of some bytes as MQTT writes it."""
    low, high = len(data) % 128, len(data) // 128
    return bytes((low | 128, high)) if high else bytes((low,))


@contextmanager
def serving(server: Server) -> Iterator[int]:
    """Serves each connection in a thread; yields the port."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def serve(connection: socket.socket) -> None:
        with connection:
            try:
                server.serve(connection)
                server.discard(connection)
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=serve, args=(connection,)))
            threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join()
        for thread in threads:
            thread.join()


def scenario(folder: Path, port: int, *lines: str) -> Path:
    """Clients of version 5 that authenticate as `lines` say."""
    path = folder / "scenario.yaml"
    text = "".join(
        f"    {line}\n" for line in ("clients: 20", "version: 5", "reconnect: never", *lines)
    )
    path.write_text(
        f"target: mqtt://127.0.0.1:{port}\nclean_start: skip\npopulations:\n  device:\n{text}"
        "    publications: [{topic: 't/{n}', rate: 10/s}]\n"
        "stages: [connect, publish: 1s, disconnect]\n"
    )
    return path


LOGIN = (
    "authentication: {method: SCRAM-SHA-256}",
    "username: 'user={n}'",
    "password: 'pencil-{n}'",
)
PASSWORDS = {f"user=3D{n}": f"pencil-{n}" for n in range(CLIENTS)}


def test_each_client_authenticates_with_its_own_password(run: Play, tmp_path: Path) -> None:
    server = Server(PASSWORDS)
    with serving(server) as port:
        code, result = run(scenario(tmp_path, port, *LOGIN))
    device = result["populations"]["device"]
    assert (code, device["outcomes"]) == (0, {}), result["verdict"]["evidence"]
    assert (device["connected_total"], device["sent_total"]) == (CLIENTS, CLIENTS * 10)
    assert not any(b"pencil" in data for data in server.received)
    assert_not_stored(tmp_path, "pencil")


def test_names_and_passwords_are_normalised(run: Play, tmp_path: Path) -> None:
    """With SASLprep (RFC 4013), a soft hyphen is nothing and a Roman nine is two letters."""
    server = Server({f"\u00fc{n}": f"IX-{n}" for n in range(CLIENTS)})
    login = (LOGIN[0], 'username: "u\u0308\u00ad{n}"', 'password: "\u2168-{n}"')
    with serving(server) as port:
        code, result = run(scenario(tmp_path, port, *login))
    device = result["populations"]["device"]
    assert (code, device["outcomes"]) == (0, {}), result["verdict"]["evidence"]
    assert device["connected_total"] == CLIENTS


@pytest.mark.parametrize(
    ("server", "outcome"),
    [
        (Server({}), "not_authorized"),
        (Server(PASSWORDS, proves=False), "server_unproved"),
        (Server(PASSWORDS, own_nonce=False), "authentication_invalid"),
        (Server(PASSWORDS, method="OTHER"), "connect_bad_authentication_method"),
    ],
    ids=["another password", "no proof", "another nonce", "another method"],
)
def test_a_failed_exchange_is_an_outcome(
    run: Play, tmp_path: Path, server: Server, outcome: str
) -> None:
    with serving(server) as port:
        code, result = run(scenario(tmp_path, port, *LOGIN))
    device = result["populations"]["device"]
    assert code != 0
    assert device["outcomes"] == {outcome: CLIENTS}
    assert device["connect_failed_total"] == CLIENTS
    assert device["connected_total"] == 0


def test_another_method_sends_its_data_once(run: Play, tmp_path: Path) -> None:
    server = Server({}, method="TICKET", token="ticket-")
    with serving(server) as port:
        login = "authentication: {method: TICKET, data: 'ticket-{n}'}"
        code, result = run(scenario(tmp_path, port, login))
    device = result["populations"]["device"]
    assert (code, device["outcomes"]) == (0, {}), result["verdict"]["evidence"]
    for n in range(CLIENTS):
        assert any(b"ticket-%d" % n in data for data in server.received)
    assert_not_stored(tmp_path, "ticket-")


def assert_not_stored(folder: Path, secret: str) -> None:
    """Checks that no file of a run has a secret; the scenario of the test has it."""
    files = [f for f in folder.rglob("*") if f.is_file() and f != folder / "scenario.yaml"]
    assert files
    assert not [f for f in files if secret.encode() in f.read_bytes()]
