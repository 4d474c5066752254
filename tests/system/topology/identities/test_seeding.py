"""Rows in a real Redis: written, interrupted and gone on with, read back, removed; and a Redis that
is away, slow, full or somebody else's."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from redis.connection import HiredisRespSerializer

from pubstorm.errors import StoreError, UsageError
from pubstorm.plan import provisional_plan
from pubstorm.scenario.load import parse_scenario
from pubstorm.topology.identities.accounts import accounts_of
from pubstorm.topology.identities.seeding import (
    ANSWER_S,
    Identities,
    Meter,
    RedisAddress,
    RedisStore,
    Seeding,
    SeedVerification,
    seed_all,
)
from tests.kit.ports import free_port
from tests.system.topology.identities.conftest import USERS, OwnRedis


def identities(clients: int) -> Identities:
    plan = provisional_plan(parse_scenario(USERS.format(clients=clients), "s.yaml"))
    return Identities(accounts_of(plan.populations))


def silent(total: int = 0, done: int = 0) -> Meter:
    return Meter(total, done, lambda _: None)


class After(Meter):
    """Does something when so many rows are done."""

    def __init__(self, rows: int, do: Callable[[], None]) -> None:
        super().__init__(10**6, 0, lambda _: None)
        self._at, self._do = rows, do

    def advance(self, rows: int) -> None:
        before = self.done
        super().advance(rows)
        if before < self._at <= self.done:
            self._do()


@contextmanager
def seeding(redis: OwnRedis, clients: int = 300, answer_s: float = ANSWER_S) -> Iterator[Seeding]:
    """Seeding by one command; the connection is closed after it."""
    store = RedisStore(RedisAddress.parse(redis.url), answer_s)
    try:
        yield Seeding(store, identities(clients), batch_rows=50)
    finally:
        store.close()


def written(redis: OwnRedis, clients: int = 300) -> None:
    with seeding(redis, clients) as own:
        own.write(own.positions(), silent())


def verified(redis: OwnRedis, clients: int = 300) -> SeedVerification:
    with seeding(redis, clients) as own:
        return own.verify(silent())


def test_every_row_is_written_and_read_back(own_redis: OwnRedis) -> None:
    written(own_redis)
    found = own_redis.client()
    assert found.hgetall("mqtt_user:device-5") == {"password": "secret-5"}
    topics = ("up/304/1", "up/304/2", "both/304", "down/304/#")
    assert found.hgetall("mqtt_acl:device-304") == dict.fromkeys(topics, "3")
    assert found.dbsize() == 601
    assert verified(own_redis) == SeedVerification(rows=1500)
    with seeding(own_redis) as own:
        assert own.positions() == [300]
        assert own.done_before([300]) == 1500


def test_commands_are_texts(own_redis: OwnRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    """The packer ends the process if a signal raises while it packs a number."""
    packed: list[str] = []
    pack: Callable[..., object] = HiredisRespSerializer.pack

    def noted(packer: HiredisRespSerializer, *words: str) -> object:
        packed.extend(words)
        return pack(packer, *words)

    monkeypatch.setattr(HiredisRespSerializer, "pack", noted)
    store = RedisStore(RedisAddress.parse(own_redis.url.rpartition("/")[0] + "/3"), answer_s=5)
    with contextlib.closing(store):
        own = Seeding(store, identities(3), 50)
        own.write(own.positions(), silent())
        own.verify(silent())
        own.remove(silent())
    assert {"SELECT", "HSET", "HMGET", "HDEL"} <= {*packed}
    assert {type(word) for word in packed} == {str}


def test_what_is_missing_or_wrong_is_counted_and_named(own_redis: OwnRedis) -> None:
    written(own_redis)
    found = own_redis.client()
    found.delete("mqtt_acl:device-7")
    found.hset("mqtt_user:device-8", "password", "another")
    found.hset("mqtt_acl:device-9", "both/9", 1)
    found.set("mqtt_user:device-10", "no hash", keepttl=False)
    findings = verified(own_redis)
    assert (findings.rows, findings.missing, findings.wrong) == (1500, 4, 3)
    assert findings.examples[0] == "missing: mqtt_acl:device-7 up/7/1"
    assert len(findings.examples) == 5
    assert "wrong: mqtt_user:device-8 password" in findings.examples
    assert "another" not in str(findings)


def test_what_is_removed_is_what_was_written_and_nothing_else(own_redis: OwnRedis) -> None:
    written(own_redis)
    found = own_redis.client()
    found.hset("mqtt_user:device-5", "is_superuser", 1)
    found.hset("mqtt_user:somebody", "password", "theirs")
    with seeding(own_redis) as own:
        assert own.remove(silent()) == 1500
        assert own.remove(silent()) == 0
    assert sorted(found.keys()) == ["mqtt_user:device-5", "mqtt_user:somebody"]
    assert found.hgetall("mqtt_user:device-5") == {"is_superuser": "1"}


@pytest.mark.parametrize("rows", [1, 725, 1499])
def test_a_redis_that_goes_away_is_reported_and_its_losses_are_not_counted(
    own_redis: OwnRedis, rows: int
) -> None:
    """Without a copy on the disk it comes back empty, between two batches."""

    def come_back_empty() -> None:
        own_redis.kill()
        own_redis.start()

    with seeding(own_redis) as own, pytest.raises(StoreError, match="closed the connection"):
        own.write(own.positions(), After(rows, come_back_empty))
    with seeding(own_redis) as own:
        assert own.positions() == [0]
    written(own_redis)
    assert verified(own_redis).is_good


def test_a_full_redis_is_reported_and_continues_with_more_room(own_redis: OwnRedis) -> None:
    found = own_redis.client()

    def full() -> None:
        found.config_set("maxmemory", found.info("memory")["used_memory"] + 4096)

    with seeding(own_redis, 3000) as own, pytest.raises(StoreError, match="is full") as caught:
        own.write(own.positions(), After(1000, full))
    assert "maxmemory" in str(caught.value.hint)
    found.config_set("maxmemory", 0)
    with seeding(own_redis, 3000) as own:
        (position,) = own.positions()
        assert 190 <= position < 3000
        own.write([position], silent())
    assert verified(own_redis, 3000).is_good


def test_a_slow_redis_is_reported(own_redis: OwnRedis) -> None:
    found = own_redis.client()

    def slow() -> None:
        found.execute_command("CLIENT", "PAUSE", 60_000, "ALL")

    refused = pytest.raises(StoreError, match="does not answer for")
    with seeding(own_redis, answer_s=0.5) as own, refused:
        own.write(own.positions(), After(500, slow))


def test_a_replica_is_distinguished_from_the_main_one(own_redis: OwnRedis) -> None:
    own_redis.client().execute_command("REPLICAOF", "127.0.0.1", free_port())
    with seeding(own_redis) as own, pytest.raises(StoreError, match="replica that is only read"):
        own.write([0], silent())


def test_a_key_of_another_type_is_named(own_redis: OwnRedis) -> None:
    own_redis.client().set("mqtt_user:device-9", "theirs")
    with seeding(own_redis) as own, pytest.raises(StoreError, match="the key mqtt_user:device-9 "):
        own.write([0], silent())
    with seeding(own_redis) as own:
        assert own.positions() == [0]


@pytest.mark.parametrize("login", ["", ":wrong@", "stranger:wrong@"])
def test_a_wrong_password_is_reported_and_not_shown(own_redis: OwnRedis, login: str) -> None:
    own_redis.client().config_set("requirepass", "right")
    store = RedisStore(RedisAddress.parse(f"redis://{login}127.0.0.1:{own_redis.port}"))
    with pytest.raises(StoreError, match="wants a") as caught:
        store.run([("PING",)])
    assert "wrong" not in str(caught.value)
    store = RedisStore(RedisAddress.parse(f"redis://:right@127.0.0.1:{own_redis.port}/1"))
    assert store.run([("PING",)]) == ["PONG"]
    store.close()


def test_a_user_who_may_not_write_is_reported(own_redis: OwnRedis) -> None:
    found = own_redis.client()
    found.execute_command("ACL", "SETUSER", "reader", "on", ">pw", "~*", "+@read", "+client")
    store = RedisStore(RedisAddress.parse(f"redis://reader:pw@127.0.0.1:{own_redis.port}/0"))
    with pytest.raises(StoreError, match="does not let this user"):
        store.run([("HSET", "a", "b", "c")])
    store.close()


def test_no_redis_is_reported() -> None:
    store = RedisStore(RedisAddress.parse(f"redis://127.0.0.1:{free_port()}"))
    with pytest.raises(StoreError, match=r"cannot be reached: connection refused$"):
        store.run([("PING",)])


def test_rows_that_redis_throws_away_end_the_start_of_a_run(own_redis: OwnRedis) -> None:
    found = own_redis.client()
    found.config_set("maxmemory-policy", "allkeys-random")
    found.config_set("maxmemory", found.info("memory")["used_memory"] + 2_000_000)
    with pytest.raises(StoreError, match="are not there after they were written") as caught:
        asyncio.run(seed_all(own_redis.url, identities(20_000).accounts, lambda _: None))
    assert "evict" in str(caught.value.hint)
    found.flushall()
    rows = asyncio.run(seed_all(own_redis.url, identities(300).accounts, lambda _: None))
    # All of them, and no marker.
    assert (rows, found.dbsize()) == (1500, 600)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://h", RedisAddress("h", 6379)),
        ("redis://10.0.0.1:1/7", RedisAddress("10.0.0.1", 1, 7)),
        ("redis://:p%40ss@h/", RedisAddress("h", 6379, password="p@ss")),
        ("redis://u:p@[::1]:9/0", RedisAddress("::1", 9, username="u", password="p")),
    ],
)
def test_an_address_is_read(url: str, address: RedisAddress) -> None:
    assert RedisAddress.parse(url) == address


@pytest.mark.parametrize("url", ["redis://", "redis://h:0", "redis://h:99999", "redis://h/x"])
def test_what_is_no_address_is_reported(url: str) -> None:
    with pytest.raises(UsageError, match=r"allowed is redis://\[\[USER\]:PASSWORD@\]HOST"):
        RedisAddress.parse(url)


def test_a_password_is_not_shown_where_the_address_is_wrong() -> None:
    with pytest.raises(UsageError) as caught:
        RedisAddress.parse("redis://:secret@h:x")
    assert "secret" not in str(caught.value)
