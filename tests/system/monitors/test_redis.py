"""A real Redis as it describes itself, one that goes away and comes back, and none."""

from __future__ import annotations

from pathlib import Path

import pytest
from redis import Redis

from pubstorm.measure.monitors import MonitorError
from pubstorm.measure.monitors.redis import RedisMonitor
from tests.kit import made
from tests.system.monitors.conftest import BrokerMaker, read
from tests.system.topology.identities.conftest import redis_in

OF_ITSELF = {"used_memory_bytes", "connections", "commands_per_s", "evicted", "rejected", "keys"}


def test_it_says_what_is_in_it_and_what_it_uses(tmp_path: Path) -> None:
    with redis_in(tmp_path) as own, Redis(port=own.port, db=3) as redis:
        redis.mset({f"key-{n}": n for n in range(7)})
        monitor = RedisMonitor(made.source("redis"), own.url, with_process=True)
        monitor.start()
        found = read(monitor)
        monitor.stop()
        of_itself = RedisMonitor(made.source("redis"), own.url, with_process=False)
        assert {*read(of_itself)} == OF_ITSELF, "its process is not read twice"
        of_itself.stop()
    assert {*found} == {*OF_ITSELF, "rss_bytes", "cpu", "cpu_user", "cpu_system"}
    assert (found["keys"], found["connections"], found["evicted"]) == (7, 2, 0)
    assert 0 < found["used_memory_bytes"] < found["rss_bytes"]
    assert found["cpu"] >= 0


def test_one_that_goes_away_and_comes_back_is_read_again(tmp_path: Path) -> None:
    with redis_in(tmp_path) as own:
        monitor = RedisMonitor(made.source("redis"), own.url, with_process=True)
        assert read(monitor)["keys"] == 0
        own.kill()
        with pytest.raises(MonitorError, match="closed the connection"):
            read(monitor)
        with pytest.raises(MonitorError, match="cannot be reached: connection refused"):
            read(monitor)
        own.start()
        assert read(monitor)["keys"] == 0
        monitor.stop()


def test_what_is_no_redis_is_reported(mosquitto: BrokerMaker) -> None:
    url = f"redis://127.0.0.1:{mosquitto().port}"
    with pytest.raises(MonitorError, match="Redis at redis://127"):
        read(RedisMonitor(made.source("redis"), url, with_process=True))
