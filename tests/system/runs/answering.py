"""Servers on loopback that answer each connection with a function of the test."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """Calls `answer` for each connection in a thread, and closes it; yields the port."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=100)
    threads: list[threading.Thread] = []

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(ConnectionError):
            answer(connection)

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


@dataclass
class Server:
    """Answers the first bytes of each client, keeps what it receives, and closes."""

    answer: bytes | Callable[[], bytes]
    stays: bool = False
    """True if clients end the connections."""
    received: list[bytes] = field(default_factory=list)

    def __call__(self, connection: socket.socket) -> None:
        while data := connection.recv(4096):
            if data.startswith((b"\x10", b"GET")):
                connection.sendall(self.answer if isinstance(self.answer, bytes) else self.answer())
            self.received.append(data)
            if not self.stays:
                return


def full() -> Server:
    """Refuses each client with a reason string of its own and a reference to another server."""
    refused = itertools.count()

    def refusal() -> bytes:
        reason = f"node {next(refused):02} is full\x1b[2J".encode()
        texts = ((0x1F, reason), (0x1C, b"b2.example:1884"))
        properties = b"".join(bytes((name, 0, len(text))) + text for name, text in texts)
        body = bytes((0, 0x9C, len(properties))) + properties
        return bytes((0x20, len(body))) + body

    return Server(refusal)
