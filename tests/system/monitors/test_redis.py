"""A real Redis as it describes itself, one that goes away and comes back, and none."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis

from pubstorm.measure.monitors import MonitorError
from pubstorm.measure.monitors.redis import RedisMonitor
from pubstorm.topology.services.redis import configuration, find_redis
from tests.kit.ports import free_port
from tests.kit.serving import until
from tests.system.monitors.conftest import BrokerMaker, answers, read

Starter = Callable[[], "subprocess.Popen[bytes]"]
OF_ITSELF = {"used_memory_bytes", "connections", "commands_per_s", "evicted", "rejected", "keys"}


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def start(tmp_path: Path, port: int) -> Iterator[Starter]:
    """Starts a Redis on the port; it is gone after the test."""
    binary = find_redis()
    if binary is None:
        pytest.skip("redis-server is not installed (scripts/install-test-tools)")
    config = tmp_path / "redis.conf"
    config.write_text(configuration({}, {"bind": "127.0.0.1", "port": port, "dir": tmp_path}))
    started: list[subprocess.Popen[bytes]] = []

    def begin() -> subprocess.Popen[bytes]:
        process = subprocess.Popen([binary, str(config)], stdout=subprocess.DEVNULL)
        started.append(process)
        until(lambda: answers(port))
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()


def test_it_says_what_is_in_it_and_what_it_uses(start: Starter, port: int) -> None:
    start()
    with Redis(port=port, db=3) as redis:
        redis.mset({f"key-{n}": n for n in range(7)})
        monitor = RedisMonitor("redis", f"redis://127.0.0.1:{port}/0", with_process=True)
        monitor.start()
        found = read(monitor)
        monitor.stop()
        of_itself = RedisMonitor("redis", f"redis://127.0.0.1:{port}/0", with_process=False)
        assert {*read(of_itself)} == OF_ITSELF, "its process is not read twice"
        of_itself.stop()
    assert {*found} == {*OF_ITSELF, "rss_bytes", "cpu", "cpu_user", "cpu_system"}
    assert (found["keys"], found["connections"], found["evicted"]) == (7, 2, 0)
    assert 0 < found["used_memory_bytes"] < found["rss_bytes"]
    assert found["cpu"] >= 0


def test_one_that_goes_away_and_comes_back_is_read_again(start: Starter, port: int) -> None:
    process = start()
    monitor = RedisMonitor("redis", f"redis://127.0.0.1:{port}/0", with_process=True)
    assert read(monitor)["keys"] == 0
    process.kill()
    process.wait()
    with pytest.raises(MonitorError, match="closed the connection"):
        read(monitor)
    with pytest.raises(MonitorError, match="cannot be reached: connection refused"):
        read(monitor)
    start()
    assert read(monitor)["keys"] == 0
    monitor.stop()


def test_what_is_no_redis_is_reported(mosquitto: BrokerMaker) -> None:
    url = f"redis://127.0.0.1:{mosquitto().port}"
    with pytest.raises(MonitorError, match="Redis at redis://127"):
        read(RedisMonitor("redis", url, with_process=True))
