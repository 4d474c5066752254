"""nats-server outside a run, and users of an operator: keys, and JSON Web Tokens as nsc makes
them."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from pubstorm.host.children import find
from tests.kit.ports import free_port

READY_TIMEOUT_S = 60.0
POLL_S = 0.01
SEED = 18 << 3
KINDS = {"operator": 14 << 3, "account": 0, "user": 20 << 3}


@dataclass
class NatsServer:
    """A nats-server of the test's own."""

    port: int
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"


ServerMaker = Callable[[str], NatsServer]


@contextlib.contextmanager
def servers_in(parent: Path) -> Iterator[ServerMaker]:
    """Starts servers with a configuration each; they are gone afterwards."""
    program = find("nats-server")
    if program is None:
        pytest.skip("nats-server is not installed (apt-get install nats-server)")
    started: list[NatsServer] = []

    def start(configuration: str = "") -> NatsServer:
        folder = parent / f"nats-{len(started)}"
        folder.mkdir()
        port = free_port()
        file = folder / "nats.conf"
        file.write_text(f'listen: "127.0.0.1:{port}"\n{configuration}\n')
        with (folder / "nats.log").open("wb") as log:
            process = subprocess.Popen([program, "-c", str(file)], stdout=log, stderr=log)
        server = NatsServer(port, folder, process)
        started.append(server)
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while process.poll() is None and time.monotonic() < deadline_s:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                return server
            time.sleep(POLL_S)
        pytest.fail(f"nats-server does not start: {(folder / 'nats.log').read_text()}")

    try:
        yield start
    finally:
        for server in started:
            with contextlib.suppress(ProcessLookupError):
                server.process.send_signal(signal.SIGCONT)
            server.process.kill()
            server.process.wait()


class Key:
    """An nkey of a kind, from 32 bytes."""

    def __init__(self, kind: str, secret: bytes) -> None:
        self._prefix = KINDS[kind]
        self._secret = secret
        self._key = Ed25519PrivateKey.from_private_bytes(secret)

    @property
    def public(self) -> str:
        raw = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return _text(bytes([self._prefix]) + raw)

    @property
    def seed(self) -> str:
        head = bytes([SEED | self._prefix >> 5, (self._prefix & 31) << 3])
        return _text(head + self._secret)

    def token(self, subject: Key, name: str, claims: Mapping[str, object]) -> str:
        """A JSON Web Token about a key, signed with this one."""
        head = {"typ": "JWT", "alg": "ed25519-nkey"}
        body = {
            **{"jti": name, "iat": 1, "iss": self.public, "name": name, "sub": subject.public},
            "nats": {**claims, "version": 2},
        }
        text = ".".join(_base64(json.dumps(part).encode()) for part in (head, body))
        return f"{text}.{_base64(self._key.sign(text.encode()))}"


def _text(raw: bytes) -> str:
    checked = raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")
    return base64.b32encode(checked).decode().rstrip("=")


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


ANY = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
OPERATOR, ACCOUNT, USER = (
    Key(kind, bytes([n]) * 32) for n, kind in enumerate(("operator", "account", "user"), 1)
)


def operator_configuration() -> str:
    """The configuration of a server that takes users of an account of an operator."""
    operator = OPERATOR.token(OPERATOR, "operator", {"type": "operator"})
    limits = {"limits": {**ANY, "wildcards": True}}
    account = OPERATOR.token(ACCOUNT, "account", {"type": "account", **limits})
    preload = f"resolver_preload: {{{ACCOUNT.public}: {account}}}"
    return f"operator: {operator}\nresolver: MEMORY\n{preload}"


def user_token() -> str:
    """The token of the user that has the key `USER`."""
    return ACCOUNT.token(USER, "user", {"type": "user", "subs": -1, "data": -1, "payload": -1})
