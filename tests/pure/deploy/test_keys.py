"""The key of a cluster's authority stays where it was made: no file of deploy/ and no command of
the guide copies it, and hosts that have only their own files trust each other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from pubstorm import cli
from tests.kit.mutual_tls import handshake

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
HEAD, WORKERS = "10.0.0.1", ("10.0.0.2", "10.0.0.3")
OWN = {"ca.crt", "environment", "node.crt", "node.key", "token"}
COPIES = ("scp", "rsync", "rsync-up", "cp", "tar", "COPY", "ADD", "kubectl", "docker")
"""Programs, and words of a Dockerfile, that hand files to another machine or an image."""
PRIVATE = b"PRIVATE KEY"


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `ray-keys`, as the guide makes it."""
    monkeypatch.chdir(tmp_path)
    nodes = [word for node in (HEAD, *WORKERS) for word in ("--node", node)]
    assert cli.main(["ray-keys", *nodes]) == 0
    assert cli.main(["keys", "ca", "keys"]) == 0
    return tmp_path


def private_keys(folder: Path) -> dict[str, bytes]:
    """Files below a folder that hold a private key."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    contents = {str(path.relative_to(folder)): path.read_bytes() for path in files}
    return {name: content for name, content in contents.items() if PRIVATE in content}


def copied() -> Iterator[tuple[str, str]]:
    """Words of commands and mounts that may name a file to copy, with the file that has them."""
    mounts = yaml.safe_load((DEPLOY / "aws.yaml").read_text())["file_mounts"]
    yield from (("deploy/aws.yaml", source) for source in mounts.values())
    places = [
        *(path for path in DEPLOY.iterdir() if path.is_file()),
        ROOT / "Dockerfile",
        *(ROOT / "docs").rglob("*.md"),
    ]
    for path in places:
        for line in path.read_text().splitlines():
            words = re.split(r"[\s\"'`;&|=,:]+", line)
            if any(word in COPIES for word in words):
                yield from ((str(path.relative_to(ROOT)), word) for word in words if word)


def test_the_key_of_an_authority_is_in_one_file_only(keys: Path) -> None:
    found = private_keys(keys)
    authorities = [found["ray-keys/ca.key"], found["keys/ca.key"]]
    assert [name for name, content in found.items() if content in authorities] == [
        "keys/ca.key",
        "ray-keys/ca.key",
    ]
    for node in (HEAD, *WORKERS):
        folder = keys / "ray-keys" / f"node-{node}"
        assert {path.name for path in folder.iterdir()} == OWN
        assert [*private_keys(folder)] == ["node.key"]


def test_nothing_copies_the_key_of_an_authority(keys: Path) -> None:
    words = [*copied()]
    named = [(file, word) for file, word in words if "keys" in word]
    assert ("docs/how-to/cluster-keys.md", f"ray-keys/node-{HEAD}/*") in named
    for file, word in words:
        for path in keys.glob(word.lstrip("/~.")) if word.strip("/~.*") else ():
            below = [path] if path.is_file() else [*path.rglob("*")]
            assert "ca.key" not in {each.name for each in below}, f"{file} copies {word}"


class Machines:
    """Machines of a cluster that are folders, in place of /etc/pubstorm and ~ of a command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = folder / "programs"
        self.programs.mkdir()
        self._program("pubstorm", f'exec {sys.executable} -m pubstorm "$@"')
        self._program("hostname", f"echo {HEAD} 172.17.0.1")
        there = f"s,/etc/pubstorm,{folder}/'\"$1\"',g"
        self._program("ssh", f'exec sh -c "$(echo "$2" | sed \'{there}\')"')
        for node in (HEAD, *WORKERS):
            self.at(node).mkdir()

    def at(self, node: str) -> Path:
        """Returns the folder that stands for /etc/pubstorm of a machine."""
        return self.folder / node

    def run(self, command: str, **variables: str) -> str:
        """Runs a shell command on the head."""
        command = command.replace("/opt/pubstorm/bin", str(self.programs))
        command = command.replace("/etc/pubstorm", str(self.at(HEAD)))
        environment: Mapping[str, str] = {
            **os.environ,
            "HOME": str(self.folder),
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "python"),
            **variables,
        }
        words = ["bash", "-c", command]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
        return done.stdout

    def _program(self, name: str, text: str) -> None:
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)


def test_each_machine_on_aws_gets_its_own_keys_and_the_authoritys_stays(tmp_path: Path) -> None:
    machines = Machines(tmp_path)
    aws = yaml.safe_load((DEPLOY / "aws.yaml").read_text())
    making = [command for command in aws["head_setup_commands"] if "ray-keys" in command]
    machines.run(making[0])
    give = f"sh {DEPLOY}/give-keys.sh ~/ray-keys {' '.join(WORKERS)}"
    assert machines.run(give).endswith("".join(f"{node} has its keys\n" for node in WORKERS[1:]))
    machines.run(give)
    waits = [command.split(";")[0] for command in aws["worker_start_ray_commands"]]
    assert waits == ["until test -s /etc/pubstorm/environment"]
    authority = (tmp_path / "ray-keys" / "ca.key").read_bytes()
    own = {node: private_keys(machines.at(node)) for node in (HEAD, *WORKERS)}
    for node, found in own.items():
        assert {path.name for path in machines.at(node).iterdir()} == OWN
        assert [*found] == ["node.key"]
        assert authority not in found.values()
        mode = (machines.at(node) / "node.key").stat().st_mode
        assert mode & 0o077 == 0
    assert len({found["node.key"] for found in own.values()}) == len(own)
    for server in own:
        for client in own:
            handshake(machines.at(server), machines.at(client), server)


def test_no_setup_command_of_a_machine_makes_a_certificate() -> None:
    aws = yaml.safe_load((DEPLOY / "aws.yaml").read_text())
    everywhere = [*aws["setup_commands"], *aws["worker_start_ray_commands"]]
    assert not [command for command in everywhere if re.search(r"ray-keys|ca\.key", command)]
