"""Ten real runs, kept below tests/stored as the files of their directories: what `make same`
renders. `python -m tests.kit.recorded [NAME...]` plays them again. The controller of a run notes
beside its journals how it counted them, which they do not hold."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from pydantic import TypeAdapter

from pubstorm.contract.commands import Hello
from pubstorm.contract.snapshot import SNAPSHOTS_FILE
from pubstorm.fleet import SnapshotReceived
from pubstorm.measure.monitors.monitoring import Monitored
from pubstorm.measure.recorder import Recorder
from pubstorm.measure.run_log import AgentFailure, RunLog
from pubstorm.play import record as recording
from pubstorm.play.context import RunInfo, RunOutput
from pubstorm.play.directory import PLAN_FILE, RunDirectory
from pubstorm.report import RESULT_FILE, SCENARIO_FILE
from pubstorm.result import (
    BridgeResult,
    BrokerResult,
    Event,
    RunResult,
    ServiceResult,
    StaleState,
)
from pubstorm.result.samples import EVENTS_FILE, SAMPLES_FILE, START_FILE
from tests.kit.runs import ANY_SPEED, Run

FOLDER = Path(__file__).parents[1] / "stored"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))
COUNTED_FILE = "counted.jsonl"
"""Calls of the recorder, in their order."""
CONTROLLER_FILE = "controller.json"
"""Facts that the controller had in memory at the end."""
FILES = (
    *(START_FILE, PLAN_FILE, SNAPSHOTS_FILE, SAMPLES_FILE, EVENTS_FILE, SCENARIO_FILE),
    *(RESULT_FILE, COUNTED_FILE, CONTROLLER_FILE),
)
HOST = "box"
"""Name of the host in the stored files."""
PLACE = "/runs"
"""Folder of the runs in the stored files."""


@dataclass(frozen=True)
class Memory:
    """Facts that only the controller of a run has, at its end."""

    run_log: RunLog
    hellos: tuple[Hello, ...]
    hosts: dict[int, str]
    monitored: Monitored
    brokers: tuple[BrokerResult, ...]
    services: tuple[ServiceResult, ...]
    bridges: tuple[BridgeResult, ...]
    stale_state: tuple[StaleState, ...]
    warnings: tuple[Event, ...]


MEMORY = TypeAdapter(Memory)
FAILURE = TypeAdapter(AgentFailure)


def unpack(name: str, folder: Path) -> Path:
    """Puts the files of a run into a folder, which it returns."""
    # Python 3.12 asks for a filter, which Python 3.11.2 of Debian 12 does not know.
    safe: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    shutil.unpack_archive(FOLDER / f"{name}.tar.xz", folder, **safe)
    return folder


def main(names: list[str]) -> None:
    """Plays runs and keeps them. With `run` as its first word it is the controller of one."""
    if names[:1] == ["run"]:
        _note_calls()
        from pubstorm.__main__ import main as pubstorm

        sys.argv[1:] = names
        pubstorm()
    for name in names or NAMES:
        with tempfile.TemporaryDirectory() as folder:
            _play(name, Path(folder) / name)
            _pack(name, Path(folder) / name)


def _play(name: str, folder: Path) -> None:
    scenario = FOLDER / f"{name}.yaml"
    words = ["run", str(scenario), "--out", str(folder), *ANY_SPEED, "--progress", "1s"]
    command = [sys.executable, "-m", "tests.kit.recorded", *words, "--no-report"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    run = Run(process, folder)
    if name in _DISTURBED:
        _DISTURBED[name](run)
    run.process.wait(120)
    print(name, run.process.returncode, run.stderr, sep="\n")


def _kill_agent(run: Run) -> None:
    run.wait_for_stage("first", 30)
    (agent,) = (pid for pid in run.children() if "1/2" in psutil.Process(pid).cmdline())
    os.kill(agent, signal.SIGKILL)


def _kill_controller(run: Run) -> None:
    run.wait_for(" load ")
    run.wait_for("faster")
    count = len(run.said)
    while len(run.said) < count + 4:
        run.wait_for("load", after=run.said[-1])
    os.kill(run.process.pid, signal.SIGKILL)


_DISTURBED: dict[str, Callable[[Run], None]] = {
    "agent-killed": _kill_agent,
    "controller-killed": _kill_controller,
}


def _pack(name: str, folder: Path) -> None:
    """Keeps the files of a run, without names of this host and its folders."""
    words = {str(folder.parent): PLACE, str(FOLDER.parents[1]): "", socket.gethostname(): HOST}
    with tarfile.open(FOLDER / f"{name}.tar.xz", "w:xz") as archive:
        for file in FILES:
            if not (folder / file).exists():
                continue
            text = (folder / file).read_text(encoding="utf-8")
            for word, other in words.items():
                text = text.replace(word, other)
            data = text.encode()
            entry = tarfile.TarInfo(file)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


def _note_calls() -> None:
    """Notes what this process, as a controller, asks of its recorder, and what it has at the
    end."""
    take, fail, record = Recorder.take, Recorder.fail, recording.record

    def noted_take(
        self: Recorder, received: SnapshotReceived, stage: int | None, *, early: bool = False
    ) -> None:
        _note(self, {"stage": stage, "early": early})
        take(self, received, stage, early=early)

    def noted_fail(self: Recorder, failure: AgentFailure, stage: int) -> None:
        _note(self, {"failure": FAILURE.dump_python(failure, mode="json"), "stage": stage})
        fail(self, failure, stage)

    def noted_record(info: RunInfo, output: RunOutput) -> RunResult:
        assembly = output.assembly
        memory = Memory(
            run_log=assembly.run_log,
            hellos=tuple(assembly.hellos),
            hosts=dict(assembly.hosts),
            monitored=output.monitored,
            brokers=output.brokers,
            services=output.services,
            bridges=output.bridges,
            stale_state=output.stale_state,
            warnings=output.warnings,
        )
        info.directory.write(CONTROLLER_FILE, MEMORY.dump_json(memory))
        return record(info, output)

    for place, name, noted in (
        (Recorder, "take", noted_take),
        (Recorder, "fail", noted_fail),
        (recording, "record", noted_record),
    ):
        setattr(place, name, noted)


def _note(recorder: Recorder, call: dict[str, Any]) -> None:
    store = recorder._store
    assert isinstance(store, RunDirectory)
    store._append(COUNTED_FILE, json.dumps(call).encode() + b"\n")


if __name__ == "__main__":
    main(sys.argv[1:])
