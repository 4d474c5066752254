"""A cable between a browser and a server that a test can pull."""

from __future__ import annotations

import contextlib
import socket
import threading

from pubstorm.host.sockets import LOOPBACK

OTHER = "127.0.0.2"
"""Address of the cable's end, with the port of the server."""


class Cable:
    """Passes connections to OTHER on to a server of LOOPBACK with the same port."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: list[socket.socket] = []
        self.plug()

    def plug(self) -> None:
        """Takes connections from now on."""
        self._listener = socket.create_server((OTHER, self._port))
        threading.Thread(target=self._accept, args=[self._listener], daemon=True).start()

    def pull(self) -> None:
        """Ends all connections, and takes no more."""
        # A thread that waits in accept keeps a listener open that is only closed.
        for each in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._open.clear()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                browser, _ = listener.accept()
                server = socket.create_connection((LOOPBACK, self._port))
                self._open += [browser, server]
                for source, to in ((browser, server), (server, browser)):
                    threading.Thread(target=_pass, args=[source, to], daemon=True).start()


def _pass(source: socket.socket, to: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(2**16):
            to.sendall(data)
    with contextlib.suppress(OSError):
        to.shutdown(socket.SHUT_WR)
