"""The guard of every server of HTTP: refuses requests under a strange name, from pages of other
sites, without the token if there is one, and those that are too long."""

from __future__ import annotations

import hmac
import secrets
import ssl
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
