"""A server on loopback that answers each connection with a function of the test."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO


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


def read_packet(stream: BinaryIO) -> tuple[int, bytes]:
    """Returns type and body of a packet of MQTT; type 0 at the end of the stream."""
    head = stream.read(1)
    if not head:
        return 0, b""
    length = shift = 0
    while True:
        byte = stream.read(1)[0]
        length |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return head[0] >> 4, stream.read(length)
