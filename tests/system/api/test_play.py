"""`pubstorm.run`: what it takes, what it leaves as it was, and functions of the user around it."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pubstorm
from pubstorm.errors import PubstormError, ScenarioError, UsageError
from pubstorm.play.control_socket import ask
from pubstorm.result import Status

SCENARIO: dict[str, Any] = {
    "topology": {"brokers": {"broker": {"kind": "embedded"}}},
    "populations": {
        "north": {"clients": 1, "subscriptions": [{"topic": "site/north/#", "qos": 1}]},
        "device": {
            "clients": 10,
            "publications": [
                {"topic": "site/{row.site}/{n}", "rate": "10/s", "payload": "{row.tags} {stamp}"}
            ],
        },
    },
    "stages": ["connect", {"publish": "1s"}, "disconnect"],
    "validity": {"lateness_p99": "1min", "busy": "100%"},
}
PLAIN: dict[str, Any] = {
    **SCENARIO,
    "populations": {
        "device": {
            "clients": 5,
            "subscriptions": ["t/{n}"],
            "publications": [{"topic": "t/{n}", "rate": "10/s", "size": "100B"}],
        }
    },
    "stages": ["connect", {"publish": "200ms"}, "disconnect"],
}


def row(n: int) -> dict[str, object]:
    return {"site": ("north", "south")[n % 2], "tags": ["a,b", n]}


@pytest.fixture(scope="module")
def stages() -> list[pubstorm.StageFigures]:
    return []


@pytest.fixture(scope="module")
def result(
    stages: list[pubstorm.StageFigures], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[pubstorm.Result]:
    """A run with rows and checks in the main thread, with signal handlers of the caller's own."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def own(_number: int, _frame: object) -> None:
        """Does nothing."""

    usual = {number: signal.signal(number, own) for number in numbers}
    streams, limits = (sys.stdout, sys.stderr), resource.getrlimit(resource.RLIMIT_NOFILE)
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        played = pubstorm.run(
            SCENARIO,
            out=tmp_path_factory.mktemp("api") / "run",
            rows={"device": row},
            check=stages.append,
            populations__device__first=1,
        )
        assert [signal.getsignal(number) for number in numbers] == [own] * 3
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
    assert (sys.stdout, sys.stderr) == streams
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == limits
    assert os.getpriority(os.PRIO_PROCESS, 0) == nice
    yield played


def test_rows_of_a_function_are_in_topics_and_payloads(result: pubstorm.Result) -> None:
    assert result.passed, result.headline
    assert result.figure("device.sent") == 100
    assert result.figure("north.received") == 50
    assert (
        "device.csv" in (result.path / "plan.json").read_text() or result.figure("north.lost") == 0
    )


def test_a_check_gets_the_figures_of_each_stage(
    result: pubstorm.Result, stages: list[pubstorm.StageFigures]
) -> None:
    assert [(stage.number, stage.name, stage.kind) for stage in stages] == [
        (1, "connect", "connect"),
        (2, "publish", "publish"),
        (3, "disconnect", "disconnect"),
    ]
    connected, load, left = stages
    assert (connected["device"].connected, left["device"].connected) == (10, 0)
    assert (load["device"].sent, load["device"].skipped) == (100, 0)
    north = load["north"]
    assert (north.expected, north.received, north.lost) == (50, 50, 0)
    p99_us = north.latency_us(99)
    assert p99_us is not None
    assert p99_us == pytest.approx(result.figure("north.latency.p99"), rel=0.02)
    assert connected["north"].latency_us() is None
    assert load.duration_s >= 1


