"""Runs with a broker of each transport, and clients of three agents at each. The runs make keys and
certificates for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from pubstorm.host.binaries import broker_path
from pubstorm.host.children import find
from tests.kit.runs import Play

pytestmark = pytest.mark.xdist_group("transports")

CLIENTS = 6
COMMAND = [str(broker_path()), "--port", "{port}", "--websocket-port", "{websocket_port}"]
BROKERS: dict[str, dict[str, Any]] = {
    "plain": {"kind": "embedded"},
    "server": {"kind": "mosquitto", "tls": "server"},
    "mutual": {"kind": "mosquitto", "tls": "mutual"},
    "psk": {"kind": "mosquitto", "tls": "psk"},
    "embedded-ws": {"kind": "embedded", "transport": "websocket"},
    "mosquitto-ws": {"kind": "mosquitto", "transport": "websocket"},
    "mosquitto-wss": {"kind": "mosquitto", "transport": "websocket", "tls": "server"},
    "command-ws": {"kind": "command", "transport": "websocket", "command": COMMAND},
    "embedded-quic": {"kind": "embedded", "transport": "quic"},
    "nats-ws": {"kind": "nats", "transport": "websocket"},
    "rabbitmq-ws": {"kind": "rabbitmq", "transport": "websocket"},
}
MISSING = {"nats-ws": find("nats-server") is None, "rabbitmq-ws": find("rabbitmq-server") is None}
VERSIONS = {
    f"{mode}-{version[-1]}": (mode, {"min_version": version, "max_version": version})
    for mode in ("mutual", "psk")
    for version in ("1.2", "1.3")
}


@pytest.fixture(scope="module")
def results(shared_run: Play, shared_folder: Path) -> list[dict[str, Any]]:
    """A run with pre-shared keys has no certificates: there are two runs."""
    found = []
    for modes in ({"psk"}, BROKERS.keys() - {"psk"}):
        names = [name for name in BROKERS if name in modes and not MISSING.get(name)]
        populations = {f"at-{name}": population(name, name) for name in names}
        populations["everywhere"] = population("everywhere", None)
        for name, (mode, tls) in VERSIONS.items():
            if mode in modes:
                populations[name] = {**population(name, mode), "tls": tls}
        scenario = {
            "topology": {"brokers": {name: BROKERS[name] for name in names}},
            "clean_start": "require",
            "fleet": {"agents": 3},
            "populations": populations,
            "stages": ["connect", {"publish": "1s"}, "disconnect"],
            "defaults": "off",
        }
        text = yaml.safe_dump(scenario, sort_keys=False)
        found.append(shared_run(text, out=shared_folder / f"run-of-{len(names)}")[1])
    return found


def population(name: str, at: str | None) -> dict[str, Any]:
    """Returns clients at one broker, or at all in turn, that receive their own messages."""
    return {
        "clients": CLIENTS if at else 2 * len(BROKERS),
        "reconnect": "never",
        "subscriptions": [{"topic": f"{name}/{{n}}", "qos": 1}],
        "publications": [{"topic": f"{name}/{{n}}", "rate": "10/s", "qos": 1}],
        **({"at": at} if at else {}),
    }


@pytest.mark.slow("RabbitMQ starts")
@pytest.mark.parametrize("name", [*BROKERS, *VERSIONS])
def test_one_word_gives_brokers_and_clients_a_transport_and_keys(
    results: list[dict[str, Any]], name: str
) -> None:
    if MISSING.get(name):
        pytest.skip(f"{BROKERS[name]['kind']} is not installed")
    populations = results[0]["populations"] | results[1]["populations"]
    assert_complete(populations[f"at-{name}" if name in BROKERS else name])


def test_clients_go_to_targets_of_each_transport_in_turn(results: list[dict[str, Any]]) -> None:
    for result in results:
        assert_complete(result["populations"]["everywhere"])
        names = [broker["name"] for broker in result["brokers"]]
        found = [target.rpartition("://")[0] or "mqtt" for target in result["targets"]]
        assert found == [scheme(BROKERS[name.rpartition("-")[0]]) for name in names]


def scheme(broker: dict[str, Any]) -> str:
    if broker.get("transport") == "quic":
        return "quic"
    word = "ws" if "transport" in broker else "mqtt"
    return f"{word}s" if "tls" in broker else word


def assert_complete(found: dict[str, Any]) -> None:
    """Checks that all clients of a population connected, and received what they sent."""
    assert (found["connected_max"], found["outcomes"]) == (found["clients"], {})
    assert found["sent_total"] == found["acked_total"] > 0
    assert found["received_total"] == found["expected_total"] == found["sent_total"]


def test_clients_are_shared_out_with_their_keys(results: list[dict[str, Any]]) -> None:
    for result in results:
        agents = [agent["clients"] for agent in result["fleet"]["agents"]]
        assert len(agents) == 3 and min(agents) > 0
        assert sum(agents) == sum(each["clients"] for each in result["populations"].values())


def test_brokers_have_no_stale_state_and_keys_are_gone(results: list[dict[str, Any]]) -> None:
    for result in results:
        topology = Path(result["run_directory"]) / "topology"
        assert not (topology / "keys").exists()
        assert (topology / "keys-deleted.txt").exists()
        assert result["stale_state"] == []
