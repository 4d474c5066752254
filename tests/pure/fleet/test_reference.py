"""The reference agent as a child process: its address, its key, its end, and what is said where it
does not start. A small program stands for the engine."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from pubstorm.errors import FleetError
from pubstorm.fleet.reference import KEY_VARIABLE, ReferenceClock

ANSWERS = """
import json, os, sys
print(json.dumps({"kind": "reference", "port": 40123}), flush=True)
print(os.getpid(), sys.argv[1:], len(os.environ["PUBSTORM_CLOCK_KEY"]), file=sys.stderr, flush=True)
sys.stdin.read()
"""
STAYS = """
import json, signal, sys
print(json.dumps({"kind": "reference", "port": 40123}), flush=True)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    signal.pause()
"""
FAILS = """
import json
print(json.dumps({"kind": "failure", "message": "no such address", "hint": "name another"}))
"""
DIES = """
import sys
sys.exit("nothing to listen on")
"""
RAMBLES = "print('good morning')"


@pytest.fixture
def engine(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    script, program = tmp_path / "engine.py", tmp_path / "engine"
    script.write_text(request.param)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I "{script}" "$@"\n')
    program.chmod(0o755)
    return program


def started(engine: Path, host: str = "127.0.0.1") -> ReferenceClock:
    clock = ReferenceClock(engine, engine.with_name("clock.log"))
    asyncio.run(started_and_closed(clock, host))
    return clock


async def started_and_closed(clock: ReferenceClock, host: str) -> None:
    await clock.start(host)
    await clock.close()
    await clock.close()


@pytest.mark.parametrize("engine", [ANSWERS], indirect=True)
def test_agents_get_its_address_and_its_key_and_it_is_gone_when_it_was_closed(engine: Path) -> None:
    clock = started(engine)
    assert clock.words == ("--reference", "127.0.0.1:40123")
    assert [*map(len, clock.environment.values())] == [64]
    log = engine.with_name("clock.log").read_text()
    assert log.endswith("['--clock', '--listen', '127.0.0.1:0'] 64\n")
    assert clock.environment[KEY_VARIABLE] not in log
    with pytest.raises(ProcessLookupError):
        os.kill(int(log.split()[0]), 0)


@pytest.mark.parametrize("engine", [ANSWERS], indirect=True)
def test_an_address_of_ip_6_stands_in_brackets(engine: Path) -> None:
    assert started(engine, "::1").words == ("--reference", "[::1]:40123")


@pytest.mark.parametrize("engine", [ANSWERS], indirect=True)
def test_each_run_has_a_key_of_its_own(engine: Path) -> None:
    one, other = (ReferenceClock(engine, engine.with_name("log")) for _ in range(2))
    assert one.environment != other.environment


@pytest.mark.parametrize("engine", [STAYS], indirect=True)
def test_one_that_does_not_end_is_killed(engine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pubstorm.fleet.reference.END_TIMEOUT_S", 0.1)
    started(engine)


@pytest.mark.parametrize(
    ("engine", "words", "hint"),
    [
        (FAILS, "the reference clock gave up: no such address", "name another"),
        (DIES, "the reference clock ended before it was ready", "nothing to listen on"),
        (RAMBLES, "the reference clock broke the contract: 'good morning'", "use the engine"),
    ],
    indirect=["engine"],
)
def test_what_keeps_it_from_starting_is_said(engine: Path, words: str, hint: str) -> None:
    with pytest.raises(FleetError) as caught:
        started(engine)
    assert caught.value.message == words
    assert (caught.value.hint or "").startswith(hint)


@pytest.mark.parametrize("engine", ["import sys; sys.stdin.read()"], indirect=True)
def test_one_that_says_nothing_is_given_up(engine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pubstorm.fleet.reference.START_TIMEOUT_S", 0.1)
    monkeypatch.setattr("pubstorm.fleet.reference.END_TIMEOUT_S", 0.1)
    with pytest.raises(FleetError, match=r"the reference clock said nothing for 0\.1 s"):
        started(engine)


def test_no_program_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(FleetError, match=r"cannot start .*nothing: No such file"):
        started(tmp_path / "nothing")


def test_closing_what_was_never_started_does_nothing(tmp_path: Path) -> None:
    asyncio.run(ReferenceClock(tmp_path / "engine", tmp_path / "log").close())
