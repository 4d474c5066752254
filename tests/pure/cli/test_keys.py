"""`pubstorm keys` as its user sees it: what it says, what it writes and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pubstorm import cli

GOLDEN = Path(__file__).parents[3] / "contract" / "golden"
SCENARIO = """\
target: mqtts://localhost
populations:
  device: {clients: 5, tls: {psk: {file: psk.txt, identity: "id-{n}"}}}
  meter: {clients: 3, first: 7, tls: {psk: {file: psk.txt}}}
  gate: {clients: 2, tls: {ca: ca.crt, certificate: "clients/gate-{n}.crt", key: "gate-{n}.key"}}
stages: [connect]
"""

Shell = Callable[..., tuple[int, str, str]]


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    """Runs a command line in an empty folder; exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(SCENARIO)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(arguments)
        return (code, *capsys.readouterr())

    return call


def identities(path: str) -> list[str]:
    return [line.split(":")[0] for line in Path(path).read_text().splitlines()]


def test_it_makes_a_key_for_each_number_and_lines_for_mosquitto(shell: Shell) -> None:
    wanted = ("--identity", "device-{n}", "--count", "3", "--first", "8")
    assert shell("keys", "psk", *wanted, "-o", "keys/psk.txt") == (
        0,
        "keys/psk.txt: 3 keys\nkeys/psk.txt.conf: lines for mosquitto.conf\n",
        "",
    )
    assert identities("keys/psk.txt") == ["device-8", "device-9", "device-10"]
    assert Path("keys/psk.txt.conf").read_text() == (
        f"listener 8883\npsk_file {Path('keys/psk.txt').absolute()}\npsk_hint pubstorm\n"
        "use_identity_as_username true\n"
    )


def test_it_never_replaces_keys_unasked(shell: Shell) -> None:
    command = ("keys", "psk", "--identity", "a", "--count", "1", "-o", "psk.txt")
    assert shell(*command)[0] == 0
    before = Path("psk.txt").read_text()
    assert shell(*command) == (
        2,
        "",
        "error: psk.txt and 1 more would be overwritten\n  hint: use --force to replace keys\n",
    )
    assert Path("psk.txt").read_text() == before
    assert shell(*command, "--force")[0] == 0
    assert Path("psk.txt").read_text() != before


def test_a_scenario_says_whose_keys_are_needed(shell: Shell) -> None:
    assert shell("keys", "psk", "--scenario", "s.yaml", "-o", "psk.txt")[0] == 0
    expected = [*(f"id-{n}" for n in range(5)), "meter-7", "meter-8", "meter-9"]
    assert identities("psk.txt") == expected


def test_it_makes_an_authority_with_broker_and_clients(shell: Shell) -> None:
    assert shell("keys", "ca", "ca", "--client", "device-{n}", "--count", "2") == (
        0,
        "ca/ca.crt, ca.key: the authority\n"
        "ca/server.crt, server.key: the broker, as localhost, 127.0.0.1\n"
        "ca/clients: certificates and keys of 2 clients\n"
        "ca/mosquitto.conf: lines for mosquitto.conf\n",
        "",
    )
    names = {path.name for path in Path("ca/clients").iterdir()}
    assert names == {"device-0.crt", "device-0.key", "device-1.crt", "device-1.key"}
    folder = Path("ca").absolute()
    assert Path("ca/mosquitto.conf").read_text() == (
        f"listener 8883\ncafile {folder}/ca.crt\ncertfile {folder}/server.crt\n"
        f"keyfile {folder}/server.key\nrequire_certificate true\nuse_identity_as_username true\n"
    )


def test_without_clients_mosquitto_asks_for_no_certificate(shell: Shell) -> None:
    assert shell("keys", "ca", "ca", "--name", "broker.example")[0] == 0
    assert "require_certificate" not in Path("ca/mosquitto.conf").read_text()
    assert not Path("ca/clients").exists()


def test_certificates_of_a_scenario_are_for_clients_without_pre_shared_keys(shell: Shell) -> None:
    assert shell("keys", "ca", ".", "--scenario", "s.yaml")[0] == 0
    assert {path.stem for path in Path("clients").iterdir()} == {"gate-0", "gate-1"}


@pytest.mark.parametrize(
    "case", json.loads((GOLDEN / "shard.json").read_text())["cases"][1:], ids=str
)
def test_it_splits_by_the_rule_of_the_engines(shell: Shell, case: dict[str, object]) -> None:
    total, count = case["total"], case["count"]
    assert isinstance(case["clients"], list)
    if not total:
        return
    make = ("keys", "psk", "--identity", "{n}", "--count", str(total), "-o", "psk.txt")
    assert shell(*make)[0] == 0
    assert shell("keys", "split", "psk.txt", "--shards", str(count))[0] == 0
    for index, clients in enumerate(case["clients"]):
        assert identities(f"psk.{index}-of-{count}.txt") == list(map(str, clients))


def test_a_scenario_splits_each_of_its_populations(shell: Shell) -> None:
    assert shell("keys", "psk", "--scenario", "s.yaml", "-o", "psk.txt")[0] == 0
    assert shell("keys", "split", "psk.txt", "--shards", "2", "--scenario", "s.yaml") == (
        0,
        "psk.0-of-2.txt: 5 keys\npsk.1-of-2.txt: 3 keys\n",
        "",
    )
    assert identities("psk.0-of-2.txt") == ["id-0", "id-2", "id-4", "meter-7", "meter-9"]
    assert identities("psk.1-of-2.txt") == ["id-1", "id-3", "meter-8"]
