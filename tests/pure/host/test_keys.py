"""Keys: files that are private and never replaced unasked, lines that are right, certificates that
fit, and shares of the shard rule."""

from __future__ import annotations

import json
import ssl
import stat
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubstorm.errors import KeysError
from pubstorm.host.keys.certificates import (
    Authority,
    CertificateDates,
    Credential,
    check_authorities,
    check_credential,
)
from pubstorm.host.keys.files import (
    NewFile,
    new_keys,
    psk_text,
    read_file,
    read_psk,
    shares,
    write_files,
)

GOLDEN = Path(__file__).parents[3] / "contract" / "golden"
NOW = datetime.now(UTC)
DAY = timedelta(days=1)
GONE_BY = CertificateDates(NOW - 9 * DAY, NOW - 2 * DAY)
TO_COME = CertificateDates(NOW + 2 * DAY, NOW + 9 * DAY)
MONTH = CertificateDates.of_days(30)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.new("tests", MONTH)


def stored(folder: Path, credential: Credential, stem: str = "c") -> tuple[Path, Path]:
    certificate, key = folder / f"{stem}.crt", folder / f"{stem}.key"
    certificate.write_bytes(credential.certificate)
    key.write_bytes(credential.key)
    return certificate, key


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_private_files_are_for_their_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "key"
    write_files([NewFile(path, b"secret"), NewFile(path.with_name("crt"), b"", private=False)])
    assert path.read_bytes() == b"secret"
    assert (mode_of(path), mode_of(path.with_name("crt")) & 0o700) == (0o600, 0o600)
    assert mode_of(path.parent) == 0o700


def test_a_file_that_is_there_stays_and_none_is_written(tmp_path: Path) -> None:
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    one.write_text("old")
    two.write_text("old")
    with pytest.raises(KeysError, match=r"one and 1 more would be overwritten") as caught:
        write_files([NewFile(three, b"new"), NewFile(one, b"new"), NewFile(two, b"new")])
    assert caught.value.hint == "use --force to replace keys"
    assert caught.value.exit_code == 2
    assert not three.exists() and one.read_text() == "old"


def test_force_replaces_a_file_and_its_mode_but_not_what_a_link_names(tmp_path: Path) -> None:
    other, path = tmp_path / "other", tmp_path / "key"
    other.write_text("old")
    path.symlink_to(other)
    write_files([NewFile(path, b"new")], force=True)
    assert (path.read_text(), other.read_text()) == ("new", "old")
    assert not path.is_symlink() and mode_of(path) == 0o600


def test_a_path_that_would_be_written_twice_is_refused(tmp_path: Path) -> None:
    file = NewFile(tmp_path / "key", b"")
    with pytest.raises(KeysError, match="would be written twice"):
        write_files([file, file], force=True)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(KeysError, match="cannot make the folder"):
        write_files([NewFile(tmp_path / "file" / "key", b"")])


def test_what_is_no_file_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(KeysError, match="found no file"):
        read_file(tmp_path / "nothing")
    with pytest.raises(KeysError, match=r"cannot read .*: Is a directory"):
        read_file(tmp_path)
    with pytest.raises(KeysError, match=r"cannot read .*: it is no regular file"):
        read_file("/dev/zero")
    with pytest.raises(KeysError, match="cannot read"):
        read_file("/proc/self/mem")


def test_new_keys_differ_and_survive_their_file(tmp_path: Path) -> None:
    keys = new_keys(f"device-{n}" for n in range(100))
    assert len(set(keys.values())) == 100
    assert {len(key) for key in keys.values()} == {64}
    (tmp_path / "psk.txt").write_bytes(psk_text(keys.items()))
    assert read_psk(tmp_path / "psk.txt") == keys


@pytest.mark.parametrize(
    ("identity", "words"),
    [
        ("a:b", "a colon"),
        ("a\nb", "a line break"),
        ("#a", "no identity or one with #"),
        ("", "no identity"),
        ("x" * 257, "of 257 bytes"),
    ],
)
def test_an_identity_that_no_line_can_hold_is_refused(identity: str, words: str) -> None:
    with pytest.raises(KeysError, match=words):
        new_keys([identity])


def test_two_clients_have_no_identity_together() -> None:
    with pytest.raises(KeysError, match="'a' more than once"):
        new_keys(["a", "b", "a"])


def test_comments_blank_lines_and_windows_ends_are_no_keys(tmp_path: Path) -> None:
    path = tmp_path / "psk.txt"
    path.write_bytes(b"# ours\n\na:00ff\r\nb c:AA \n")
    assert read_psk(path) == {"a": "00ff", "b c": "AA"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nothing", "a line without a colon"),
        (":00", "a line without an identity"),
        ("b:", "no key for 'b'"),
        ("b:0g", "that is not in pairs of hexadecimal digits"),
        ("b:123", "that is not in pairs of hexadecimal digits"),
        ("b:" + "00" * 513, "of more than 512 bytes"),
        ("a:00", "the identity 'a' a second time"),
        ("b" * 257 + ":00", "an identity of more than 256 bytes"),
    ],
)
def test_a_wrong_line_is_named_and_no_key_shown(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "psk.txt"
    path.write_text(f"a:00\n{line}\n")
    with pytest.raises(KeysError) as caught:
        read_psk(path)
    assert f"psk.txt:2: found {words}" in caught.value.message or words in caught.value.message
    assert "psk.txt:2: " in caught.value.message and "0g" not in caught.value.message


@pytest.mark.parametrize(("content", "words"), [(b"", "no key"), (b"\xff:00", "not UTF-8")])
def test_a_file_without_keys_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "psk.txt").write_bytes(content)
    with pytest.raises(KeysError, match=words):
        read_psk(tmp_path / "psk.txt")