def test_nothing_is_printed_and_a_thread_can_play(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found: list[pubstorm.Result] = []
    threads = [
        threading.Thread(
            target=lambda n=n: found.append(pubstorm.run(PLAIN, out=tmp_path / str(n)))
        )
        for n in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each.figure("device.received") for each in found] == [10, 10]
    assert capfd.readouterr() == ("", "")


def test_a_user_who_ends_the_run_does_not_end_the_program_around_it(tmp_path: Path) -> None:
    found: list[pubstorm.Result] = []
    connected, signals = threading.Event(), list[int]()
    usual = signal.signal(signal.SIGINT, lambda number, _frame: signals.append(number))

    def play() -> None:
        found.append(
            pubstorm.run(
                PLAIN,
                out=tmp_path / "run",
                check=lambda _stage: connected.set(),
                stages__1__publish="5s",
            )
        )

    thread = threading.Thread(target=play)
    try:
        thread.start()
        assert connected.wait(60)
        assert ask(tmp_path / "run", "stop") == "the run ends"
        thread.join(60)
    finally:
        signal.signal(signal.SIGINT, usual)
    assert (signals, [each.stored.interrupted for each in found]) == ([], [True])


def test_a_notebook_can_play_in_its_event_loop(tmp_path: Path) -> None:
    async def cell() -> pubstorm.Result:
        return pubstorm.run(PLAIN, out=tmp_path / "run", stages__1__publish="500ms")

    assert asyncio.run(cell()).figure("device.sent") == 25


def test_a_reason_ends_the_run_and_fails_it(tmp_path: Path) -> None:
    def check(stage: pubstorm.StageFigures) -> str | None:
        return "five are too few" if stage["device"].connected == 5 else None

    result = pubstorm.run(PLAIN, out=tmp_path / "run", check=check)
    assert result.status is Status.FAIL
    assert result.headline == "Failed: check after stage connect: five are too few."
    assert [stage.name for stage in result.stored.stages] == ["connect"]  # type: ignore[union-attr]


def test_an_exception_of_a_check_is_raised_and_the_result_kept(tmp_path: Path) -> None:
    def check(_stage: pubstorm.StageFigures) -> str | None:
        raise ZeroDivisionError("of mine")

    with pytest.raises(ZeroDivisionError, match="of mine"):
        pubstorm.run(PLAIN, out=tmp_path / "run", check=check)
    kept = pubstorm.load(tmp_path / "run")
    assert "ZeroDivisionError: of mine" in kept.headline


def test_a_wrong_scenario_names_every_problem() -> None:
    with pytest.raises(ScenarioError) as caught:
        pubstorm.run({**PLAIN, "colour": 1}, populations__device__clients="many")
    places = [problem.place for problem in caught.value.problems]
    assert len(places) == 2
    with pytest.raises(UsageError, match="no ready scenario 'quickstar'"):
        pubstorm.run("quickstar")
    with pytest.raises(ScenarioError, match="unknown key 'colour'"):
        pubstorm.run("colour: red\nstages: [connect]\n")


@pytest.mark.parametrize("wrong", [object(), {1, 2}])
def test_a_value_that_no_scenario_can_have_is_an_error(wrong: object) -> None:
    with pytest.raises(UsageError, match="in a scenario, allowed are"):
        pubstorm.run({**PLAIN, "name": wrong})
    with pytest.raises(UsageError, match="in a scenario, allowed are"):
        pubstorm.run(PLAIN, name=wrong)


def test_rows_with_other_columns_are_an_error(tmp_path: Path) -> None:
    def uneven(n: int) -> dict[str, object]:
        return {"site": "north", "tags": ""} if n == 1 else {"site": "south"}

    with pytest.raises(UsageError, match="found the columns site, tags in a row of device"):
        pubstorm.run(SCENARIO, out=tmp_path / "run", rows={"device": uneven})
    with pytest.raises(ScenarioError, match="robot"):
        pubstorm.run(SCENARIO, out=tmp_path / "run", rows={"robot": row})
    assert not (tmp_path / "run").exists()


def test_an_interrupt_ends_the_run_and_keeps_the_result(tmp_path: Path) -> None:
    program = f"""
import os, signal, threading, pubstorm
def check(stage):
    threading.Timer(3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    pubstorm.run({PLAIN!r}, out={str(tmp_path / "run")!r}, check=check, stages__1__publish="10min")
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", 0)
    kept = pubstorm.load(tmp_path / "run")
    assert kept.stored.interrupted
    assert any("is ended by the user after" in line for line in kept.evidence)


def test_the_package_imports_nothing_before_it_is_asked() -> None:
    program = """
import sys, pubstorm
assert [m for m in sys.modules if m.startswith("pubstorm")] == ["pubstorm"]
assert "pydantic" not in sys.modules
assert callable(pubstorm.run) and pubstorm.__version__ and pubstorm.Result and pubstorm.load
try:
    pubstorm.nothing
except AttributeError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.stdout, done.stderr) == ("module 'pubstorm' has no attribute 'nothing'\n", "")


def test_a_check_of_a_series_is_an_error(tmp_path: Path) -> None:
    sweep = {"vary": {"populations.device.clients": [1, 2]}}
    with pytest.raises(PubstormError, match="check goes with one run"):
        pubstorm.run({**PLAIN, "sweep": sweep}, out=tmp_path / "run", check=lambda _stage: None)


def test_the_example_of_the_docs_is_the_one_that_is_tested() -> None:
    root = Path(__file__).parents[3]
    example = (root / "tests" / "system" / "api" / "test_example.py").read_text(encoding="utf-8")
    page = (root / "docs" / "how-to" / "python.md").read_text(encoding="utf-8")
    assert f"```python\n{example}```" in page
