"""The live page: one page with its style and script, the stream of events, and the report of a run
that is over."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import (
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route
from starlette.types import ASGIApp

from pubstorm.files import content_of
from pubstorm.host.ends import end_tasks
from pubstorm.web.controls import request
from pubstorm.web.follow import RunFollower
from pubstorm.web.guard import Guard, Guarded, guard_of
from pubstorm.web.process import Message, WebSettings
from pubstorm.web.server import Limits, serving
from pubstorm.web.watch import REPORT_FILE, Surroundings

REFUSED_S = 1.0
"""Time after which a wrong token is refused."""
VIEWERS_MAX = 64
"""Browsers that may read the stream at once."""
LIMITS = Limits(trusted_max=2 * VIEWERS_MAX, idle_s=5)
OPEN = frozenset({"/login", "/login.js", "/page.css"})
"""Paths that need no token: those that ask for it."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Page:
    """One file of the page."""

    media_type: str
    parts: tuple[tuple[str, str], ...]
    """Packages and files, one after the other."""

    def text(self) -> str:
        """The text of all parts."""
        return "\n".join(
            files(package).joinpath(file).read_text(encoding="utf-8")
            for package, file in self.parts
        )


OWN = "pubstorm.web"
PAGES = {
    "/": Page("text/html", ((OWN, "page/index.html"),)),
    "/page.css": Page(
        "text/css", (("pubstorm.report", "templates/report.css"), (OWN, "page/live.css"))
    ),
    "/chart.js": Page("text/javascript", ((OWN, "page/chart.js"),)),
    "/controls.js": Page("text/javascript", ((OWN, "page/controls.js"),)),
    "/live.js": Page("text/javascript", ((OWN, "page/live.js"),)),
    "/login.js": Page("text/javascript", ((OWN, "page/login.js"),)),
}


LOGIN = Page("text/html", ((OWN, "page/login.html"),))


def application(follower: RunFollower, guard: Guard) -> ASGIApp:
    """Returns the application, behind the guard."""

    def page(found: Page) -> Callable[[Request], Response]:
        text = found.text()

        def show(_request: Request) -> Response:
            return Response(text, media_type=found.media_type, headers=HEADERS)

        return show

    def events(request: Request) -> Response:
        if follower.feed.viewers >= VIEWERS_MAX:
            return PlainTextResponse(f"{VIEWERS_MAX} browsers read this page already\n", 503)
        stream = follower.feed.stream(request.headers.get("last-event-id", ""))
        return StreamingResponse(stream, media_type="text/event-stream", headers=HEADERS)

    def report(_request: Request) -> Response:
        path = follower.report
        try:
            content = None if path is None else content_of(path)
        except OSError:
            content = None
        if content is None:
            return PlainTextResponse("the run has no report yet\n", 404)
        headers = {**HEADERS, "Content-Security-Policy": "frame-ancestors 'none'"}
        return Response(content, media_type="text/html", headers=headers)

    async def control(request_: Request) -> Response:
        body = await _json(request_)
        watch = follower.watch
        if not follower.has_controls or watch is None:
            return JSONResponse({"accepted": False, "text": "this page has no controls"})
        words = body.get("words") if isinstance(body, dict) else None
        accepted, text = await asyncio.to_thread(request, watch.path, words)
        return JSONResponse({"accepted": accepted, "text": text})

    async def login(request_: Request) -> Response:
        body = await _json(request_)
        token = body.get("token") if isinstance(body, dict) else None
        if not isinstance(token, str) or not guard.opens(token):
            await asyncio.sleep(REFUSED_S)
            return PlainTextResponse("this is not the token of the page\n", 403)
        answer = PlainTextResponse("welcome\n")
        answer.set_cookie(
            guard.cookie_of(request_.headers),
            guard.session,
            secure=guard.tls is not None,
            httponly=True,
            samesite="strict",
        )
        return answer

    routes = [Route(path, page(each)) for path, each in PAGES.items()]
    routes += [Route("/events", events), Route(f"/{REPORT_FILE}", report)]
    routes += [Route("/control", control, methods=["POST"])]
    routes += [Route("/login", login, methods=["POST"])]
    ask = Response(LOGIN.text(), 401, HEADERS, LOGIN.media_type)
    return Guarded(Starlette(routes=routes), guard, ask)


async def _json(request_: Request) -> object:
    """Returns the body of a request; None if it is not JSON, too long, or nested too deep."""
    try:
        return json.loads(await request_.body())
    except (ValueError, RecursionError):
        return None


async def serve(
    follower: RunFollower, guard: Guard, listener: socket.socket, ended: asyncio.Event
) -> None:
    """Serves the page until `ended`, then sends every browser the last state."""
    async with serving(application(follower, guard), LIMITS, guard.tls, listener):
        following = asyncio.create_task(follower.follow())
        waiting = asyncio.create_task(ended.wait())
        await asyncio.wait([following, waiting], return_when=asyncio.FIRST_COMPLETED)
        await end_tasks([following, waiting])
        await follower.finish()


async def serve_run(
    settings: WebSettings, listener: socket.socket, lines: asyncio.StreamReader
) -> None:
    """Serves the page of the runs that the lines of a controller name, until the lines end."""
    around = Surroundings()
    follower, ended = RunFollower(around, has_controls=True), asyncio.Event()

    async def listen() -> None:
        while line := await lines.readline():
            try:
                _take(Message.model_validate_json(line), around, follower)
            except ValidationError:
                continue
        ended.set()

    listening = asyncio.create_task(listen())
    await serve(follower, guard_of(settings, open=OPEN), listener, ended)
    await end_tasks([listening])


def _take(message: Message, around: Surroundings, follower: RunFollower) -> None:
    if message.name is not None:
        around.name = message.name
    if message.step is not None:
        around.step = message.step
    if message.after_s is not None:
        around.after_s = message.after_s
    if message.starting is not None:
        around.starting = message.starting
    if message.folder is not None:
        around.starting = ""
        follower.show(Path(message.folder))
