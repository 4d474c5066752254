"""A machine that a deputy serves, as the controller sees it: the same as its own, but for a word on
the way. A machine that does not answer is lost, with every server on it. The deputy goes there as
one file, which any host with Python can run."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import itertools
import json
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from signal import SIGKILL, Signals
from typing import Any, Protocol

from pubstorm.errors import PubstormError, TopologyError
from pubstorm.host.counters import KernelCounters
from pubstorm.host.ends import end_tasks
from pubstorm.host.keys.files import PRIVATE_MODE
from pubstorm.host.machine import Order, open_log
from pubstorm.host.members import ProcessReading

BEAT_S = 1.0
"""Interval of words to the deputy."""
SILENT_S = 5.0
"""Silence of the deputy after which the machine is lost, unless the scenario says otherwise. It is
counted in beats, since a controller that has no processor reads no answers either."""
LEASE_LEAST_S = 10.0
"""Least time without a line from the controller after which the deputy ends."""
PIECE_BYTES = 1 << 18
"""Bytes of a file in one request. On a slow link, other words pass between the pieces."""
ANSWER_S = 30.0
"""Longest time for an answer."""
READING_S = 5.0
"""Longest time for the answer to a monitor."""
END_S = 5.0
"""Longest time for the deputy to end."""
PROGRAM_MODE = 0o700
OWN_PROGRAMS = re.compile(r"pubstorm-\w+")
"""Names of programs that are brought along."""


class Channel(Protocol):
    """The deputy's process: a slot of the fleet."""

    async def spawn(self) -> None:
        """Starts it."""

    async def send(self, line: str) -> None:
        """Writes a line to its stdin."""

    async def line(self) -> bytes:
        """Its next line; empty after the last. Raises an error if it is lost."""

    def last_words(self) -> str:
        """The last lines of its log."""


