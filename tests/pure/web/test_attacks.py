"""Attacks on each server of HTTP from peers without the token: the holder of the token is answered
meanwhile, and the server neither grows nor writes."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import resource
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil
import pytest

from pubstorm.host.listening import address_of, listener_at
from pubstorm.web.process import WebProcess, WebSettings
from tests.kit import program

TOKEN = "0123456789abcdef"
DRIPPING, SILENT, NESTED = 3000, 500, 200
QUESTIONS = 20
FILES_MAX = 400
"""Files of a server under attack: its places, and what it needs itself."""
DEEP = b"[" * 8000
HALF_PAIR = json.dumps({"token": "\ud800"}).encode()


@dataclass(frozen=True)
class Served:
    """A server that is attacked."""

    pid: int
    port: int
    page: str
    """A page that needs the token."""
    tls: ssl.SSLContext | None
    written: Callable[[], bytes]
    """Returns the bytes that the server has written to stderr."""

    def connect(self) -> http.client.HTTPConnection:
        """Returns a connection of the holder of the token."""
        if self.tls is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=self.tls)

    def is_answered_anew(self) -> bool:
        """Asks over a new connection."""
        with contextlib.closing(self.connect()) as connection:
            return self.is_answered(connection)

    def is_answered(self, connection: http.client.HTTPConnection) -> bool:
        """Asks for the page, as the holder of the token does."""
        connection.request("GET", self.page, headers={"Authorization": f"Bearer {TOKEN}"})
        answer = connection.getresponse()
        answer.read()
        return answer.status == 200


@contextlib.contextmanager
def child(serves: Literal["page", "metrics"], page: str) -> Iterator[Served]:
    """The process beside a controller, which has no run."""
    address = address_of(":0", "", "")
    listener = listener_at(address)
    port = listener.getsockname()[1]
    settings = WebSettings(
        serves=serves,
        descriptor=listener.fileno(),
        hosts=tuple(address.names),
        token=TOKEN,
        cert=None,
        key=None,
    )
    process = WebProcess(listener, settings)
    try:
        errors = process._errors.fileno()
        pid = process._process.pid
        yield Served(pid, port, page, None, lambda: os.pread(errors, 1 << 20, 0))
    finally:
        process.close()


@contextlib.contextmanager
def monitor(folder: Path) -> Iterator[Served]:
    """`pubstorm monitor` with TLS."""
    program.run(("keys", "ca", str(folder), "--name", "localhost"), check=True, capture_output=True)
    (folder / "token").write_text(TOKEN)
    keys = ("--cert", f"{folder}/server.crt", "--key", f"{folder}/server.key")
    words = ("monitor", "--listen", "127.0.0.1:0", "--token-file", f"{folder}/token", *keys)
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    context.check_hostname = False
    with program.popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            url = process.stderr.readline().split(" at ")[1].split(",")[0]
            os.set_blocking(process.stderr.fileno(), False)
            port = int(url.rpartition(":")[2])
            yield Served(process.pid, port, "/host", context, lambda: _read(process.stderr))
        finally:
            process.terminate()
            process.wait(30)


def _read(stream: object) -> bytes:
    assert hasattr(stream, "fileno")
    try:
        return os.read(stream.fileno(), 1 << 16)
    except BlockingIOError:
        return b""


@pytest.fixture(scope="module", params=["page", "metrics", "monitor"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    made = {
        "page": lambda: child("page", "/live.js"),
        "metrics": lambda: child("metrics", "/metrics"),
        "monitor": lambda: monitor(tmp_path_factory.mktemp("monitor")),
    }
    with made[request.param]() as found:
        assert found.is_answered_anew()
        yield found


def strangers(served: Served, count: int, sent: bytes) -> list[socket.socket]:
    """Connections that have no token, as many as the server takes."""
    found = []
    for _ in range(count):
        with contextlib.suppress(OSError):
            each = socket.create_connection(("127.0.0.1", served.port), 30)
            found.append(each)
            each.sendall(sent)
    return found


@contextlib.contextmanager
def dripping(served: Served) -> Iterator[None]:
    """Connections that send a byte now and then, and come again when they are ended."""
    over = threading.Event()
    held = strangers(served, DRIPPING, b"G")

    def drip() -> None:
        while not over.wait(0.2):
            for number, each in enumerate(held):
                try:
                    each.sendall(b"A")
                except OSError:
                    each.close()
                    if number % 10 == 0:
                        held[number] = strangers(served, 1, b"G")[0]

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        for each in held:
            each.close()


@contextlib.contextmanager
def silent(served: Served) -> Iterator[None]:
    """Connections that say nothing, not even of TLS."""
    held = strangers(served, SILENT, b"")
    try:
        yield
    finally:
        for each in held:
            each.close()


@contextlib.contextmanager
def nested(served: Served) -> Iterator[None]:
    """Requests that need no token, with JSON that is nested deeply or has no bytes."""
    for number in range(NESTED):
        body = (DEEP, HALF_PAIR)[number % 2]
        path = ("/login", "/control")[number // 2 % 2]
        with contextlib.closing(served.connect()) as connection:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            # A wrong token is refused after a second.
            if number % 20 == 10:
                assert path == "/control"
                assert connection.getresponse().status in {401, 403}
    yield


@pytest.mark.slow("thousands of connections")
@pytest.mark.parametrize("attack", [dripping, silent, nested])
def test_strangers_do_not_shut_out_the_holder_of_the_token(
    attack: Callable[[Served], contextlib.AbstractContextManager[None]], served: Served
) -> None:
    process = psutil.Process(served.pid)
    kept = served.connect()
    assert served.is_answered(kept)
    threads = process.num_threads()
    with attack(served):
        for _ in range(QUESTIONS):
            assert served.is_answered_anew()
            assert served.is_answered(kept)
        assert process.num_fds() < FILES_MAX
        assert process.num_threads() < threads + 10
    kept.close()
    assert served.written() == b""


def test_a_server_that_has_no_further_file_answers_the_holder_of_the_token() -> None:
    with child("metrics", "/metrics") as served:
        assert served.is_answered_anew()
        _, hard = resource.prlimit(served.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(served.pid, resource.RLIMIT_NOFILE, (40, hard))
        held = strangers(served, 200, b"G")
        for _ in range(QUESTIONS):
            assert served.is_answered_anew()
        for each in held:
            each.close()
        assert served.written() == b""


def test_a_refusal_ends_its_connection() -> None:
    with child("metrics", "/metrics") as served, contextlib.closing(served.connect()) as asked:
        asked.request("GET", served.page)
        answer = asked.getresponse()
        assert (answer.status, answer.headers["Connection"]) == (401, "close")
