"""Memory that runs out ends a run in words."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pubstorm.host import counters, environment
from pubstorm.host.environment import MemoryLow, available_bytes, total_bytes, watch_memory


def test_memory_is_watched_until_it_is_low() -> None:
    # Memory that other programs take for a second is no ramp.
    left = [10**9, 700 * 10**6, 10**9, 1000]
    notes: list[MemoryLow] = []
    seconds = iter((0.0, 1.0, 2.0, 9.0))
    asyncio.run(watch_memory(notes.append, lambda: left.pop(0), 0, lambda: next(seconds)))
    assert left == []
    [low] = notes
    assert low.text.startswith("memory runs out: 1.00 kB is left, ")
    assert low.text.endswith("play fewer clients, or give the host more memory")


@pytest.mark.parametrize(("taken_each_s", "looks"), [(10**6, 9729), (10**9, 7)])
def test_the_steeper_a_ramp_the_earlier_a_run_ends(
    taken_each_s: int, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "total_bytes", lambda: 100 * 10**9)
    seconds = iter(range(10**6))
    clock = [0.0]

    def available() -> int:
        clock[0] = next(seconds)
        return 10**10 - taken_each_s * round(clock[0])

    notes: list[MemoryLow] = []
    asyncio.run(watch_memory(notes.append, available, look_s=0, now=lambda: clock[0]))
    assert len(notes) == 1
    assert clock[0] == looks


def test_what_open_sockets_hold_is_not_available(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    assert counters.socket_cache_bytes(tmp_path) == 0
    (tmp_path / "net" / "sockstat").write_text("sockets: used 1000\nTCP: inuse 5 orphan 0\n")
    assert counters.socket_cache_bytes(tmp_path) == 1_057_000


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
    monkeypatch.setattr(environment, "text_of_group", lambda file: files.get(file, ""))
    assert available_bytes() == available
    assert total_bytes() == 1_000_000


def test_a_group_without_a_limit_has_what_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "text_of_group", lambda _: "max\n")
    assert available_bytes() > 10**6
