"""TLS from scenario to plan: targets, what the keys ask of one another, paths, words, and the files
that a plan names."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubstorm.cli.describe.plan import plan_in_words
from pubstorm.contract.plan import Plan, PlannedPsk, PlannedTls
from pubstorm.contract.target import Target, parse_target
from pubstorm.errors import ScenarioError
from pubstorm.host.keys.certificates import Authority, CertificateDates
from pubstorm.host.keys.clients import check_host_files
from pubstorm.host.keys.files import NewFile, new_keys, psk_text, write_files
from pubstorm.plan import provisional_plan
from pubstorm.scenario import load_scenario, parse_scenario
from pubstorm.scenario.topology import Mosquitto
from tests.kit import golden

BASE = """\
target: mqtts://broker
populations:
  device:
    clients: 10
    first: 3
    client_id: "dev-{n}"
    tls: {}
stages: [connect]
"""
OURS = """\
topology: {brokers: {main: {kind: mosquitto, tls: psk}}}
populations: {device: {clients: 10}}
stages: [connect]
"""


def with_tls(tls: str, text: str = BASE) -> str:
    return text.replace("tls: {}", f"tls: {tls}")


def plan_of(text: str, file: str = "s.yaml") -> Plan:
    return provisional_plan(parse_scenario(text, file))


def tls_of(text: str, file: str = "s.yaml") -> PlannedTls:
    tls = plan_of(text, file).populations[0].tls
    assert tls is not None
    return tls


@pytest.mark.parametrize(
    ("text", "target", "shown"),
    [
        ("mqtts://b", Target(host="b", port=8883, tls=True), "mqtts://b:8883"),
        ("mqtts://b:1", Target(host="b", port=1, tls=True), "mqtts://b:1"),
        ("mqtts://[::1]/", Target(host="::1", port=8883, tls=True), "mqtts://[::1]:8883"),
        ("mqtt://b", Target(host="b", port=1883), "b:1883"),
    ],
)
def test_a_target_under_tls_has_a_scheme_and_a_port_of_its_own(
    text: str, target: Target, shown: str
) -> None:
    assert parse_target(text) == target
    assert str(target) == shown


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("ssl://b", "write mqtts://b"),
        ("tls://b:1", "write mqtts://b:1"),
        (
            "mqtts://me:secret@b",
            "write username and password as keys: of the population, or of the source",
        ),
        (
            "stomp://b",
            "this version speaks MQTT (mqtt://, under TLS mqtts://), MQTT over WebSocket (ws://, "
            "under TLS wss://), MQTT over QUIC (quic://), NATS (nats://, under TLS natss://), "
            "Kafka (kafka://), AMQP 0-9-1 (amqp://, under TLS amqps://), "
            "AMQP 1.0 (amqp1://, under TLS amqp1s://) and ZeroMQ (zmq://)",
        ),
    ],
)
def test_other_ways_to_write_it_get_a_hint(text: str, hint: str) -> None:
    with pytest.raises(ValueError, match=r"allowed is mqtt\[s\]://HOST") as caught:
        parse_target(text)
    assert getattr(caught.value, "hint", None) == hint


def test_without_a_word_clients_verify_with_the_authorities_of_the_system() -> None:
    assert tls_of(BASE.replace("    tls: {}\n", "")) == PlannedTls()
    assert plan_of(BASE.replace("mqtts://broker", "[mqtt://a, mqtts://b]")).populations[0].tls


def test_a_plan_without_a_target_under_tls_says_nothing_of_it() -> None:
    text = BASE.replace("mqtts", "mqtt").replace("    tls: {}\n", "")
    assert plan_of(text).populations[0].tls is None


def test_an_identity_is_the_client_id_unless_it_is_said() -> None:
    assert tls_of(with_tls("{psk: {file: /k}}")).psk == PlannedPsk(file="/k", identity="dev-{n}")
    said = tls_of(with_tls('{psk: {file: /k, identity: "id-{n}"}}'))
    assert said.psk == PlannedPsk(file="/k", identity="id-{n}")


def test_paths_are_from_the_folder_of_the_scenario() -> None:
    tls = tls_of(
        with_tls('{ca: ca.crt, certificate: "c/{n}.crt", key: "/k/{n}.key"}'), "/some/{x}/s.yaml"
    )
    assert (tls.ca, tls.certificate, tls.key) == (
        "/some/{x}/ca.crt",
        "/some/{{x}}/c/{n}.crt",
        "/k/{n}.key",
    )
    here = tls_of(with_tls("{psk: {file: psk.txt}}")).psk
    assert here is not None and here.file == str(Path("psk.txt").absolute())
    scenario = parse_scenario(OURS.replace("tls: psk", "binary: bin/x"), "/some/s.yaml")
    broker = scenario.topology.brokers["main"]
    assert isinstance(broker, Mosquitto) and broker.binary == "/some/bin/x"


TEXTS = (
    BASE,
    with_tls('{ca: /ca, min_version: "1.3"}'),
    with_tls('{verify: false, certificate: "/{n}.crt", key: "/{n}.key"}'),
    with_tls("{psk: {file: /k}}"),
    with_tls('{server_name: "{n%4}.b.test", alpn: [mqtt], resume: 50%}'),
    with_tls("{certificate: /c, key: /k, passphrase: word, reread: true, key_log: /keys.log}"),
    with_tls("{suites: [TLS_AES_128_GCM_SHA256], groups: [P-256, X25519]}"),
    with_tls("{}").replace("mqtts", "quic"),
    with_tls("{}").replace("mqtts://broker", "[quic://broker, mqtts://broker]"),
    OURS,
    OURS.replace("psk", "mutual"),
    with_tls("{}").replace("mqtts", "mqtt"),
    with_tls("{certificate: a}"),
    with_tls("{key: a}"),
    with_tls("{psk: {file: k}, certificate: c, key: k}"),
    with_tls("{psk: {file: k}, verify: false}"),
    with_tls('{min_version: "1.3", max_version: "1.2"}'),
    with_tls("{suites: [TLS_AES_128_GCM_SHA384]}"),
    with_tls('{suites: [TLS_AES_128_GCM_SHA256], max_version: "1.2"}'),
    with_tls("{groups: [P-257]}"),
    with_tls('{alpn: [""]}'),
    with_tls(f"{{alpn: [{'m' * 256}]}}"),
    with_tls("{resume: 101%}"),
    with_tls("{resume: often}"),
    with_tls("{psk: {file: k}, resume: 5%}"),
    with_tls("{passphrase: word}"),
    with_tls("{reread: true}"),
    with_tls('{server_name: "{1..4}.test"}'),
    OURS.replace("clients: 10", "clients: 10, tls: {resume: 50%}"),
    OURS.replace("mosquitto", "embedded"),
    OURS.replace("tls: psk}", "tls: psk}, other: {kind: mosquitto, tls: server}"),
)


def in_words(text: str) -> list[str]:
    """The words of a plan about TLS, or the problems of its scenario."""
    try:
        scenario = parse_scenario(text, "s.yaml")
    except ScenarioError as error:
        return [str(problem) for problem in error.problems]
    words = plan_in_words(scenario, provisional_plan(scenario))
    return [line for line in words if "connects under" in line]


def test_a_plan_says_tls_in_words_and_what_does_not_go_together_is_a_problem() -> None:
    lines = []
    for text in TEXTS:
        first, *rest = text.splitlines()
        lines += ["; ".join([first, *(line.strip() for line in rest if "tls:" in line)])]
        lines += [f"  {line.strip()}" for line in in_words(text)]
    golden.agree(Path(__file__).with_name("tls.golden"), "\n".join([*lines, ""]))


def test_plain_brokers_and_such_under_tls_go_together() -> None:
    text = OURS.replace("tls: psk}", "tls: server}, b: {kind: mosquitto, tls: mutual, count: 2}")
    text = text.replace("main:", "plain: {kind: embedded}, main:")
    assert [target.tls for target in plan_of(text).targets] == [False, True, True, True]


def complaints(folder: Path, tls: str) -> list[tuple[str, str]]:
    """Place and message of each problem with the files of a scenario in a folder."""
    path = folder / "s.yaml"
    path.write_text(with_tls(tls))
    scenario = load_scenario(path)
    plan = provisional_plan(scenario)
    try:
        check_host_files(scenario, plan)
    except ScenarioError as error:
        assert error.exit_code == 2
        assert all(problem.hint for problem in error.problems)
        return [
            (problem.place, problem.message.replace(f"{folder}/", "")) for problem in error.problems
        ]
    return []


def test_keys_for_all_clients_are_enough(tmp_path: Path) -> None:
    keys = new_keys(f"dev-{n}" for n in range(3, 13))
    (tmp_path / "psk.txt").write_bytes(psk_text(keys.items()))
    assert complaints(tmp_path, "{psk: {file: psk.txt}}") == []


def test_identities_without_a_key_are_counted_and_the_first_named(tmp_path: Path) -> None:
    keys = new_keys(f"dev-{n}" for n in range(3, 9))
    (tmp_path / "psk.txt").write_bytes(psk_text(keys.items()))
    assert complaints(tmp_path, "{psk: {file: psk.txt}}") == [
        (
            "populations.device.tls.psk",
            "found no key for 4 of 10 identities in psk.txt, the first is 'dev-9'",
        )
    ]


def test_a_wrong_line_of_a_key_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "psk.txt").write_text("dev-3:00\ndev-4;00\n")
    assert complaints(tmp_path, "{psk: {file: psk.txt}}") == [
        ("populations.device.tls.psk", "psk.txt:2: found a line without a colon")
    ]


def test_files_that_are_not_there_are_problems_together(tmp_path: Path) -> None:
    tls = '{ca: ca.crt, certificate: "{n}.crt", key: "{n}.key"}'
    assert complaints(tmp_path, tls) == [
        ("populations.device.tls.ca", "found no file ca.crt"),
        (
            "populations.device.tls.certificate",
            "found 10 of 10 files missing or not readable, the first is 3.crt",
        ),
    ]


def test_each_clients_certificate_must_be_there_and_those_of_the_ends_fit(tmp_path: Path) -> None:
    authority = Authority.new("tests", CertificateDates.of_days(9))
    tls = '{certificate: "{n}.crt", key: "{n}.key"}'
    for n in range(3, 13):
        client = authority.client(f"dev-{n}", CertificateDates.of_days(9))
        files = (tmp_path / f"{n}.crt", client.certificate), (tmp_path / f"{n}.key", client.key)
        write_files([NewFile(path, content) for path, content in files])
    assert complaints(tmp_path, tls) == []
    (tmp_path / "12.key").write_bytes(client.key.replace(b"PRIVATE", b"public"))
    place = "populations.device.tls.certificate"
    assert complaints(tmp_path, tls) == [(place, "found no private key in PEM form in 12.key")]
    (tmp_path / "7.key").unlink()
    assert complaints(tmp_path, tls) == [
        (place, "found 1 of 10 files missing or not readable, the first is 7.key")
    ]


def test_a_program_that_cannot_be_executed_is_named(tmp_path: Path) -> None:
    (tmp_path / "broker").touch()
    text = OURS.replace("tls: psk", "binary: broker")
    scenario = parse_scenario(text, str(tmp_path / "s.yaml"))
    with pytest.raises(ScenarioError, match=r"topology\.brokers\.main\.binary: found .*/broker"):
        check_host_files(scenario, provisional_plan(scenario))