class RemoteChild:
    """A server on another machine."""

    def __init__(self, machine: RemoteMachine, pid: int, log: Path) -> None:
        self._machine = machine
        self._log = log
        self._over: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self.pid = pid
        """Its process id there."""
        self.lost = ""
        """Why its end is not known."""

    @property
    def returncode(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._over.result() if self._over.done() else None

    async def wait(self) -> int:
        """Its exit code."""
        return await asyncio.shield(self._over)

    async def line(self) -> bytes:
        """The next line of its stdout."""
        if self._over.done() and self._lines.empty():
            return b""
        return await self._lines.get()

    def signal(self, number: Signals) -> None:
        """Sends it a signal."""
        self._machine.post("signal", pid=self.pid, number=int(number), tree=False)

    def signal_tree(self, number: Signals) -> None:
        """Sends a signal to all of its process tree."""
        self._machine.post("signal", pid=self.pid, number=int(number), tree=True)

    async def listens(self, port: int) -> bool:
        """Returns False if nothing of its process tree listens on a port, or if its machine does
        not answer."""
        with contextlib.suppress(TopologyError):
            return bool(await self._machine.ask("listens", pid=self.pid, port=port))
        return False

    async def look(self) -> None:
        """Notes its process tree."""
        with contextlib.suppress(TopologyError):
            await self._machine.ask("look", pid=self.pid)

    async def end_rest(self) -> None:
        """Ends what is left of its process tree."""
        with contextlib.suppress(TopologyError):
            await self._machine.ask("end_rest", pid=self.pid)

    def take(self, event: Mapping[str, Any]) -> None:
        """Takes a line or the end."""
        if "line" in event:
            self._lines.put_nowait(event["line"].encode())
            return
        with open_log(self._log) as log:
            if log is not None:
                log.write(zlib.decompress(base64.b64decode(event["log"])))
        self._settle(event["code"])

    def lose(self, why: str) -> None:
        """Takes it for ended, since its machine does not answer."""
        if not self._over.done():
            self.lost = why
            self._settle(-SIGKILL)

    def _settle(self, code: int) -> None:
        if not self._over.done():
            self._over.set_result(code)
            self._lines.put_nowait(b"")


class RemoteMachine:
    """A machine with a deputy."""

    is_here = False

    def __init__(self, channel: Channel, address: str, silent_s: float = SILENT_S) -> None:
        """`silent_s`: silence of the deputy after which the machine is lost."""
        self.address = address
        self._silent_s = silent_s
        self.is_root = False
        self.descriptors = 0
        """Open files that a process may have there."""
        self._channel = channel
        self._home = ""
        self._root: Path | None = None
        self._programs: dict[str, str | None] = {}
        self._children: dict[int, RemoteChild] = {}
        self._early: dict[int, list[Mapping[str, Any]]] = {}
        self._sent: dict[str, int] = {}
        self._storing = asyncio.Lock()
        self._numbers = itertools.count()
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._posts: set[asyncio.Task[None]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._loop = asyncio.get_running_loop()
        self._lines_total = 0
        self.lost = ""
        """Why it does not answer; empty if it does."""

    async def open(self) -> None:
        """Starts the deputy, and waits for its first line."""
        await self._channel.spawn()
        try:
            async with asyncio.timeout(ANSWER_S):
                line = await self._channel.line()
            hello = json.loads(line)
            self._home, self.is_root = hello["home"], hello["root"]
            self.descriptors = hello["descriptors"]
        except (TimeoutError, ValueError, KeyError) as error:
            words = self._channel.last_words()
            text = f"the deputy on {self.address} did not start"
            raise TopologyError(text, f"its log ends with:\n{words}" if words else None) from error
        work = (self._take_lines(), self._beat())
        self._tasks = [asyncio.create_task(each) for each in work]

    async def close(self) -> None:
        """Ends the deputy, with its servers and their files; its channel is ended by its owner."""
        if self._tasks and not self.lost:
            self.post("end")
            await asyncio.wait(self._tasks[:1], timeout=END_S)
        await end_tasks(self._tasks)
        self._lose("its deputy was ended")

    async def find(self, program: str) -> str | None:
        """Returns the path of an installed program, which is asked for once."""
        if program not in self._programs:
            self._programs[program] = await self.ask("find", program=program)
        return self._programs[program]

    async def free_port(self, address: str = "") -> int:
        """Returns a port that is free."""
        return int(await self.ask("port", address=address or self.address))

    async def is_free(self, port: int) -> bool:
        """Returns True if a server could listen there."""
        return bool(await self.ask("is_free", port=port, address=self.address))

    async def output(
        self,
        *words: str,
        text: str = "",
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,  # noqa: ARG002
    ) -> str:
        """Returns the stdout of a command, which starts in the home of the servers there."""
        there = {name: self._there(value) for name, value in (environment or {}).items()}
        return str(await self.ask("output", words=words, text=text, environment=there))

    async def spawn(self, order: Order) -> RemoteChild:
        """Starts a server there, with its program if it is one of ours, its configuration, and the
        files beside its folder that the configuration names."""
        self._root = root = order.folder.parent
        words = [await self._program(word) for word in order.words]
        await self._store(_files_of(order), root)
        pid = await self.ask(
            "spawn",
            words=[self._there(word) for word in words],
            folder=str(order.folder.relative_to(root)),
            log=str(order.log.relative_to(root)),
            environment={name: self._there(v) for name, v in order.environment.items()},
            talks=order.talks,
        )
        child = RemoteChild(self, pid, order.log)
        self._children[pid] = child
        for event in self._early.pop(pid, []):
            child.take(event)
        if self.lost:
            child.lose(self.lost)
        return child

    def look_at(self, roots: Sequence[int]) -> ProcessReading:
        """Returns processes there, to a thread that is not the loop's."""
        return ProcessReading.of_json(self._read("look_at", roots=list(roots)))

    def counters(self) -> KernelCounters:
        """Returns the kernel's counters there, to a thread that is not the loop's."""
        return KernelCounters.of_json(self._read("counters"))

    async def ask(self, request: str, **values: Any) -> Any:
        """Returns the answer to a request; raises TopologyError."""
        self._check()
        number = next(self._numbers)
        answer = self._answers[number] = self._loop.create_future()
        await self._send({"id": number, "do": request, **values})
        try:
            answer_s = max(ANSWER_S, self._silent_s)
            async with asyncio.timeout(answer_s):
                return await answer
        except TimeoutError as error:
            text = f"{self.address} has not answered {request} for {answer_s:.0f} s"
            raise TopologyError(text) from error
        finally:
            self._answers.pop(number, None)

    def post(self, request: str, **values: Any) -> None:
        """Sends a request without waiting for its answer."""
        if not self.lost:
            line = {"id": next(self._numbers), "do": request, **values}
            task = asyncio.create_task(self._send(line))
            self._posts.add(task)
            task.add_done_callback(self._posts.discard)

    async def _send(self, request: Mapping[str, Any]) -> None:
        await self._channel.send(json.dumps(request) + "\n")

    def _read(self, request: str, **values: Any) -> Any:
        asked = asyncio.run_coroutine_threadsafe(self.ask(request, **values), self._loop)
        try:
            return asked.result(READING_S)
        except FutureTimeoutError as error:
            asked.cancel()
            raise TopologyError(f"{self.address} has not answered for {READING_S:.0f} s") from error

    async def _program(self, word: str) -> str:
        """Returns the path there of one of our programs, which it brings; of others, the word."""
        path = Path(word)
        if not (path.is_absolute() and OWN_PROGRAMS.fullmatch(path.name) and path.is_file()):
            return word
        content = await asyncio.to_thread(path.read_bytes)
        await self._store_new({f"bin/{path.name}": content}, PROGRAM_MODE)
        return f"{self._home}/bin/{path.name}"

    async def _store(self, files: Sequence[Path], root: Path) -> None:
        """Brings files, with the paths that they have there."""
        here, there = f"{root}/".encode(), f"{self._home}/".encode()
        contents = {
            str(path.relative_to(root)): path.read_bytes().replace(here, there) for path in files
        }
        await self._store_new(contents, PRIVATE_MODE)

    async def _store_new(self, contents: Mapping[str, bytes], mode: int) -> None:
        """Brings files that are not there as they are."""
        async with self._storing:
            for name, content in contents.items():
                if self._sent.get(name) != hash(content):
                    await self._store_pieces(name, content, mode)
                    self._sent[name] = hash(content)

    async def _store_pieces(self, name: str, content: bytes, mode: int) -> None:
        """Brings a file, which has its name and mode after its last piece."""
        for begin in range(0, max(1, len(content)), PIECE_BYTES):
            end = begin + PIECE_BYTES
            piece = base64.b64encode(zlib.compress(content[begin:end], 1)).decode()
            final_mode = mode if end >= len(content) else None
            await self.ask("store", name=name, at=begin, piece=piece, mode=final_mode)

    def _there(self, text: str) -> str:
        """Returns a text with the paths that files have there."""
        return text if self._root is None else text.replace(str(self._root), self._home)

    def _check(self) -> None:
        if self.lost:
            raise TopologyError(self.lost)

    async def _take_lines(self) -> None:
        """Takes answers and events until the deputy ends or is lost."""
        try:
            while line := await self._channel.line():
                self._lines_total += 1
                self._take(json.loads(line))
            self._lose(f"the deputy on {self.address} ended")
        except PubstormError as error:
            self._lose(f"{self.address}: {error.message}")
        except Exception as error:
            self._lose(f"{self.address}: {error}")

    def _take(self, line: dict[str, Any]) -> None:
        if "server" in line:
            pid = line["server"]
            if pid in self._children:
                self._children[pid].take(line)
            else:
                self._early.setdefault(pid, []).append(line)
            return
        answer = self._answers.get(line["id"])
        if answer is None or answer.done():
            return
        if "error" in line:
            answer.set_exception(TopologyError(f"{self.address}: {line['error']}", line["hint"]))
        else:
            answer.set_result(line["answer"])

    async def _beat(self) -> None:
        """Renews the deputy's lease, and notices its silence."""
        silent = 0
        while silent * BEAT_S < self._silent_s:
            lines_total = self._lines_total
            self.post("beat")
            await asyncio.sleep(BEAT_S)
            silent = silent + 1 if self._lines_total == lines_total else 0
        hint = "topology.hosts_timeout allows more"
        self._lose(f"{self.address} has not answered for {silent * BEAT_S:.0f} s ({hint})")

    def _lose(self, why: str) -> None:
        """Nothing there answers any more."""
        self.lost = self.lost or why
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(TopologyError(self.lost))
        for child in self._children.values():
            child.lose(self.lost)


def lease_s(silent_s: float) -> float:
    """Returns the lease of a deputy that may be silent so long: its host may stand still, too."""
    return max(LEASE_LEAST_S, 2 * silent_s)


def _files_of(order: Order) -> Sequence[Path]:
    """Returns the files beside a server's log in its folder, and those that its command, its
    variables or these files name below the parent of the folder."""
    root = order.folder.parent
    named = re.compile(re.escape(f"{root}/").encode() + rb"[^\s\"']+")
    found: dict[Path, None] = {}
    texts = [word.encode() for word in (*order.words, *order.environment.values())]
    if order.folder.is_dir():
        own = (path for path in order.folder.iterdir() if path.is_file() and path != order.log)
        found = dict.fromkeys(own)
        texts += [path.read_bytes() for path in found]
    while texts:
        for name in named.findall(texts.pop()):
            path = Path(name.decode(errors="replace"))
            if path.is_file() and path not in found:
                found[path] = None
                texts.append(path.read_bytes())
    return tuple(found)


NAME = "pubstorm-deputy.pyz"
"""Name of the file."""
MODULES = (
    "errors",
    "output",
    "host/children",
    "host/counters",
    "host/deputy/__main__",
    "host/ends",
    "host/machine",
    "host/members",
    "host/proc",
    "host/sockets",
)
"""Modules of the deputy. They import nothing that does not come with Python."""
PACKAGES = ("", "host/", "host/deputy/")
MAIN = "from pubstorm.host.deputy.__main__ import main\nmain()\n"
EARLIEST = (1980, 1, 1, 0, 0, 0)


def pack(path: Path) -> None:
    """Writes the deputy to a file; the same modules make the same file."""
    content = io.BytesIO()
    root = Path(__file__).parents[2]
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for module in MODULES:
            text = (root / f"{module}.py").read_text()
            archive.writestr(zipfile.ZipInfo(f"pubstorm/{module}.py", EARLIEST), text)
        for package in PACKAGES:
            archive.writestr(zipfile.ZipInfo(f"pubstorm/{package}__init__.py", EARLIEST), "")
        archive.writestr(zipfile.ZipInfo("__main__.py", EARLIEST), MAIN)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.getvalue())
