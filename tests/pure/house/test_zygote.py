"""Runs that are forked from the zygote are what runs are that are started for real."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.kit import program, zygote
from tests.kit.program import PUBSTORM, popen
from tests.kit.runs import assert_gone
from tests.kit.zygote_server import started_program

WIDE = """
description: 10 µs – fast ✓
topology: {brokers: {ours: {kind: embedded}}}
populations: {a: {clients: 1, publications: [{topic: t, rate: 1/s}]}}
stages: [connect, publish: 1min]
"""
RUN = ("run", "wide.yaml", "--out", "run", "--no-report", "--progress", "1s")
ROOT = Path(__file__).parents[3]
NAMES = {"SigIgn", "SigBlk"}


@pytest.fixture(autouse=True)
def wide(tmp_path: Path) -> Path:
    path = tmp_path / "wide.yaml"
    path.write_text(WIDE)
    return path


@contextlib.contextmanager
def playing(folder: Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A run that has begun and that would take a minute."""
    with popen(RUN, cwd=folder, stderr=subprocess.PIPE, text=True, **options) as process:
        try:
            assert process.stderr is not None
            assert any("publish" in line for line in process.stderr)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--version",), 0),
        ((), 0),
        (("scenarios",), 0),
        (("check", "no.yaml"), 2),
        (("nothing",), 2),
        (("import", "--", "sesame"), 2),
    ],
)
def test_a_forked_command_says_and_ends_as_a_started_one(
    words: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    outcomes = [
        program.run(words, cwd=tmp_path, capture_output=True, real=real) for real in (False, True)
    ]
    assert outcomes[0].returncode == code
    assert outcomes[0].stdout or outcomes[0].stderr
    assert str(outcomes[0]) == str(outcomes[1])


@pytest.mark.parametrize("name", ["PYTHONIOENCODING", "LC_ALL", "TZ"])
def test_variables_that_a_process_reads_as_it_starts_need_a_new_one(name: str) -> None:
    assert zygote.can_fork(None) and zygote.can_fork({**os.environ, "PUBSTORM_OTHER": "x"})
    assert not zygote.can_fork({**os.environ, name: "ascii"})


def test_a_forked_run_has_its_own_folder_streams_and_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUBSTORM_OF_THE_TEST", "é")
    mask = os.umask(0o027)
    try:
        with playing(tmp_path, stdin=subprocess.PIPE, start_new_session=True) as process:
            own = psutil.Process(process.pid)
            assert (os.getsid(process.pid), own.ppid()) == (process.pid, os.getpid())
            assert own.cmdline() == [*PUBSTORM, *RUN]
            # The kernel shows the environment of the zygote; children have that of the run.
            assert all(c.environ()["PUBSTORM_OF_THE_TEST"] == "é" for c in own.children())
            assert own.cwd() == str(tmp_path)
            assert (tmp_path / "run").stat().st_mode & 0o777 == 0o750
            found = {n: Path(f"/proc/{process.pid}/fd/{n}").readlink() for n in range(3)}
            assert str(found[0]).startswith("pipe:") and found[1] != found[2]
            control = os.fstat(zygote.zygote().control.fileno()).st_ino
            assert f"socket:[{control}]" not in {str(path) for path in found.values()}
    finally:
        os.umask(mask)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGHUP, 130), (signal.SIGKILL, -9)],
)
def test_a_signal_ends_a_forked_run(number: signal.Signals, code: int, tmp_path: Path) -> None:
    with playing(tmp_path) as process:
        started = psutil.Process(process.pid).children(recursive=True)
        assert os.getpgid(process.pid) == os.getpgid(0)
        process.send_signal(number)
        assert process.stderr is not None
        said = process.stderr.read()
        assert process.wait() == code, said
        assert "Traceback" not in said
        assert started
        assert_gone([child.pid for child in started])


def test_limits_and_ignored_signals_are_those_of_the_test(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 40, hard))
    try:
        with playing(tmp_path) as process:
            assert resource.prlimit(process.pid, resource.RLIMIT_FSIZE) == (1 << 40, hard)
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            masks = {line[:7]: int(line[7:], 16) for line in lines if line[:6] in NAMES}
            hangup, interrupt = 1 << (signal.SIGHUP - 1), 1 << (signal.SIGINT - 1)
            assert masks["SigIgn:"] & (hangup | interrupt) == hangup
            assert masks["SigBlk:"] == 0
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGHUP, before)


def test_stdin_and_output_that_is_larger_than_a_pipe(tmp_path: Path) -> None:
    publications = ", ".join(f"{{topic: {'t' * 50_000}{n}, rate: 1/s}}" for n in range(3))
    populations = f"populations: {{a: {{clients: 1, publications: [{publications}]}}}}"
    text = f"target: mqtt://h\n{populations}\nstages: [connect, publish: 1s]\n"
    done = program.run(("check", "-"), input=text, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("t2:") == 1 and len(done.stdout) > 1 << 16


def test_many_starts_at_once_leave_nothing_behind() -> None:
    with ThreadPoolExecutor(50) as pool:
        starts = [
            pool.submit(program.run, ("--version",), capture_output=True, text=True)
            for _ in range(50)
        ]
        assert {start.result().stdout.split()[0] for start in starts} == {"pubstorm"}
    forker = psutil.Process(zygote.zygote().process.pid)
    assert (forker.num_threads(), forker.children()) == (1, [])
    zombies = [
        child.pid for child in psutil.Process().children() if child.status() == psutil.STATUS_ZOMBIE
    ]
    assert zombies == []


def test_a_zygote_ends_with_its_owner_and_starts_are_noted(tmp_path: Path) -> None:
    text = (
        "import os, signal\nfrom tests.kit import program, zygote\n"
        "program.run(['scenarios'], stdout=-3)\n"
        "program.run(['run', 'wide.yaml', '--set', 'stages=[connect]', '--no-report'], stdout=-3)\n"
        "print(zygote.zygote().process.pid, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    spent = tmp_path / "spent"
    variables = {"PYTHONPATH": str(ROOT), "PUBSTORM_TESTS_SPENT": str(spent)}
    done = subprocess.run(
        (sys.executable, "-c", text),
        cwd=tmp_path,
        env={**os.environ, **variables},
        capture_output=True,
        check=False,
    )
    assert_gone([int(done.stdout)])
    noted = [json.loads(line) for line in spent.read_text().splitlines()]
    assert all(each["test"] == os.environ["PYTEST_CURRENT_TEST"] for each in noted)
    started = [each["started"] for each in noted]
    assert (started.count("pubstorm"), started.count("pubstorm-broker")) == (2, 1)
    assert "pubstorm-engine" in started


@pytest.mark.parametrize(
    "words",
    [
        "/usr/sbin/mosquitto -c x",
        "/bin/setpriv --pdeathsig KILL -- mosquitto",
        "setpriv --pdeathsig KILL -- ip netns exec n-1 /opt/mosquitto",
        "env A=b C=d mosquitto x=y",
    ],
)
def test_a_program_is_named_without_those_that_wrap_it(words: str) -> None:
    assert started_program(words.split()) == "mosquitto"
