"""Receivers of AMQP 1.0 at an Artemis with TLS, logins and rights, and at servers that are no
brokers: each failure has its name, with the words of its library beside it."""

from __future__ import annotations

import importlib.util
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.kit.artemis_server import HOME, ArtemisServer, artemis_in
from tests.kit.ports import free_port
from tests.kit.runs import Play

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("proton") is None, reason="python-qpid-proton is not installed"
    ),
    pytest.mark.xdist_group("artemis"),
]

READERS = 3
LOGIN = {"username": "reader", "password": "secret"}
Cases = Mapping[str, tuple[Mapping[str, Any], str | None, str]]
"""Keys of a population, its outcome, and words beside that, by name."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArtemisServer]:
    """A server with users, rights and TLS."""
    if not HOME.is_dir():
        pytest.skip("artemis is not installed")
    with artemis_in(tmp_path_factory.mktemp("artemis")) as made:
        yield made


def population(at: int, address: str = "telemetry", **keys: Any) -> dict[str, Any]:
    """Receivers at a target, which try once."""
    place = {"brokers": "target", "first": at, "count": 1}
    own = {"clients": READERS, "at": place, "reconnect": "never", "subscriptions": [address]}
    return {**own, **keys}


def check(run: Play, folder: Path, ports: list[str], cases: Cases) -> None:
    """Plays one population for each case, and looks at its outcomes."""
    scenario = {
        "target": ports,
        "populations": {name: keys for name, (keys, _, _) in cases.items()},
        "stages": ["connect", {"hold": "1s"}, "disconnect"],
        "defaults": "off",
    }
    path = folder / "scenario.yaml"
    path.write_text(json.dumps(scenario))
    _, result = run(path)
    for name, (_, outcome, words) in cases.items():
        found = result["populations"][name]
        assert found["outcomes"] == ({} if outcome is None else {outcome: READERS}), name
        is_refused = outcome is not None and outcome.startswith("subscribe_")
        is_connected = outcome is None or is_refused
        assert found["connected_total"] == (READERS if is_connected else 0), name
        assert found["connect_failed_total"] == (0 if is_connected else READERS), name
        assert found["subscribe_failed_total"] == (READERS if is_refused else 0), name
        texts = " ".join(each["text"] for each in found["explanations"])
        assert words in texts, (name, texts)
        assert "secret" not in texts


@pytest.mark.slow("a JVM starts")
def test_each_refusal_of_a_broker_has_its_name(
    server: ArtemisServer, run: Play, tmp_path: Path
) -> None:
    ca = {"ca": f"{server.folder}/ca.crt"}
    proof = {"certificate": f"{server.folder}/reader.crt", "key": f"{server.folder}/reader.key"}
    cases: Cases = {
        "tls": (population(1, tls=ca, **LOGIN), None, ""),
        "certificate": (population(2, tls=ca | proof, mechanism="external"), None, ""),
        "wrong": (
            population(1, tls=ca, username="reader", password="wrong"),
            "bad_credentials",
            "Authentication failed [mech=PLAIN]",
        ),
        "anonymous": (population(1, tls=ca), "not_authorized", "Unable to validate user"),
        "denied": (
            population(1, "denied", tls=ca, **LOGIN),
            "subscribe_unauthorized_access",
            "denied: amqp:unauthorized-access",
        ),
        "absent": (
            population(1, "absent", tls=ca, **LOGIN),
            "subscribe_not_found",
            "absent: amqp:not-found",
        ),
        "stranger": (population(1, **LOGIN), "certificate_untrusted", "certificate verify failed"),
        "name": (
            population(1, tls=ca | {"server_name": "other"}, **LOGIN),
            "certificate_name",
            "Hostname mismatch",
        ),
        "without": (population(2, tls=ca, mechanism=None), "tls_refused", ""),
        "no-tls": (
            population(0, tls=ca, connect_timeout="2s", **LOGIN),
            "connect_timeout",
            "no answer to the handshake of TLS",
        ),
        "closed": (population(3, tls=ca, **LOGIN), "connect_refused", "Connection refused"),
    }
    ports = (server.plain, server.secure, server.mutual, free_port())
    check(run, tmp_path, [f"amqp1s://127.0.0.1:{port}" for port in ports], cases)


@pytest.mark.slow("a JVM starts")
def test_a_login_without_tls_is_one_too(server: ArtemisServer, run: Play, tmp_path: Path) -> None:
    wrong = {"username": "stranger", "password": "secret-of-his"}
    cases: Cases = {
        "plain": (population(0, **LOGIN), None, ""),
        "wrong": (population(0, **wrong), "bad_credentials", "Authentication failed"),
        "tls": (population(1, connect_timeout="2s", **LOGIN), "connect_timeout", "no answer"),
    }
    ports = (server.plain, server.secure)
    check(run, tmp_path, [f"amqp1://127.0.0.1:{port}" for port in ports], cases)


SASL = b"AMQP\x03\x01\x00\x00"
NONSENSE: Mapping[str, tuple[bytes | None, str, str]] = {
    "silent": (None, "connect_timeout", "no answer"),
    "closes": (b"", "connect_closed", ""),
    "half": (SASL[:3], "connect_closed", ""),
    "after-sasl": (SASL, "connect_closed", ""),
    "http": (b"HTTP/1.1 400 Bad Request\r\n\r\n", "protocol_error", "HTTP/1.1"),
    "old": (b"AMQP\x00\x00\x09\x01", "protocol_error", "AMQP"),
    "zeros": (SASL + b"\x00" * 64, "protocol_error", ""),
    "ones": (SASL + b"\xff" * 64, "protocol_error", ""),
}
"""Bytes that a server sends before it closes, None for a server that says nothing; the outcome, and
words beside that."""


LIMITS = {"connect_timeout": {"connect_timeout": "2s"}}
"""Keys of a population by its outcome."""


def serve(data: bytes | None, listener: socket.socket, kept: list[socket.socket]) -> None:
    """Answers each client with these bytes, until the listener is closed."""
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        kept.append(client)
        # The test may close it meanwhile.
        with suppress(OSError):
            if data is not None:
                client.recv(8)
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)


def test_a_server_that_is_no_broker_is_counted(run: Play, tmp_path: Path) -> None:
    with ExitStack() as stack:
        addresses, kept = [], list[socket.socket]()
        for data, _, _ in NONSENSE.values():
            listener = stack.enter_context(socket.create_server(("127.0.0.1", free_port())))
            end: Callable[[int], None] = listener.shutdown
            stack.callback(end, socket.SHUT_RDWR)
            addresses.append(f"amqp1://127.0.0.1:{listener.getsockname()[1]}")
            words = (data, listener, kept)
            threading.Thread(target=serve, args=words, daemon=True).start()
        cases: Cases = {
            name: (population(number, **LIMITS.get(outcome, {})), outcome, words)
            for number, (name, (_, outcome, words)) in enumerate(NONSENSE.items())
        }
        check(run, tmp_path, addresses, cases)
        for each in kept:
            each.close()
