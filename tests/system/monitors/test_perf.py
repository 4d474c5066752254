"""Profiles: what perf prints, real recordings, and every reason why there is none."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pubstorm.contract.plan import HoldAction, Plan, PlannedStage, PublishAction
from pubstorm.measure.monitors.profiling import (
    Perf,
    PerfError,
    Profiler,
    ProfileSpec,
    explained,
    parse_script,
)
from pubstorm.result import ProfileResult
from pubstorm.scenario.monitors import Process
from tests.kit import made
from tests.kit.made import SECOND_NS
from tests.kit.serving import until
from tests.system.monitors.conftest import BUSY, ChildMaker, needs_perf
from tests.system.runs.underway import until_profiled

SHORT_NS, LONG_NS = 3 * SECOND_NS, 600 * SECOND_NS
"""Lengths of a stage."""
NO_PROCESS = 2**22
"""No process has it: it is beyond the largest id."""
SCRIPT = """\
mosquitto
\tffffffff8110a2b4 finish_task_switch.isra.0 ([kernel.kallsyms])
\tffffffff81c7a5d4 schedule ([kernel.kallsyms])
\t    7f4d455329c0 __GI___libc_write (/usr/lib/x86_64-linux-gnu/libc.so.6)
\t    7f4d45c56240 [unknown] ([unknown])

mosquitto
\t    5603a2b41f00 [unknown] (/usr/sbin/mosquitto (deleted))

some worker
\t    5603a2b41f00 Ring<a;b>::push(int, char) const (/opt/broker)

mosquitto
\tffffffff8110a2b4 finish_task_switch.isra.0 ([kernel.kallsyms])
\tffffffff81c7a5d4 schedule ([kernel.kallsyms])
\t    7f4d455329c0 __GI___libc_write (/usr/lib/x86_64-linux-gnu/libc.so.6)
\t    7f4d45c56240 [unknown] ([unknown])
"""


def plan(*actions: PublishAction | HoldAction) -> Plan:
    return made.plan(
        stages=tuple(PlannedStage(name=a.kind, action=a, populations=()) for a in actions)
    )


def profiled(
    folder: Path,
    pid: int,
    *stages: int,
    after_ns: int = 0,
    wait: Callable[[], object] | None = None,
) -> ProfileResult:
    """The profile of stage 1 of three, of which some are entered. With a wait, stage 1 is a long
    one, and the next stage is entered after the wait."""
    pause = HoldAction(duration_ns=SECOND_NS)
    load = PublishAction(duration_ns=LONG_NS if wait else SHORT_NS)
    length = {"after_ns": after_ns, "duration_ns": LONG_NS}
    spec = ProfileSpec("broker-0", Process(pid=pid), stage=1, frequency=199, **length)

    async def run() -> ProfileResult:
        perf = Perf(folder / "profile", spec.frequency, ())
        profiler = Profiler(spec, plan(pause, load, pause), perf)
        await profiler.prepare()
        for stage in stages:
            profiler.enter_stage(stage, time.monotonic_ns())
        recording = profiler._recording
        if recording is not None and wait is not None:
            await asyncio.to_thread(wait)
            profiler.enter_stage(2, time.monotonic_ns())
        if recording is not None:
            await recording
        return await profiler.finish()

    return asyncio.run(run())


def test_samples_are_counted_by_function_and_by_stack() -> None:
    profile = parse_script(SCRIPT.splitlines())
    assert profile.samples_total == 4
    assert [(s.share, s.command, s.module, s.symbol) for s in profile.symbols()] == [
        (0.5, "mosquitto", "[kernel.kallsyms]", "finish_task_switch.isra.0"),
        (0.25, "mosquitto", "/usr/sbin/mosquitto (deleted)", "[mosquitto (deleted)]"),
        (0.25, "some worker", "/opt/broker", "Ring<a;b>::push(int, char) const"),
    ]
    assert profile.folded().splitlines() == [
        "mosquitto;[mosquitto (deleted)] 1",
        "mosquitto;[unknown];__GI___libc_write;schedule;finish_task_switch.isra.0 2",
        "some worker;Ring<a:b>::push(int, char) const 1",
    ]


def test_nothing_recorded_is_an_empty_profile() -> None:
    profile = parse_script([])
    assert (profile.samples_total, profile.symbols(), profile.folded()) == (0, (), "")


@pytest.mark.parametrize(
    ("words", "explanation"),
    [
        ("Consider adjusting /proc/sys/kernel/perf_event_paranoid", "kernel.perf_event_paranoid"),
        ("Permission denied", "run as root"),
        ("Couldn't create thread/CPU maps: No such process", "had ended before"),
        ("Something new", "perf recorded nothing: Something new"),
        ("", "it said nothing"),
    ],
)
def test_an_empty_perf_recording_is_reported_with_the_fix(words: str, explanation: str) -> None:
    assert explanation in explained(words)


def test_a_process_is_profiled_until_the_load_of_its_stage_ends(
    child: ChildMaker, tmp_path: Path
) -> None:
    needs_perf()
    pid = child(BUSY).pid
    found = profiled(tmp_path, pid, 0, 1, wait=lambda: until_profiled(os.getpid(), pid))
    if "not allowed" in found.text:
        pytest.skip(found.text)
    assert found.status == "recorded", found.text
    assert (found.broker, found.stage) == ("broker-0", "publish")
    assert found.samples_total > 0
    assert 0 < sum(symbol.share for symbol in found.symbols) <= 1.001
    folded = (tmp_path / str(found.folded_file)).read_text().splitlines()
    assert sum(int(line.rpartition(" ")[2]) for line in folded) == found.samples_total
    assert (tmp_path / "profile" / "perf.data").exists()


@pytest.mark.parametrize(
    ("perf", "pid", "stages", "words"),
    [
        ("none", 1, (0, 1), "perf is not installed: apt-get install linux-perf"),
        ("broken", 1, (0, 1), "perf recorded nothing: out of luck"),
        ("real", NO_PROCESS, (0, 1), f"no process {NO_PROCESS}"),
        ("real", 1, (0,), "the run ended before stage publish"),
    ],
)
def test_a_profile_that_cannot_be_made_says_why(
    perf: str, pid: int, stages: tuple[int, ...], words: str, tmp_path: Path
) -> None:
    log = tmp_path / "profile" / "perf.log"

    def until_said() -> None:
        until(lambda: log.exists() and log.read_text())

    with pytest.MonkeyPatch.context() as patch:
        if perf == "real":
            needs_perf()
        else:
            patch.setenv("PATH", str(tmp_path) if perf == "none" else f"{tmp_path}:/usr/bin:/bin")
        if perf == "broken":
            (tmp_path / "perf").write_text("#!/bin/sh\necho out of luck >&2\nexit 1\n")
            (tmp_path / "perf").chmod(0o755)
        wait = until_said if perf == "broken" else None
        found = profiled(tmp_path, pid, *stages, wait=wait)
    assert found.status == "missing"
    assert words in found.text
    assert (found.samples_total, found.symbols, found.folded_file) == (0, (), None)


def test_a_stage_that_is_too_short_is_reported(tmp_path: Path) -> None:
    needs_perf()
    found = profiled(tmp_path, 1, 0, 1, after_ns=SHORT_NS + SECOND_NS)
    assert "the stage was over before the profile was to begin" in found.text


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    needs_perf()
    (tmp_path / "file").touch()

    async def prepare() -> None:
        await Perf(tmp_path / "file" / "profile", 99, ()).prepare()

    with pytest.raises(PerfError, match=r"cannot write .*profile: Not a directory"):
        asyncio.run(prepare())
