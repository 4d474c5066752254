"""`pubstorm ray-keys` as its user sees it: a folder for each node, and more nodes later."""

from __future__ import annotations

import ssl
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from pubstorm import cli
from tests.kit.mutual_tls import handshake

Shell = Callable[..., tuple[int, str, str]]

FILES = {"ca.crt", "environment", "node.crt", "node.key", "token"}


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    """Makes keys in an empty folder; exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(["ray-keys", *arguments])
        return (code, *capsys.readouterr())

    return call


def test_it_makes_a_folder_for_each_node(shell: Shell) -> None:
    assert shell("--node", "10.0.0.1", "--node", "agent-2.example") == (
        0,
        "ray-keys/ca.crt, ca.key: the authority\n"
        "ray-keys/token: the token of the cluster\n"
        "ray-keys/node-10.0.0.1: copy it to 10.0.0.1, as /etc/pubstorm\n"
        "ray-keys/node-agent-2.example: copy it to agent-2.example, as /etc/pubstorm\n",
        "",
    )
    for node in ("node-10.0.0.1", "node-agent-2.example"):
        folder = Path("ray-keys", node)
        assert {path.name for path in folder.iterdir()} == FILES
        for same in ("ca.crt", "token"):
            assert (folder / same).read_bytes() == Path("ray-keys", same).read_bytes()


def test_everything_is_for_its_owner_only(shell: Shell) -> None:
    shell("--node", "10.0.0.1")
    for path in (Path("ray-keys"), *Path("ray-keys").rglob("*")):
        expected = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == expected, path


def test_the_environment_names_the_files_as_the_node_has_them(shell: Shell) -> None:
    shell("--node", "10.0.0.1", "--at", "/opt/keys")
    assert Path("ray-keys/node-10.0.0.1/environment").read_text() == (
        "RAY_AUTH_MODE=token\n"
        "RAY_AUTH_TOKEN_PATH=/opt/keys/token\n"
        "RAY_USE_TLS=1\n"
        "RAY_TLS_SERVER_CERT=/opt/keys/node.crt\n"
        "RAY_TLS_SERVER_KEY=/opt/keys/node.key\n"
        "RAY_TLS_CA_CERT=/opt/keys/ca.crt\n"
        "RAY_USAGE_STATS_ENABLED=0\n"
        "RAY_health_check_initial_delay_ms=1000\n"
        "RAY_health_check_period_ms=1000\n"
        "RAY_health_check_timeout_ms=1000\n"
        "RAY_health_check_failure_threshold=3\n"
    )


def test_nodes_that_are_added_later_have_the_same_authority_and_token(shell: Shell) -> None:
    shell("--node", "10.0.0.1")
    before = {path: path.read_bytes() for path in Path("ray-keys").rglob("*") if path.is_file()}
    code, said, _ = shell("--node", "10.0.0.2")
    assert (code, said.splitlines()[:2]) == (
        0,
        [
            "ray-keys/ca.crt, ca.key: the authority, as before",
            "ray-keys/token: the token of the cluster, as before",
        ],
    )
    assert {path: path.read_bytes() for path in before} == before
    handshake(node("10.0.0.1"), node("10.0.0.2"), "10.0.0.1")


def test_a_nodes_keys_are_replaced_only_when_asked(shell: Shell) -> None:
    shell("--node", "10.0.0.1")
    kept, key = Path("ray-keys/ca.key"), node("10.0.0.1") / "node.key"
    before = kept.read_bytes(), key.read_bytes()
    code, _, complaint = shell("--node", "10.0.0.1")
    assert code == 2
    assert "would be overwritten" in complaint
    assert shell("--node", "10.0.0.1", "--force")[0] == 0
    assert kept.read_bytes() == before[0]
    assert key.read_bytes() != before[1]


@pytest.mark.parametrize("name", ["10.0.0.1", "127.0.0.1", "localhost"])
def test_nodes_trust_each_other_under_every_name(shell: Shell, name: str) -> None:
    shell("--node", "10.0.0.1", "--node", "10.0.0.2")
    handshake(node("10.0.0.1"), node("10.0.0.2"), name)


def test_nodes_of_other_clusters_are_not_trusted(shell: Shell) -> None:
    shell("--node", "10.0.0.1")
    shell("--node", "10.0.0.2", "--out", "others")
    with pytest.raises(ssl.SSLError, match="certificate verify failed"):
        handshake(node("10.0.0.1"), Path("others/node-10.0.0.2"), "10.0.0.1")


@pytest.mark.parametrize("missing", ["ca.crt", "ca.key", "token"])
def test_half_of_what_nodes_share_is_refused(shell: Shell, missing: str) -> None:
    shell("--node", "10.0.0.1")
    Path("ray-keys", missing).unlink()
    code, _, complaint = shell("--node", "10.0.0.2")
    assert code == 2
    assert f"but no {missing}\n  hint: bring it back" in complaint


def node(address: str) -> Path:
    return Path("ray-keys", f"node-{address}")
