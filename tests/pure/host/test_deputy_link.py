"""The way to a deputy, in virtual time: a slow link, and a deputy that is silent."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from pubstorm.errors import TopologyError
from pubstorm.host.deputy.__main__ import Servers
from pubstorm.host.deputy.remote import BEAT_S, RemoteMachine, lease_s
from pubstorm.host.machine import Order
from tests.kit.virtual import run_virtually

FILE_BYTES = 16_000_000
LINK_BYTES_PER_S = 1_000_000
PID = 7


class SlowLink:
    """A channel to a deputy that stores files and starts nothing. It carries one line at a time."""

    def __init__(self, home: Path) -> None:
        self.is_silent = False
        self.longest_s = 0.0
        """Longest time between two lines that the deputy has read."""
        self._home = home
        self._servers = Servers(home, lambda _: None)
        self._wire = asyncio.Lock()
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._read_s = asyncio.get_running_loop().time()

    async def spawn(self) -> None:
        hello = {"home": str(self._home), "root": True, "descriptors": 1000}
        self._lines.put_nowait(json.dumps(hello).encode())

    async def send(self, line: str) -> None:
        async with self._wire:
            await asyncio.sleep(len(line) / LINK_BYTES_PER_S)
        now_s = asyncio.get_running_loop().time()
        self.longest_s, self._read_s = max(self.longest_s, now_s - self._read_s), now_s
        if self.is_silent:
            return
        request = json.loads(line)
        number, name = request.pop("id"), request.pop("do")
        if name == "store":
            await self._servers.store(**request)
        answer = {"id": number, "answer": PID if name == "spawn" else None}
        self._lines.put_nowait(json.dumps(answer).encode())

    async def line(self) -> bytes:
        return await self._lines.get()

    def last_words(self) -> str:
        return ""


def order_of(program: Path, folder: Path) -> Order:
    return Order([str(program)], folder / "broker-0", folder / "broker-0" / "log", {}, False)


def test_a_file_comes_whole_over_a_slow_link_and_the_deputy_reads_beats(tmp_path: Path) -> None:
    """Nothing in the file can be compressed, so the link carries it for more than 16 s."""
    content = random.Random(1).randbytes(FILE_BYTES)
    here, home = tmp_path / "here", tmp_path / "home"
    (here / "broker-0").mkdir(parents=True)
    (here / "broker-0" / "users").write_bytes(content)

    async def play() -> SlowLink:
        link = SlowLink(home)
        machine = RemoteMachine(link, "127.0.0.2")
        await machine.open()
        # Two servers with the same file start at once.
        order = order_of(Path("/bin/true"), here)
        await asyncio.gather(machine.spawn(order), machine.spawn(order))
        await machine.close()
        return link

    link = run_virtually(play())
    stored = home / "broker-0" / "users"
    assert stored.read_bytes() == content
    assert stored.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in stored.parent.iterdir()] == [stored.name]
    assert link.longest_s < 2 * BEAT_S


@pytest.mark.parametrize("silent_s", [1, 5, 60])
def test_a_machine_whose_deputy_is_silent_is_lost(tmp_path: Path, silent_s: int) -> None:
    async def play() -> Any:
        loop = asyncio.get_running_loop()
        link = SlowLink(tmp_path)
        machine = RemoteMachine(link, "127.0.0.2", silent_s)
        await machine.open()
        child = await machine.spawn(order_of(Path("/bin/true"), tmp_path / "here"))
        begin_s, link.is_silent = loop.time(), True
        code = await child.wait()
        with pytest.raises(TopologyError, match=rf"127\.0\.0\.2 has not answered for {silent_s} s"):
            await machine.free_port()
        waited_s = loop.time() - begin_s
        await machine.close()
        return code, waited_s

    code, waited_s = run_virtually(play())
    assert code == -signal.SIGKILL
    assert silent_s <= waited_s <= silent_s + 2 * BEAT_S
    # A host that stands still for as long as that finds its servers alive.
    assert lease_s(silent_s) / 2 >= silent_s
