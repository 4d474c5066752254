"""Cases of the controller: what its start, its end and its memory cost a user."""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benches.cases import ENOUGH, Case, Measure, Sample, Scale, Target
from benches.programs import ProgramError, Programs

COMMAND = (sys.executable, "-m", "pubstorm")
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
"""Environment of commands: with it, each would compile all modules, which an installation has."""
SCENARIO = """\
topology: {brokers: {broker: {kind: embedded}}}
populations:
  device: {clients: 1, publications: [{topic: "bench/{n}", interval: 500ms}], keep_alive: 0s}
stages: [connect: {}, publish: 5s]
"""
FAST = ("--set", "snapshot_interval=10ms")
READ_EVERY_S = 0.1
SETTLED_S, PUBLISHED_S = 3.0, 5.0
"""Times in a run of 5 s: all is loaded, and the end is near."""
SNAPSHOTS = 100 * (PUBLISHED_S - SETTLED_S)


def cpu_of(argument: str) -> Measure:
    """CPU seconds of a command that loads next to nothing."""

    def measure(_programs: Programs, _scale: Scale) -> Sample:
        child = subprocess.Popen([*COMMAND, argument], stdout=subprocess.DEVNULL, env=ENVIRONMENT)
        _pid, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        wrong = [] if child.returncode == 0 else [f"ended with {child.returncode}"]
        return Sample(usage.ru_utime + usage.ru_stime, wrong)

    return measure


def seconds_of_run(_programs: Programs, _scale: Scale) -> Sample:
    """From the command to the prompt, of a run of 5 s."""
    started_s = time.monotonic()
    _play()
    return Sample(time.monotonic() - started_s)


def cpu_of_run(_programs: Programs, _scale: Scale) -> Sample:
    """CPU seconds of a run of 5 s: the controller, and the programs that it has started."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _play()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Sample(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def resident(_programs: Programs, _scale: Scale) -> Sample:
    """Resident memory of the controller, in MB, in the last second of the load."""
    return Sample(_play()[-1] / 1e6)


def growth(_programs: Programs, _scale: Scale) -> Sample:
    """Bytes that a snapshot adds to the controller's resident memory."""
    read = _play(*FAST)
    return Sample((read[-1] - read[0]) / SNAPSHOTS)


def _play(*options: str) -> list[int]:
    """Plays a run; returns its resident memory from when it has settled to its end, in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = Path(folder, "scenario.yaml")
        scenario.write_text(SCENARIO)
        out = ("--out", str(Path(folder, "run")), "--quiet")
        started_s = time.monotonic()
        child = subprocess.Popen(
            [*COMMAND, "run", str(scenario), *out, *options],
            stdout=subprocess.DEVNULL,
            env=ENVIRONMENT,
        )
        read = []
        while child.poll() is None:
            if SETTLED_S < time.monotonic() - started_s < PUBLISHED_S:
                read.append(resident_bytes(child.pid))
            time.sleep(READ_EVERY_S)
        if not read or not Path(folder, "run", "result.json").exists():
            raise ProgramError("pubstorm run came to no result")
    return read


def resident_bytes(pid: int) -> int:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


CONTROLLER_CASES = (
    Case(
        "version", "CPU-s", "pubstorm --version", Target(0.2, relative=False), cpu_of("--version")
    ),
    Case("help", "CPU-s", "pubstorm --help", Target(0.3, relative=False), cpu_of("--help")),
    Case(
        "short-run",
        "s",
        "a run of 5 s",
        Target(5.8, relative=False),
        seconds_of_run,
        rounds_max=3,
    ),
    Case(
        "short-run-cpu",
        "CPU-s",
        "a run of 5 s, with its programs",
        Target(0.7, relative=False),
        cpu_of_run,
        rounds_max=3,
    ),
    Case(
        "controller",
        "MB",
        "resident, 1 client",
        Target(45, relative=False),
        resident,
        rounds_max=ENOUGH,
    ),
    Case(
        "growth",
        "bytes",
        "a snapshot, 1 client",
        Target(100, relative=False),
        growth,
        rounds_max=ENOUGH,
    ),
)
