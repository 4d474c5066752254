"""A TCP relay between clients and a broker, with a rate for each direction and a delay of its own:
`python -m tests.kit.relay PORT TO_PORT RATE_BYTES_PER_S DELAY_S`. A rate of 0 is no limit."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator

CHUNK_BYTES = 1024
CHUNKS_MAX = 256
"""Chunks of a connection that wait in the relay; it does not read on before."""


class Direction:
    """The bytes of all connections in one direction."""

    def __init__(self, rate: float, delay_s: float) -> None:
        self._rate = rate
        self._delay_s = delay_s
        self._free_at_s = 0.0

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes on one connection until its end."""
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(CHUNKS_MAX)
        passing = asyncio.create_task(self._pass(queue, writer))
        now = asyncio.get_running_loop().time
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                if self._rate:
                    self._free_at_s = max(now(), self._free_at_s) + len(data) / self._rate
                    await asyncio.sleep(self._free_at_s - now())
                await queue.put((now() + self._delay_s, data))
        await queue.put((0.0, b""))
        await passing

    async def _pass(
        self, queue: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter
    ) -> None:
        now = asyncio.get_running_loop().time
        with contextlib.suppress(OSError):
            while (item := await queue.get())[1]:
                await asyncio.sleep(max(item[0] - now(), 0))
                writer.write(item[1])
                await writer.drain()
        writer.close()


async def relay(port: int, to_port: int, rate: float, delay_s: float) -> None:
    """Serves for ever."""
    there, back = Direction(rate, delay_s), Direction(rate, delay_s)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward = await asyncio.open_connection("127.0.0.1", to_port, limit=CHUNK_BYTES)
        await asyncio.gather(there.carry(reader, onward[1]), back.carry(onward[0], writer))

    server = await asyncio.start_server(serve, "127.0.0.1", port, limit=CHUNK_BYTES, backlog=512)
    print("ready", flush=True)
    await server.serve_forever()


@contextlib.contextmanager
def relaying(port: int, to_port: int, rate: float = 0, delay_s: float = 0) -> Iterator[None]:
    """Starts a relay, which is gone afterwards."""
    with serving("tests.kit.relay", port, to_port, rate, delay_s):
        yield


@contextlib.contextmanager
def serving(module: str, *words: object) -> Iterator[None]:
    """Starts a server of the tests, a module that prints `ready`. It is gone afterwards."""
    command = [sys.executable, "-m", module, *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            yield
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(relay(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])))
