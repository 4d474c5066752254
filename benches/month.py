"""Measures what a month costs the controller: a million clients on 16 agents. Fills the code that
merges a run with snapshots of real size, without waiting: hours of them, and a month of those of a
minute. `python -m benches.month` prints peak memory, bytes of files and CPU time; `--hours` and
`--days` make it shorter, `--every` leaves snapshots out."""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benches.machine import OtherWork, describe
from pubstorm.quantities import bytes_text
from tests.kit.long_run import LongRun, Size

CONTROLLER_MAX, REPORT_MAX, FILES_MAX = 300e6, 500e6, 5e9
FILL, REPORT = "fill", "report"


@dataclass(frozen=True)
class Cost:
    """Resources that a process took."""

    cpu_s: float
    peak_bytes: int
    output: str


def main(arguments: list[str]) -> int:
    """Fills a run of hours and one of a month, and reports on both; 1 where a target is missed."""
    if arguments[:1] == [FILL]:
        fill(Path(arguments[1]), float(arguments[2]), int(arguments[3]))
        return 0
    parser = argparse.ArgumentParser(prog="python -m benches.month", description=__doc__)
    parser.add_argument("--hours", type=float, default=12.0)
    parser.add_argument("--days", type=float, default=30.0)
    parser.add_argument("--every", type=int, default=1, help="seconds and minutes of a snapshot")
    options = parser.parse_args(arguments)
    print(describe())
    other = OtherWork()
    runs = {
        f"{options.hours:g} h in steps of {options.every} s": (options.hours, options.every),
        f"{options.days:g} d in steps of {options.every} min": (
            options.days * 24,
            60 * options.every,
        ),
    }
    found = [_measured(name, hours, step_s) for name, (hours, step_s) in runs.items()]
    print(f"other work took {100 * other.share():.0f} % of the machine")
    is_met = all(found)
    print(
        f"targets: controller {bytes_text(CONTROLLER_MAX)}, report {bytes_text(REPORT_MAX)}, "
        f"files {bytes_text(FILES_MAX)}: {'met' if is_met else 'missed'}"
    )
    return 0 if is_met else 1


def fill(folder: Path, hours: float, step_s: int) -> None:
    """Fills a run as its controller, and prints its size."""
    run = LongRun(folder, Size(hours, step_s))
    most = 0
    for interval in run.fill():
        if interval % 100 == 0:
            run.settle()
            most = max(most, stored_bytes(folder))
    filled_s = time.process_time()
    result = run.finish()
    snapshots = run.size.agents * (run.size.intervals + 1)
    each = run.bytes_taken / snapshots
    each_ms = 1000 * filled_s / snapshots
    print(
        f"{snapshots} snapshots of {bytes_text(each)}, {each_ms:.2f} CPU-ms each; "
        f"evaluated in {time.process_time() - filled_s:.0f} CPU-s: {result.verdict.status}; "
        f"most bytes of files {bytes_text(most)}, of {bytes_text(run.bytes_taken)} taken"
    )


def stored_bytes(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


def _measured(name: str, hours: float, step_s: int) -> bool:
    """Prints the costs of a run; returns True if the targets are met."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "run")
        module = [sys.executable, "-m"]
        words = [FILL, str(folder), str(hours), str(step_s)]
        filled = _cost([*module, "benches.month", *words])
        stored = stored_bytes(folder)
        reported = _cost([*module, "pubstorm", "report", str(folder)])
        (folder / "result.json").unlink()
        salvaged = _cost([*module, "pubstorm", "report", str(folder)])
    print(f"{name}: {filled.output.strip()}")
    lines = {"controller": filled, "report": reported, "report of a killed run": salvaged}
    for what, cost in lines.items():
        print(f"  {what:24} {bytes_text(cost.peak_bytes):>9} {cost.cpu_s:8.0f} CPU-s")
    print(f"  {'files':24} {bytes_text(stored):>9}")
    is_small = filled.peak_bytes <= CONTROLLER_MAX and stored <= FILES_MAX
    return is_small and max(reported.peak_bytes, salvaged.peak_bytes) <= REPORT_MAX


def _cost(command: list[str]) -> Cost:
    """Runs a command, and returns what it took. Raises CalledProcessError if it printed no
    result."""
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(command, stdout=output)
        _pid, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode()
    if not text:
        raise subprocess.CalledProcessError(child.returncode, command)
    return Cost(usage.ru_utime + usage.ru_stime, 1024 * usage.ru_maxrss, text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
