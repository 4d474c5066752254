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
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from pubstorm.errors import TopologyError
from pubstorm.host.sockets import LOOPBACK
from pubstorm.topology.adapters.mosquitto import MosquittoBroker
from pubstorm.topology.bridges.links import Links, LinkState
from pubstorm.topology.broker import Place
from tests.system.topology.clients import PATIENCE_S, client
from tests.system.topology.conftest import needs_mosquitto

DELAY_S = 0.15
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
STARTS_AND_WAITS = """
import asyncio, pathlib, sys
from pubstorm.topology.bridges.links import Links
async def run():
    links = Links()
    await links.start(pathlib.Path(sys.argv[1]))
    print(links.pid, flush=True)
    await asyncio.Event().wait()
asyncio.run(run())
"""


@asynccontextmanager
async def started(folder: Path) -> AsyncIterator[Links]:
    """Links whose program runs; a stop may be repeated."""
    links = Links()
    await links.start(folder)
    try:
        yield links
    finally:
        await links.stop()
        await links.stop()


@asynccontextmanager
async def broker(folder: Path, more: str = "") -> AsyncIterator[MosquittoBroker]:
    made = MosquittoBroker(Place(folder.name, folder, more=more))
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


@needs_mosquitto
async def test_a_bridge_is_held_up_delayed_and_cut_with_its_link(tmp_path: Path) -> None:
    """A box is bridged to a cloud over link 1 of two."""
    async with started(tmp_path) as links, broker(tmp_path / "cloud") as main:
        ports = await links.open("uplink", (main.host, main.port), 2)
        async with broker(tmp_path / "box", BRIDGE.format(port=ports[1])) as small:
            with client(main.port) as cloud, client(small.port) as box:

                async def set_to(state: LinkState) -> None:
                    await links.set("uplink", [1], state)

                async def expect(topic: str, payload: bytes) -> None:
                    await asyncio.to_thread(cloud.expect, (topic, payload))

                for topic in ("state/box", "up/#"):
                    cloud.subscribe(topic)
                await expect("state/box", b"1")
                await set_to(LinkState("stall"))
                box.publish("up/1", b"held")
                with pytest.raises(queue.Empty):
                    await asyncio.to_thread(cloud.messages.get, timeout=0.3)
                assert (await links.counts())[0].open == 1
                await set_to(LinkState("pass"))
                await expect("up/1", b"held")
                await set_to(LinkState(delay_ns=int(DELAY_S * 1e9)))
                began_s = time.monotonic()
                box.publish("up/1", b"late")
                await expect("up/1", b"late")
                assert time.monotonic() - began_s >= DELAY_S
                await set_to(LinkState("close"))
                await expect("state/box", b"0")
                box.publish("up/1", b"meanwhile")
                await set_to(LinkState("pass"))
                await expect("up/1", b"meanwhile")
                counts = (await links.counts())[0]
                assert (counts.name, counts.open, counts.refused_total) == ("uplink", 1, 0)
                assert counts.accepted_total >= 2
                assert counts.out_bytes_total > counts.in_bytes_total > 0


async def test_what_cannot_be_done_is_said_and_nothing_ends(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="never started"):
        await Links().counts()
    async with started(tmp_path) as links:
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
        # The answer to an asker that gave up is dropped.
        asked = asyncio.create_task(links.open("dropped", (LOOPBACK, 9), 100))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asked.cancel()
        assert len(await links.open("other", (LOOPBACK, 9), 3)) == 3
        assert [each.name for each in await links.counts()] == ["uplink", "dropped", "other"]


async def test_a_program_that_ends_is_reported_once_and_named_in_every_answer(
    tmp_path: Path,
) -> None:
    died: asyncio.Queue[str] = asyncio.Queue()
    async with started(tmp_path) as links:
        links.notify(died.put_nowait)
        os.kill(links.pid, signal.SIGKILL)
        text = await died.get()
        assert f"(pid {links.pid})" in text and "signal 9" in text
        with pytest.raises(TopologyError, match="signal 9"):
            await links.counts()
    async with started(tmp_path) as links:
        links.notify(died.put_nowait)
    assert died.empty(), "a stop is no death"
    assert not Path(f"/proc/{links.pid}").exists()


def test_the_program_ends_with_a_pubstorm_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTS_AND_WAITS, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        proxy = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    psutil.wait_procs([proxy], timeout=PATIENCE_S)
    assert not proxy.is_running() or proxy.status() == psutil.STATUS_ZOMBIE


async def test_a_program_that_speaks_nonsense_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "proxy"
    program.write_text("#!/bin/sh\nread -r _; echo nonsense; exec cat >/dev/null\n")
    program.chmod(0o755)
    monkeypatch.setenv("PUBSTORM_PROXY", str(program))
    async with started(tmp_path) as links:
        with pytest.raises(TopologyError, match="does not speak our language"):
            await links.counts()


async def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TopologyError, match="cannot write"):
        await Links().start(tmp_path / "file" / "links")
