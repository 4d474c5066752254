"""The server with browsers that do not read, leave, or are too many."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import psutil

from pubstorm.host.listening import address_of, listener_at
from pubstorm.web.live import VIEWERS_MAX, RunFollower, serve
from pubstorm.web.server import Guard
from pubstorm.web.watch import Surroundings
from tests.kit.ports import free_port

BIG = "x" * 20_000
PATIENCE_S = 120.0


@contextlib.asynccontextmanager
async def page(timeout_ms: int = 60_000) -> AsyncIterator[tuple[RunFollower, int]]:
    """Serves a page without a run."""
    port = free_port()
    listener = listener_at(address_of(f"127.0.0.1:{port}", "", ""), timeout_ms)
    follower, ended = RunFollower(Surroundings()), asyncio.Event()
    guard = Guard(frozenset({"127.0.0.1"}))
    serving = asyncio.create_task(serve(follower, guard, listener, ended))
    try:
        yield follower, port
    finally:
        ended.set()
        await serving


def request(port: int) -> bytes:
    return f"GET /events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()


def stalled(port: int) -> socket.socket:
    """A browser that asks and never reads."""
    browser = socket.create_connection(("127.0.0.1", port))
    browser.sendall(request(port))
    return browser


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_browser_that_never_reads_takes_no_memory_and_delays_no_other() -> None:
    async with page() as (follower, port):
        with stalled(port), stalled(port):
            await until(lambda: follower.feed.viewers == 2)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request(port))
            await reader.readuntil(b"event: whole")
            before = psutil.Process().memory_info().rss
            for number in range(5000):
                follower.feed.push({"n": number, "text": BIG})
                await reader.readuntil(f'"n":{number},'.encode())
                await reader.readuntil(b'"}\n\n')
            grown = psutil.Process().memory_info().rss - before
            assert grown < 5000 * len(BIG) / 2, "a third of what one of them did not read"
            writer.close()


async def test_a_browser_that_never_reads_is_dropped() -> None:
    async with asyncio.timeout(PATIENCE_S), page(timeout_ms=500) as (follower, port):
        with stalled(port):
            await until(lambda: follower.feed.viewers == 1)
            while follower.feed.viewers:
                follower.feed.push({"text": BIG})
                await asyncio.sleep(0.01)


async def test_a_browser_that_leaves_is_forgotten() -> None:
    async with page() as (follower, port):
        browser = stalled(port)
        await until(lambda: follower.feed.viewers == 1)
        browser.close()
        await until(lambda: follower.feed.viewers == 0)


async def test_more_browsers_than_allowed_are_refused() -> None:
    async with page() as (follower, port):
        with contextlib.ExitStack() as stack:
            for _ in range(VIEWERS_MAX):
                stack.enter_context(stalled(port))
            await until(lambda: follower.feed.viewers == VIEWERS_MAX)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request(port))
            assert await reader.readline() == b"HTTP/1.1 503 Service Unavailable\r\n"
            writer.close()
