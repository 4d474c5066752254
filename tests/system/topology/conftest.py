"""Topologies that are up, and an event loop for each test of this folder that is a coroutine."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pubstorm.host.children import find
from pubstorm.topology import Topology

TEST_TIMEOUT_S = 300.0
"""Time limit of a test that waits for something that never comes."""
needs_mosquitto = pytest.mark.skipif(find("mosquitto") is None, reason="mosquitto is not installed")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Gives a coroutine a loop of its own and a time limit."""
    coroutine = pyfuncitem.obj
    if not inspect.iscoroutinefunction(coroutine):
        return

    def play(**arguments: object) -> None:
        async def in_time() -> None:
            async with asyncio.timeout(TEST_TIMEOUT_S):
                await coroutine(**arguments)

        asyncio.run(in_time())

    pyfuncitem.obj = play


@asynccontextmanager
async def up(topology: Topology) -> AsyncIterator[Topology]:
    """Starts a topology and stops it, also one that does not come up; a stop may be repeated."""
    try:
        await topology.start()
        yield topology
    finally:
        await topology.stop()
        await topology.stop()
