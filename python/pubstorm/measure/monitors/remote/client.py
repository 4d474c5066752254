"""Reads `pubstorm monitor` of another host. A reading gets the instant in the middle between its
question and its answer, and half the time between the two is the bound of the error."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Iterator
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import ValidationError

from pubstorm.contract import Source
from pubstorm.measure.monitors import MonitorError, Reading
from pubstorm.measure.monitors.process import PidNow
from pubstorm.measure.monitors.profiling import PERF_TIMEOUT_S, PerfError, StackProfile
from pubstorm.measure.monitors.remote import (
    HOST_PAGE,
    PROCESS_PAGE,
    PROFILE_PAGE,
    ProfilePage,
    problem_in,
    query_of,
    read,
)
from pubstorm.metrics.monitors import CLOCK_BOUND
from pubstorm.quantities import SECOND_NS
from pubstorm.scenario.monitors import Process, Remote

DEADLINE_S = 5.0
"""Longest time for a connection, and for each part of an answer."""
PROFILE_END_S = PERF_TIMEOUT_S + 15.0
"""Longest time for a profile to come after its end."""
END_OF_BODY = b"0\r\n\r\n"
"""Last chunk of a body."""
BYTES_MAX = 64 << 20
"""Longest answer that is read."""


class Endpoint:
    """A connection to `pubstorm monitor` on another host. The next question replaces a connection
    that broke."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._connection: HTTPConnection | None = None

    def get(self, page: str) -> tuple[str, int, int]:
        """Returns a page, the instant of its readings on the monotonic clock, and the bound of
        the error, in nanoseconds. Raises MonitorError with what to do."""
        if self._connection is not None:
            # The server may have closed the connection since the last question.
            with contextlib.suppress(OSError, HTTPException):
                return self._asked(page)
            self.close()
        with self.in_words():
            return self._asked(page)

    @contextlib.contextmanager
    def in_words(self) -> Iterator[None]:
        """Turns errors of the connection into a MonitorError with what to do, and closes it."""
        try:
            yield
        except (OSError, HTTPException, ValueError) as error:
            self.close()
            raise self._problem(error) from error

    def ask(self, page: str, *, is_open: bool = False) -> None:
        """Sends a question. Connects first if there is no connection. `is_open`: the question has a
        body, whose end is sent later."""
        if self._connection is None:
            self._connection = self._connected()
        token = self._remote.token
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        if is_open:
            headers["Transfer-Encoding"] = "chunked"
        self._connection.request("GET", page, headers=headers)

    def answer(self) -> str:
        """Returns the answer to the question. Raises MonitorError if it is a refusal."""
        assert self._connection is not None
        response = self._connection.getresponse()
        text = _body(response).decode(errors="replace")
        if response.status == HTTPStatus.UNAUTHORIZED:
            why = "refuses the token (401)" if self._remote.token else "needs a token (401)"
            hint = "compare it with the --token-file of pubstorm monitor there"
            raise MonitorError(f"{self.url} {why}: {hint}")
        if response.status != HTTPStatus.OK:
            raise MonitorError(f"{self.url} answers {response.status}: {text.strip()}")
        return text

    @property
    def socket(self) -> socket.socket | None:
        """The socket of the connection."""
        return None if self._connection is None else self._connection.sock

    def close(self) -> None:
        """Closes the connection. A thread that waits for an answer stops waiting."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if connection.sock is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)
        connection.close()

    @property
    def url(self) -> str:
        """Address of the other host."""
        return self._remote.url.rstrip("/")

    def _asked(self, page: str) -> tuple[str, int, int]:
        if self._connection is None:
            self._connection = self._connected()
        asked_ns = time.monotonic_ns()
        self.ask(page)
        text = self.answer()
        half_ns = (time.monotonic_ns() - asked_ns) // 2
        return text, asked_ns + half_ns, half_ns

    def _connected(self) -> HTTPConnection:
        parts = urlsplit(self._remote.url)
        host = parts.hostname or ""
        connection = HTTPConnection(host, parts.port, timeout=DEADLINE_S)
        if parts.scheme == "https":
            context = self._context()
            connection = HTTPSConnection(host, parts.port, timeout=DEADLINE_S, context=context)
        connection.connect()
        return connection

    def _context(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self._remote.ca)
        except OSError as error:
            words = error.strerror or "it holds no certificate"
            text = f"the authorities in {self._remote.ca} cannot be read ({words})"
            raise MonitorError(f"{text}: give a PEM file as ca") from error

    def _problem(self, error: Exception) -> MonitorError:
        match error:
            case ssl.SSLCertVerificationError():
                text = f"the certificate of {self.url} is not accepted ({error.verify_message})"
                return MonitorError(f"{text}: give its authority as ca, and a name that it has")
            case ssl.SSLError():
                text = f"{self.url} does not speak TLS ({error.reason or error})"
                return MonitorError(f"{text}: start pubstorm monitor there with --cert and --key")
            case OSError() if not isinstance(error, HTTPException):
                words = error.strerror or str(error) or type(error).__name__
                text = f"{self.url} cannot be reached ({words})"
                return MonitorError(f"{text}: start pubstorm monitor --listen there, or check url")
        text = f"{self.url} does not answer as pubstorm monitor does ({error})"
        return MonitorError(f"{text}: check url")


def _body(response: HTTPResponse) -> bytes:
    content = response.read(BYTES_MAX + 1)
    if len(content) > BYTES_MAX:
        raise HTTPException(f"more than {BYTES_MAX >> 20} MiB")
    return content


class RemoteMonitor:
    """Monitors another host, or a process of it."""

    def __init__(self, source: Source, endpoint: Endpoint, page: str) -> None:
        self.source = source
        self._endpoint = endpoint
        self._page = page

    def start(self) -> None:
        """Begins the shares and rates on the other host."""
        for _ in self.read():
            pass

    def read(self) -> Iterator[Reading]:
        """Yields the readings of the other host at the instant in which they were taken, at most
        the bound off."""
        text, at_ns, bound_ns = self._endpoint.get(self._page)
        yield Reading(at_ns, CLOCK_BOUND.name, bound_ns / 1000)
        for metric, value in read(text):
            yield Reading(at_ns, metric, value)
        if (problem := problem_in(text)) is not None:
            raise MonitorError(f"{self._endpoint.url} reports: {problem}")

    def stop(self) -> None:
        """Closes the connection, and with it the monitor there."""
        self._endpoint.close()


def remote_monitors(source: Source, remote: Remote) -> Iterator[RemoteMonitor]:
    """Yields the monitors of another host, each with a connection of its own."""
    if remote.process is not None:
        page = f"{PROCESS_PAGE}?{query_of(remote.process)}"
        yield RemoteMonitor(source, Endpoint(remote), page)
    yield RemoteMonitor(Source.host(source.name), Endpoint(remote), HOST_PAGE)


class RemotePerf:
    """Records a process of another host by `perf`."""

    def __init__(self, remote: Remote, folder: Path, frequency: int, duration_ns: int) -> None:
        """`folder`: where the stacks go. `duration_ns`: the longest recording."""
        self._endpoint = Endpoint(remote)
        self._folder = folder
        self._frequency = frequency
        self._duration_ns = duration_ns
        self._answer: asyncio.Task[str] | None = None
        self._event = ""

    async def prepare(self) -> None:
        """Makes the folder."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PerfError(f"cannot write {self._folder}: {error.strerror}") from error

    async def start(self, process: Process | PidNow) -> None:
        """Asks for the recording of a process."""
        assert isinstance(process, Process), "a process of another host has a pid, port or name"
        duration = f"{self._duration_ns / SECOND_NS:.3f}s"
        more = {"for": duration, "frequency": self._frequency}
        page = f"{PROFILE_PAGE}?{query_of(process, **more)}"
        await asyncio.to_thread(self._ask, page)
        self._answer = asyncio.create_task(asyncio.to_thread(self._take))

    async def stop(self) -> None:
        """Ends the recording on the other host."""
        if (connection := self._endpoint.socket) is not None:
            with contextlib.suppress(OSError):
                connection.sendall(END_OF_BODY)

    async def profile(self) -> StackProfile:
        """Waits for the answer, and stores the stacks."""
        assert self._answer is not None
        try:
            async with asyncio.timeout(PROFILE_END_S):
                text = await asyncio.shield(self._answer)
            page = ProfilePage.model_validate_json(text)
        except TimeoutError:
            raise PerfError(f"no profile came in {PROFILE_END_S:.0f} s after its end") from None
        except ValidationError as error:
            raise PerfError("the answer of the other host is no profile") from error
        finally:
            self._endpoint.close()
        self._event = page.event
        profile = page.profile()
        profile.store(self._folder)
        return profile

    @property
    def event(self) -> str:
        """Event that perf samples by."""
        return self._event

    def _ask(self, page: str) -> None:
        with self._endpoint.in_words():
            self._endpoint.ask(page, is_open=True)
            if (connection := self._endpoint.socket) is not None:
                connection.settimeout(self._duration_ns / SECOND_NS + PROFILE_END_S)

    def _take(self) -> str:
        with self._endpoint.in_words():
            return self._endpoint.answer()
