"""The pages of `pubstorm monitor`: the monitors of this host, read-only. Each connection has
monitors of its own: shares and rates are about the time between two requests of one connection."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from itertools import chain
from pathlib import Path

import psutil
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from pubstorm.contract import Source
from pubstorm.host.children import parent_death_prefix
from pubstorm.host.members import LocalProcesses
from pubstorm.host.sockets import load_library
from pubstorm.measure.monitors import Monitor, MonitorError
from pubstorm.measure.monitors.host import HostMonitor
from pubstorm.measure.monitors.process import process_monitors
from pubstorm.measure.monitors.profiling import Perf, PerfError
from pubstorm.measure.monitors.remote import (
    HOST_PAGE,
    PROCESS_PAGE,
    PROFILE_PAGE,
    ProfilePage,
    written,
)
from pubstorm.quantities import SECOND_NS
from pubstorm.scenario.monitors import Process, Profile
from pubstorm.web.server import ConnectionLimits, Guard, Guarded, HttpConnection

LIMITS = ConnectionLimits(trusted_max=32, idle_s=2 * 3600)
LONG = frozenset({PROFILE_PAGE})
"""Pages of requests with a body: a profile ends with it."""
MONITORS_MAX = 8
"""Processes that one connection may ask for."""
QUERY_FIELDS_MAX = 8
PROFILE_MAX_NS = 3600 * SECOND_NS
"""Longest profile."""
EXPOSITION = "text/plain; version=0.0.4"
PROCESS = Source.single("process", "process")
"""Source of a process; the reader names it."""


class _RefusedError(Exception):
    """A request that gets no page: the status, and why."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class _Kept:
    """The monitors of one connection, and the one thread in which they are read: sockets of the
    kernel belong to a thread."""

    def __init__(self) -> None:
        self._monitors: dict[str, tuple[Monitor, ...]] = {}
        self._thread = ThreadPoolExecutor(1, "connection")

    async def read(
        self, subject: str, key: str, make: Callable[[], tuple[Monitor, ...]]
    ) -> Response:
        """Returns the readings of monitors, which the first request with a key makes."""

        def read() -> str:
            if key not in self._monitors:
                if len(self._monitors) > MONITORS_MAX:
                    text = f"a connection may ask for {MONITORS_MAX} processes: open another"
                    raise _RefusedError(HTTPStatus.BAD_REQUEST, text)
                self._monitors[key] = make()
            return "".join(written(subject, each.read()) for each in self._monitors[key])

        loop = asyncio.get_running_loop()
        text = await loop.run_in_executor(self._thread, read)
        return Response(text, media_type=EXPOSITION)

    def end(self) -> None:
        """Stops all of them after the reading that is being taken, without waiting for it."""
        self._thread.submit(self._stop)
        self._thread.shutdown(wait=False)

    def _stop(self) -> None:
        for monitor in chain.from_iterable(self._monitors.values()):
            with contextlib.suppress(MonitorError):
                monitor.stop()


class _Recording(threading.Event):
    """A recording that is made: set to end it."""

    is_wanted = True


