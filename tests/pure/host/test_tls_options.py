"""Options of TLS whose files and names are looked at before a run: encrypted keys, names of
clients, and the file of keys."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from pubstorm.contract.plan import PlannedTls
from pubstorm.host.keys.certificates import Authority, CertificateDates
from pubstorm.host.keys.clients import tls_problems
from pubstorm.plan import provisional_plan
from pubstorm.play.oversights import oversights
from pubstorm.scenario import parse_scenario

NINE_DAYS = CertificateDates.of_days(9)
SECRETS = """\
target: mqtts://broker
populations:
  device:
    clients: 2
    tls: {certificate: /c, key: /k, passphrase: "word {n}", key_log: /keys.log}
stages: [connect]
"""


def problems(tls: PlannedTls, clients: int = 4) -> list[str]:
    """Kinds and messages of the problems of some clients."""

    def names(template: str) -> list[str]:
        return [template.replace("{n}", str(n)) for n in range(clients)]

    return [f"{each.place}: {each.message}" for each in tls_problems("tls", names, tls)]


def encrypted(key: bytes, passphrase: str) -> bytes:
    encryption = BestAvailableEncryption(passphrase.encode())
    own = load_pem_private_key(key, None)
    return own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


@pytest.mark.parametrize(
    ("passphrase", "expected"),
    [
        ("word {n}", None),
        (None, "found the key {} under a passphrase"),
        ("word 0", "found the key {}, which its passphrase does not open"),
    ],
)
def test_an_encrypted_key_needs_the_passphrase_of_its_client(
    tmp_path: Path, passphrase: str | None, expected: str | None
) -> None:
    authority = Authority.new("tests", NINE_DAYS)
    for n in range(4):
        client = authority.client(f"dev-{n}", NINE_DAYS)
        (tmp_path / f"{n}.crt").write_bytes(client.certificate)
        (tmp_path / f"{n}.key").write_bytes(encrypted(client.key, f"word {n}"))
    certificate, key = f"{tmp_path}/{{n}}.crt", f"{tmp_path}/{{n}}.key"
    found = problems(PlannedTls(certificate=certificate, key=key, passphrase=passphrase))
    if expected is None:
        assert found == []
        return
    assert [re.sub(r"/\S+\.key", "{}", text) for text in found] == [f"tls.certificate: {expected}"]
    assert "word" not in found[0]


def test_a_key_without_a_passphrase_ignores_one(tmp_path: Path) -> None:
    client = Authority.new("tests", NINE_DAYS).client("dev", NINE_DAYS)
    (tmp_path / "c").write_bytes(client.certificate + client.key)
    path = str(tmp_path / "c")
    assert problems(PlannedTls(certificate=path, key=path, passphrase="word")) == []


def test_passphrases_are_kept_out_of_stored_plans_and_key_logs_are_warned_of() -> None:
    scenario = parse_scenario(SECRETS, "s.yaml")
    plan = provisional_plan(scenario)
    assert "word {n}" in plan.to_line()
    assert "word {n}" not in plan.without_secrets().to_line()
    [found] = [o for o in oversights(scenario, plan) if o.path[-1] == "key_log"]
    assert "/keys.log can decrypt the traffic" in found.text


@pytest.mark.parametrize(
    ("mode", "problem"),
    [
        (None, None),
        (0o600, None),
        (0o644, "a file with mode 0644"),
        (0o400, "a file with mode 0400"),
    ],
)
def test_a_file_of_keys_is_new_or_private(
    tmp_path: Path, mode: int | None, problem: str | None
) -> None:
    path = tmp_path / "keys.log"
    if mode is not None:
        path.touch()
        path.chmod(mode)
    found = problems(PlannedTls(key_log=str(path)))
    assert [problem in text for text in found] == [True] if problem else found == []


def test_links_folders_and_missing_folders_hold_no_keys(tmp_path: Path) -> None:
    (tmp_path / "file").touch(0o600)
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for path, expected in (
        (tmp_path / "link", "no regular file"),
        (tmp_path, "no regular file"),
        (tmp_path / "none" / "keys.log", "found no folder"),
        (tmp_path / "file" / "keys.log", "Not a directory"),
    ):
        [found] = problems(PlannedTls(key_log=str(path)))
        assert expected in found


LABEL = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)


@settings(max_examples=40)
@given(st.lists(LABEL, min_size=1, max_size=5))
def test_names_of_hosts_can_be_asked_for(labels: list[str]) -> None:
    name = ".".join(labels)
    assert problems(PlannedTls(server_name=name)) == []
    assert problems(PlannedTls(server_name=f"{{n}}.{name}")) == []


@settings(max_examples=40)
@given(st.text(max_size=300).filter(lambda text: re.search(r"[^\w.:-]|\.\.", text, re.ASCII)))
def test_other_texts_cannot_be_asked_for(name: str) -> None:
    [found] = problems(PlannedTls(server_name=name.replace("{n}", "")))
    assert found.startswith("tls.server_name: found the name ")
