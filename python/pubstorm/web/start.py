"""The page without a run: a form for the kinds of `pubstorm bench`, the run that it started, and
the stored runs of a folder, which are repeated and compared. A run is a child process with a fixed
list of words, one at a time. It ends with this process as with Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from pubstorm.errors import PubstormError, StoredRunError, UsageError
from pubstorm.files import is_regular
from pubstorm.host.children import CANNOT_START, parent_death_prefix, start_failure
from pubstorm.play.directory import new_path
from pubstorm.report import is_stored
from pubstorm.web.live import (
    FOREIGN,
    HEADERS,
    OWN,
    PAGES,
    Page,
    RunFollower,
    json_of,
    live_routes,
    serve,
)
from pubstorm.web.runs import RunList
from pubstorm.web.server import Guard
from pubstorm.web.watch import REPORT_FILE, Surroundings, run_in

LOOK_S = 0.25
"""Time between two looks at the child process."""
END_S = 60.0
"""Longest time in which the run ends after this process was asked to end."""
SAID_BYTES_MAX = 8192
"""Bytes of the child's stderr that are shown, the last."""
NICENESS = 10
"""Of the thread that reads results and compares runs: a run that is played comes first."""
VALUE_CHARS_MAX = 200
"""Longest value of the form."""
OPTIONS = {
    "clients": "--clients",
    "rate": "--rate",
    "size": "--size",
    "qos": "--qos",
    "time": "--for",
}
"""Options of `pubstorm bench`, by the field of the form."""

T = TypeVar("T")
Compare = Callable[[Path, Path, Path], object]
"""Compares the stored runs in two folders, and stores the comparison in a third one. Raises
PubstormError."""


@dataclass
class ChildRun:
    """A run that was started from the page."""

    command: str
    """The command line, for a shell."""
    folder: Path
    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    """The child's stderr."""
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the run has its folder, or has ended."""

    @property
    def is_over(self) -> bool:
        """True if the process has ended."""
        return self.process.poll() is not None

    def interrupt(self) -> None:
        """Ends the run as Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)

    def said(self) -> str:
        """Returns the end of the child's stderr."""
        size = os.fstat(self.errors.fileno()).st_size
        start = max(size - SAID_BYTES_MAX, 0)
        text = os.pread(self.errors.fileno(), SAID_BYTES_MAX, start).decode(errors="replace")
        return text.strip()


