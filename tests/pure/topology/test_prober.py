"""Limits of brokers that are known: the prober finds exactly these, whatever way a broker refuses
in. Of a broker that fails, the prober keeps what it had found, and ends in time."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from pubstorm.result.limits import Limit, LimitName, Limits
from pubstorm.topology import prober
from pubstorm.topology.raw_client import TEXT_BYTES_MAX
from tests.kit.virtual import run_virtually
from tests.pure.topology.limited_broker import FAULTS, Fault, LimitedBroker, Refusal, Rules

N = LimitName
SMALL = Rules(
    packet_max=20_000,
    client_id_max=300,
    topic_max=900,
    levels_max=12,
    subscriptions_max=777,
    qos_max=1,
    retains=False,
    serves_sys=False,
    properties=bytes.fromhex("210009 220007 2401 2500 2700004e20 2800 2900 2a00 1100000064 13003c"),
)
TRUTH: dict[LimitName, bool | int | str] = {
    N.RECEIVE_MAXIMUM: 9,
    N.TOPIC_ALIAS_MAXIMUM: 7,
    N.MAXIMUM_QOS: 1,
    N.RETAIN_AVAILABLE: False,
    N.MAXIMUM_PACKET_SIZE: 20_000,
    N.WILDCARDS_AVAILABLE: False,
    N.IDENTIFIERS_AVAILABLE: False,
    N.SHARED_AVAILABLE: False,
    N.SESSION_EXPIRY: 100,
    N.SERVER_KEEP_ALIVE: 60,
    N.ASSIGNED_CLIENT_ID: True,
    N.QOS_0: True,
    N.QOS_1: True,
    N.QOS_2: False,
    N.RETAINED: False,
    N.LARGEST_PACKET: 20_000,
    N.LONGEST_CLIENT_ID: 300,
    N.LONGEST_TOPIC: 900,
    N.DEEPEST_TOPIC: 12,
    N.MOST_SUBSCRIPTIONS: 777,
}
VERSIONS = {N.MQTT_3_1: True, N.MQTT_3_1_1: True, N.MQTT_5: True}
CLOSE_S = 20.0
"""Time of the last trial and of the clean-up."""


class Probed:
    """The limits of a broker, and the broker afterwards."""

    def __init__(self, rules: Rules, monkeypatch: pytest.MonkeyPatch, password: str = "") -> None:
        self.broker = LimitedBroker(rules)
        self.lines: list[str] = []
        username, secret = ("me", password) if password else (None, None)
        monkeypatch.setattr(asyncio, "open_connection", self.broker.open)

        async def probe() -> tuple[Limits, float]:
            loop = asyncio.get_running_loop()
            begin_s = loop.time()
            found = await prober.probe("broker", 1883, username, secret, self.lines.append)
            return found, loop.time() - begin_s

        self.found, self.took_s = run_virtually(probe())
        self.by_name = {limit.name: limit for limit in self.found.limits}

    def values(self, bound: str) -> dict[LimitName, bool | int | str | None]:
        """Values of the limits with a bound."""
        return {each.name: each.value for each in self.found.limits if each.bound == bound}

    def assert_clean(self) -> None:
        """Nothing of the probe is on the broker."""
        assert self.broker.retained == {} and self.broker.sessions == {}


@pytest.mark.parametrize("refusal", ["closes", "says why"])
@pytest.mark.parametrize("version", [3, 4, 5])
def test_the_prober_finds_exactly_the_limits_of_a_broker(
    version: int, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = replace(SMALL, versions=(version,), refusal=refusal)
    probed = Probed(rules, monkeypatch)
    versions = {name: number == version for number, name in prober.VERSIONS.items()}
    of_connack = {*prober.GRANTED, N.ASSIGNED_CLIENT_ID} if version != 5 else set()
    truth = {name: value for name, value in TRUTH.items() if name not in of_connack}
    assert probed.values("exact") == {**versions, **truth}
    assert set(probed.values("not_found")) == {*of_connack, N.SYS_TOPICS}
    assert not probed.found.interrupted
    assert len(probed.lines) == len(probed.found.limits)
    probed.assert_clean()


def test_a_broker_without_limits_has_at_least_what_was_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probed = Probed(Rules(), monkeypatch)
    assert probed.values("at_least") == {
        N.LARGEST_PACKET: prober.PACKET_BYTES_MAX,
        N.MOST_SUBSCRIPTIONS: prober.SUBSCRIPTIONS_MAX,
        N.DEEPEST_TOPIC: prober.LEVELS_MAX,
    }
    exact = probed.values("exact")
    assert exact[N.LONGEST_TOPIC] == exact[N.LONGEST_CLIENT_ID] == TEXT_BYTES_MAX
    assert exact[N.MAXIMUM_PACKET_SIZE] == exact[N.SESSION_EXPIRY] == "unlimited"
    assert exact[N.SYS_TOPICS] is exact[N.RETAINED] is exact[N.QOS_2] is True
    assert probed.values("not_found") == {} and not probed.found.interrupted
    probed.assert_clean()


@pytest.mark.parametrize("size", [60, 128, 129, 131, 16_386, 16_388, 2_097_157])
@pytest.mark.parametrize("drops", [False, True])
def test_the_largest_packet_is_exact_at_each_length_of_a_length(
    size: int, drops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = Rules(packet_max=size, drops_larger=drops, subscriptions_max=1)
    limit = Probed(rules, monkeypatch).by_name[N.LARGEST_PACKET]
    assert (limit.value, limit.bound) == (size, "exact")


@pytest.mark.parametrize("count", [1, 2, 499, 500, 501, 1_234])
@pytest.mark.parametrize("refusal", ["closes", "says why"])
def test_the_most_subscriptions_are_exact(
    count: int, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    probed = Probed(Rules(subscriptions_max=count, refusal=refusal, packet_max=4096), monkeypatch)
    limit = probed.by_name[N.MOST_SUBSCRIPTIONS]
    assert (limit.value, limit.bound) == (count, "exact")


def test_a_client_with_one_window_for_all_its_filters_hides_no_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """NATS has one window for all filters of a client. The largest window is for one filter."""
    rules = Rules(topic_max=1_234, levels_max=56, windows_max=1, refusal="says why")
    probed = Probed(rules, monkeypatch)
    exact = probed.values("exact")
    assert (exact[N.LONGEST_TOPIC], exact[N.DEEPEST_TOPIC]) == (1_234, 56)


def test_what_does_not_fit_into_the_largest_packet_is_a_lower_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probed = Probed(Rules(packet_max=1000, subscriptions_max=5), monkeypatch)
    for name in (N.LONGEST_CLIENT_ID, N.LONGEST_TOPIC, N.DEEPEST_TOPIC):
        limit = probed.by_name[name]
        assert limit.bound == "at_least"
        bytes_each = 2 if name is N.DEEPEST_TOPIC else 1
        assert isinstance(limit.value, int) and 950 <= limit.value * bytes_each <= 1000


def test_a_login_is_shown_and_a_refused_one_is_no_missing_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rules = replace(SMALL, password=b"right")
    assert Probed(rules, monkeypatch, "right").values("exact") == {**VERSIONS, **TRUTH}
    refused = Probed(rules, monkeypatch, "wrong")
    assert set(refused.values("not_found")) == set(LimitName)
    assert refused.found.interrupted
    assert "not authorized" in refused.by_name[N.MQTT_5].how


def test_a_broker_that_names_no_clients_shows_its_other_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = Probed(replace(SMALL, names_clients=False), monkeypatch).values("exact")
    assert found == {**VERSIONS, **TRUTH, N.ASSIGNED_CLIENT_ID: False}


def test_a_login_that_no_packet_has_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    long = Probed(SMALL, monkeypatch, "p" * (TEXT_BYTES_MAX + 1))
    assert set(long.values("not_found")) == set(LimitName) and long.found.interrupted
    assert f"{TEXT_BYTES_MAX:,}" in long.by_name[N.MQTT_5].how
    assert long.broker.packets == 0


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broker_that_fails_at_any_packet_gives_a_document_in_time(
    fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = replace(SMALL, subscriptions_max=30)
    total = Probed(few, monkeypatch).broker.packets
    truth = {**VERSIONS, **TRUTH, N.MOST_SUBSCRIPTIONS: 30}
    for at in range(1 + FAULTS.index(fault), total, 10):
        probed = Probed(replace(few, fault=fault, fault_at=at), monkeypatch)
        assert [limit.name for limit in probed.found.limits] == [*LimitName]
        assert probed.took_s < prober.PROBE_S + CLOSE_S
        for limit in probed.found.limits:
            assert limit.how
            if limit.value is not None and limit.name in truth:
                assert_true_of(limit, truth[limit.name], at)
        is_gone = fault in ("dies", "freezes all")
        assert probed.found.interrupted or not is_gone or at > total - 6, at
        if not is_gone:
            probed.assert_clean()


def assert_true_of(limit: Limit, truth: bool | int | str, at: int) -> None:
    """A number is no more than the truth. A yes is true; a no may be the fault itself."""
    if isinstance(limit.value, bool):
        assert truth or not limit.value, (at, limit)
    elif limit.bound == "exact":
        assert limit.value == truth, (at, limit)
    else:
        assert isinstance(limit.value, int) and isinstance(truth, int)
        assert limit.value <= truth, (at, limit)


def test_a_broker_that_cannot_be_reached_has_no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    probed = Probed(replace(SMALL, fault="dies", fault_at=1), monkeypatch)
    assert set(probed.values("not_found")) >= {*TRUTH}
    assert probed.found.interrupted