class HostPages:
    """The pages of this host."""

    def __init__(self) -> None:
        self._processes = LocalProcesses()
        self._is_profiling = False
        load_library()

    def application(self, guard: Guard) -> ASGIApp:
        """Returns the application, behind the guard."""
        pages = {HOST_PAGE: self._host, PROCESS_PAGE: self._process, PROFILE_PAGE: self._profile}
        routes = [Route(path, page) for path, page in pages.items()]

        async def refuse(_: Request, error: Exception) -> Response:
            assert isinstance(error, _RefusedError)
            return PlainTextResponse(f"{error}\n", error.status)

        async def missing(request: Request, _: Exception) -> Response:
            path = request.url.path
            text = f"found no page {path!r}, allowed are {', '.join(pages)}\n"
            return PlainTextResponse(text, HTTPStatus.NOT_FOUND)

        handlers = {_RefusedError: refuse, HTTPStatus.NOT_FOUND.value: missing}
        return Guarded(Starlette(routes=routes, exception_handlers=handlers), guard)

    async def _host(self, request: Request) -> Response:
        return await _kept_by(request).read("host", HOST_PAGE, lambda: (HostMonitor(),))

    async def _process(self, request: Request) -> Response:
        wanted = _process_of(dict(_query_of(request)))

        def made() -> tuple[Monitor, ...]:
            return tuple(process_monitors(PROCESS, wanted, self._processes, wanted.port))

        return await _kept_by(request).read("process", repr(wanted), made)

    async def _profile(self, request: Request) -> Response:
        query = dict(_query_of(request))
        options = {key: query.pop(key) for key in ("for", "frequency") if key in query}
        wanted = _process_of(query)
        try:
            asked = Profile.model_validate(options)
        except ValidationError as error:
            raise _RefusedError(HTTPStatus.BAD_REQUEST, _words(error)) from None
        if asked.duration > PROFILE_MAX_NS:
            text = f"a profile takes at most {PROFILE_MAX_NS // SECOND_NS} s"
            raise _RefusedError(HTTPStatus.BAD_REQUEST, text)
        if self._is_profiling:
            text = "another profile is being recorded on that host: only one at a time"
            raise _RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, text)
        recording = _Recording()
        following = asyncio.create_task(_follow(request, recording))
        self._is_profiling = True
        try:
            # A long profile is parsed beside the samples of others.
            page = await asyncio.to_thread(_recorded, wanted, asked, recording)
        except (PerfError, MonitorError, OSError, psutil.Error) as error:
            raise _RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error
        finally:
            recording.set()
            following.cancel()
            self._is_profiling = False
        return Response(page.model_dump_json(), media_type="application/json")


async def _follow(request: Request, recording: _Recording) -> None:
    """Ends a recording with the body of its request, or with the client."""
    is_open = "transfer-encoding" in request.headers
    try:
        async for _ in request.stream():
            pass
        if not is_open:
            await request.receive()
            recording.is_wanted = False
    except ClientDisconnect:
        recording.is_wanted = False
    recording.set()


def _recorded(wanted: Process, asked: Profile, recording: _Recording) -> ProfilePage:
    with tempfile.TemporaryDirectory(prefix="pubstorm-monitor-") as folder:
        return asyncio.run(_perf_page(wanted, asked, recording, Path(folder)))


async def _perf_page(
    wanted: Process, asked: Profile, recording: _Recording, folder: Path
) -> ProfilePage:
    perf = Perf(folder, asked.frequency, parent_death_prefix())
    await perf.prepare()
    await perf.start(wanted)
    try:
        await asyncio.to_thread(recording.wait, asked.duration / SECOND_NS)
    finally:
        await perf.stop()
    if not recording.is_wanted:
        raise PerfError("the client has gone")
    return ProfilePage.of(await perf.profile(), perf.event)


def _kept_by(request: Request) -> _Kept:
    """Returns the monitors of the connection of a request."""
    connection: HttpConnection = request.scope["state"]["connection"]
    if "monitors" not in connection.app_state:
        kept = connection.app_state["monitors"] = _Kept()
        connection.ended.append(kept.end)
    found: _Kept = connection.app_state["monitors"]
    return found


def _query_of(request: Request) -> list[tuple[str, str]]:
    fields = request.query_params.multi_items()
    if len(fields) > QUERY_FIELDS_MAX:
        text = f"a query has at most {QUERY_FIELDS_MAX} fields"
        raise _RefusedError(HTTPStatus.BAD_REQUEST, text)
    return fields


def _process_of(query: dict[str, str]) -> Process:
    try:
        return Process.model_validate(query)
    except ValidationError as error:
        text = f"{_words(error)}, as in {PROCESS_PAGE}?port=1883"
        raise _RefusedError(HTTPStatus.BAD_REQUEST, text) from None


def _words(error: ValidationError) -> str:
    """Returns the first problem of a query."""
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else first["msg"]
