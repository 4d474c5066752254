"""One run whose populations use the options of TLS at a mosquitto that asks for certificates.
Wireshark's dissector decrypts the recording with the keys that the agents wrote, and counts the
handshakes by itself."""

from __future__ import annotations

import json
import stat
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from pubstorm.host.keys.certificates import Authority, CertificateDates, Credential
from pubstorm.host.keys.files import NewFile, write_files
from pubstorm.topology.adapters.mosquitto import certificate_settings
from tests.kit.runs import MosquittoMaker, Play
from tests.system.runs.dissector import Recording, recorded

pytestmark = pytest.mark.xdist_group("tls-options")

CLIENTS = 6
VALID = CertificateDates.of_days(9)
NAMES = ("127.0.0.1", "b0.broker.test", "b1.broker.test")
PASSPHRASE = "a word of four syllables"
OPTIONS: dict[str, dict[str, object]] = {
    "resuming-2": {"resume": "100%", "max_version": "1.2"},
    "resuming-3": {"resume": "100%", "min_version": "1.3"},
    "returning": {},
    "asking": {"alpn": ["mqtt"], "server_name": "b{n%2}.broker.test"},
    "choosing": {"suites": ["TLS_CHACHA20_POLY1305_SHA256"], "groups": ["P-384"]},
}
FULL, RESUMED = "11", "41"
"""A Certificate of the broker, and a ServerHello with a chosen ticket [RFC 8446, 4.2]."""

SERVER_NAME, ALPN = "tls.handshake.extensions_server_name", "tls.handshake.extensions_alpn_str"


@dataclass
class Played:
    result: dict[str, Any]
    recording: Recording
    key_log: Path


def store(folder: Path, stem: str, own: Credential, passphrase: str | None = None) -> None:
    key = own.key
    if passphrase is not None:
        encryption = BestAvailableEncryption(passphrase.encode())
        loaded = load_pem_private_key(key, None)
        key = loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    files = (("crt", own.certificate), ("key", key))
    write_files([NewFile(folder / f"{stem}.{end}", text) for end, text in files])


@pytest.fixture(scope="module")
def played(shared_run: Play, shared_folder: Path, shared_mosquitto: MosquittoMaker) -> Played:
    authority = Authority.new("ours", VALID)
    store(shared_folder, "ca", authority.credential)
    store(shared_folder, "server", authority.server(NAMES, VALID))
    for n in range(CLIENTS):
        store(shared_folder, f"client-{n}", authority.client(f"c{n}", VALID), PASSPHRASE)
    (shared_folder / "word").write_text(f"{PASSPHRASE}\n")
    settings = certificate_settings(shared_folder, require_client=True, as_username=True)
    port = shared_mosquitto(**{k: str(v).replace("True", "true") for k, v in settings.items()}).port
    key_log = shared_folder / "keys.log"
    own = {
        "ca": "ca.crt",
        "certificate": "client-{n}.crt",
        "key": "client-{n}.key",
        "passphrase": "${file:word}",
        "key_log": key_log.name,
    }
    scenario = {
        "target": f"mqtts://127.0.0.1:{port}",
        "clean_start": "skip",
        "defaults": "off",
        "thresholds": [
            "resuming-3.tls_resumed > 0",
            "resuming-3.connect_time_tls_resumed.p99 < 1min",
        ],
        "populations": {
            name: {
                "clients": CLIENTS,
                "tls": {**own, **options},
                "subscriptions": [{"topic": f"{name}/{{n}}", "qos": 1}],
                "publications": [{"topic": f"{name}/{{n}}", "rate": "5/s", "qos": 1}],
            }
            for name, options in OPTIONS.items()
        },
        "stages": [
            "connect",
            {"publish": {"name": "first", "for": "1s"}},
            {"disconnect": {"name": "leave"}},
            {"connect": {"name": "return"}},
            {"publish": {"name": "second", "for": "1s"}},
            {"disconnect": {"name": "end"}},
        ],
    }
    path = shared_folder / "scenario.yaml"
    path.write_text(json.dumps(scenario))
    with recorded(port, shared_folder, "tls") as recording:
        _, result = shared_run(path, out=shared_folder / "run")
    recording.key_log = key_log
    assert all(each["passed"] for each in result["verdict"]["thresholds"])
    return Played(result, recording, key_log)


