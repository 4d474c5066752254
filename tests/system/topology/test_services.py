"""Redis beside the brokers of a run: up before them, filled, watched, and gone after them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis import Redis

from pubstorm.contract.plan import Plan
from pubstorm.errors import TopologyError, UsageError
from pubstorm.host.children import find
from pubstorm.plan import provisional_plan
from pubstorm.scenario import Scenario, parse_scenario
from pubstorm.topology import BrokerEvent, ServiceDied, Topology
from pubstorm.topology.services import RedisService
from pubstorm.topology.started import STARTED_FILE, read_record
from tests.kit.ports import free_port
from tests.system.topology.conftest import up

SCENARIO = """\
topology:
  services: {{users: {service}}}
  brokers: {{main: mosquitto}}
populations:
  device: {{clients: 20, username: "d{{n}}", password: "p{{n}}", subscriptions: ["a/{{n}}"]}}
  mobile: {{clients: 10, username: "m{{n}}", password: "p{{n}}", subscriptions: ["a/{{n}}"]}}
stages: [connect]
"""
Events = asyncio.Queue[BrokerEvent]


@pytest.fixture(autouse=True)
def redis_path() -> str:
    path = find("redis-server")
    if path is None:
        pytest.skip("redis-server is not installed (scripts/install-test-tools)")
    return path


def loaded(service: str) -> Scenario:
    return parse_scenario(SCENARIO.format(service=service), "s.yaml")


@asynccontextmanager
async def serving(
    service: str, folder: Path, *more: Plan
) -> AsyncIterator[tuple[Topology, Events]]:
    """A service and a broker that are up; the process of the service is gone afterwards."""
    scenario, events = loaded(service), Events()
    topology = Topology(scenario.topology, folder, events.put_nowait)
    topology.services.prepare(provisional_plan(scenario), *more)
    topology.services.prepare(provisional_plan(scenario))
    async with up(topology):
        [result] = topology.service_results()
        yield topology, events
    assert not Path(f"/proc/{result.pid}").exists()


async def start(service: str, folder: Path) -> None:
    """Starts a service and ends it."""
    async with serving(service, folder):
        pass


def client(topology: Topology) -> Redis:
    return Redis.from_url(topology.services.url("users"), decode_responses=True)


@pytest.mark.parametrize(
    ("service", "keys"),
    [
        ("redis", 0),
        ("{kind: redis, seed: [mobile]}", 20),
        ('{kind: redis, seed: true, settings: {requirepass: "p@s:s/1"}}', 60),
    ],
)
async def test_it_is_up_with_the_users_of_the_scenario_and_keeps_no_copy(
    tmp_path: Path, service: str, keys: int
) -> None:
    async with serving(service, tmp_path) as (topology, events):
        [result] = topology.service_results()
        assert (result.name, result.kind, result.died) == ("users", "redis", False)
        assert result.version and (result.seeded_rows or 0) == keys
        found = client(topology)
        assert found.hgetall("mqtt_user:d19") == ({"password": "p19"} if keys == 60 else {})
        assert found.hgetall("mqtt_acl:m9") == ({"a/9": "3"} if keys else {})
        assert found.dbsize() == keys
        assert found.config_get("save") == {"save": ""}
        assert events.empty()
    record = read_record(tmp_path / STARTED_FILE)
    assert [each.name for each in record if each.pid == result.pid] == ["users"]
    assert {path.name for path in (tmp_path / "users").iterdir()} == {"redis.conf", "service.log"}


async def test_one_that_dies_is_reported_and_not_started_again(tmp_path: Path) -> None:
    async with serving("redis", tmp_path) as (topology, events):
        pid = topology.service_results()[0].pid
        os.kill(pid, signal.SIGKILL)
        event = await events.get()
        assert isinstance(event, ServiceDied)
        assert f"(pid {pid})" in event.text and "signal 9" in event.text
        assert topology.service_results()[0].died


@pytest.mark.parametrize(
    ("service", "message", "hint"),
    [
        ("{kind: redis, settings: {no-such-word: 1}}", "service users", "no-such-word"),
        ("{kind: redis, binary: /bin/false}", "service users .* exited with code 1", ""),
        ("{kind: redis, seed: true, settings: {maxmemory: 1}}", "service users: .* is full", "max"),
    ],
)
async def test_one_that_does_not_come_up_is_quoted(
    tmp_path: Path, service: str, message: str, hint: str
) -> None:
    with pytest.raises(TopologyError, match=message) as caught:
        await start(service, tmp_path)
    assert hint in str(caught.value.hint)


async def test_a_port_that_is_taken_is_reported(tmp_path: Path) -> None:
    port = free_port()
    service = f"{{kind: redis, port: {port}}}"
    async with serving(service, tmp_path / "first"):
        with pytest.raises(TopologyError, match=f"port {port} of service users is taken by redis"):
            await start(service, tmp_path / "again")


async def test_a_missing_redis_is_an_error_with_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RedisService, "programs", ("no-redis-server",))
    with pytest.raises(TopologyError, match="no-redis-server is not installed") as caught:
        await start("redis", tmp_path)
    assert caught.value.exit_code == 2
    assert caught.value.hint == "apt-get install no-redis-server"


async def test_runs_that_share_a_service_write_the_users_of_all(tmp_path: Path) -> None:
    service = "{kind: redis, seed: true}"
    scenario = loaded(service)
    more = scenario.populations["device"].model_copy(update={"clients": 50})
    larger = scenario.model_copy(update={"populations": {**scenario.populations, "device": more}})
    async with serving(service, tmp_path, provisional_plan(larger)) as (topology, _):
        assert client(topology).dbsize() == 2 * 60


def test_who_is_not_written_may_have_another_password(tmp_path: Path) -> None:
    text = SCENARIO.replace('"m{{n}}", password: "p{{n}}"', '"d{{n}}", password: "guess"')
    services = ("{kind: redis, seed: [device]}", "{kind: redis, seed: true}")
    for service, is_taken in zip(services, (True, False), strict=True):
        scenario = parse_scenario(text.format(service=service), "s.yaml")
        topology = Topology(scenario.topology, tmp_path, lambda _: None)
        if is_taken:
            topology.services.prepare(provisional_plan(scenario))
        else:
            with pytest.raises(UsageError, match="found two passwords"):
                topology.services.prepare(provisional_plan(scenario))
