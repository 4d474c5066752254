"""The watch on the head of a cluster, with real connections."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("ray", reason="ray is not installed (pip install pubstorm[ray])")

from pubstorm.fleet.ray import site
from pubstorm.fleet.ray.site import HeadWatch


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "LOOK_S", 0.01)
    monkeypatch.setattr(site, "GONE_S", 0.1)


def test_a_head_that_is_gone_is_reported_once() -> None:
    async def play() -> None:
        notes: list[str] = []
        looked, gone = asyncio.Event(), asyncio.Event()

        def take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()
            looked.set()

        def report(words: str) -> None:
            notes.append(words)
            gone.set()

        server = await asyncio.start_server(take, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        watch = HeadWatch(f"127.0.0.1:{port}", report)
        await asyncio.wait_for(looked.wait(), 10)
        assert not notes
        server.close()
        await asyncio.wait_for(gone.wait(), 10)
        await watch.close()
        assert notes == [f"the head of the Ray cluster, 127.0.0.1:{port}, is gone"]

    asyncio.run(play())


def test_a_watch_that_is_closed_reports_nothing() -> None:
    async def play() -> None:
        notes: list[str] = []
        watch = HeadWatch("[::1]:1", notes.append)
        await watch.close()
        await watch.close()
        assert not notes

    asyncio.run(play())
