"""`pubstorm seed` as its user sees it: what it says, what it refuses, and what exists after it
was ended at any point."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pubstorm import cli
from tests.system.topology.identities.conftest import DEADLINE_S, USERS, OwnRedis

Shell = Callable[..., tuple[int, str, str]]
MANY = 12_000
"""Clients of a scenario that takes a moment: 60 000 rows, for which Redis gives two answers a
client and one a batch."""
SIGNALLING = """
import os, sys
from redis.connection import Connection
from pubstorm.__main__ import main

pid, number, at = map(int, sys.argv[1:4])
del sys.argv[1:4]
read, answers = Connection.read_response, 0

def counted(*words, **options):
    global answers
    answer = read(*words, **options)
    answers += 1
    if answers == at:
        os.kill(pid or os.getpid(), number)
    return answer

Connection.read_response = counted
main()
"""
"""A program: `pubstorm`, which sends a signal to a process, 0: itself, at an answer of Redis."""


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    """Runs a command line: exit code, stdout, stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(arguments)
        return (code, *capsys.readouterr())

    return call


def test_it_says_what_it_has_written_and_that_it_was_written(
    shell: Shell, own_redis: OwnRedis, users: str
) -> None:
    where = own_redis.url
    code, out, err = shell("seed", where, users)
    assert (code, err) == (0, "population backend has no user names and is left out\n")
    assert out.startswith(f"{where}: 1,500 rows of 300 clients written in ")
    code, out, err = shell("seed", where, users)
    assert (code, out) == (0, f"{where}: all 1,500 rows were written before\n")
    assert "--restart writes them again" in err
    assert shell("seed", where, users, "--restart")[1].startswith(f"{where}: 1,500 rows of 300 ")
    assert shell("seed", where, users, "--verify")[:2] == (
        0,
        f"{where}: 1,500 of 1,500 rows exist and are right\n",
    )
    assert shell("seed", where, users, "--remove")[:2] == (0, f"{where}: 1,500 fields removed\n")
    assert own_redis.client().dbsize() == 0


def test_another_scheme_has_other_rows_and_missing_ones_are_counted(
    shell: Shell, own_redis: OwnRedis, users: str
) -> None:
    emqx5 = ("seed", own_redis.url, users, "--scheme", "emqx5")
    assert [shell(*emqx5, *words)[0] for words in ((), ("--verify",))] == [0, 0]
    assert own_redis.client().hgetall("mqtt_acl:device-9")["both/9"] == "all"
    code, out, _ = shell(*emqx5, "--set", "populations.device.clients=301", "--verify")
    assert code == 1
    assert out.splitlines()[2] == "  missing: mqtt_user:device-305 password_hash"
    assert shell("seed", own_redis.url, users, "--verify")[0] == 1


def test_mosquitto_gets_two_files(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, users: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = shell("seed", "mosquitto:own", users)
    assert code == 0
    first, *lines = out.splitlines()
    assert first.startswith("own: 1,500 rows of 300 clients written in ")
    assert lines == [f"password_file {tmp_path}/own/passwords", f"acl_file {tmp_path}/own/acl"]
    assert shell("seed", "mosquitto:own", users, "--verify")[0] == 0
    assert shell("seed", "mosquitto:own", users)[0] == 2
    assert shell("seed", "mosquitto:own", users, "--remove")[:2] == (0, "own: 2 files removed\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nowhere",), "found nowhere, allowed are redis://HOST:PORT/DB and mosquitto:FOLDER"),
        (("redis://h:x",), "found redis://h:x, allowed is redis://[[USER]:PASSWORD@]HOST"),
        (("redis://h", "--verify", "--remove"), "found --verify and --remove"),
        (("redis://h", "--restart", "--verify"), "found --restart with --verify or --remove"),
        (("redis://h", "--scheme", "none"), "found no scheme none, allowed are emqx and emqx5"),
        (("mosquitto:x", "--scheme", "emqx"), "found --scheme with mosquitto"),
        (("redis://h", "--batch", "0"), "Invalid value for '--batch'"),
    ],
)
def test_wrong_words_are_refused(
    shell: Shell, users: str, words: tuple[str, ...], message: str
) -> None:
    code, out, err = shell("seed", words[0], users, *words[1:])
    assert (code, out) == (2, "")
    assert f"error: {message}" in err


def test_a_scenario_without_users_is_refused(shell: Shell) -> None:
    code, _, err = shell("seed", "redis://h", "quickstart")
    assert code == 2
    assert "error: found no user names in the populations" in err


@pytest.fixture
def many(tmp_path: Path) -> str:
    """Path of a scenario that takes a moment."""
    path = tmp_path / "many.yaml"
    path.write_text(USERS.format(clients=MANY))
    return str(path)


def signalled(
    redis: OwnRedis, scenario: str, answers: int, number: signal.Signals, pid: int = 0
) -> tuple[int, str, str]:
    """The end of a command that sends a signal to a process, 0: itself, after so many answers:
    exit code, stdout, stderr. Who runs tests in the background may have had SIGINT ignored; it
    would be inherited."""
    heeds = ("env", "--default-signal=INT", sys.executable, "-c", SIGNALLING)
    fate = (str(pid), str(int(number)), str(answers))
    words = (*heeds, *fate, "seed", redis.url, scenario, "--batch", "50")
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    return done.returncode, done.stdout, done.stderr


def test_what_was_killed_goes_on_where_it_was(shell: Shell, own_redis: OwnRedis, many: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    answers = random.Random(seed).randrange(100, MANY)
    code, _, err = signalled(own_redis, many, answers, signal.SIGKILL)
    assert code == -signal.SIGKILL, err
    code, out, _ = shell("seed", own_redis.url, many, "--verify")
    assert code == 1
    assert f" of {5 * MANY:,} rows" in out
    assert shell("seed", own_redis.url, many)[0] == 0
    assert shell("seed", own_redis.url, many, "--verify")[0] == 0


def test_an_interrupt_is_reported_with_the_way_to_continue(own_redis: OwnRedis, many: str) -> None:
    code, out, err = signalled(own_redis, many, 200, signal.SIGINT)
    assert (code, out) == (130, "")
    assert "error: interrupted after " in err
    assert "hint: the same command continues there" in err
    assert "Traceback" not in err


def test_a_redis_that_dies_meanwhile_is_reported(own_redis: OwnRedis, many: str) -> None:
    assert own_redis.process is not None
    code, _, err = signalled(own_redis, many, 200, signal.SIGKILL, own_redis.process.pid)
    assert code == 3
    assert ", after " in err and f" of {5 * MANY:,} rows" in err
    assert "the same command continues there" in err
    assert "Traceback" not in err