class Starter:
    """Starts runs, one at a time, and shows them on the live page."""

    def __init__(self, folder: Path, compare: Compare) -> None:
        self.list = RunList(folder)
        self.follower = RunFollower(Surroundings(), has_controls=True)
        self.active: ChildRun | None = None
        self.failed: dict[str, str] | None = None
        """Command line and stderr of the latest run, if it has no result."""
        self._compare = compare
        self._is_closing = False
        self._attending: asyncio.Task[None] | None = None
        self._worker = ThreadPoolExecutor(1, initializer=partial(os.nice, NICENESS))

    async def start(self, command: str, name: str, words: Sequence[str]) -> None:
        """Starts `python -m pubstorm` with these words, and waits until the run has its folder.
        `name` becomes a part of the folder's name. Raises UsageError if a run is being played, or
        with the words of a child that refuses."""
        if self._is_closing:
            raise UsageError("the server of this page is ending")
        if self.active is not None:
            text = f"found a run that is being played: {self.active.command}"
            raise UsageError(text, "one run at a time is allowed: stop it, or wait for its end")
        folder = new_path(self.list.folder, name, datetime.now().astimezone())
        child = self.active = _child(command, folder, words)
        self.failed = None
        self.follower.around.starting = "The run is starting."
        self.follower.leave()
        self._attending = asyncio.create_task(self._attend(child))
        await child.begun.wait()
        if self.failed is not None and self.active is not child:
            refused, self.failed = self.failed["text"], None
            raise UsageError(refused)

    def interrupt(self) -> None:
        """Ends the active run as Ctrl-C does."""
        if self.active is not None:
            self.active.interrupt()

    async def compared(self, names: Sequence[object]) -> str:
        """Compares two runs of the list, the older one as baseline, and stores the comparison in
        the folder. Returns its name. Raises PubstormError."""
        if len(names) != 2:
            raise UsageError(f"found {len(names)} runs, allowed are two", "choose two of the list")
        folders = [self.list.folder_of(each) for each in names]
        rows = (await self.in_worker(self.list.listed))[0]
        order = [row["name"] for row in reversed(rows)]
        folders.sort(key=lambda each: order.index(each.name) if each.name in order else -1)
        older, newer = folders
        out = new_path(self.list.folder, "comparison", datetime.now().astimezone())
        await self.in_worker(partial(self._compare, older, newer, out))
        if not is_regular(out / REPORT_FILE):
            hint = f"pubstorm report {out} makes the page, or says why it cannot"
            raise StoredRunError(f"the comparison in {out} has no page", hint)
        return out.name

    async def in_worker(self, work: Callable[[], T]) -> T:
        """Calls a function in the thread of low priority."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    async def state(self) -> dict[str, Any]:
        """Returns everything that the start page shows."""
        rows, left_out = await self.in_worker(self.list.listed)
        active = self.active
        if active is not None:
            rows = [row for row in rows if row["name"] != active.folder.name]
        return {
            "folder": str(self.list.folder),
            "active": active and {"command": active.command, "folder": str(active.folder)},
            "failed": self.failed,
            "runs": rows,
            "left_out": left_out,
        }

    async def close(self) -> None:
        """Ends the active run, and starts none from now on."""
        self._is_closing = True
        self.interrupt()
        if self._attending is not None:
            await asyncio.wait({self._attending}, timeout=END_S)
        if self.active is not None:
            self.active.process.kill()
        if self._attending is not None:
            await asyncio.wait({self._attending}, timeout=END_S)
        self._worker.shutdown(wait=False, cancel_futures=True)

    async def _attend(self, child: ChildRun) -> None:
        """Shows a run on the live page until its process has ended."""
        while not child.is_over:
            self._show(child)
            await asyncio.sleep(LOOK_S)
        self._show(child)
        self.active = None
        if not is_stored(child.folder):
            text = child.said() or "the run ended before its first stage"
            self.failed = {"command": child.command, "text": text}
            self.follower.around.starting = "The run has no result. The list of all runs says why."
            self.follower.leave()
        child.errors.close()
        child.begun.set()

    def _show(self, child: ChildRun) -> None:
        """Shows the newest run in the folder of the child."""
        try:
            newest = run_in(child.folder)
        except StoredRunError:
            return
        if self.follower.watch is None or self.follower.watch.path != newest:
            self.follower.around.starting = ""
            self.follower.show(newest)
        child.begun.set()


def _child(command: str, folder: Path, words: Sequence[str]) -> ChildRun:
    """Starts the process of a run. `words` begin with the command of Pubstorm and end with `--` and
    its arguments."""
    verb, *others = words
    prefix = (*parent_death_prefix(signal.SIGINT), sys.executable, "-m", "pubstorm")
    errors = tempfile.TemporaryFile()  # noqa: SIM115 -- closed with the child
    try:
        process = subprocess.Popen(
            [*prefix, verb, "--quiet", f"--out={folder}", *others],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            # A Ctrl-C of the terminal is for this process, which passes it on.
            start_new_session=True,
        )
    except CANNOT_START as error:
        errors.close()
        raise UsageError(*start_failure("pubstorm", error)) from error
    return ChildRun(command, folder, process, errors)


def bench_words(form: object) -> tuple[str, str, list[str]]:
    """Returns the command line of a form, for a shell, the name of its run, and the words of the
    child. Raises UsageError for values that are no words of one line. All else is for `pubstorm
    bench` to refuse."""
    fields = form if isinstance(form, dict) else {}
    values = {key: _value(key, fields.get(key, "")) for key in ("kind", "target", *OPTIONS)}
    kind, target = values["kind"], values["target"]
    arguments = [kind, target] if target else [kind]
    options = [f"{option}={values[key]}" for key, option in OPTIONS.items() if values[key]]
    command = shlex.join(["pubstorm", "bench", *arguments, *options])
    return command, f"bench-{kind}", ["bench", *options, "--", *arguments]


def _value(key: str, value: object) -> str:
    text = value.strip() if isinstance(value, str) else None
    if text is None or not text.isprintable() or len(text) > VALUE_CHARS_MAX:
        allowed = f"allowed are words in one line, of {VALUE_CHARS_MAX} characters"
        raise UsageError(f"{key}: found {value!r:.60}, {allowed}")
    if "${" in text:
        raise UsageError(
            f"{key}: found a reference, which only a scenario may have", "leave it out"
        )
    return text


def start_routes(starter: Starter, guard: Guard) -> list[Route]:
    """Returns the routes of the start page and of the live page. Raises ValueError without a token,
    since the page starts processes."""
    if guard.token is None:
        raise ValueError("a page that starts processes has a token")

    async def state(_request: Request) -> Response:
        return _as_json(await starter.state())

    async def start(request: Request) -> str:
        await starter.start(*bench_words(await json_of(request)))
        return "/live"

    async def repeat(request: Request) -> str:
        body = await json_of(request)
        name = body.get("run") if isinstance(body, dict) else None
        command, words = await starter.in_worker(partial(starter.list.again, name))
        await starter.start(command.text, command.name, words)
        return "/live"

    async def compare(request: Request) -> str:
        body = await json_of(request)
        names = body.get("runs") if isinstance(body, dict) else None
        name = await starter.compared(names if isinstance(names, list) else [])
        return f"/runs/{name}/{REPORT_FILE}"

    async def stop(_request: Request) -> str:
        starter.interrupt()
        return ""

    async def file(request: Request) -> Response:
        name, inner = request.path_params["name"], request.path_params["inner"]
        content = await starter.in_worker(partial(starter.list.file, name, inner))
        if content is None:
            return PlainTextResponse("found no such file of a run\n", 404)
        kind = "text/html" if inner.endswith(".html") else "text/plain"
        headers = {**HEADERS, "Content-Security-Policy": FOREIGN}
        return Response(content, media_type=kind, headers=headers)

    pages = {
        **PAGES,
        "/": Page("text/html", ((OWN, "page/start.html"),)),
        "/live": PAGES["/"],
        "/start.js": Page("text/javascript", ((OWN, "page/start.js"),)),
    }
    posts = {"/start": start, "/repeat": repeat, "/compare": compare, "/stop": stop}
    return [
        *live_routes(starter.follower, guard, pages),
        Route("/state", state),
        Route("/runs/{name}/{inner:path}", file),
        *(Route(path, _posted(starter, each), methods=["POST"]) for path, each in posts.items()),
    ]


def _posted(
    starter: Starter, answer: Callable[[Request], Awaitable[str]]
) -> Callable[[Request], Awaitable[Response]]:
    """Returns a route that answers with the place to go to, or with the reason of a refusal."""

    async def posted(request: Request) -> Response:
        try:
            return _as_json({"accepted": True, "to": await answer(request)})
        except PubstormError as error:
            words = error.message if error.hint is None else f"{error.message}\n{error.hint}"
            to = "/live" if starter.active is not None else ""
            return _as_json({"accepted": False, "text": words, "to": to})

    return posted


def _as_json(found: object) -> Response:
    # In ASCII, since a name of a file may hold half a pair.
    return Response(json.dumps(found), media_type="application/json", headers=HEADERS)


async def serve_starter(
    starter: Starter, guard: Guard, listener: socket.socket, asked: asyncio.Event
) -> None:
    """Serves the page until `asked`. Then the active run ends, and every browser gets its last
    state."""
    ended = asyncio.Event()

    async def end() -> None:
        await asked.wait()
        await starter.close()
        ended.set()

    ending = asyncio.create_task(end())
    try:
        await serve(starter.follower, guard, listener, ended, start_routes(starter, guard))
    finally:
        asked.set()
        await ending
