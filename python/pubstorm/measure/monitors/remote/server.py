"""Serves the monitors of this host over HTTP, read-only. Each connection has monitors of its own:
shares and rates are about the time between two requests of one connection. Clients that are slow,
broken or without the token hold a place for a limited time and no more."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import select
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from socketserver import TCPServer
from typing import Any, BinaryIO
from urllib.parse import parse_qsl

import psutil
from pydantic import ValidationError

from pubstorm.contract.source import Source
from pubstorm.host.children import parent_death_prefix
from pubstorm.host.members import LocalProcesses
from pubstorm.host.sockets import load_library
from pubstorm.measure.monitors import Monitor, MonitorError
from pubstorm.measure.monitors.host import HostMonitor
from pubstorm.measure.monitors.perf import Perf, PerfError
from pubstorm.measure.monitors.process import process_monitors
from pubstorm.measure.monitors.remote.pages import (
    HOST_PAGE,
    PROCESS_PAGE,
    PROFILE_PAGE,
    ProfilePage,
    written,
)
from pubstorm.quantities import SECOND_NS
from pubstorm.scenario.monitors import Process, Profile

CONNECTIONS_MAX = 32
REQUEST_S = 10.0
"""Longest time from the start of a connection to its first request with the token."""
IDLE_S = 2 * 3600.0
"""Longest time between two requests, and for an answer to be taken."""
KEEP_ALIVE: Mapping[int, int] = {
    socket.TCP_KEEPIDLE: 60,
    socket.TCP_KEEPINTVL: 10,
    socket.TCP_KEEPCNT: 6,
}
"""A client without an answer to these probes has ended."""
REQUEST_BYTES_MAX = 8192
MONITORS_MAX = 8
"""Processes that one connection may ask for."""
PROFILE_MAX_NS = 3600 * SECOND_NS
"""Longest profile."""

PROCESS = Source.single("process", "process")
"""Source of a process; the reader names it."""


class MonitorServer(ThreadingHTTPServer):
    """Serves until it is ended."""

    timeout = 0.2
    daemon_threads = False
    request_queue_size = 64

    def __init__(
        self,
        address: tuple[Any, ...],
        family: socket.AddressFamily,
        token: str | None,
        context: ssl.SSLContext | None,
    ) -> None:
        """Listens on the address. Every request needs the token unless it is None. `context`: TLS
        of the server; None for plain HTTP. Raises OSError if the address cannot be had."""
        self.address_family = family
        self.processes = LocalProcesses()
        self.profiling = threading.Lock()
        """Held while a profile is recorded."""
        self._token = token
        self._context = context
        self._places = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._until_s: dict[socket.socket, float] = {}
        """Instants at which connections are closed."""
        self._ending = False
        load_library()
        super().__init__(address, _Handler)

    def serve(self) -> None:
        """Serves until `end` is called. Then ends all connections and what they do."""
        try:
            while not self._ending:
                self.handle_request()
                self._end_late(time.monotonic())
        finally:
            self._ending = True
            self._end_late(float("inf"))
            self.server_close()

    def end(self) -> None:
        """Ends serving soon. May be called by a handler of signals, and by other threads."""
        self._ending = True

    def server_bind(self) -> None:
        """Binds without a question to a name server."""
        TCPServer.server_bind(self)

    def allows(self, authorization: str | None) -> bool:
        """Returns True for a request with the token."""
        if self._token is None:
            return True
        given = (authorization or "").encode("latin-1", errors="replace")
        return hmac.compare_digest(given, f"Bearer {self._token}".encode())

    def trust(self, connection: socket.socket) -> None:
        """Lets a connection stay open between its requests."""
        self._until_s[connection] = float("inf")
        connection.settimeout(IDLE_S)

    def verify_request(self, _request: Any, _client_address: Any) -> bool:
        """Returns True if there is a place for one more connection."""
        return self._places.acquire(blocking=False)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Starts the thread of a connection."""
        try:
            super().process_request(request, client_address)
        except RuntimeError:
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serves a connection to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Shakes hands, and answers all requests of a connection."""
        request.settimeout(REQUEST_S)
        request.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEP_ALIVE.items():
            request.setsockopt(socket.IPPROTO_TCP, option, value)
        connection = request
        if self._context is not None:
            # Python 3.11 does not close a socket that was reset before its handshake.
            request.getpeername()
            connection = self._context.wrap_socket(
                request, server_side=True, do_handshake_on_connect=False
            )
        self._until_s[connection] = time.monotonic() + REQUEST_S
        try:
            if self._ending:
                return
            if isinstance(connection, ssl.SSLSocket):
                connection.do_handshake()
            super().finish_request(connection, client_address)
        finally:
            del self._until_s[connection]
            self.shutdown_request(connection)

    def handle_error(self, _request: Any, _client_address: Any) -> None:
        """Leaves broken connections without a word: the client sees why, or has gone."""

    def _end_late(self, now_s: float) -> None:
        for connection, until_s in self._until_s.copy().items():
            if until_s <= now_s:
                _end(connection)


def _end(connection: socket.socket) -> None:
    """Ends a connection that another thread may be reading: that thread reads the end."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


class _RefusedError(Exception):
    """A request that gets no page: the status, and why."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class _GoneError(Exception):
    """The client has gone."""


class _Limited:
    """Reads a connection, of each request no more than allowed."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.left = REQUEST_BYTES_MAX

    def readline(self, size: int) -> bytes:
        """Returns a line; nothing once the request is too long."""
        line = self._stream.readline(min(size, self.left))
        self.left -= len(line)
        return line

    def read1(self, size: int) -> bytes:
        """Returns the next bytes, nothing at the end. Waits for them."""
        return self._stream.read1(size)  # type: ignore[attr-defined,no-any-return]

    def close(self) -> None:
        """Closes the stream."""
        self._stream.close()


