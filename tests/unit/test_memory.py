"""Memory that runs out ends a run in words."""

from __future__ import annotations

import asyncio

import pytest

from pubstorm import memory
from pubstorm.memory import MemoryLow, available_bytes, total_bytes, watch_memory


def test_memory_is_watched_until_it_is_low() -> None:
    left = [3 * 10**9, 2 * 10**9, 1000]
    told: list[MemoryLow] = []
    asyncio.run(watch_memory(told.append, lambda: left.pop(0), look_s=0))
    assert left == []
    [low] = told
    assert low.text.startswith("memory runs out: 1.00 kB is left, ")
    assert low.text.endswith("play fewer clients, or give the host more memory")


def test_memory_of_this_machine_can_be_read() -> None:
    assert 0 < available_bytes() <= total_bytes()


@pytest.mark.parametrize(
    ("files", "available"),
    [
        ({"memory.max": "1000000", "memory.current": "900000"}, 100_000),
        (
            {
                "memory.max": "1000000",
                "memory.current": "900000",
                "memory.stat": "anon 5\nactive_file 1000\ninactive_file 20000\n"
                "slab_reclaimable 300\nslab_unreclaimable 4\n",
            },
            121_300,
        ),
        ({"memory.max": "1000000", "memory.current": "1000001"}, 0),
    ],
)
def test_a_control_group_has_less_and_what_it_cached_counts_as_free(
    files: dict[str, str], available: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "text_of_group", lambda file: files.get(file, ""))
    assert available_bytes() == available
    assert total_bytes() == 1_000_000


def test_a_group_without_a_limit_has_what_the_machine_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "text_of_group", lambda _: "max\n")
    assert available_bytes() > 10**6
