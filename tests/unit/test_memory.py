"""Memory that runs out ends a run in words."""

from __future__ import annotations

import asyncio

from pubstorm.memory import MemoryLow, available_bytes, total_bytes, watch_memory


def test_memory_is_watched_until_it_is_low() -> None:
    left = [2 * 10**9, 10**9, 1000]
    told: list[MemoryLow] = []
    asyncio.run(watch_memory(told.append, lambda: left.pop(0), look_s=0))
    assert left == []
    [low] = told
    assert low.text.startswith("memory runs out: 1.00 kB is left, ")
    assert low.text.endswith("play fewer clients, or give the host more memory")


def test_memory_of_this_machine_can_be_read() -> None:
    assert 0 < available_bytes() <= total_bytes()
