"""Limits of real brokers, found by trying: mosquitto has the limits of its settings. The embedded
broker has a limit of levels, without which one client could end the broker."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from pubstorm.result.limits import LimitName, Limits
from pubstorm.topology import prober
from pubstorm.topology.adapters import adapter_of
from pubstorm.topology.broker import Place
from pubstorm.topology.raw_client import (
    MQTT_5,
    TEXT_BYTES_MAX,
    Peer,
    RawConnect,
    RawMessage,
    RequestError,
    connected,
)
from tests.system.topology.conftest import needs_mosquitto

PACKET_BYTES = 20_000
LENGTH_BYTES = 3
"""Bytes of the length of a packet, which mosquitto does not count."""
SETTINGS = {
    "max_packet_size": PACKET_BYTES,
    "max_qos": 1,
    "retain_available": False,
    "max_topic_alias": 7,
    "max_inflight_messages": 9,
    "max_keepalive": 100,
}
FOUND: dict[LimitName, bool | int | str] = {
    LimitName.MQTT_3_1: True,
    LimitName.MQTT_3_1_1: True,
    LimitName.MQTT_5: True,
    LimitName.RECEIVE_MAXIMUM: 9,
    LimitName.TOPIC_ALIAS_MAXIMUM: 7,
    LimitName.MAXIMUM_QOS: 1,
    LimitName.RETAIN_AVAILABLE: False,
    LimitName.MAXIMUM_PACKET_SIZE: PACKET_BYTES,
    LimitName.WILDCARDS_AVAILABLE: True,
    LimitName.SHARED_AVAILABLE: True,
    LimitName.IDENTIFIERS_AVAILABLE: True,
    LimitName.SESSION_EXPIRY: "unlimited",
    LimitName.SERVER_KEEP_ALIVE: 100,
    LimitName.ASSIGNED_CLIENT_ID: True,
    LimitName.QOS_0: True,
    LimitName.QOS_1: True,
    LimitName.QOS_2: False,
    LimitName.RETAINED: False,
}
LEVELS = range(200, 203)
"""Levels of the deepest topic, by version of mosquitto."""
LEVELS_OF_EMBEDDED = 1_000


@needs_mosquitto
async def test_mosquitto_has_the_limits_of_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A search that ends early on a busy host finds a lower bound.
    monkeypatch.setattr(prober, "SEARCH_S", 60.0)
    monkeypatch.setattr(prober, "PROBE_S", 240.0)
    broker = adapter_of("mosquitto")(Place(name="b-0", folder=tmp_path / "b-0", settings=SETTINGS))
    lines: list[str] = []
    await broker.start()
    try:
        found = await prober.probe("127.0.0.1", broker.port, None, None, lines.append)
    finally:
        await broker.stop()
    exact = {each.name: each.value for each in found.limits if each.bound == "exact"}
    least = {each.name: each.value for each in found.limits if each.bound == "at_least"}
    assert {name: value for name, value in exact.items() if name in FOUND} == FOUND
    packet, levels = exact[LimitName.LARGEST_PACKET], exact[LimitName.DEEPEST_TOPIC]
    assert isinstance(packet, int) and PACKET_BYTES <= packet <= PACKET_BYTES + LENGTH_BYTES
    assert levels in LEVELS
    for name in (LimitName.LONGEST_TOPIC, LimitName.LONGEST_CLIENT_ID):
        length = least[name]
        assert isinstance(length, int) and PACKET_BYTES - 100 < length < PACKET_BYTES
    assert not found.interrupted and len(lines) == len(found.limits)
    assert Limits.model_validate_json(found.model_dump_json()) == found


async def test_no_topic_ends_the_embedded_broker(tmp_path: Path) -> None:
    broker = adapter_of("embedded")(Place(name="b-0", folder=tmp_path / "b-0"))
    await broker.start()
    try:
        found = await prober.probe("127.0.0.1", broker.port, None, None, lambda _: None)
        peer = Peer("127.0.0.1", broker.port)
        deep = RawMessage(b"/" * TEXT_BYTES_MAX, b"deep", qos=1, retain=True)
        end = RawMessage(b"end", b"shallow")
        async with connected(peer, RawConnect(b"deep", MQTT_5)) as client:
            await client.publish(deep)
            with suppress(RequestError):
                await client.ping()
        async with connected(peer, RawConnect(b"later", MQTT_5)) as client:
            assert await client.subscribe([b"#"]) == [0]
            await client.publish(end)
            first = await client.until(lambda received: received.message is not None)
            assert first.message == end
    finally:
        await broker.stop()
    by_name = {each.name: each for each in found.limits}
    levels, retained = by_name[LimitName.DEEPEST_TOPIC], by_name[LimitName.RETAINED]
    assert isinstance(levels.value, int) and levels.value <= LEVELS_OF_EMBEDDED
    assert retained.value is True and not found.interrupted
