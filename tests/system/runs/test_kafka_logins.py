"""Consumers at a Kafka with TLS, logins and rights: each refusal has its name, and the words of
librdkafka beside it."""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.kafka_server import JARS, KafkaServer, kafka_in
from tests.kit.ports import free_port
from tests.kit.runs import Play

pytestmark = [
    pytest.mark.skipif(not (JARS / "VERSION").exists(), reason="kafka is not installed"),
    pytest.mark.skipif(
        importlib.util.find_spec("confluent_kafka") is None,
        reason="confluent-kafka is not installed",
    ),
    pytest.mark.xdist_group("kafka"),
    pytest.mark.slow("a JVM starts, and some consumers wait until their connect_timeout"),
]

READERS = 3
DENIED = "denied"
"""Topic that the user may not see."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A server that has a password for SCRAM, and a topic that the user may not see."""
    admin = importlib.import_module("confluent_kafka.admin")
    with kafka_in(tmp_path_factory.mktemp("kafka")) as made:
        client = admin.AdminClient({"bootstrap.servers": f"127.0.0.1:{made.plain}"})
        scram = admin.ScramCredentialInfo(admin.ScramMechanism.SCRAM_SHA_256, 4096)
        password = admin.UserScramCredentialUpsertion("reader", scram, b"pencil")
        right = admin.AclBinding(
            admin.ResourceType.TOPIC,
            DENIED,
            admin.ResourcePatternType.LITERAL,
            "User:reader",
            "*",
            admin.AclOperation.ALL,
            admin.AclPermissionType.DENY,
        )
        asked = [
            *client.create_topics(
                [admin.NewTopic(DENIED, 1), admin.NewTopic("telemetry", 1)]
            ).values(),
            *client.alter_user_scram_credentials([password]).values(),
            *client.create_acls([right]).values(),
        ]
        for each in asked:
            each.result(timeout=60)
        yield made


def population(at: int, topic: str = "telemetry", **keys: Any) -> dict[str, Any]:
    """Consumers at a target."""
    place = {"brokers": "target", "first": at, "count": 1}
    return {"clients": READERS, "at": place, "subscriptions": [topic], **keys}


def test_each_refusal_of_kafka_has_its_name(server: KafkaServer, run: Play, tmp_path: Path) -> None:
    tls = {"security.protocol": "sasl_ssl", "ssl.ca.location": str(server.authority)}
    login = {"username": "reader", "password": "secret"}
    scram = {"sasl.mechanism": "SCRAM-SHA-256"}
    cases: dict[str, tuple[dict[str, Any], str | None, str]] = {
        "plain": (population(0, settings=tls, **login), None, ""),
        "scram": (
            population(0, settings=tls | scram, username="reader", password="pencil"),
            None,
            "",
        ),
        "wrong": (
            population(0, settings=tls, username="reader", password="wrong"),
            "bad_credentials",
            "Invalid username or password",
        ),
        "wrong-scram": (
            population(0, settings=tls | scram, **login),
            "bad_credentials",
            "invalid credentials",
        ),
        "mechanism": (
            population(0, settings=tls | {"sasl.mechanism": "SCRAM-SHA-512"}, **login),
            "bad_credentials",
            "Unsupported SASL mechanism",
        ),
        "stranger": (
            population(0, settings={"security.protocol": "sasl_ssl"}, **login),
            "tls_failed",
            "certificate verify failed",
        ),
        "denied": (
            population(0, DENIED, settings=tls, **login),
            "not_authorized",
            "Topic authorization",
        ),
        "no-tls": (population(0), "connect_closed", "transport failure"),
        "tls": (population(1, settings=tls, **login), "connect_closed", "PLAINTEXT"),
        "absent": (population(2), "connect_refused", "Connection refused"),
    }
    ports = (server.secure, server.plain, free_port())
    scenario = {
        "target": [f"kafka://127.0.0.1:{port}" for port in ports],
        "populations": {name: keys for name, (keys, _, _) in cases.items()},
        "stages": ["connect", {"hold": "1s"}, "disconnect"],
        "defaults": "off",
    }
    path = tmp_path / "scenario.yaml"
    path.write_text(json.dumps(scenario))
    _, result = run(path)
    for name, (_, outcome, words) in cases.items():
        found = result["populations"][name]
        assert found["outcomes"] == ({} if outcome is None else {outcome: READERS}), name
        assert found["connected_total"] == (READERS if outcome is None else 0), name
        texts = " ".join(each["text"] for each in found["explanations"])
        assert words in texts, (name, texts)
        assert "secret" not in texts
