"""The server of HTTP: serves an application on one socket, behind a guard that refuses strange
names, pages of other sites, requests without the token, and those that are too long. Few places are
for peers that have not shown the token, each for a short time; when all are taken, the peer with
most of them loses its oldest."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import secrets
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

import uvicorn
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from pubstorm.host.ends import end_tasks
from pubstorm.host.listening import server_tls
from pubstorm.web.process import WebSettings

HEAD_BYTES_MAX = 8192
"""Longest head of a request."""
BODY_BYTES_MAX = 8192
"""Longest body of a request."""
JSON = "application/json"
CLOSE = {"Connection": "close"}


class TooLongError(ValueError):
    """A body that is longer than allowed."""


@dataclass(frozen=True)
class Guard:
    """The conditions under which a request is answered."""

    hosts: frozenset[str]
    """Names under which the server is asked, as in the header `Host` without its port, which a
    tunnel changes; empty: any."""
    token: str | None = None
    """The token that opens the server; None: none is needed."""
    tls: ssl.SSLContext | None = None
    open: frozenset[str] = frozenset()
    """Paths that need no token: those that ask for it."""
    long: frozenset[str] = frozenset()
    """Paths of GET whose requests may have a body."""
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    """Value of the cookie of a browser that has given the token."""

    @property
    def scheme(self) -> str:
        """Scheme of the server's address."""
        return "http" if self.tls is None else "https"

    def opens(self, token: str) -> bool:
        """True if a token is the right one."""
        return self.token is not None and _are_equal(token, self.token)

    def cookie_of(self, headers: Headers) -> str:
        """Name of the cookie: browsers have one set of cookies for all ports of a host."""
        return f"pubstorm-{headers.get('host', '').rpartition(':')[2]}"

    def refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Returns why a request is not answered, with a status of HTTP; None if it is."""
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if _head_bytes(scope) > HEAD_BYTES_MAX:
            return 431, f"a request has at most {HEAD_BYTES_MAX} bytes"
        if self.hosts and _name_in(host) not in self.hosts:
            allowed = ", ".join(sorted(self.hosts))
            return 421, f"found the name {host[:100]!r}, allowed are {allowed}"
        if scope["method"] in {"GET", "HEAD"}:
            if scope["path"] not in self.long and _has_body(headers):
                return 400, "a request has no content"
        elif not self._is_own(headers, host):
            return 403, "allowed are requests of this page only"
        if scope["path"] not in self.open and not self.trusts(headers):
            return 401, "the page needs its token"
        return None

    def trusts(self, headers: Headers) -> bool:
        """Returns True for a request with the token, or if none is needed."""
        if self.token is None:
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.opens(given.strip()):
            return True
        cookies = SimpleCookie()
        try:
            cookies.load(headers.get("cookie", ""))
        except CookieError:
            return False
        found = cookies.get(self.cookie_of(headers))
        return found is not None and _are_equal(found.value, self.session)

    def _is_own(self, headers: Headers, host: str) -> bool:
        """True for a request that no page of another site can have made. Browsers send `Origin`
        with each, and ask before they send JSON for another site."""
        origin = headers.get("origin", f"{self.scheme}://{host}")
        site = headers.get("sec-fetch-site", "same-origin")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        is_same = origin.lower() == f"{self.scheme}://{host}" and site == "same-origin"
        return is_same and kind == JSON


def guard_of(
    settings: WebSettings, *, open: frozenset[str] = frozenset(), long: frozenset[str] = frozenset()
) -> Guard:
    """Returns the guard of a server."""
    tls = None
    if settings.cert is not None and settings.key is not None:
        tls = server_tls(Path(settings.cert), Path(settings.key))
    return Guard(frozenset(settings.hosts), settings.token, tls, open, long)


def _are_equal(given: str, wanted: str) -> bool:
    # A text may hold halves of a pair, which have no bytes of their own.
    return hmac.compare_digest(given.encode(errors="surrogatepass"), wanted.encode())


def _name_in(host: str) -> str:
    """Returns the name in a header `Host`, without the port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def _has_body(headers: Headers) -> bool:
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def _head_bytes(scope: Scope) -> int:
    pairs: list[tuple[bytes, bytes]] = scope["headers"]
    path, query = scope["raw_path"], scope["query_string"]
    return len(path) + len(query) + sum(len(name) + len(value) for name, value in pairs)


class Guarded:
    """An application behind a guard."""

    def __init__(self, app: ASGIApp, guard: Guard, ask: Response | None = None) -> None:
        """`ask` asks a person for the token; None: only programs have it."""
        self._app = app
        self._guard = guard
        self._ask = ask

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or refuses it."""
        refusal = self._guard.refusal(scope)
        if refusal is None and self._guard.trusts(Headers(scope=scope)):
            # A connection whose request has the token gets a place that others cannot take.
            is_full = not scope["state"]["connection"].trust()
            refusal = (503, "as many connections as allowed are open") if is_full else None
        if refusal is None:
            await self._answer(scope, receive, send)
            return
        status, text = refusal
        response: Response = PlainTextResponse(f"{text}\n", status, CLOSE)
        if status == 401:
            response.headers["WWW-Authenticate"] = "Bearer"
            if scope["path"] == "/" and self._ask is not None:
                response = self._ask
        await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers, whatever the request makes the application do."""
        left = BODY_BYTES_MAX
        has_begun = False

        async def limited() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise TooLongError(f"a body has at most {BODY_BYTES_MAX} bytes")
            return message

        async def sent(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, limited, sent)
        except Exception as error:
            # An answer that has begun ends with its connection.
            if not has_begun:
                status = 413 if isinstance(error, TooLongError) else 500
                text = f"failed unexpectedly: {type(error).__name__}: {error}"
                await PlainTextResponse(f"{text}\n", status, CLOSE)(scope, receive, send)


REQUEST_S = 5.0
"""Longest time from the start of a connection to its first request with the token."""
STRANGERS_MAX = 256
"""Connections without such a request."""
END_S = 2.0
"""Longest time for the last answers."""
NO_ROOM_S = 0.1
"""Pause while the process has no room for a further connection."""


@dataclass(frozen=True)
class ConnectionLimits:
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

    def __init__(self, app: ASGIApp, limits: ConnectionLimits, tls: ssl.SSLContext | None) -> None:
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
    app: ASGIApp, limits: ConnectionLimits, tls: ssl.SSLContext | None, listener: socket.socket
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
