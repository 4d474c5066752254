"""Whole runs under TLS against mosquitto: keys of the run and of the user, and handshakes that go
wrong. Each way to fail has its word in the result, and what to look at in the verdict. Most tests
look at one population of a run that they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pubstorm.host.keys.authority import Authority, Credential, Validity
from pubstorm.host.keys.files import NewFile, write_files
from pubstorm.host.keys.listener import certificate_settings, psk_settings
from pubstorm.host.keys.psk import new_keys, psk_text

Played = tuple[int, dict[str, Any]]
Play = Callable[..., Played]
MosquittoMaker = Callable[..., Any]

pytestmark = pytest.mark.xdist_group("tls")

CLIENTS = 30
POPULATION = """
  {name}:
    clients: {clients}
    client_id: "{ids}-{{n}}"
    reconnect: never
    at: {at}
    tls: {tls}
    subscriptions: [{{topic: "{name}/{{n}}", qos: 1}}]
    publications: [{{topic: "{name}/{{n}}", rate: 10/s, qos: 1}}]"""
STAGES = """
stages: [connect, publish: 1s, disconnect]
drain: 2s
"""
VERSIONS = ("1.2", "1.3")
NOW = datetime.now(UTC)
DAY = timedelta(days=1)
EXPIRED = Validity(NOW - 9 * DAY, NOW - DAY)
VALID = Validity.of_days(9)


def population(name: str, at: str, tls: str = "{}", ids: str | None = None) -> str:
    return POPULATION.format(name=name, clients=CLIENTS, ids=ids or name, at=at, tls=tls)


def load(where: str, *populations: str) -> str:
    return "".join((where, "\npopulations:", *populations, STAGES))


def verdict(result: dict[str, Any]) -> tuple[str, str]:
    return result["verdict"]["status"], result["verdict"]["limited_by"]


def evidence(result: dict[str, Any]) -> str:
    return "\n".join(result["verdict"]["evidence"])


def assert_complete(played: Played, name: str) -> None:
    code, result = played
    found = result["populations"][name]
    assert (code, result["verdict"]["status"]) == (0, "pass"), evidence(result)
    assert (found["connected_max"], found["outcomes"]) == (CLIENTS, {})
    assert found["sent_total"] == found["acked_total"] == CLIENTS * 10
    assert found["received_total"] == found["expected_total"] == CLIENTS * 10


CERTIFICATES = """
topology:
  brokers:
    plain: embedded
    by-server: {kind: mosquitto, tls: server}
    by-mutual: {kind: mosquitto, tls: mutual}"""
KEYS = "topology: {brokers: {by-psk: {kind: mosquitto, tls: psk}}}"


def of_each_version(mode: str) -> list[str]:
    """A population that says nothing of TLS, and one for each version."""
    texts = [population(mode, f"by-{mode}").replace("    tls: {}\n", "")]
    for version in VERSIONS:
        tls = f'{{min_version: "{version}", max_version: "{version}"}}'
        texts.append(population(f"{mode}-{version[-1]}", f"by-{mode}", tls))
    return texts


@pytest.fixture(scope="module")
def certified(shared_run: Play, shared_folder: Path) -> Played:
    """Brokers and clients with certificates that the run makes, and a broker without TLS."""
    everywhere = population("everywhere", "all").replace("    at: all\n", "")
    populations = (everywhere, *of_each_version("server")[:1], *of_each_version("mutual"))
    return shared_run(load(CERTIFICATES, *populations), out=shared_folder / "certified")


@pytest.fixture(scope="module")
def keyed(shared_run: Play, shared_folder: Path) -> Played:
    """A broker and clients with keys that the run makes, in the shares of three agents."""
    text = load(KEYS, *of_each_version("psk"))
    return shared_run(text, "--set", "fleet.agents=3", out=shared_folder / "keyed")


@pytest.mark.parametrize("name", ["server", "mutual", "mutual-2", "mutual-3"])
def test_one_word_puts_brokers_and_clients_under_tls_of_either_version(
    certified: Played, name: str
) -> None:
    assert_complete(certified, name)


@pytest.mark.parametrize("name", ["psk", "psk-2", "psk-3"])
def test_clients_are_shared_out_with_their_keys(keyed: Played, name: str) -> None:
    agents = keyed[1]["fleet"]["agents"]
    assert [agent["clients"] for agent in agents] == [CLIENTS] * 3
    assert all(target.startswith("mqtts://") for target in keyed[1]["targets"])
    assert_complete(keyed, name)


def test_plain_targets_and_such_under_tls_go_together(certified: Played) -> None:
    under_tls = [target.startswith("mqtts://") for target in certified[1]["targets"]]
    assert under_tls == [False, True, True]
    assert_complete(certified, "everywhere")


@pytest.mark.usefixtures("certified", "keyed")
def test_the_keys_of_a_run_are_gone_after_it(shared_folder: Path) -> None:
    for name in ("certified", "keyed"):
        topology = shared_folder / name / "topology"
        assert not (topology / "keys").exists()
        assert (topology / "keys-deleted.txt").exists()


class Site:
    """Brokers outside of runs, with keys of the user, as one list of targets."""

    def __init__(self, folder: Path, mosquitto: MosquittoMaker) -> None:
        folder.mkdir()
        self.folder = folder
        self._mosquitto = mosquitto
        self._targets: list[str] = []
        authority = Authority.new("ours", VALID)
        self._authority = authority
        self.store("ca", authority.credential)
        self.store("client", authority.client("client", VALID))
        self.store("stranger", Authority.new("theirs", VALID).credential)

    def store(self, stem: str, credential: Credential, folder: Path | None = None) -> None:
        files = (("crt", credential.certificate), ("key", credential.key))
        written = [NewFile((folder or self.folder) / f"{stem}.{end}", text) for end, text in files]
        write_files(written)

    def keys(self, stem: str, identity: str) -> dict[str, str]:
        """Makes keys of all clients and stores them."""
        keys = new_keys(f"{identity}-{n}" for n in range(CLIENTS))
        write_files([NewFile(self.folder / f"{stem}.txt", psk_text(keys.items()))])
        return keys

    def broker(self, settings: Mapping[str, object], scheme: str = "mqtts") -> str:
        """Starts a broker; what a population says in `at` to use it."""
        words = {k: str(v).lower() if v is True else str(v) for k, v in settings.items()}
        started = self._mosquitto(**words)
        self._targets.append(f"{scheme}://127.0.0.1:{started.port}")
        return f"{{brokers: target, first: {len(self._targets) - 1}, count: 1}}"

    def with_certificate(
        self, server: Validity = VALID, name: str = "127.0.0.1", mutual: bool = False
    ) -> str:
        """Starts a broker with a certificate of the authority `ca.crt`."""
        own = self.folder / f"broker-{len(self._targets)}"
        own.mkdir()
        self.store("ca", self._authority.credential, own)
        self.store("server", self._authority.server((name,), server), own)
        return self.broker(certificate_settings(own, require_client=mutual, as_username=True))

    def with_keys(self, stem: str) -> str:
        """Starts a broker that knows the keys of a file."""
        return self.broker(psk_settings(self.folder / f"{stem}.txt", as_username=True))

    def scenario(self, *populations: str) -> Path:
        """Stores a scenario for these brokers beside the keys."""
        path = self.folder / "scenario.yaml"
        path.write_text(load(f"target: [{', '.join(self._targets)}]", *populations))
        return path


@pytest.fixture(scope="module")
def accepted(shared_run: Play, shared_folder: Path, shared_mosquitto: MosquittoMaker) -> Played:
    """Keys of the user with which everybody connects."""
    site = Site(shared_folder / "accepted", shared_mosquitto)
    site.keys("psk", "keyed")
    elsewhere = site.with_certificate(EXPIRED, "broker.example")
    named = site.with_certificate(name="broker.example")
    own = "{ca: ca.crt, certificate: client.crt, key: client.key}"
    populations = (
        population("keyed", site.with_keys("psk"), "{psk: {file: psk.txt}}"),
        population("certified", site.with_certificate(mutual=True), own),
        population("named", named, "{ca: ca.crt, server_name: broker.example}"),
        population("trusting", elsewhere, "{verify: false}"),
    )
    return shared_run(site.scenario(*populations))


@pytest.mark.parametrize("name", ["keyed", "certified"])
def test_keys_and_a_certificate_of_the_user(accepted: Played, name: str) -> None:
    assert_complete(accepted, name)


def test_a_certificate_may_be_for_a_name_that_the_scenario_says(accepted: Played) -> None:
    assert_complete(accepted, "named")


def test_clients_that_verify_nothing_take_every_certificate(accepted: Played) -> None:
    assert_complete(accepted, "trusting")


@pytest.fixture(scope="module")
def refused(shared_run: Play, shared_folder: Path, shared_mosquitto: MosquittoMaker) -> Played:
    """Keys, certificates and brokers with which no client connects."""
    site = Site(shared_folder / "refused", shared_mosquitto)
    site.keys("known", "device")
    site.keys("other-device", "device")
    site.keys("other-stranger", "stranger")
    keyed, mutual = site.with_keys("known"), site.with_certificate(mutual=True)
    valid, plain = site.with_certificate(), site.broker({})
    populations = [
        population("expired", site.with_certificate(EXPIRED), "{ca: ca.crt}"),
        population("system", valid),
        population("others", valid, "{ca: stranger.crt}"),
        population("name", site.with_certificate(name="broker.example"), "{ca: ca.crt}"),
        population("plain", plain),
    ]
    for version in VERSIONS:
        most = f"max_version: '{version}'"
        for identity in ("device", "stranger"):
            psk = f"{{file: other-{identity}.txt, identity: '{identity}-{{n}}'}}"
            name = f"{identity}-{version[-1]}"
            populations.append(population(name, keyed, f"{{psk: {psk}, {most}}}"))
        name = f"certificateless-{version[-1]}"
        populations.append(population(name, mutual, f"{{ca: ca.crt, {most}}}"))
    return shared_run(site.scenario(*populations))


def test_a_run_without_any_connection_is_invalid_because_of_the_target(refused: Played) -> None:
    code, result = refused
    assert code == 3
    assert verdict(result) == ("invalid", "target"), evidence(result)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("device-2", "tls_refused"),
        ("device-3", "tls_refused"),
        ("stranger-2", "tls_refused"),
        ("stranger-3", "tls_refused"),
        ("certificateless-2", "tls_refused"),
        ("certificateless-3", "tls_refused"),
        ("plain", "tls_refused"),
        ("expired", "certificate_expired"),
        ("system", "certificate_untrusted"),
        ("others", "certificate_untrusted"),
        ("name", "certificate_name"),
    ],
)
def test_each_way_to_fail_has_its_word(refused: Played, name: str, reason: str) -> None:
    assert refused[1]["populations"][name]["outcomes"] == {reason: CLIENTS}


def test_each_reason_says_what_to_look_at(refused: Played) -> None:
    text = evidence(refused[1])
    for reason, times in (
        ("tls_refused", 7),
        ("certificate_untrusted", 2),
        ("certificate_expired", 1),
        ("certificate_name", 1),
    ):
        assert f"{times * CLIENTS} {reason.replace('_', ' ')}" in text
        assert f"{reason} ({times * CLIENTS} ×): " in text
    assert "look whether it speaks TLS at this port" in text


def test_some_clients_without_a_key_of_the_broker_are_counted(
    run: Play, mosquitto: MosquittoMaker, tmp_path: Path
) -> None:
    site = Site(tmp_path / "site", mosquitto)
    keys = site.keys("psk", "device")
    at = site.with_keys("psk")
    broken = {**keys, "device-7": "00" * 32}
    write_files([NewFile(site.folder / "other.txt", psk_text(broken.items()))])
    wanted = "thresholds=[device.never_ready == 1, device.skipped > 0]"
    scenario = site.scenario(population("device", at, "{psk: {file: other.txt}}"))
    code, result = run(scenario, "--set", wanted)
    device = result["populations"]["device"]
    assert (code, verdict(result)[0]) == (0, "pass")
    assert (device["connected_max"], device["outcomes"]) == (CLIENTS - 1, {"tls_refused": 1})
    assert f"device: 1 of {CLIENTS} connection attempts failed: 1 tls refused" in evidence(result)
