"""Links between two real brokers: what a bridge over them sees when they are cut, stalled and
delayed, and what is said when their program ends."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from pubstorm.errors import BinaryError, TopologyError
from pubstorm.host.binaries import proxy_path
from pubstorm.host.ports import LOOPBACK
from pubstorm.topology.adapters.mosquitto import MosquittoBroker, find_mosquitto
from pubstorm.topology.bridges.links import Links, LinkState
from pubstorm.topology.broker import Place
from tests.system.topology.clients import Receiver, client

DELAY_S = 0.15
PATIENCE_S = 30.0
BRIDGE = """
connection uplink
address 127.0.0.1:{port}
topic up/# out 1
remote_clientid box
notification_topic state/box
restart_timeout 1 1
keepalive_interval 5
bridge_protocol_version mqttv311
try_private false
"""


def has_proxy() -> bool:
    try:
        return bool(proxy_path())
    except BinaryError:
        return False


pytestmark = pytest.mark.skipif(not has_proxy(), reason="pubstorm-proxy is not built")
needs_mosquitto = pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is missing")


def play(scene: Callable[[], Awaitable[None]]) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(3 * PATIENCE_S):
            await scene()

    asyncio.run(in_time())


@dataclass
class Stage:
    """A box that is bridged to a cloud over link 1 of two."""

    links: Links
    cloud: Receiver
    box: Receiver

    async def set(self, state: LinkState) -> None:
        await self.links.set("uplink", [1], state)

    async def expect(self, topic: str, payload: bytes) -> None:
        await asyncio.to_thread(self.cloud.expect, (topic, payload))


@asynccontextmanager
async def bridged(folder: Path) -> AsyncIterator[Stage]:
    links = Links()
    main = MosquittoBroker(Place("cloud-0", folder / "cloud"))
    small: MosquittoBroker | None = None
    try:
        await links.start(folder)
        await main.start()
        ports = await links.open("uplink", (main.host, main.port), 2)
        small = MosquittoBroker(Place("box-0", folder / "box", more=BRIDGE.format(port=ports[1])))
        await small.start()
        with client(main.port) as cloud, client(small.port) as box:
            stage = Stage(links, cloud, box)
            for topic in ("state/box", "up/#"):
                cloud.subscribe(topic)
            await stage.expect("state/box", b"1")
            yield stage
    finally:
        for broker in (small, main):
            if broker is not None:
                await broker.stop()
        await links.stop()


@needs_mosquitto
def test_a_bridge_goes_down_with_its_link_and_comes_back_with_what_it_kept(tmp_path: Path) -> None:
    async def scene() -> None:
        async with bridged(tmp_path) as stage:
            stage.box.publish("up/1", b"before")
            await stage.expect("up/1", b"before")
            await stage.set(LinkState("close"))
            await stage.expect("state/box", b"0")
            stage.box.publish("up/1", b"meanwhile")
            await stage.set(LinkState("pass"))
            await stage.expect("up/1", b"meanwhile")
            counts = (await stage.links.counts())[0]
            assert (counts.name, counts.open, counts.refused_total) == ("uplink", 1, 0)
            assert counts.accepted_total >= 2
            assert counts.out_bytes_total > counts.in_bytes_total > 0

    play(scene)


@needs_mosquitto
def test_a_stalled_link_holds_messages_back_silently(tmp_path: Path) -> None:
    async def scene() -> None:
        async with bridged(tmp_path) as stage:
            await stage.set(LinkState("stall"))
            stage.box.publish("up/1", b"held")
            with pytest.raises(queue.Empty):
                await asyncio.to_thread(stage.cloud.messages.get, timeout=0.3)
            assert (await stage.links.counts())[0].open == 1
            await stage.set(LinkState("pass"))
            await stage.expect("up/1", b"held")

    play(scene)


@needs_mosquitto
def test_a_delayed_link_takes_at_least_its_delay(tmp_path: Path) -> None:
    async def scene() -> None:
        async with bridged(tmp_path) as stage:
            await stage.set(LinkState(delay_ns=int(DELAY_S * 1e9)))
            began_s = time.monotonic()
            stage.box.publish("up/1", b"late")
            await stage.expect("up/1", b"late")
            assert time.monotonic() - began_s >= DELAY_S

    play(scene)


def test_what_cannot_be_done_is_said_and_nothing_ends(tmp_path: Path) -> None:
    async def scene() -> None:
        links = Links()
        with pytest.raises(TopologyError, match="never started"):
            await links.counts()
        await links.start(tmp_path)
        try:
            with pytest.raises(TopologyError, match="no links of the name 'uplink'") as caught:
                await links.set("uplink", [0], LinkState("close"))
            assert caught.value.hint == "open them first"
            with pytest.raises(TopologyError, match="cannot find the address"):
                await links.open("uplink", ("no such host", 1883), 1)
            ports = await links.open("uplink", (LOOPBACK, 9), 1000)
            assert len(set(ports)) == 1000
            with pytest.raises(TopologyError, match="no link 1000") as caught:
                await links.set("uplink", [999, 1000], LinkState("stall"))
            assert caught.value.hint == "allowed are numbers below 1000"
        finally:
            await links.stop()
            await links.stop()

    play(scene)


def test_the_answer_to_an_asker_that_gave_up_is_dropped(tmp_path: Path) -> None:
    async def scene() -> None:
        links = Links()
        await links.start(tmp_path)
        try:
            asked = asyncio.create_task(links.open("uplink", (LOOPBACK, 9), 100))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            asked.cancel()
            assert len(await links.open("other", (LOOPBACK, 9), 3)) == 3
            assert [counts.name for counts in await links.counts()] == ["uplink", "other"]
        finally:
            await links.stop()

    play(scene)


def test_a_program_that_ends_is_reported_once_and_named_in_every_answer(tmp_path: Path) -> None:
    async def scene() -> None:
        died: asyncio.Queue[str] = asyncio.Queue()
        links = Links()
        links.notify(died.put_nowait)
        await links.start(tmp_path)
        os.kill(links.pid, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE_S):
            text = await died.get()
        assert f"(pid {links.pid})" in text and "signal 9" in text
        with pytest.raises(TopologyError, match="signal 9"):
            await links.counts()
        await links.stop()
        # A stop is no death.
        links = Links(died.put_nowait)
        await links.start(tmp_path)
        await links.stop()
        assert died.empty()
        assert not Path(f"/proc/{links.pid}").exists()

    play(scene)


def test_the_program_ends_with_a_pubstorm_that_is_killed(tmp_path: Path) -> None:
    program = f"""
import asyncio, pathlib
from pubstorm.topology.bridges.links import Links
async def run():
    links = Links()
    await links.start(pathlib.Path({str(tmp_path)!r}))
    print(links.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(run())
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        proxy = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    psutil.wait_procs([proxy], timeout=PATIENCE_S)
    assert not proxy.is_running() or proxy.status() == psutil.STATUS_ZOMBIE


def test_a_program_that_speaks_nonsense_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "proxy"
    program.write_text("#!/bin/sh\nread -r _; echo nonsense; exec cat >/dev/null\n")
    program.chmod(0o755)
    monkeypatch.setenv("PUBSTORM_PROXY", str(program))

    async def scene() -> None:
        links = Links()
        await links.start(tmp_path)
        try:
            with pytest.raises(TopologyError, match="does not speak our language"):
                await links.counts()
        finally:
            await links.stop()

    play(scene)


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    async def scene() -> None:
        with pytest.raises(TopologyError, match="cannot write"):
            await Links().start(tmp_path / "file" / "links")

    play(scene)