class _Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    protocol_version = "HTTP/1.1"
    server_version = "pubstorm"
    sys_version = ""
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(code)d %(message)s\n"
    disable_nagle_algorithm = True
    server: MonitorServer

    def setup(self) -> None:
        """Prepares for the first request."""
        super().setup()
        self.rfile: Any = _Limited(self.rfile)
        self._monitors: dict[str, tuple[Monitor, ...]] = {}

    def finish(self) -> None:
        """Stops the monitors of the connection."""
        super().finish()
        for monitor in chain.from_iterable(self._monitors.values()):
            with contextlib.suppress(MonitorError):
                monitor.stop()

    def handle_one_request(self) -> None:
        """Reads and answers a request."""
        self.rfile.left = REQUEST_BYTES_MAX
        super().handle_one_request()

    def do_GET(self) -> None:
        """Answers with a page, or with the reason why there is none."""
        status, content_type = HTTPStatus.OK, "text/plain"
        try:
            self._check()
            content_type, text = self._page()
        except _GoneError:
            self.close_connection = True
            return
        except _RefusedError as error:
            status, text = error.status, f"{error}\n"
        except Exception as error:
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            text = f"failed unexpectedly: {type(error).__name__}: {error}\n"
        self._answer(status, content_type, text)

    def log_message(self, *_: object) -> None:
        """Requests are not logged."""

    def _check(self) -> None:
        """Raises _RefusedError unless the request may be answered."""
        if self.rfile.left <= 0:
            self.close_connection = True
            text = f"a request has at most {REQUEST_BYTES_MAX} bytes"
            raise _RefusedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text)
        if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            self.close_connection = True
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "a request has no content")
        if not self.server.allows(self.headers.get("Authorization")):
            self.close_connection = True
            raise _RefusedError(HTTPStatus.UNAUTHORIZED, "the token is missing or wrong")
        self.server.trust(self.connection)

    def _answer(self, status: HTTPStatus, content_type: str, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        self.send_header("Content-Type", f"{content_type}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def _page(self) -> tuple[str, str]:
        """Returns type and text of the page that is asked for."""
        pages = {HOST_PAGE: self._host, PROCESS_PAGE: self._process, PROFILE_PAGE: self._profile}
        path, _, query = self.path.partition("?")
        if path not in pages:
            text = f"found no page {path!r}, allowed are {', '.join(pages)}"
            raise _RefusedError(HTTPStatus.NOT_FOUND, text)
        try:
            asked = dict(parse_qsl(query, max_num_fields=8))
        except ValueError as error:
            raise _RefusedError(HTTPStatus.BAD_REQUEST, str(error)) from None
        return pages[path](asked)

    def _host(self, _: dict[str, str]) -> tuple[str, str]:
        (monitor,) = self._monitors.setdefault(HOST_PAGE, (HostMonitor(),))
        return _EXPOSITION, written("host", monitor.read())

    def _process(self, query: dict[str, str]) -> tuple[str, str]:
        wanted = _process_of(query)
        key = repr(wanted)
        if key not in self._monitors:
            if len(self._monitors) > MONITORS_MAX:
                text = f"a connection may ask for {MONITORS_MAX} processes: open another"
                raise _RefusedError(HTTPStatus.BAD_REQUEST, text)
            made = process_monitors(PROCESS, wanted, self.server.processes, wanted.port)
            self._monitors[key] = tuple(made)
        return _EXPOSITION, "".join(written("process", m.read()) for m in self._monitors[key])

    def _profile(self, query: dict[str, str]) -> tuple[str, str]:
        options = {key: query.pop(key) for key in ("for", "frequency") if key in query}
        wanted = _process_of(query)
        try:
            asked = Profile.model_validate(options)
        except ValidationError as error:
            raise _RefusedError(HTTPStatus.BAD_REQUEST, _words(error)) from None
        if asked.duration > PROFILE_MAX_NS:
            text = f"a profile takes at most {PROFILE_MAX_NS // SECOND_NS} s"
            raise _RefusedError(HTTPStatus.BAD_REQUEST, text)
        if not self.server.profiling.acquire(blocking=False):
            text = "another profile is being recorded on that host: only one at a time"
            raise _RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, text)
        try:
            with tempfile.TemporaryDirectory(prefix="pubstorm-monitor-") as folder:
                page = asyncio.run(self._recorded(wanted, asked, Path(folder)))
        except (PerfError, MonitorError, OSError, psutil.Error) as error:
            raise _RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error
        finally:
            self.server.profiling.release()
        return "application/json", page.model_dump_json()

    async def _recorded(self, wanted: Process, asked: Profile, folder: Path) -> ProfilePage:
        perf = Perf(folder, asked.frequency, parent_death_prefix())
        await perf.prepare()
        await perf.start(wanted)
        try:
            self._wait(asked.duration / SECOND_NS)
        finally:
            await perf.stop()
        return ProfilePage.of(await perf.profile(), perf.event)

    def _wait(self, for_s: float) -> None:
        """Waits, at most until the client sends a line. Raises _GoneError if the client has
        gone."""
        poll = select.poll()
        poll.register(self.connection, select.POLLIN)
        if poll.poll(for_s * 1000) and not self.rfile.read1(1):
            raise _GoneError


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


_EXPOSITION = "text/plain; version=0.0.4"
