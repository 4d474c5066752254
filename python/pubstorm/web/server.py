"""The server of HTTP: serves an application on one socket. Few places are for peers that have not
shown the token, each for a short time. When all of these are taken, the peer with most of them
loses its oldest."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from pubstorm.host.ends import end_tasks
from pubstorm.web.guard import HEAD_BYTES_MAX

REQUEST_S = 5.0
"""Longest time from the start of a connection to its first request with the token."""
STRANGERS_MAX = 256
"""Connections without such a request."""
END_S = 2.0
"""Longest time for the last answers."""
NO_ROOM_S = 0.1
"""Pause while the process has no room for a further connection."""


@dataclass(frozen=True)
class Limits:
    """Limits of connections that have shown the token."""

    trusted_max: int
    """Connections at once."""
    idle_s: int
    """Longest time between two requests of one of them."""


class HttpConnection(H11Protocol):
    """A connection. It ends soon unless a request shows the token."""

    def __init__(self, config: uvicorn.Config, server: Server, peer: str) -> None:
        super().__init__(config, server.state, {"connection": self})
        self.peer = peer
        self.ended: list[Callable[[], object]] = []
        """Called when the connection has ended."""
        self._places = server
        self._is_trusted = False
        self._opening: asyncio.Task[None] | None = None
        self._deadline = self.loop.call_later(REQUEST_S, self.end)

    def open(self, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Shakes hands, and reads requests from then on."""

        async def opened() -> None:
            try:
                # The deadline includes the handshake.
                await self.loop.connect_accepted_socket(lambda: self, accepted, ssl=tls)
            except (OSError, asyncio.CancelledError):
                self._leave()

        self._opening = self.loop.create_task(opened())

    def trust(self) -> bool:
        """Gives the connection one of the places for those that have shown the token. Returns False
        if there is none."""
        if not self._is_trusted and self._places.admit(self):
            self._deadline.cancel()
            self._is_trusted = True
        return self._is_trusted

    def finish(self) -> None:
        """Ends the connection after the answer that is on its way."""
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def end(self) -> None:
        """Ends the connection at once."""
        if self.transport is not None:
            self.transport.abort()
        elif self._opening is not None:
            self._opening.cancel()
        self._leave()

    def connection_lost(self, exc: Exception | None) -> None:
        """Frees the place."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._leave()
        while self.ended:
            self.ended.pop()()

    def _leave(self) -> None:
        self._deadline.cancel()
        self._places.forget(self)


class Server:
    """The connections of one socket."""

    def __init__(self, app: ASGIApp, limits: Limits, tls: ssl.SSLContext | None) -> None:
        self.state = ServerState()
        self._limits = limits
        self._tls = tls
        self._strangers: dict[HttpConnection, None] = {}
        """Connections that have not shown the token, the oldest first."""
        self._trusted: set[HttpConnection] = set()
        self._config = uvicorn.Config(
            app,
            http=HttpConnection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=limits.idle_s,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        )

    async def accept(self, listener: socket.socket) -> None:
        """Accepts connections until it is cancelled, one in each turn of the loop."""
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        while True:
            try:
                accepted, address = await loop.sock_accept(listener)
            except OSError:
                # Without a further file, a stranger makes room in the next turn.
                await asyncio.sleep(0 if self._drop_one() else NO_ROOM_S)
                continue
            if len(self._strangers) >= STRANGERS_MAX:
                self._drop_one()
            connection = HttpConnection(self._config, self, str(address[0]))
            self._strangers[connection] = None
            connection.open(accepted, self._tls)
            await asyncio.sleep(0)

    async def end(self) -> None:
        """Lets answers end that are on their way, and ends all connections."""
        for stranger in tuple(self._strangers):
            stranger.end()
        for each in tuple(self._trusted):
            each.finish()
        await self._gone()
        for each in tuple(self._trusted):
            each.end()
        await self._gone()
        await end_tasks(self.state.tasks)

    async def _gone(self) -> None:
        """Waits until all connections have ended, for END_S at most."""
        clock = asyncio.get_running_loop().time
        until_s = clock() + END_S
        while self.state.connections and clock() < until_s:
            await asyncio.sleep(0.01)

    def admit(self, connection: HttpConnection) -> bool:
        """Takes a connection in whose request has the token. Returns False if no place is left."""
        if len(self._trusted) >= self._limits.trusted_max:
            return False
        self._strangers.pop(connection, None)
        self._trusted.add(connection)
        return True

    def forget(self, connection: HttpConnection) -> None:
        """Frees the place of a connection."""
        self._strangers.pop(connection, None)
        self._trusted.discard(connection)

    def _drop_one(self) -> bool:
        """Ends the oldest connection without the token of the peer that has most of them. Returns
        False if there is none."""
        peers = Counter(each.peer for each in self._strangers)
        if not peers:
            return False
        ((greedy, _),) = peers.most_common(1)
        next(each for each in self._strangers if each.peer == greedy).end()
        return True


@contextlib.asynccontextmanager
async def serving(
    app: ASGIApp, limits: Limits, tls: ssl.SSLContext | None, listener: socket.socket
) -> AsyncIterator[None]:
    """Serves an application while it is open."""
    server = Server(app, limits, tls)
    with _silence(asyncio.get_running_loop()):
        accepting = asyncio.create_task(server.accept(listener))
        try:
            yield
        finally:
            await end_tasks([accepting])
            listener.close()
            await server.end()


@contextlib.contextmanager
def _silence(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Logs nothing about connections: a stranger could fill a disk with their errors."""
    logger, handler = logging.getLogger("uvicorn.error"), loop.get_exception_handler()
    was_disabled, logger.disabled = logger.disabled, True
    loop.set_exception_handler(lambda _loop, _context: None)
    try:
        yield
    finally:
        logger.disabled = was_disabled
        loop.set_exception_handler(handler)
