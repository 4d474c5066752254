"""Files of passwords and rights, as the real mosquitto reads them."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest

from pubstorm.errors import UsageError
from pubstorm.host.children import find
from pubstorm.plan import provisional_plan
from pubstorm.scenario.load import parse_scenario
from pubstorm.topology.adapters.mosquitto import configuration
from pubstorm.topology.identities.accounts import accounts_of
from pubstorm.topology.identities.mosquitto import MosquittoFiles
from pubstorm.topology.identities.seeding import Meter, SeedVerification
from tests.kit.ports import free_port
from tests.system.topology.identities.conftest import USERS, wait_for

CLIENT = ("mosquitto_pub", "-h", "127.0.0.1", "-q", "1", "-m", "x", "-V", "mqttv5")


def files(folder: Path, clients: int = 20, name: str = "device-{{n}}") -> MosquittoFiles:
    text = USERS.replace("device-{{n}}", name).format(clients=clients)
    plan = provisional_plan(parse_scenario(text, "s.yaml"))
    return MosquittoFiles(folder / "users", accounts_of(plan.populations))


def silent() -> Meter:
    return Meter(0, 0, lambda _: None)


def test_they_are_private_whole_and_not_overwritten(tmp_path: Path) -> None:
    own = files(tmp_path)
    own.write(silent(), replace=False)
    assert {path.name for path in own.folder.iterdir()} == {"passwords", "acl"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in own.paths} == {0o600}
    before = own.paths[0].read_text()
    with pytest.raises(UsageError, match="passwords already"):
        own.write(silent(), replace=False)
    assert own.paths[0].read_text() == before
    own.write(silent(), replace=True)
    assert own.paths[0].read_text() != before


def test_what_is_missing_or_wrong_is_counted(tmp_path: Path) -> None:
    own = files(tmp_path)
    assert own.verify(silent()).missing == 100
    own.write(silent(), replace=False)
    assert own.verify(silent()) == SeedVerification(rows=100)
    passwords, rights = own.paths
    lines = passwords.read_text().splitlines()
    user, word = lines[2].split(":")
    lines[1], lines[2] = "# stranger", f"{user}:{word[:-6]}AAAA=="
    passwords.write_text("\n".join(lines))
    rights.write_text(rights.read_text().replace("topic write up/9/1", "topic read up/9/1"))
    findings = own.verify(silent())
    assert (findings.missing, findings.wrong) == (1, 2)
    assert findings.examples == [
        "missing: passwords device-5",
        "wrong: passwords device-6",
        "wrong: acl device-9 up/9/1",
    ]


def test_they_are_removed_where_they_are_of_these_users(tmp_path: Path) -> None:
    own = files(tmp_path)
    own.write(silent(), replace=False)
    with pytest.raises(UsageError, match="has not been written for these users"):
        files(tmp_path, clients=21).remove()
    assert own.remove() == 2
    assert own.remove() == 0
    assert not list(own.folder.iterdir())


@pytest.mark.parametrize("name", ["a:{{n}}", "#{{n}}", "a\\n{{n}}", " {{n}}"])
def test_a_name_that_the_files_cannot_have_is_reported(tmp_path: Path, name: str) -> None:
    own = files(tmp_path, name=name)
    with pytest.raises(UsageError, match="found"):
        own.write(silent(), replace=False)
    assert not list(own.folder.iterdir())


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("a file")
    with pytest.raises(UsageError, match="cannot write into"):
        files(tmp_path).write(silent(), replace=False)


def test_mosquitto_lets_them_in_and_holds_them_to_their_topics(tmp_path: Path) -> None:
    binary = find("mosquitto")
    if binary is None:
        pytest.skip("mosquitto is not installed (scripts/install-test-tools)")
    own = files(tmp_path)
    own.write(silent(), replace=False)
    port = free_port()
    passwords, rights = own.paths
    settings = {
        "allow_anonymous": False,
        "password_file": str(passwords),
        "acl_file": str(rights),
        "log_dest": "stderr",
    }
    config = tmp_path / "mosquitto.conf"
    config.write_text(configuration(settings, f"{port} 127.0.0.1", tmp_path))

    def lets(user: str, password: str, topic: str) -> bool:
        words = (*CLIENT, "-p", str(port), "-u", user, "-P", password, "-t", topic)
        found = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)
        return found.returncode == 0 and "Not authorized" not in found.stderr

    broker = subprocess.Popen([binary, "-c", str(config)], stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        assert lets("device-7", "secret-7", "up/7/1")
        assert not lets("device-7", "secret-8", "up/7/1")
        assert not lets("stranger", "secret-7", "up/7/1")
        assert not lets("device-7", "secret-7", "up/8/1")
    finally:
        broker.kill()
        broker.wait()
