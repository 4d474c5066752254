"""MQTT 5 from scenario to plan: versions, properties, and keys that an older version lacks."""

from __future__ import annotations

import pytest

from pubstorm.cli.describe.plan import plan_in_words
from pubstorm.contract.flows import Subscription
from pubstorm.contract.plan import Plan
from pubstorm.contract.protocol import Authentication, Mqtt, Property
from pubstorm.errors import ScenarioError
from pubstorm.plan import compile_plan, planned_targets
from pubstorm.scenario import parse_scenario

BASE = """\
target: mqtt://broker
populations:
  device:
    clients: 10
    {device}
stages: [connect]
"""


def scenario_text(*lines: str) -> str:
    return BASE.format(device="\n    ".join(lines))


def plan_of(*lines: str) -> Plan:
    scenario = parse_scenario(scenario_text(*lines), "s.yaml")
    return compile_plan(scenario, planned_targets(scenario), run_tag=1)


def mqtt_of(*lines: str) -> Mqtt:
    mqtt = plan_of(*lines).populations[0].mqtt
    assert mqtt is not None
    return mqtt


def problems(*lines: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(scenario_text(*lines), "s.yaml")
    return [f"{problem}; {problem.hint}" for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("written", "version"),
    [("5", "5"), ("'5'", "5"), ("3.1", "3.1"), ("3.1.1", "3.1.1")],
)
def test_a_version_is_a_text_or_the_number_that_yaml_reads(written: str, version: str) -> None:
    mqtt = mqtt_of(f"version: {written}")
    assert (mqtt.version, mqtt.name) == (version, f"mqtt-{version}")


@pytest.mark.parametrize("written", ["4", "5.0", "true", "'3'"])
def test_other_versions_are_refused(written: str) -> None:
    (problem,) = problems(f"version: {written}")
    assert "allowed are 3.1, 3.1.1 and 5" in problem


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
    plan = plan_of(
        "version: 5",
        "publications:",
        "  - topic: t/{n}",
        "    rate: 1/s",
        "    expiry: 30s",
        "    content_type: text/plain",
        "    payload: 'no. {seq}'",
        "    payload_format: text",
        "    response_topic: reply/{n}",
        "    correlation_data: '{seq}'",
        "    user_properties: {a: b, c: '{n}'}",
        "    topic_alias: true",
    )
    (publication,) = plan.populations[0].publications
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
    plan = plan_of("version: 5", f"subscriptions: [{{topic: t, qos: 1, {options}}}]")
    assert plan.populations[0].subscriptions == (
        Subscription(
            filter="t",
            qos=1,
            no_local=True,
            retain_as_published=True,
            retain_handling="never",
            identifier=7,
        ),
    )
    scenario = parse_scenario(scenario_text("version: 5"), "s.yaml")
    assert "MQTT 5, clean session" in "\n".join(plan_in_words(scenario, plan))


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("session_expiry: 1h", "session_expiry"),
        ("user_properties: {a: b}", "user_properties"),
        ("authentication: {method: A, data: b}", "authentication"),
        ("subscriptions: [{topic: t, no_local: true}]", "subscriptions.0.no_local"),
        (
            "subscriptions: [{topic: t, retain_as_published: true}]",
            "subscriptions.0.retain_as_published",
        ),
        ("publications: [{topic: t, rate: 1/s, expiry: 1s}]", "publications.0.expiry"),
        (
            "shares: {s: {part: 10%, subscriptions: [{topic: t, identifier: 1}]}}",
            "shares.s.subscriptions.0.identifier",
        ),
    ],
)
@pytest.mark.parametrize("version", ["3.1", "3.1.1"])
def test_keys_of_mqtt_5_need_version_5(line: str, path: str, version: str) -> None:
    (problem,) = problems(f"version: {version}", line)
    assert f"populations.device.{path}" in problem
    assert f"with version {version}" in problem and "write version: 5" in problem


SCRAM = "authentication: {method: SCRAM-SHA-256}"


@pytest.mark.parametrize(
    ("lines", "path", "text"),
    [
        ((SCRAM,), "authentication", "without username"),
        ((SCRAM, "username: a"), "authentication", "without password"),
        (("authentication: {method: TICKET}",), "authentication.method", "without data"),
        (
            ("authentication: {method: SCRAM-SHA-256, data: a}", "username: a", "password: b"),
            "authentication.data",
            "allowed are username and password",
        ),
        (("authentication: {method: A, data: '{row.a}'}",), "authentication.data", "without rows"),
    ],
)
def test_an_authentication_has_what_its_method_needs(
    lines: tuple[str, ...], path: str, text: str
) -> None:
    found = problems("version: 5", *lines)
    assert f"populations.device.{path}" in found[0]
    assert text in found[0]


def test_a_password_needs_a_username_before_mqtt_5() -> None:
    """[MQTT-3.1.2-22]"""
    (problem,) = problems("password: a")
    assert "device.password: found password without username with version 3.1.1" in problem
    for allowed in (("version: 5", "password: a"), ("password: a", "username: b")):
        parse_scenario(scenario_text(*allowed), "s.yaml")


