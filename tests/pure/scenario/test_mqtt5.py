"""MQTT 5 from scenario to plan: versions and properties."""

from __future__ import annotations

import pytest

from pubstorm.cli.describe.plan import plan_in_words
from pubstorm.contract.plan import Plan
from pubstorm.contract.protocol import Mqtt, PlannedAuthentication, PlannedSubscription, Property
from pubstorm.scenario import parse_scenario
from tests.pure.scenario.bases import SMALL, changed, plan_of


def text_of(*keys: str) -> str:
    return changed(SMALL, ", ".join(f"populations.device.{key}" for key in keys))


def mqtt_of(*lines: str) -> Mqtt:
    mqtt = plan_of(text_of(*lines)).populations[0].mqtt
    assert mqtt is not None
    return mqtt


@pytest.mark.parametrize(
    ("written", "version"),
    [("5", "5"), ("'5'", "5"), ("3.1", "3.1"), ("3.1.1", "3.1.1")],
)
def test_a_version_is_a_text_or_the_number_that_yaml_reads(written: str, version: str) -> None:
    mqtt = mqtt_of(f"version: {written}")
    assert (mqtt.version, mqtt.name) == (version, f"mqtt-{version}")


def test_keys_of_clients_become_properties_of_connect() -> None:
    mqtt = mqtt_of(
        "version: 5",
        "session_expiry: 1h",
        "receive_maximum: 20",
        "maximum_packet_size: 10kB",
        "topic_aliases: 3",
        "user_properties: {site: 'north-{n}'}",
    )
    assert mqtt.properties == (
        Property(name="session_expiry_interval", value=3600),
        Property(name="receive_maximum", value=20),
        Property(name="maximum_packet_size", value=10_000),
        Property(name="topic_alias_maximum", value=3),
        Property(name="user_property", key="site", value="north-{n}"),
    )


@pytest.mark.parametrize("lines", [("session: persistent",), ("session_expiry: never",)])
def test_a_session_without_an_end_has_the_largest_interval(lines: tuple[str, ...]) -> None:
    mqtt = mqtt_of("version: 5", *lines)
    assert mqtt.properties == (Property(name="session_expiry_interval", value=2**32 - 1),)


def test_keys_of_publications_become_properties_of_messages() -> None:
    keys = (
        "expiry: 30s, content_type: text/plain, payload: 'no. {seq}', payload_format: text, "
        "response_topic: 'reply/{n}', correlation_data: '{seq}', topic_alias: true, "
        "user_properties: {a: b, c: '{n}'}"
    )
    text = text_of("version: 5", f"publications: [{{topic: t, rate: 1/s, {keys}}}]")
    (publication,) = plan_of(text).populations[0].publications
    assert publication.topic_alias
    assert publication.properties == (
        Property(name="message_expiry_interval", value=30),
        Property(name="content_type", value="text/plain"),
        Property(name="payload_format_indicator", value=1),
        Property(name="response_topic", value="reply/{n}"),
        Property(name="correlation_data", value="{seq}"),
        Property(name="user_property", key="a", value="b"),
        Property(name="user_property", key="c", value="{n}"),
    )


def test_options_of_subscriptions_are_in_the_plan_and_the_version_in_its_words() -> None:
    options = "no_local: true, retain_as_published: true, retain_handling: never, identifier: 7"
    text = text_of("version: 5", f"subscriptions: [{{topic: t, qos: 1, {options}}}]")
    plan = plan_of(text)
    assert plan.populations[0].subscriptions == (
        PlannedSubscription(
            filter="t",
            qos=1,
            no_local=True,
            retain_as_published=True,
            retain_handling="never",
            identifier=7,
        ),
    )
    scenario = parse_scenario(text, "s.yaml")
    assert "MQTT 5, clean session" in "\n".join(plan_in_words(scenario, plan))


SCRAM = "authentication: {method: SCRAM-SHA-256}"


def test_an_authentication_is_in_the_plan_and_its_data_not_in_stored_plans() -> None:
    plan = plan_of(text_of("version: 5", "authentication: {method: TICKET, data: 'key-{n}'}"))
    assert authentication_of(plan) == PlannedAuthentication(method="TICKET", data="key-{n}")
    assert "key-" not in plan.without_secrets().to_line()
    assert "TICKET" in plan.without_secrets().to_line()
    scram = plan_of(text_of("version: 5", SCRAM, "username: a", "password: b"))
    assert authentication_of(scram) == PlannedAuthentication(method="SCRAM-SHA-256")


def authentication_of(plan: Plan) -> PlannedAuthentication | None:
    protocol = plan.populations[0].protocol
    assert isinstance(protocol, Mqtt)
    return protocol.authentication


WILL = "will: {topic: 'gone/{n}', payload: bye, qos: 1, %s}"


def test_keys_of_wills_become_properties() -> None:
    keys = (
        "delay: 5s, expiry: 1min, content_type: text/plain, payload_format: text, "
        "response_topic: 'r/{n}', correlation_data: 'c-{n}', user_properties: {site: '{n}'}"
    )
    mqtt = mqtt_of("version: 5", "session_expiry: 10s", WILL % keys)
    assert mqtt.will is not None
    assert mqtt.will.properties == (
        Property(name="will_delay_interval", value=5),
        Property(name="message_expiry_interval", value=60),
        Property(name="content_type", value="text/plain"),
        Property(name="payload_format_indicator", value=1),
        Property(name="response_topic", value="r/{n}"),
        Property(name="correlation_data", value="c-{n}"),
        Property(name="user_property", key="site", value="{n}"),
    )
    assert mqtt.will_delay_s == 5
    sooner = mqtt_of("version: 5", "session_expiry: 2s", WILL % keys)
    assert (sooner.will_delay_s, sooner.will) == (2, mqtt.will)


def test_clients_that_vanish_may_have_two_connections() -> None:
    text = text_of("end: vanish", "keep_alive: 10s", WILL % "retain: false")
    population = plan_of(text).populations[0]
    assert population.connections_max == 2 * population.clients
    assert population.will_wait_ns == 15 * 10**9