@given(content=st.binary(max_size=200) | st.text(":\n#ab01", max_size=50).map(str.encode))
def test_no_file_of_keys_breaks_the_reader(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_bytes(content)
    try:
        keys = read_psk(path)
    except KeysError as error:
        assert error.hint
    else:
        assert keys and all(bytes.fromhex(key) for key in keys.values())
    with pytest.raises(KeysError, match="no certificate in PEM form"):
        check_authorities(path)


def shard_cases() -> Iterator[tuple[int, int, list[list[int]]]]:
    for case in json.loads((GOLDEN / "shard.json").read_text())["cases"]:
        yield case["total"], case["count"], case["clients"]


@pytest.mark.parametrize(("total", "count", "clients"), list(shard_cases()))
def test_shares_are_those_of_the_engines(total: int, count: int, clients: list[list[int]]) -> None:
    expected = tuple(tuple(map(str, share)) for share in clients)
    assert shares([str(c) for c in range(total)], count) == expected


def test_openssl_takes_what_the_authority_issues(tmp_path: Path, authority: Authority) -> None:
    (tmp_path / "ca.crt").write_bytes(authority.credential.certificate)
    server = authority.server(["broker.example", "127.0.0.1", "::1"], MONTH)
    certificate, key = stored(tmp_path, server, "server")
    stored(tmp_path, authority.client("device-0", MONTH), "client")
    ssl.create_default_context(cafile=str(tmp_path / "ca.crt")).load_cert_chain(certificate, key)
    for purpose, stem in (("sslserver", "server"), ("sslclient", "client")):
        command = ["openssl", "verify", "-x509_strict", "-purpose", purpose]
        files = ["-CAfile", str(tmp_path / "ca.crt"), str(tmp_path / f"{stem}.crt")]
        done = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
        assert done.stdout.endswith(": OK\n"), done.stderr


def test_each_certificate_has_a_key_of_its_own(authority: Authority) -> None:
    clients = [authority.client(f"device-{n}", MONTH) for n in range(20)]
    assert len({client.key for client in clients}) == 20


@pytest.mark.parametrize("name", ["", "x" * 65])
def test_a_name_that_no_certificate_can_hold_is_refused(authority: Authority, name: str) -> None:
    with pytest.raises(KeysError, match="allowed are 1 to 64"):
        authority.client(name, MONTH)


def test_a_broker_may_have_a_long_name(tmp_path: Path, authority: Authority) -> None:
    name = f"{'a' * 60}.{'b' * 60}.example"
    certificate, key = stored(tmp_path, authority.server([name], MONTH))
    check_credential(certificate, key)
    command = ["openssl", "x509", "-in", str(certificate), "-noout", "-checkhost", name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "does match certificate" in done.stdout


def test_a_broker_that_cannot_be_called_so_is_refused(authority: Authority) -> None:
    with pytest.raises(KeysError, match="no broker or node can be called"):
        authority.server(["bröker"], MONTH)


def test_a_credential_in_force_is_fine(tmp_path: Path, authority: Authority) -> None:
    check_credential(*stored(tmp_path, authority.client("a", MONTH)))
    check_authorities(stored(tmp_path, authority.credential, "ca")[0])


@pytest.mark.parametrize(
    ("validity", "words"), [(GONE_BY, "which expired on "), (TO_COME, "which is not valid before ")]
)
def test_a_certificate_out_of_its_dates_is_named_with_the_date(
    tmp_path: Path, authority: Authority, validity: CertificateDates, words: str
) -> None:
    date = validity.end if validity is GONE_BY else validity.begin
    with pytest.raises(KeysError, match=f"{words}{date:%Y-%m-%d %H:%M} UTC"):
        check_credential(*stored(tmp_path, authority.client("a", validity)))


def test_authorities_count_as_long_as_one_is_in_force(tmp_path: Path) -> None:
    old, new = Authority.new("old", GONE_BY), Authority.new("new", MONTH)
    path = tmp_path / "ca.crt"
    path.write_bytes(old.credential.certificate)
    with pytest.raises(KeysError, match="which expired on"):
        check_authorities(path)
    path.write_bytes(old.credential.certificate + new.credential.certificate)
    check_authorities(path)


def test_the_key_of_another_certificate_is_named(tmp_path: Path, authority: Authority) -> None:
    certificate, _ = stored(tmp_path, authority.client("a", MONTH), "a")
    _, key = stored(tmp_path, authority.client("b", MONTH), "b")
    with pytest.raises(KeysError, match=r"b\.key, which is not that of .*a\.crt"):
        check_credential(certificate, key)


@pytest.mark.parametrize("content", [b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_what_is_no_certificate_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "c.crt").write_bytes(content)
    with pytest.raises(KeysError, match=r"found no certificate in PEM form in .*c\.crt"):
        check_authorities(tmp_path / "c.crt")


def test_a_key_that_cannot_be_used_is_named(tmp_path: Path, authority: Authority) -> None:
    certificate, key = stored(tmp_path, authority.client("a", MONTH))
    secret = tmp_path / "secret.key"
    paths = ["-in", str(key), "-out", str(secret)]
    command = ["openssl", "pkey", *paths, "-aes128", "-passout", "pass:x"]
    subprocess.run(command, check=True)
    with pytest.raises(KeysError, match="under a passphrase"):
        check_credential(certificate, secret)
    key.write_text("nonsense")
    with pytest.raises(KeysError, match="found no private key in PEM form"):
        check_credential(certificate, key)
