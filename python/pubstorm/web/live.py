"""The live page: the run that it follows, polled once a second and evaluated now and then, the
stream of events for browsers, and the report of a run that is over. While no browser looks, files
are read rarely. A browser that reads slowly skips; one that comes back gets the events it missed,
or everything once more."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

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

from pubstorm.errors import PubstormError
from pubstorm.files import content_of
from pubstorm.host.ends import end_tasks
from pubstorm.web.now import VerdictSoFar
from pubstorm.web.process import Message, WebSettings
from pubstorm.web.server import ConnectionLimits, Guard, Guarded, guard_of, serving
from pubstorm.web.watch import REPORT_FILE, Surroundings, Watch, request

KEPT_MAX = 300
"""Events that are kept for browsers that come back: 5 minutes."""
PING_S = 15.0
"""Longest silence of a stream."""
PING = b": still here\n\n"


class Feed:
    """The stream of one page."""

    def __init__(self, whole: Callable[[], dict[str, Any]]) -> None:
        """`whole` returns everything that a browser needs to begin."""
        self.viewers = 0
        """Browsers that read the stream."""
        self.arrived = asyncio.Event()
        """Set while a browser reads the stream."""
        self._whole = whole
        self._epoch = 0
        self._number = 0
        self._kept: deque[bytes] = deque(maxlen=KEPT_MAX)
        self._news = asyncio.Event()
        self._first: bytes | None = None
        """The beginning of a stream at this number."""
        self._closed = False

    def push(self, news: dict[str, Any]) -> None:
        """Sends news to every browser."""
        self._number += 1
        self._kept.append(self._event("news", news))
        self._wake()

    def begin_again(self) -> None:
        """Sends everything to every browser: numbers mean something new from now on."""
        self._epoch += 1
        self._number += 1
        self._kept.clear()
        self._wake()

    def close(self) -> None:
        """Ends every stream."""
        self._closed = True
        self._wake()

    async def stream(self, last_id: str) -> AsyncIterator[bytes]:
        """Yields the events after the one with an id; everything if the id is not known."""
        epoch, number = _parsed(last_id)
        self.viewers += 1
        self.arrived.set()
        try:
            while True:
                news = self._news
                if epoch != self._epoch or not self._reaches(number):
                    epoch, number = self._epoch, self._number
                    yield self._beginning()
                elif number < self._number:
                    number += 1
                    yield self._kept[number - self._oldest]
                elif self._closed:
                    return
                else:
                    try:
                        async with asyncio.timeout(PING_S):
                            await news.wait()
                    except TimeoutError:
                        yield PING
        finally:
            self.viewers -= 1
            if not self.viewers:
                self.arrived.clear()

    def _reaches(self, number: int) -> bool:
        """True if nothing after a number is forgotten."""
        return self._oldest - 1 <= number <= self._number

    @property
    def _oldest(self) -> int:
        """Number of the oldest event that is kept."""
        return self._number - len(self._kept) + 1

    def _beginning(self) -> bytes:
        if self._first is None:
            self._first = self._event("whole", self._whole())
        return self._first

    def _event(self, kind: str, content: dict[str, Any]) -> bytes:
        text = json.dumps(content, separators=(",", ":"), allow_nan=False)
        return f"id: {self._epoch}.{self._number}\nevent: {kind}\ndata: {text}\n\n".encode()

    def _wake(self) -> None:
        self._first = None
        self._news.set()
        self._news = asyncio.Event()


def _parsed(last_id: str) -> tuple[int, int]:
    """Returns epoch and number of an id; ones that no event has if it is broken."""
    epoch, _, number = last_id.partition(".")
    if epoch.isdecimal() and number.isdecimal() and len(last_id) < 40:
        return int(epoch), int(number)
    return -1, -1


POLL_S = 1.0
"""Time between two looks at the files while a browser looks."""
IDLE_S = 5.0
"""The same while none does."""
END_S = 1.0
"""Longest time for which the end waits for an evaluation."""


class RunFollower:
    """The run that the page shows, and what browsers get of it."""

    def __init__(self, around: Surroundings, *, has_controls: bool = False) -> None:
        self.around = around
        self.has_controls = has_controls
        """True if the page steers the run."""
        self.watch: Watch | None = None
        self.feed = Feed(self._whole)
        self._outcome: VerdictSoFar | None = None
        self._shape: tuple[object, ...] = ()
        self._evaluating: asyncio.Task[None] | None = None

    @property
    def report(self) -> Path | None:
        """The report of the run; None if there is none."""
        return None if self.watch is None else self.watch.report

    def show(self, path: Path) -> None:
        """Follows another run from now on."""
        self.watch = Watch(path, self.around, has_controls=self.has_controls)
        self._outcome = None

    def leave(self) -> None:
        """Follows no run from now on."""
        self.watch = None

    async def follow(self) -> None:
        """Follows until it is cancelled."""
        while True:
            await self._read()
            if self.feed.viewers:
                self._push()
                self._evaluate()
            await self._pause()

    async def finish(self) -> None:
        """Sends the last state, and ends the streams."""
        if self._evaluating is not None:
            await asyncio.wait([self._evaluating], timeout=END_S)
        if self.watch is not None:
            self.watch.look_at_end()
        await self._read()
        self._push()
        self.feed.close()

    async def _read(self) -> None:
        while self.watch is not None and self.watch.poll():
            await asyncio.sleep(0)

    async def _pause(self) -> None:
        """Waits until the next look. The first browser is not kept waiting."""
        if self.feed.viewers:
            await asyncio.sleep(POLL_S)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(IDLE_S):
                await self.feed.arrived.wait()

    def _push(self) -> None:
        watch = self.watch
        shape: tuple[object, ...] = ()
        if watch is not None:
            shape = (watch.path, watch.history.width_s, len(watch.keys), watch.is_over)
            shape += (watch.report is not None,)
        if shape != self._shape:
            self._shape = shape
            self.feed.begin_again()
        elif watch is not None:
            news = watch.news()
            # A run that is over has no more news.
            if not watch.is_over or news["values"] or news["events"]:
                self.feed.push(news)

    def _evaluate(self) -> None:
        watch = self.watch
        if watch is None or watch.is_over or watch.start is None or watch.plan is None:
            return
        if self._evaluating is not None and not self._evaluating.done():
            return
        try:
            if self._outcome is None:
                self._outcome = VerdictSoFar(watch.path)
        except PubstormError:
            return
        if self._outcome.is_due:
            self._evaluating = asyncio.create_task(self._evaluated(watch, self._outcome))

    async def _evaluated(self, watch: Watch, outcome: VerdictSoFar) -> None:
        at_s, verdict = watch.at_s, None
        try:
            verdict = await asyncio.to_thread(outcome.evaluate)
            watch.problem = ""
        except Exception as error:
            # The page shows everything else, and evaluates again later.
            watch.problem = f"{type(error).__name__}: {error}"
        if watch.result is None and verdict is not None:
            watch.verdict, watch.evaluated_s = verdict, at_s

    def _whole(self) -> dict[str, object]:
        if self.watch is None:
            return {"run": None, "step": self.around.step, "starting": self.around.starting}
        return self.watch.whole()


REFUSED_S = 1.0
"""Time after which a wrong token is refused."""
VIEWERS_MAX = 64
"""Browsers that may read the stream at once."""
LIMITS = ConnectionLimits(trusted_max=2 * VIEWERS_MAX, idle_s=5)
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
FOREIGN = "sandbox allow-scripts allow-downloads; form-action 'none'; frame-ancestors 'none'"
"""Policy of stored pages: their scripts get an origin of their own, from which the server takes no
request."""


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
    "/theme.js": Page("text/javascript", (("pubstorm.report", "templates/theme.js"),)),
}


LOGIN = Page("text/html", ((OWN, "page/login.html"),))


def guarded(routes: list[Route], guard: Guard) -> ASGIApp:
    """Returns an application of routes behind a guard, which asks a person for the token."""
    ask = Response(LOGIN.text(), 401, HEADERS, LOGIN.media_type)
    return Guarded(Starlette(routes=routes), guard, ask)


def live_routes(
    follower: RunFollower, guard: Guard, pages: Mapping[str, Page] = PAGES
) -> list[Route]:
    """Returns the routes of the live page. `pages` are its files, by path."""

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
        headers = {**HEADERS, "Content-Security-Policy": FOREIGN}
        return Response(content, media_type="text/html", headers=headers)

    async def control(request_: Request) -> Response:
        body = await json_of(request_)
        watch = follower.watch
        if not follower.has_controls or watch is None:
            return JSONResponse({"accepted": False, "text": "this page has no controls"})
        words = body.get("words") if isinstance(body, dict) else None
        accepted, text = await asyncio.to_thread(request, watch.path, words)
        return JSONResponse({"accepted": accepted, "text": text})

    async def login(request_: Request) -> Response:
        body = await json_of(request_)
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

    return [
        *(Route(path, page(each)) for path, each in pages.items()),
        Route("/events", events),
        Route(f"/{REPORT_FILE}", report),
        Route("/control", control, methods=["POST"]),
        Route("/login", login, methods=["POST"]),
    ]


async def json_of(request_: Request) -> object:
    """Returns the body of a request; None if it is not JSON, too long, or nested too deep."""
    try:
        return json.loads(await request_.body())
    except (ValueError, RecursionError):
        return None


async def serve(
    follower: RunFollower,
    guard: Guard,
    listener: socket.socket,
    ended: asyncio.Event,
    routes: list[Route] | None = None,
) -> None:
    """Serves the page until `ended`, then sends every browser the last state. `routes` have more
    than the page."""
    app = guarded(live_routes(follower, guard) if routes is None else routes, guard)
    async with serving(app, LIMITS, guard.tls, listener):
        following = asyncio.create_task(follower.follow())
        waiting = asyncio.create_task(ended.wait())
        await asyncio.wait([following, waiting], return_when=asyncio.FIRST_COMPLETED)
        await end_tasks([following, waiting])
        await follower.finish()


async def serve_run(
    settings: WebSettings, listener: socket.socket, lines: asyncio.StreamReader
) -> None:
    """Serves the page of the runs that the lines of a controller name, until the lines end."""
    around = Surroundings(stays=False)
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
