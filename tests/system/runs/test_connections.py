"""One run whose populations connect in every way that a user may ask for, and fail to connect in
every way that has a name of its own: TLS, WebSocket, versions, passwords and rights. Each has a
broker or a server of the tests as its target."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pubstorm.host.keys.certificates import Authority, CertificateDates, Credential
from pubstorm.host.keys.files import NewFile, new_keys, psk_text, write_files
from pubstorm.topology.adapters.mosquitto import certificate_settings, psk_settings
from tests.kit.ports import free_port
from tests.kit.runs import MosquittoMaker, Play
from tests.system.runs.answering import Server, answering, full

pytestmark = pytest.mark.xdist_group("connections")

CLIENTS = 10
NOW, DAY = datetime.now(UTC), timedelta(days=1)
EXPIRED, VALID = CertificateDates(NOW - 9 * DAY, NOW - DAY), CertificateDates.of_days(9)
RIGHTS = "user refused\ntopic deny refused/#\npattern readwrite #\n"
LOGIN = {
    "authentication": {"method": "SCRAM-SHA-256"},
    "username": "user={n}",
    "password": "pencil-{n}",
}
TICKET = {"authentication": {"method": "TICKET", "data": "voucher-{n}"}}
PEERS: dict[str, tuple[Server, dict[str, Any], str]] = {
    "login": (Server(b"\x20\x03\x00\x87\x00"), LOGIN, "not_authorized"),
    "method": (Server(b"\x20\x03\x00\x8c\x00"), TICKET, "connect_bad_authentication_method"),
    "version-3": (Server(b"\x20\x02\x00\x01"), {}, "bad_protocol_version"),
    "version-5": (Server(b"\x20\x03\x00\x84\x00"), {}, "bad_protocol_version"),
    "full": (full(), {}, "connect_use_another_server"),
    "web-absent": (Server(b"HTTP/1.1 404 Not Found\r\n\r\n"), {}, "http_not_found"),
}
"""Servers of the tests, with keys of their clients, and the outcome of all of them."""
REFUSED = {
    "device-2": "tls_refused",
    "device-3": "tls_refused",
    "stranger-2": "tls_refused",
    "stranger-3": "tls_refused",
    "certificateless-2": "tls_refused",
    "certificateless-3": "tls_refused",
    "plain": "tls_refused",
    "expired": "certificate_expired",
    "system": "certificate_untrusted",
    "others": "certificate_untrusted",
    "name": "certificate_name",
    "web-mqtt": "upgrade_closed",
    "mqtt-web": "protocol_error",
    **{name: outcome for name, (_, _, outcome) in PEERS.items()},
}
ACCEPTED = ("keyed", "certified", "named", "trusting", "careless", "websocket")
TICKETS = Server(b"\x20\x0c\x00\x00\x09\x15\x00\x06TICKET", stays=True)
"""Accepts everybody."""


class Site:
    """Targets of a run, and the populations that connect to them."""

    def __init__(self, folder: Path, mosquitto: MosquittoMaker) -> None:
        self.folder = folder
        self._mosquitto = mosquitto
        self.targets: list[str] = []
        self.populations: dict[str, dict[str, Any]] = {}
        authority = Authority.new("ours", VALID)
        self._authority = authority
        self.store("ca", authority.credential)
        self.store("client", authority.client("client", VALID))
        self.store("stranger", Authority.new("theirs", VALID).credential)

    def store(self, stem: str, credential: Credential, folder: Path | None = None) -> None:
        files = (("crt", credential.certificate), ("key", credential.key))
        written = [NewFile((folder or self.folder) / f"{stem}.{end}", text) for end, text in files]
        write_files(written)

    def keys(self, stem: str, identity: str, **changed: str) -> None:
        """Stores keys of all clients, new ones but for those that are given."""
        new = {**dict(new_keys(f"{identity}-{n}" for n in range(CLIENTS))), **changed}
        write_files([NewFile(self.folder / f"{stem}.txt", psk_text(new.items()))])

    def at(self, target: str) -> int:
        """Adds a target; returns its place."""
        self.targets.append(target)
        return len(self.targets) - 1

    def broker(self, settings: Mapping[str, object], scheme: str = "mqtts") -> int:
        """Starts a broker; returns its place."""
        words = {k: str(v).lower() if v is True else str(v) for k, v in settings.items()}
        return self.at(f"{scheme}://127.0.0.1:{self._mosquitto(**words).port}")

    def with_certificate(
        self, server: CertificateDates = VALID, name: str = "127.0.0.1", mutual: bool = False
    ) -> int:
        """Starts a broker with a certificate of the authority `ca.crt`."""
        own = self.folder / f"broker-{len(self.targets)}"
        own.mkdir()
        self.store("ca", self._authority.credential, own)
        self.store("server", self._authority.server((name,), server), own)
        return self.broker(certificate_settings(own, require_client=mutual, as_username=True))

    def add(self, name: str, at: int, **keys: object) -> None:
        """Adds a population."""
        self.populations[name] = {
            "clients": CLIENTS,
            "reconnect": "never",
            "at": {"brokers": "target", "first": at, "count": 1},
            "subscriptions": [{"topic": f"{name}/{{n}}", "qos": 1}],
            "publications": [{"topic": f"{name}/{{n}}", "rate": "5/s", "qos": 1}],
            **keys,
        }

    def scenario(self) -> Path:
        path = self.folder / "scenario.yaml"
        text = {
            "target": self.targets,
            "clean_start": "skip",
            "defaults": "off",
            "thresholds": ["partly.never_ready == 1"],
            "populations": self.populations,
            "stages": ["connect", {"publish": "2s"}, "disconnect"],
        }
        path.write_text(json.dumps(text))
        return path


def add_brokers(site: Site) -> None:
    """Adds brokers of mosquitto, and clients that they accept, refuse, or accept in part."""
    site.keys("psk", "keyed")
    site.keys("unknown", "device")
    site.keys("strangers", "stranger")
    keys = (site.folder / "psk.txt").read_text()
    wrong = keys.replace(keys.splitlines()[-1].split(":")[1], "00" * 32)
    write_files([NewFile(site.folder / "partly.txt", wrong.encode())])
    keyed = site.broker(psk_settings(site.folder / "psk.txt", as_username=True))
    mutual, valid = site.with_certificate(mutual=True), site.with_certificate()
    old = site.with_certificate(EXPIRED)
    named = site.with_certificate(name="broker.example")
    (site.folder / "rights").write_text(RIGHTS)
    port = free_port()
    listener = {"listener ": f"{port} 127.0.0.1", "protocol": "websockets"}
    plain = site.broker({"acl_file": site.folder / "rights", **listener}, "mqtt")
    address = site.targets[plain].removeprefix("mqtt")
    site.add("keyed", keyed, tls={"psk": {"file": "psk.txt"}})
    own = {"ca": "ca.crt", "certificate": "client.crt", "key": "client.key"}
    site.add("certified", mutual, tls=own)
    site.add("named", named, tls={"ca": "ca.crt", "server_name": "broker.example"})
    site.add("trusting", old, tls={"verify": False})
    site.add("careless", named, tls={"verify": False})
    site.add("websocket", site.at(f"ws://127.0.0.1:{port}/mqtt"))
    partly = {"file": "partly.txt", "identity": "keyed-{n}"}
    site.add("partly", keyed, tls={"psk": partly})
    site.add("refused", plain, version=5, username="refused")
    site.add("expired", old, tls={"ca": "ca.crt"})
    site.add("system", valid)
    site.add("others", valid, tls={"ca": "stranger.crt"})
    site.add("name", named, tls={"ca": "ca.crt"})
    site.add("plain", site.at(f"mqtts{address}"))
    site.add("web-mqtt", site.at(f"ws{address}/mqtt"))
    site.add("mqtt-web", site.at(f"mqtt://127.0.0.1:{port}"))
    for version in ("1.2", "1.3"):
        most, end = {"max_version": version}, version[-1]
        for identity, stem in (("device", "unknown"), ("stranger", "strangers")):
            psk = {"file": f"{stem}.txt", "identity": f"{identity}-{{n}}"}
            site.add(f"{identity}-{end}", keyed, tls={"psk": psk, **most})
        site.add(f"certificateless-{end}", mutual, tls={"ca": "ca.crt", **most})


@pytest.fixture(scope="module")
def site(shared_folder: Path, shared_mosquitto: MosquittoMaker) -> Iterator[Site]:
    made = Site(shared_folder, shared_mosquitto)
    add_brokers(made)
    accepting = {"ticket": (TICKETS, TICKET, "")}
    with ExitStack() as stack:
        for name, (server, keys, _) in {**PEERS, **accepting}.items():
            scheme = "ws://127.0.0.1:{}/mqtt" if name.startswith("web") else "mqtt://127.0.0.1:{}"
            at = made.at(scheme.format(stack.enter_context(answering(server))))
            load = {"subscriptions": [], "publications": [{"topic": "t/{n}", "rate": "5/s"}]}
            made.add(name, at, version=5, **load, **keys)
        yield made


@pytest.fixture(scope="module")
def result(shared_run: Play, site: Site) -> dict[str, Any]:
    _, found = shared_run(site.scenario(), out=site.folder / "run")
    assert all(each["passed"] for each in found["verdict"]["thresholds"])
    return found


@pytest.mark.parametrize("name", ACCEPTED)
def test_all_clients_connect_with_what_the_user_has(result: dict[str, Any], name: str) -> None:
    found = result["populations"][name]
    assert (found["connected_max"], found["outcomes"]) == (CLIENTS, {})
    assert found["sent_total"] == found["acked_total"] > 0
    assert found["received_total"] == found["expected_total"] == found["sent_total"]


def test_secrets_are_sent_as_the_method_says_and_never_stored(
    result: dict[str, Any], site: Site
) -> None:
    found = result["populations"]["ticket"]
    assert (found["connected_total"], found["outcomes"]) == (CLIENTS, {})
    assert not any(b"pencil" in data for data in PEERS["login"][0].received)
    for n in range(CLIENTS):
        assert any(b"n,,n=user=3D%d,r=" % n in data for data in PEERS["login"][0].received)
        assert any(b"voucher-%d" % n in data for data in TICKETS.received)
    assert result["run_directory"] == str(site.folder / "run")
    files = [file.read_bytes() for file in (site.folder / "run").rglob("*") if file.is_file()]
    assert files and not any(b"pencil" in data or b"voucher-" in data for data in files)


@pytest.mark.parametrize("name", REFUSED)
def test_each_way_to_fail_has_its_word(result: dict[str, Any], name: str) -> None:
    found = result["populations"][name]
    assert found["outcomes"] == {REFUSED[name]: CLIENTS}
    assert (found["connect_failed_total"], found["connected_max"]) == (CLIENTS, 0)


def test_each_reason_has_an_advice(result: dict[str, Any]) -> None:
    counts = Counter(REFUSED.values())
    counted = {reason: times * CLIENTS for reason, times in counts.items()}
    counted["tls_refused"] += 1
    for reason in ("tls_refused", "certificate_untrusted", "upgrade_closed", "http_not_found"):
        line = f"{reason} ({counted[reason]} ×): "
        assert len([each for each in result["verdict"]["evidence"] if each.startswith(line)]) == 1


def test_some_clients_without_a_key_of_the_broker_are_counted(result: dict[str, Any]) -> None:
    found = result["populations"]["partly"]
    assert (found["connected_max"], found["outcomes"]) == (CLIENTS - 1, {"tls_refused": 1})


def test_a_broker_that_refuses_messages_is_named_by_its_reason_code(result: dict[str, Any]) -> None:
    found = result["populations"]["refused"]
    assert found["rejected_total"] == found["sent_total"] > found["acked_total"] == 0
    assert found["outcomes"] == {"publish_not_authorized": found["sent_total"]}


def test_the_texts_of_a_broker_are_kept_with_its_codes(result: dict[str, Any]) -> None:
    """Five different texts are kept, and all are counted."""
    explanations = result["populations"]["full"]["explanations"]
    reasons = [each for each in explanations if each["property"] == "reason_string"]
    references = [each for each in explanations if each["property"] == "server_reference"]
    assert {each["outcome"] for each in explanations} == {REFUSED["full"]}
    assert [each["count"] for each in reasons] == [1] * 5 + [CLIENTS - 5]
    assert all(each["text"].endswith(" is full\\u{1b}[2J") for each in reasons[:-1])
    assert reasons[-1]["text"] is None
    assert [(each["text"], each["count"]) for each in references] == [("b2.example:1884", CLIENTS)]
