"""Whole runs under TLS against mosquitto: keys of the run and of the user, and handshakes that go
wrong. Each way to fail has its word in the result, and what to look at in the verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pubstorm.keys.authority import Authority, Credential, Validity
from pubstorm.keys.files import NewFile, write_files
from pubstorm.keys.listener import certificate_settings, psk_settings
from pubstorm.keys.psk import new_keys, psk_text

Play = Callable[..., tuple[int, dict[str, Any]]]
MosquittoMaker = Callable[..., Any]

CLIENTS = 30
LOAD = """
{where}
populations:
  device:
    clients: {clients}
    reconnect: never
    tls: {tls}
    subscriptions: [{{topic: "up/{{n}}", qos: 1}}]
    publications: [{{topic: "up/{{n}}", rate: 10/s, qos: 1}}]
stages: [connect, publish: 1s, disconnect]
drain: 2s
"""
OURS = "topology: {brokers: {broker: {kind: mosquitto}}}"
NOW = datetime.now(UTC)
DAY = timedelta(days=1)
EXPIRED = Validity(NOW - 9 * DAY, NOW - DAY)
VALID = Validity.of_days(9)


def load(where: str, tls: str = "{}", clients: int = CLIENTS) -> str:
    return LOAD.format(where=where, tls=tls, clients=clients)


def verdict(result: dict[str, Any]) -> tuple[str, str]:
    return result["verdict"]["status"], result["verdict"]["limited_by"]


def evidence(result: dict[str, Any]) -> str:
    return "\n".join(result["verdict"]["evidence"])


def assert_complete(code: int, result: dict[str, Any], clients: int = CLIENTS) -> None:
    device = result["populations"]["device"]
    assert (code, result["verdict"]["status"]) == (0, "pass"), evidence(result)
    assert (device["connected_max"], device["outcomes"]) == (clients, {})
    assert device["sent_total"] == device["acked_total"] == clients * 10
    assert device["received_total"] == device["expected_total"] == clients * 10
    assert all(target.startswith("mqtts://") for target in result["targets"])


def assert_none_connects(code: int, result: dict[str, Any], reason: str) -> None:
    device = result["populations"]["device"]
    assert code == 3
    assert verdict(result) == ("invalid", "target"), evidence(result)
    assert device["outcomes"] == {reason: CLIENTS}
    assert f"{CLIENTS} × {reason}" in evidence(result)
    assert f"{reason} ({CLIENTS} ×): " in evidence(result)


@pytest.mark.parametrize("mode", ["server", "mutual", "psk"])
def test_one_word_puts_brokers_and_clients_under_tls(run: Play, tmp_path: Path, mode: str) -> None:
    plain = load(OURS).replace("    tls: {}\n", "")
    out = tmp_path / "the run"
    played = run(plain, "--set", f"topology.brokers.broker.tls={mode}", out=out)
    assert_complete(*played)
    assert not (out / "topology" / "keys").exists()
    assert (out / "topology" / "keys-deleted.txt").exists()


@pytest.mark.parametrize("version", ["1.2", "1.3"])
@pytest.mark.parametrize("mode", ["mutual", "psk"])
def test_either_version_will_do(run: Play, mode: str, version: str) -> None:
    text = load(OURS, f'{{min_version: "{version}", max_version: "{version}"}}')
    assert_complete(*run(text, "--set", f"topology.brokers.broker.tls={mode}"))


def test_clients_are_shared_out_with_their_keys(run: Play) -> None:
    agents = ("--set", "fleet.agents=3")
    assert_complete(*run(load(OURS), "--set", "topology.brokers.broker.tls=psk", *agents))


def test_plain_targets_and_such_under_tls_go_together(run: Play) -> None:
    where = "topology: {brokers: {plain: {kind: embedded}, safe: {kind: mosquitto, tls: server}}}"
    code, result = run(load(where))
    assert (code, verdict(result)[0]) == (0, "pass"), evidence(result)
    assert [target.startswith("mqtts://") for target in result["targets"]] == [False, True]


@pytest.fixture
def psk_broker(mosquitto: MosquittoMaker, tmp_path: Path) -> Any:
    """A broker that knows keys of device-0 and so on, in `psk.txt`."""
    keys = new_keys(f"device-{n}" for n in range(CLIENTS))
    write_files([NewFile(tmp_path / "psk.txt", psk_text(keys.items()))])
    return mosquitto(**written(psk_settings(tmp_path / "psk.txt", as_username=True)))


def written(settings: Mapping[str, object]) -> dict[str, str]:
    return {
        key: str(value).lower() if value is True else str(value) for key, value in settings.items()
    }


def tls_url(broker: Any) -> str:
    return f"target: mqtts://127.0.0.1:{broker.port}"


def test_keys_of_the_user(run: Play, psk_broker: Any) -> None:
    assert_complete(*run(load(tls_url(psk_broker), "{psk: {file: psk.txt}}")))


@pytest.mark.parametrize("version", ["1.2", "1.3"])
@pytest.mark.parametrize("identity", ["device", "stranger"])
def test_a_wrong_key_and_a_wrong_identity_are_refused(
    run: Play, psk_broker: Any, tmp_path: Path, identity: str, version: str
) -> None:
    keys = new_keys(f"{identity}-{n}" for n in range(CLIENTS))
    write_files([NewFile(tmp_path / "other.txt", psk_text(keys.items()))])
    psk = f"{{file: other.txt, identity: '{identity}-{{n}}'}}"
    text = load(tls_url(psk_broker), f"{{psk: {psk}, max_version: '{version}'}}")
    assert_none_connects(*run(text), "tls_refused")


def test_some_clients_without_a_key_of_the_broker_are_counted(
    run: Play, psk_broker: Any, tmp_path: Path
) -> None:
    broken = (tmp_path / "psk.txt").read_text().splitlines()
    broken[7] = f"{broken[7].partition(':')[0]}:{'00' * 32}"
    write_files([NewFile(tmp_path / "other.txt", "\n".join(broken).encode())])
    code, result = run(load(tls_url(psk_broker), "{psk: {file: other.txt}}"))
    device = result["populations"]["device"]
    assert (code, verdict(result)[0]) == (0, "pass")
    assert (device["connected_max"], device["outcomes"]) == (CLIENTS - 1, {"tls_refused": 1})
    assert f"device: 1 of {CLIENTS} connection attempts failed: 1 × tls_refused" in evidence(result)


def store(folder: Path, stem: str, credential: Credential) -> None:
    files = (("crt", credential.certificate), ("key", credential.key))
    write_files([NewFile(folder / f"{stem}.{ending}", content) for ending, content in files])


@pytest.fixture
def certificate_broker(mosquitto: MosquittoMaker, tmp_path: Path) -> Callable[..., Any]:
    """Starts a broker with a certificate of the authority `ca.crt`."""

    def start(
        server: Validity = VALID, names: tuple[str, ...] = ("127.0.0.1",), mutual: bool = False
    ) -> Any:
        authority = Authority.new("ours", VALID)
        store(tmp_path, "ca", authority.credential)
        store(tmp_path, "server", authority.server(names, server))
        store(tmp_path, "client", authority.client("client", VALID))
        settings = certificate_settings(tmp_path, require_client=mutual, as_username=True)
        return mosquitto(**written(settings))

    return start


def test_a_certificate_of_the_user(run: Play, certificate_broker: Callable[..., Any]) -> None:
    broker = certificate_broker(mutual=True)
    tls = "{ca: ca.crt, certificate: client.crt, key: client.key}"
    assert_complete(*run(load(tls_url(broker), tls)))


def test_an_expired_certificate_of_the_broker(
    run: Play, certificate_broker: Callable[..., Any]
) -> None:
    broker = certificate_broker(EXPIRED)
    assert_none_connects(*run(load(tls_url(broker), "{ca: ca.crt}")), "certificate_expired")


def test_an_authority_that_nobody_trusts(
    run: Play, certificate_broker: Callable[..., Any], tmp_path: Path
) -> None:
    broker = certificate_broker()
    assert_none_connects(*run(load(tls_url(broker))), "certificate_untrusted")
    store(tmp_path, "other", Authority.new("theirs", VALID).credential)
    other = run(load(tls_url(broker), "{ca: other.crt}"))
    assert_none_connects(*other, "certificate_untrusted")


def test_a_certificate_for_another_name(run: Play, certificate_broker: Callable[..., Any]) -> None:
    where = tls_url(certificate_broker(names=("broker.example",)))
    assert_none_connects(*run(load(where, "{ca: ca.crt}")), "certificate_name")
    assert_complete(*run(load(where, "{ca: ca.crt, server_name: broker.example}")))


def test_clients_that_verify_nothing_take_every_certificate(
    run: Play, certificate_broker: Callable[..., Any]
) -> None:
    broker = certificate_broker(EXPIRED, ("broker.example",))
    assert_complete(*run(load(tls_url(broker), "{verify: false}")))


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_a_client_without_a_certificate_is_refused(
    run: Play, certificate_broker: Callable[..., Any], version: str
) -> None:
    where = tls_url(certificate_broker(mutual=True))
    played = run(load(where, f"{{ca: ca.crt, max_version: '{version}'}}"))
    assert_none_connects(*played, "tls_refused")


def test_a_broker_that_speaks_no_tls(run: Play, mosquitto: MosquittoMaker) -> None:
    code, result = run(load(tls_url(mosquitto())))
    assert_none_connects(code, result, "tls_refused")
    assert "look whether it speaks TLS at this port" in evidence(result)