def test_an_authentication_is_in_the_plan_and_its_data_not_in_stored_plans() -> None:
    plan = plan_of("version: 5", "authentication: {method: TICKET, data: 'key-{n}'}")
    assert authentication_of(plan) == Authentication(method="TICKET", data="key-{n}")
    assert "key-" not in plan.without_secrets().to_line()
    assert "TICKET" in plan.without_secrets().to_line()
    scram = plan_of("version: 5", SCRAM, "username: a", "password: b")
    assert authentication_of(scram) == Authentication(method="SCRAM-SHA-256")


def authentication_of(plan: Plan) -> Authentication | None:
    protocol = plan.populations[0].protocol
    assert isinstance(protocol, Mqtt)
    return protocol.authentication


def test_what_mqtt_5_forbids_is_refused() -> None:
    mixed = "subscriptions: [{topic: a, no_local: true}, b]"
    assert "allowed is all or none" in problems("version: 5", mixed)[0]
    shared = "subscriptions: [{topic: $share/g/a, no_local: true}]"
    assert "found no_local in a shared subscription" in problems("version: 5", shared)[0]
    ended = ("session: persistent", "session_expiry: 0s")
    assert "needed is a longer one" in problems("version: 5", *ended)[0]
    ranged = "publications: [{topic: t, rate: 1/s, content_type: '{1..3}'}]"
    assert "without ranges and choices" in problems("version: 5", ranged)[0]
    missing = "publications: [{topic: t, rate: 1/s, user_properties: {a: '{row.b}'}}]"
    assert "found {row.b} without rows" in problems("version: 5", missing)[0]


WILL = "will: {topic: 'gone/{n}', payload: bye, qos: 1, %s}"


@pytest.mark.parametrize(
    ("keys", "is_allowed"),
    [
        ("payload_format: text", False),
        ("payload_format: text, size: 10B", False),
        ("payload_format: bytes, size: 10B", True),
        ("payload_format: text, payload: '{stamp}'", True),
        ("payload_format: text, payload: {at: '{time}'}", True),
    ],
)
def test_a_payload_of_bytes_is_no_text(keys: str, is_allowed: bool) -> None:
    lines = ("version: 5", f"publications: [{{topic: t, rate: 1/s, {keys}}}]")
    if is_allowed:
        assert plan_of(*lines).populations[0].publications
    else:
        (problem,) = problems(*lines)
        assert "populations.device.publications.0.payload_format" in problem
        assert "write payload: TEXT" in problem


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


@pytest.mark.parametrize("key", ["delay: 1s", "expiry: 1s", "user_properties: {a: b}"])
def test_properties_of_wills_need_mqtt_5(key: str) -> None:
    (problem,) = problems(WILL % key)
    name = key.partition(":")[0]
    assert f"populations.device.will.{name}: found {name} with version 3.1.1" in problem
    assert "write version: 5 in the population" in problem


@pytest.mark.parametrize(
    ("session", "is_allowed"),
    [
        ("session: persistent", True),
        ("session_expiry: 5s", True),
        ("session_expiry: 4s", False),
        ("session: clean", False),
    ],
)
def test_a_will_delay_ends_before_its_session(session: str, is_allowed: bool) -> None:
    lines = ("version: 5", session, WILL % "delay: 5s")
    if is_allowed:
        assert mqtt_of(*lines).will_delay_s == 5
        return
    (problem,) = problems(*lines)
    assert "populations.device.will.delay: found a delay of 5s, allowed is up to" in problem


def test_a_share_with_a_session_that_ends_at_once_has_no_will_delay() -> None:
    shares = "shares: {brief: {part: 50%, session: clean}}"
    (problem,) = problems("version: 5", "session: persistent", WILL % "delay: 5s", shares)
    assert "populations.device.shares.brief" in problem


def test_a_disconnect_with_will_needs_mqtt_5() -> None:
    assert plan_of("version: 5", "end: disconnect_with_will").populations[0].end
    (problem,) = problems("end: disconnect_with_will")
    assert "found disconnect_with_will with version 3.1.1" in problem
    (problem,) = problems("shares: {some: {part: 50%, end: disconnect_with_will}}")
    assert "populations.device.shares.some.end" in problem


def test_clients_that_vanish_may_have_two_connections() -> None:
    population = plan_of("end: vanish", "keep_alive: 10s", WILL % "retain: false").populations[0]
    assert population.connections_max == 2 * population.clients
    assert population.will_wait_ns == 15 * 10**9


@pytest.mark.parametrize(
    "line",
    [
        "publications: [{topic: t, rate: 1/s, user_properties: {pubstorm: x}}]",
        "will: {topic: t, user_properties: {pubstorm: x}}",
    ],
)
def test_the_name_of_the_stamp_is_no_user_property(line: str) -> None:
    (problem,) = problems("version: 5", line)
    assert "user_properties.pubstorm: found the name of the stamp" in problem


def test_a_method_of_authentication_has_a_name() -> None:
    (problem,) = problems("version: 5", "authentication: {method: '', data: x}")
    assert "authentication.method: found '', allowed is text of at least one character" in problem
