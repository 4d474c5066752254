"""Commands that serve the live page, for tests."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

from tests.kit import program

PATIENCE_S = 120.0
PAGES = ("live page: ", "start page: ")


@dataclass(frozen=True)
class Answer:
    """An answer of the page's server."""

    status: int
    headers: Mapping[str, str]
    """Values by name, in small letters."""
    text: str


@dataclass(frozen=True)
class Served:
    """A command that serves the page."""

    url: str
    """Address, which may end with a token."""
    process: subprocess.Popen[str]

    @property
    def host(self) -> str:
        """Host and port."""
        return self.url.partition("://")[2].partition("/")[0]

    @property
    def _address(self) -> str:
        return self.url.partition("#")[0]

    @property
    def _token(self) -> dict[str, str]:
        """The header with the token of the address."""
        token = self.url.partition("#token=")[2]
        return {"Authorization": f"Bearer {token}"} if token else {}

    def ask(
        self,
        path: str = "",
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Sends a request: a POST with JSON if there is a body."""
        data = None if body is None else json.dumps(body).encode()
        kind = {} if body is None else {"Content-Type": "application/json"}
        request = urllib.request.Request(
            f"{self._address}{path}", data, {**kind, **self._token, **(headers or {})}
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S, context=ANY) as answer:
                return Answer(answer.status, _named(answer.headers), answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, _named(error.headers), error.read().decode())

    def events(self, last_id: str = "") -> Iterator[tuple[str, str, Any]]:
        """Yields id, kind and content of the events of a stream."""
        headers = {**self._token, **({"Last-Event-ID": last_id} if last_id else {})}
        request = urllib.request.Request(f"{self._address}events", headers=headers)
        with urllib.request.urlopen(request, timeout=PATIENCE_S, context=ANY) as stream:
            yield from events_of(stream)


def _named(headers: Message) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def events_of(stream: HTTPResponse) -> Iterator[tuple[str, str, Any]]:
    """Yields id, kind and content of the events of a stream."""
    found: dict[str, str] = {}
    for raw in stream:
        line = raw.decode().rstrip("\n")
        if not line and found:
            yield found["id"], found["event"], json.loads(found["data"])
            found = {}
        elif not line.startswith(":"):
            key, _, value = line.partition(": ")
            found[key] = value


ANY = ssl.create_default_context()
"""Takes any certificate."""
ANY.check_hostname = False
ANY.verify_mode = ssl.CERT_NONE


@contextlib.contextmanager
def serving(*arguments: str, cwd: Path | None = None, **variables: str) -> Iterator[Served]:
    """Runs a command of Pubstorm until it serves the page, and ends it."""
    with program.popen(
        arguments,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(variables),
    ) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line.startswith(PAGES), line + process.stderr.read()
            yield Served(line.partition(": ")[2].strip(), process)
        finally:
            process.kill()


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """This process's environment, with some variables."""
    return {**os.environ, **variables}


def until(condition: Any) -> Any:
    """Waits until a function returns something true, and returns that."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline_s, f"it never became true: {_text_of(condition)}"
        time.sleep(0.05)
    return found


def _text_of(condition: Any) -> str:
    """Returns the lines of a function, where there are any."""
    try:
        return inspect.getsource(condition).strip()
    except (OSError, TypeError):
        return str(condition)
