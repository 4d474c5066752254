"""Code that runs on a host of a Ray cluster, beside the agent. Its class goes there by value, so
that hosts need only Ray; it imports nothing of Pubstorm. It installs the program and its files in a
folder of their own, starts the program with pipes, and carries bytes both ways."""

from __future__ import annotations

import asyncio
import hashlib
import os
import platform
import resource
import shutil
import sys
import tempfile
import zlib
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import ray

FRAME_BYTES = 90_000
"""Bytes of output in a frame at most, before it is compressed: below 100 kB Ray sends it in the
answer itself, above it goes through the object store, which takes longer."""
OUT, LOG, EXIT = b"o", b"l", b"x"
"""First byte of a frame: output and log of the agent, compressed; its exit code, as text."""
FRAMES = 16
"""Frames that wait for the reader at most. Then the pipe fills up and the agent waits, so that no
output is dropped. Without a reader the beats stop too, and the lease ends the agent."""
NOT_INHERITED = ("RAY_", "OMP_", "CUDA_", "PYTHON")
"""Prefixes of variables of Ray or its workers, among them the cluster's token."""
JANITOR = 'exec 3<&0; (cat <&3; rm -rf -- "$1") >/dev/null 2>&1 &'
"""Removes a folder once its stdin has come to an end, however the worker ended. The shell itself
ends at once: what is left is no child of the worker, whose children Ray kills."""


def facts() -> dict[str, int | str]:
    """State of the host."""
    return {
        "machine": platform.machine(),
        "descriptors": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        "memory_bytes": available_memory(),
    }


def available_memory() -> int:
    """Memory that is available on this host, in bytes."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


class AgentRunner:
    """An actor with one agent. What goes wrong on the host is an answer in words."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._janitor = -1
        self._process: Process | None = None
        self._read_early: Sequence[str] = ()
        self._frames: asyncio.Queue[bytes] = asyncio.Queue(FRAMES)
        self._pumps: list[asyncio.Task[None]] = []
        self._next = 0
        self._early: dict[int, bytes] = {}

    async def install(self, name: str, digest: str, program: bytes) -> tuple[str, str]:
        """Installs a program, which comes compressed, unless the host has it. Returns the id of the
        node, and the problem if there is one."""
        node = str(ray.get_runtime_context().get_node_id())
        try:
            path = await self._home() / name
            if path.exists() and _digest(path.read_bytes()) == digest:
                return node, ""
            content = zlib.decompress(program)
            found = _digest(content)
            if found != digest:
                return node, f"the program came with SHA-256 {found} instead of {digest}"
            unfinished = path.with_suffix(".new")
            unfinished.write_bytes(content)
            unfinished.chmod(0o700)
            unfinished.replace(path)
        except OSError as error:
            return node, f"cannot install the program: {error}"
        return node, ""

    async def store(self, files: Mapping[str, bytes]) -> str:
        """Writes files by their paths in the agent's folder. Returns the problem if there is
        one."""
        try:
            home = await self._home()
            for name, content in files.items():
                path = home / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch(mode=0o600)
                path.write_bytes(content)
        except OSError as error:
            return f"cannot store the files of the plan: {error}"
        return ""

    async def spawn(
        self, words: Sequence[str], variables: Mapping[str, str], read_early: Sequence[str]
    ) -> tuple[int, str]:
        """Starts the program; its process id, and what went wrong. The files that it reads before
        its first line are removed after that."""
        home = await self._home()
        program = str(home / words[0])
        command = (sys.executable, "-I", program) if program.endswith(".pyz") else (program,)
        own = {k: v for k, v in os.environ.items() if not k.startswith(NOT_INHERITED)}
        self._read_early = (*read_early, words[0])
        try:
            # It stays in the worker's process group, with which Ray ends it, whatever it does.
            self._process = await asyncio.create_subprocess_exec(
                *command,
                *words[1:],
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                limit=1 << 20,
                cwd=home,
                env={**own, **variables},
            )
        except OSError as error:
            return 0, f"cannot start the program in {home}: {error}"
        return self._process.pid, ""

    async def send(self, number: int, line: bytes) -> None:
        """Writes a line to the agent, in the order of the numbers: Ray keeps none."""
        self._early[number] = line
        stdin = self._process and self._process.stdin
        while self._next in self._early:
            text = zlib.decompress(self._early.pop(self._next))
            self._next += 1
            if stdin:
                stdin.write(text)
        if stdin:
            try:
                await stdin.drain()
            except OSError:
                return

    async def frames(self) -> AsyncIterator[bytes]:
        """Yields the agent's output to its end; the last frame is its exit code."""
        process = self._process
        assert process and process.stdout and process.stderr, "it is started with pipes"
        pumps = [self._pump(OUT, process.stdout), self._pump(LOG, process.stderr)]
        self._pumps = [asyncio.create_task(pump) for pump in pumps]
        self._pumps.append(asyncio.create_task(self._finish(process)))
        while not (frame := await self._frames.get()).startswith(EXIT):
            yield frame
        yield frame

    async def kill(self) -> None:
        """Ends the agent at once."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def _home(self) -> Path:
        """The agent's folder, and the janitor who removes it."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="pubstorm-"))
            stdin, self._janitor = os.pipe()
            words = ("sh", "-c", JANITOR, "sh", str(self._folder))
            shell = await asyncio.create_subprocess_exec(
                *words, stdin=stdin, start_new_session=True
            )
            os.close(stdin)
            await shell.wait()
        return self._folder

    async def _pump(self, kind: bytes, pipe: asyncio.StreamReader) -> None:
        while data := await pipe.read(FRAME_BYTES):
            if kind == OUT and self._read_early and b"\n" in data:
                self._forget()
            await self._frames.put(kind + zlib.compress(data, 1))

    async def _finish(self, process: Process) -> None:
        """Sends the exit code, after all output."""
        await asyncio.gather(*self._pumps[:2], return_exceptions=True)
        code = await process.wait()
        if process.stdin:
            process.stdin.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        await self._frames.put(EXIT + str(code).encode())

    def _forget(self) -> None:
        """Removes what the agent does not read again."""
        for name in self._read_early:
            (Path(self._folder or ".") / name).unlink(missing_ok=True)
        self._read_early = ()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
