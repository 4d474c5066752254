"""Configurations that brokers and services are started with: settings of the user win, but for the
listener."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from pubstorm.errors import TopologyError
from pubstorm.host.machine import LocalMachine
from pubstorm.scenario.topology import Federation
from pubstorm.topology import services
from pubstorm.topology.adapters import adapter_of, embedded, mosquitto, nats, rabbitmq
from pubstorm.topology.broker import Place


def of_mosquitto(settings: dict[str, Any]) -> list[str]:
    text = mosquitto.configuration(settings, "4711 127.0.0.1", Path("/run/main"))
    return text.splitlines()


def of_redis(settings: dict[str, Any]) -> list[str]:
    return services.configuration(settings, {"port": 7}).splitlines()


def of_rabbitmq(settings: dict[str, Any]) -> list[str]:
    ours = {"mqtt.listeners.tcp.1": "127.0.0.1:4711", "listeners.tcp.pubstorm": "127.0.0.1:4712"}
    return rabbitmq.configuration(settings, ours).splitlines()


@pytest.mark.parametrize(
    ("lines", "expected", "key"),
    [
        (
            of_mosquitto({"allow_anonymous": False, "listener": "1 ::1", "max_queued": 9}),
            ["listener 4711 127.0.0.1", "allow_anonymous false", "max_queued 9"],
            "listener",
        ),
        (of_mosquitto({}), ["set_tcp_nodelay true"], "set_tcp_nodelay"),
        (of_mosquitto({"log_type": ["error", "debug"]}), ["log_type error", "log_type debug"], ""),
        (
            of_redis({"save": "60 1", "port": 1, "maxmemory": "1gb"}),
            ["save 60 1", "port 7", "maxmemory 1gb", "appendonly no"],
            "port",
        ),
        (of_redis({"rename-command": ["A B", "C D"]}), ["rename-command A B"], "save"),
        (
            of_rabbitmq({"mqtt.allow_anonymous": False, "mqtt.listeners.tcp.1": 1, "mqtt.x": 10}),
            [
                "mqtt.allow_anonymous = false",
                "mqtt.x = 10",
                "mqtt.listeners.tcp.1 = 127.0.0.1:4711",
                "listeners.tcp.pubstorm = 127.0.0.1:4712",
            ],
            "mqtt.listeners.tcp.1",
        ),
        (of_rabbitmq({"listeners.tcp.1": 5672}), ["listeners.tcp.1 = 5672"], "listeners.tcp.1"),
    ],
)
def test_settings_of_the_user_win_but_for_the_listener(
    lines: list[str], expected: list[str], key: str
) -> None:
    """All lines exist, and a key has one line of its own."""
    assert {*expected} <= {*lines}
    assert not key or sum(line.startswith(key) for line in lines) == 1


def test_settings_of_the_embedded_broker_are_its_options() -> None:
    settings = {"max_queued": 100, "max-inflight": 20, "verbose": True, "quiet": False}
    expected = ["--max-queued", "100", "--max-inflight", "20", "--verbose"]
    assert embedded.options(settings) == expected


def test_a_dot_in_a_setting_of_nats_is_a_block() -> None:
    settings = {"mqtt.ack_wait": "10s", "max_payload": "2MB", "debug": True, "mqtt.port": 1}
    text = nats.configuration(settings, {"mqtt.port": 4711})
    block = ["mqtt {", "  ack_wait: 10s", "  port: 4711", "}"]
    assert text.splitlines() == [*block, "max_payload: 2MB", "debug: true"]


@pytest.mark.parametrize(("direction", "at"), [("out", "/"), ("in", "customer-0")])
def test_links_are_where_messages_go_to(direction: str, at: str) -> None:
    federation = Federation.model_validate({"vhosts": 1, "direction": direction})
    made: Any = rabbitmq.definitions_of(federation)
    assert [link["vhost"] for link in made["parameters"]] == [at]
    assert [policy["vhost"] for policy in made["policies"]] == [at]


def test_definitions_of_a_federation_have_a_link_for_each_customer() -> None:
    made: Any = rabbitmq.definitions_of(Federation(vhosts=3, direction="both"))
    customers = [f"customer-{n}" for n in range(3)]
    assert [vhost["name"] for vhost in made["vhosts"]] == ["/", *customers]
    uris = [(link["vhost"], link["value"]["uri"]) for link in made["parameters"]]
    assert uris[:2] == [("/", "amqp:///customer-0"), ("customer-0", "amqp:///%2F")]
    assert (len(uris), len(made["policies"])) == (6, 4)


@pytest.mark.parametrize("kind", ["mosquitto", "rabbitmq", "nats"])
def test_a_missing_program_is_an_error_with_the_fix(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalMachine, "find", AsyncMock(return_value=None))
    with pytest.raises(TopologyError) as caught:
        asyncio.run(adapter_of(kind)(Place(name="b-0", folder=tmp_path)).program())
    assert caught.value.exit_code == 2
    assert "apt-get install" in str(caught.value.hint)