def test_clients_with_encrypted_keys_lose_nothing(played: Played) -> None:
    for name in OPTIONS:
        found = played.result["populations"][name]
        assert (found["connected_total"], found["outcomes"]) == (2 * CLIENTS, {})
        assert found["received_total"] == found["expected_total"] == found["sent_total"] > 0


@pytest.mark.parametrize("name", OPTIONS)
def test_returns_resume_sessions_where_it_is_asked_for(played: Played, name: str) -> None:
    found = played.result["populations"][name]
    resumed = CLIENTS if name.startswith("resuming") else 0
    assert (found["tls_full_total"], found["tls_resumed_total"]) == (2 * CLIENTS - resumed, resumed)
    assert found["tls_resume_refused_total"] == 0
    times = (found["connect_time_tls_full_us"], found["connect_time_tls_resumed_us"])
    assert [each["count"] for each in times] == [2 * CLIENTS - resumed, resumed]


@pytest.mark.parametrize("name", OPTIONS)
def test_the_phases_of_connecting_are_its_whole_time(played: Played, name: str) -> None:
    found = played.result["populations"][name]
    phases = [found[f"connect_{phase}_us"] for phase in ("tcp", "tls", "accept", "subscribe")]
    assert [phase["count"] for phase in phases] == [2 * CLIENTS] * 4
    whole = sum(phase["mean"] for phase in phases[:3])
    assert whole == pytest.approx(found["connect_time_us"]["mean"], abs=1)
    assert all(phase["min"] > 0 for phase in phases)


def test_mosquitto_chooses_no_protocol(played: Played) -> None:
    ignored = {
        n: each["tls_alpn_ignored_total"] for n, each in played.result["populations"].items()
    }
    assert ignored.pop("asking") in {0, 2 * CLIENTS}, "of versions that know ALPN, and of others"
    assert not any(ignored.values())


@pytest.mark.slow("tshark reads a recording twice")
def test_the_dissector_counts_the_same_handshakes_and_packets(played: Played) -> None:
    recording, populations = played.recording, played.result["populations"]
    assert recording.malformed() == []
    named = fields(recording, "mqtt.msgtype == 1", "tcp.stream", "mqtt.clientid")
    # Pubstorm observes $SYS beside the clients.
    ours = {stream for stream, client in named if client.rpartition("-")[0] in OPTIONS}

    def seen(condition: str, *names: str) -> list[tuple[str, ...]]:
        """Fields of the clients' handshakes."""
        found = fields(recording, condition, "tcp.stream", *names)
        return [tuple(rest) for stream, *rest in found if stream in ours]

    asked = Counter(seen("tls.handshake.type == 1", SERVER_NAME, ALPN))
    assert asked.pop(("b0.broker.test", "mqtt")) == asked.pop(("b1.broker.test", "mqtt")) == CLIENTS
    assert [*asked] == [("", "")]
    full = seen(f"tls.handshake.type == {FULL} && tcp.srcport == {recording.port}")
    assert len(full) == sum(each["tls_full_total"] for each in populations.values())
    resumed = seen(f"tls.handshake.type == 2 && tls.handshake.extension.type == {RESUMED}")
    assert len(resumed) == populations["resuming-3"]["tls_resumed_total"]
    packets = recording.packets()
    for name, found in populations.items():
        of_clients = [each for client, each in packets.items() if client.startswith(f"{name}-")]
        assert sum(each.sent.total() for each in of_clients) == found["packets_sent_total"]
        assert sum(each.received.total() for each in of_clients) == found["packets_received_total"]


def fields(recording: Recording, condition: str, *names: str) -> list[tuple[str, ...]]:
    """Returns fields of all packets that meet a condition."""
    columns = (word for name in names for word in ("-e", name))
    lines = recording.dissected("-Y", condition, "-T", "fields", *columns)
    return [tuple(line.split("\t")) for line in lines]


def test_the_key_log_is_private_and_warned_of_and_no_passphrase_is_stored(played: Played) -> None:
    assert stat.S_IMODE(played.key_log.stat().st_mode) == 0o600
    warned = [each for each in played.result["verdict"]["evidence"] if "can decrypt" in each]
    assert len(warned) == len(OPTIONS)
    directory = Path(played.result["run_directory"])
    files = [file.read_bytes() for file in directory.rglob("*") if file.is_file()]
    assert files and not any(PASSPHRASE.encode() in data for data in files)
