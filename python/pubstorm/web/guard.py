"""Guards the page: refuses requests under a strange name, from pages of other sites, and without
the token if there is one."""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

OPEN = frozenset({"/login", "/login.js", "/page.css"})
"""Paths that need no token: those that ask for it."""
JSON = "application/json"


@dataclass(frozen=True)
class Guard:
    """The conditions under which a request is answered."""

    hosts: frozenset[str]
    """Names under which the page is asked for, as in the header `Host`; empty: any."""
    token: str | None = None
    """The token that opens the page; None: none is needed."""
    certificate: Path | None = None
    key: Path | None = None
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    """Value of the cookie of a browser that has given the token."""

    @property
    def scheme(self) -> str:
        """Scheme of the page's address."""
        return "http" if self.certificate is None else "https"

    def opens(self, token: str) -> bool:
        """True if a token is the right one."""
        return self.token is not None and hmac.compare_digest(token.encode(), self.token.encode())

    def cookie_of(self, headers: Headers) -> str:
        """Name of the cookie: browsers have one set of cookies for all ports of a host."""
        return f"pubstorm-{headers.get('host', '').rpartition(':')[2]}"

    def refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Returns why a request is not answered, with a status of HTTP; None if it is."""
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if self.hosts and host not in self.hosts:
            allowed = ", ".join(sorted(self.hosts))
            return 421, f"found the name {host[:100]!r}, allowed are {allowed}"
        if scope["method"] not in {"GET", "HEAD"} and not self._is_own(headers, host):
            return 403, "allowed are requests of this page only"
        if scope["path"] not in OPEN and not self._is_trusted(headers):
            return 401, "the page needs its token"
        return None

    def _is_own(self, headers: Headers, host: str) -> bool:
        """True for a request that no page of another site can have made. Browsers send `Origin`
        with each, and ask before they send JSON for another site."""
        origin = headers.get("origin", f"{self.scheme}://{host}")
        site = headers.get("sec-fetch-site", "same-origin")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        is_same = origin.lower() == f"{self.scheme}://{host}" and site == "same-origin"
        return is_same and kind == JSON

    def _is_trusted(self, headers: Headers) -> bool:
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
        return found is not None and hmac.compare_digest(found.value, self.session)


class Guarded:
    """An application behind a guard."""

    def __init__(self, app: ASGIApp, guard: Guard, ask: Response) -> None:
        """`ask` asks a person for the token."""
        self._app = app
        self._guard = guard
        self._ask = ask

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or refuses it."""
        refusal = self._guard.refusal(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
            return
        status, text = refusal
        if status == 401 and scope["path"] == "/":
            await self._ask(scope, receive, send)
            return
        await PlainTextResponse(f"{text}\n", status)(scope, receive, send)
